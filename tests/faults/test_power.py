"""Power cuts: after every system call of a save, every state that the disk may be left in.

The states are worked out by `disk`. Each is opened as an epoch of the run; of those that differ in
more than temporary files, one each is trained to the end.
"""

import contextlib
import signal
import tempfile
from pathlib import Path

import disk
import pytest
from run_bits import bits

from deepbig_runtime.errors import Interrupted
from deepbig_runtime.faults import Fault
from deform_gpu import TABLE1
from experiments.datasets import data
from experiments.training import nets, runs, store
from experiments.training.configs import make_config
from mlp_gpu.training import Schedule

EPOCHS = 3
# The first epoch, one between, the last; one whose saving was cut before; a signal after an epoch.
SCENARIOS = {"first": 1, "middle": 2, "last": EPOCHS, "again": 2, "signal": 2}


class _Stop(Exception):
    """Ends a training after an epoch, without anything being written."""


class _Until(runs.Callbacks):
    """Calls `saved` after each epoch, and ends the training after that epoch.

    is_signal: a signal ends it, so that the run file is written again.
    """

    def __init__(self, epoch, saved, is_signal=False):
        self._last, self._saved, self._is_signal = epoch, saved, is_signal

    def epoch(self, row):
        self._saved(row.epoch)
        if row.epoch == self._last:
            raise Interrupted(signal.SIGTERM) if self._is_signal else _Stop


class SmallRun:
    """A run, of which one epoch is saved while power is cut.

    folder: empty; becomes full of states.
    """

    def __init__(self, folder):
        self._folder = folder
        self._data = data.limit(data.load("digits"), 60)
        # So high a learning rate that the best epoch is not the last.
        schedule = Schedule(EPOCHS, 0.3, 0.9)
        self._config = make_config(self._data, (841, 2, 10), schedule, 0, TABLE1, "cpu")
        self._engine = nets.make_engine(self._config, "graph")
        self._found = []  # states, and the epochs as one of which each must open
        self._train(self._path("undisturbed"))
        self._bits = bits(self._path("undisturbed"))

    def _path(self, name):
        (self._folder / name).mkdir(exist_ok=True)
        return self._folder / name / "run.h5"

    def _train(self, path, callbacks=None):
        callbacks = callbacks or runs.Callbacks()
        with contextlib.suppress(_Stop, Interrupted):
            runs.train_run(path, self._config, self._data, self._engine, callbacks)

    def record(self, scenario):
        """Save the scenario's epoch, and collect all states; returns how many there are."""
        epoch, path = SCENARIOS[scenario], self._path("recorded")
        weights = store.weights_path(path)
        done, before = epoch - 1, b""

        def keep(saved):
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

        def asked(followed):
            self._collect(followed, {done, min(done + 1, epoch)})

        def saved(epoch):
            nonlocal done
            done = epoch
            self._collect(followed, {epoch})

        with disk.recorded(path.parent, asked) as followed:
            self._collect(followed, {done})
            self._train(path, _Until(epoch, saved, scenario == "signal"))
            self._collect(followed, {epoch})
        return len(self._found)

    def _collect(self, followed, epochs):
        """Collect all states that a cut could leave now, which must open as one of these epochs."""
        self._found += [(frozenset(state.items()), epochs) for state in followed.after_a_cut()]

    def check(self):
        """Open each state, and train one of each kind to the end."""
        opened, kinds = {}, {}
        for state, epochs in self._found:
            if state not in opened:
                with self._written(state) as path:
                    try:
                        opened[state] = runs.epochs_done(path, self._config)
                    except Fault as fault:
                        raise AssertionError(f"{_describe(state)}: {fault}") from None
                kinds[_kind(state)] = state
            found = f"{_describe(state)} is of epoch {opened[state]}"
            assert opened[state] in epochs, f"{found}, expected one of {epochs}"
        for state in kinds.values():
            with self._written(state) as path:
                self._train(path)
                assert bits(path) == self._bits, f"{_describe(state)} ends with other bits"
                left = disk.read(path.parent).keys() - {"run.h5", "run.weights.h5"}
                assert not left, f"{_describe(state)} ends with {left} left over"

    @contextlib.contextmanager
    def _written(self, state):
        """The path of the run in a folder that a cut has left."""
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            for file, content in state:
                Path(name, file).write_bytes(content)
            yield Path(name, "run.h5")


def _kind(state):
    """The files that are named for good, and whether there are others."""
    named = frozenset((name, content) for name, content in state if not name.endswith(".tmp"))
    return named, named != state


def _describe(state):
    return ", ".join(f"{name} of {len(content)} bytes" for name, content in sorted(state))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_state_after_a_cut_is_the_old_epoch_or_the_new(scenario, tmp_path, tried):
    run = SmallRun(tmp_path)
    tried(run.record(scenario))
    run.check()
