"""Power cuts: after every system call of a save, every state that the disk may be left in.

What a cut can leave is worked out by `disk`. Each state is opened as an epoch of the run; of those
that differ in more than temporary files, one each is trained to the end. As a command, this
module makes one such trial and prints the number of states.
"""

import argparse
import contextlib
import hashlib
import json
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from campaign import commands, disk
from campaign.disk import Disk, State
from campaign.run_bits import bits
from campaign.trial import Outcome
from deepbig_runtime.faults import Fault
from deform_gpu import TABLE1
from experiments.running import data, nets, runs, store
from experiments.running.configs import make_config
from experiments.running.errors import Interrupted
from mlp_gpu import training
from mlp_gpu.training import Schedule

NAME, UNIT = "power", "states"
CLAIM = (
    "after a power cut at any point of saving an epoch, with any part written and any names new, "
    "the files open as the epoch before or as this one, and end with the same bits"
)
EPOCHS = 3
# The first epoch, one between, the last; one whose saving was cut before; a signal after an epoch.
SCENARIOS = {"first": 1, "middle": 2, "last": EPOCHS, "again": 2, "signal": 2}
GOAL = 2152  # the states of all of these


def prepare(shared: Path) -> None:
    """Nothing: each trial makes its own runs."""


def draw(rng: random.Random, number: int) -> dict | None:
    return {"scenario": list(SCENARIOS)[number]} if number < len(SCENARIOS) else None


def attempt(trial: dict, shared: Path, folder: Path) -> Outcome:
    ended = commands.run("campaign.power", [trial["scenario"]], folder)
    complaint = ended.complaint([0])
    return Outcome(1, complaint) if complaint else Outcome(int(ended.stdout))


class Wrong(Exception):
    """A state that is lost; a sentence says what it is."""


class _Stop(Exception):
    """Ends a training after an epoch, without anything being written."""


class _Until(runs.Callbacks):
    """Calls `saved` after each epoch, and ends the training after that epoch.

    is_signal: a signal ends it when the next epoch begins, so that the run file is written again.
    """

    def __init__(self, epoch: int, saved: Callable[[int], None], is_signal: bool = False):
        self._last, self._saved, self._is_signal = epoch, saved, is_signal
        self._done = 0

    def tick(self, n_images: int) -> None:
        if self._is_signal and self._done == self._last:
            raise Interrupted(signal.SIGTERM)

    def epoch(self, row: training.Epoch) -> None:
        self._done = row.epoch
        self._saved(row.epoch)
        if row.epoch == self._last and not self._is_signal:
            raise _Stop


class Trial:
    """A small run, of which one epoch is saved while power is cut.

    folder: empty; becomes full of states.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._data = data.limit(data.load("digits"), 60)
        # So high a learning rate that the best epoch is not the last.
        schedule = Schedule(EPOCHS, 0.3, 0.9)
        self._config = make_config(self._data, (841, 2, 10), schedule, 0, TABLE1, "cpu")
        self._engine = nets.make_engine(self._config, "graph")
        self._states: dict[bytes, State] = {}
        self._allowed: list[tuple[bytes, set[int]]] = []
        self._train(self._path("undisturbed"))
        self._bits = bits(self._path("undisturbed"))

    def _path(self, name: str) -> Path:
        (self._folder / name).mkdir(exist_ok=True)
        return self._folder / name / "run.h5"

    def _train(self, path: Path, callbacks: runs.Callbacks | None = None) -> None:
        callbacks = callbacks or runs.Callbacks()
        with contextlib.suppress(_Stop, Interrupted):
            runs.train_run(path, self._config, self._data, self._engine, callbacks)

    def record(self, scenario: str) -> int:
        """Save the scenario's epoch, and collect all states; returns how many there are."""
        epoch, path = SCENARIOS[scenario], self._path("recorded")
        weights = store.weights_path(path)
        done, before = epoch - 1, b""

        def keep(saved: int) -> None:
            nonlocal before
            if saved < epoch:
                before = weights.read_bytes()

        if scenario == "again":
            self._train(path, _Until(epoch, keep))
            half = weights.read_bytes()[: len(before) // 2]
            weights.with_name(f"{weights.name}.1.tmp").write_bytes(half)
            weights.write_bytes(before)
        elif done:
            self._train(path, _Until(done, keep))

        def asked(followed: Disk) -> None:
            self._collect(followed, {done, min(done + 1, epoch)})

        def saved(epoch: int) -> None:
            nonlocal done
            done = epoch
            self._collect(followed, {epoch})

        with disk.recorded(path.parent, asked) as followed:
            self._collect(followed, {done})
            self._train(path, _Until(epoch, saved, scenario == "signal"))
            self._collect(followed, {epoch})
        return len(self._allowed)

    def _collect(self, followed: Disk, epochs: set[int]) -> None:
        """Take all states that a cut could leave now, which must open as one of these epochs."""
        for state in followed.after_a_cut():
            digest = hashlib.sha256()
            for name, content in sorted(state.items()):
                digest.update(f"{name} {len(content)} ".encode() + content)
            self._states[digest.digest()] = state
            self._allowed.append((digest.digest(), epochs))

    def check(self) -> None:
        """Open each state, and train one of each kind to the end. Raises Wrong."""
        opened, kinds = {}, {}
        for digest, state in self._states.items():
            with tempfile.TemporaryDirectory(dir=self._folder) as name:
                path = Path(name) / "run.h5"
                disk.write(path.parent, state)
                try:
                    opened[digest] = runs.epochs_done(path, self._config)
                except Fault as fault:
                    raise Wrong(f"{_describe(state)}: {fault}") from None
            kinds[self._kind(state)] = state
        for digest, epochs in self._allowed:
            if opened[digest] not in epochs:
                found = f"{opened[digest]}, expected {' or '.join(map(str, sorted(epochs)))}"
                raise Wrong(f"{_describe(self._states[digest])} is of epoch {found}")
        for state in kinds.values():
            with tempfile.TemporaryDirectory(dir=self._folder) as name:
                path = Path(name) / "run.h5"
                disk.write(path.parent, state)
                self._train(path)
                if bits(path) != self._bits:
                    raise Wrong(f"{_describe(state)} ends with other bits")
                left = sorted(set(disk.read(path.parent)) - {"run.h5", "run.weights.h5"})
                if left:
                    raise Wrong(f"{_describe(state)} ends with {', '.join(left)} left over")

    def _kind(self, state: State) -> tuple:
        """Which of the files that are named for good it has, and whether there are others."""
        names = sorted(state)
        whole = [name for name in names if not name.endswith(".tmp")]
        contents = tuple(hashlib.sha256(state[name]).digest() for name in whole)
        return *whole, *contents, len(names) > len(whole)


def _describe(state: State) -> str:
    return json.dumps({name: f"{len(content)} bytes" for name, content in sorted(state.items())})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaign.power", description=__doc__)
    parser.add_argument("scenario", choices=SCENARIOS)
    scenario = parser.parse_args().scenario
    with tempfile.TemporaryDirectory(prefix="deepbig-") as folder:
        trial = Trial(Path(folder))
        states = trial.record(scenario)
        try:
            trial.check()
        except Wrong as wrong:
            print(wrong)
            return 1
    print(states)
    return 0


if __name__ == "__main__":
    sys.exit(main())
