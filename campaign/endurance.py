"""Endurance: one training of many epochs, whose cost per epoch must not grow.

It is ended early where the campaign's time is short; then what was done until then is judged.
"""

import contextlib
import os
import random
import resource
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from campaign import commands
from campaign.trial import Outcome
from experiments.running import store

NAME, UNIT, GOAL = "endurance", "epochs", 2000
CLAIM = (
    "in a training of many epochs memory, open files and processor time do not grow, and "
    "the run file grows by its rows"
)

ARGUMENTS = ["--net", "1M1-MP29", "--data", "digits", "--limit", "10", "--engine", "cpu"]
POLL_SECONDS = 0.005
MIN_EPOCHS = 50  # below that nothing can be said about growth
# Until then memory may grow: libraries keep some, and the first table of metrics is small.
WARM_UP_EPOCHS = 200
MAX_GROWTH_BYTES = 16 * 2**20
MAX_TIMES = 2  # processor time of an epoch in the last tenth, in that of one in the first
ROW_BYTES = 8 * len(store.METRICS)  # of an epoch, in the run file


@dataclass(frozen=True)
class Sample:
    """After an epoch. replaced: when the run file was, ns. seconds: of processors, until then.

    Wall time would grow with what else the machine does.
    """

    replaced: int
    seconds: float
    run_bytes: int
    weights_bytes: int
    memory_bytes: int
    open_files: int


def prepare(shared: Path) -> None:
    """Nothing is compared with another run."""


def draw(rng: random.Random, number: int) -> dict | None:
    return {"epochs": GOAL} if number == 0 else None


def attempt(trial: dict, shared: Path, folder: Path) -> Outcome:
    out = folder / "out"
    samples: list[Sample] = []

    def watch(process: subprocess.Popen, mark: str) -> None:
        while process.poll() is None:
            sample = look(out, process.pid)
            if sample and not (samples and samples[-1].replaced == sample.replaced):
                samples.append(sample)
            if commands.time_is_up() and len(samples) >= MIN_EPOCHS:
                process.send_signal(signal.SIGTERM)
                process.wait()
            time.sleep(POLL_SECONDS)

    arguments = [*ARGUMENTS, "--epochs", str(trial["epochs"]), "--workers", "1", "--out", str(out)]
    ended = commands.run("experiments.cnn", arguments, folder, meanwhile=watch)
    complaint = ended.complaint([0, 143] if commands.time_is_up() else [0])
    (path,) = store.run_files(out) or (None,)
    epochs = store.read_run(path).epochs if path else 0
    return Outcome(epochs, complaint or growth(samples, epochs))


def look(out: Path, pid: int) -> Sample | None:
    """What can be seen of a command that trains one run; None before its first epoch."""
    with contextlib.suppress(OSError):
        for path in store.run_files(out):
            found = path.stat()
            statm = Path(f"/proc/{pid}/statm").read_text().split()
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return Sample(
                replaced=found.st_mtime_ns,
                seconds=(int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"),
                run_bytes=found.st_size,
                weights_bytes=store.weights_path(path).stat().st_size,
                memory_bytes=int(statm[1]) * resource.getpagesize(),
                open_files=len(list(Path(f"/proc/{pid}/fd").iterdir())),
            )
    return None


def growth(samples: list[Sample], epochs: int) -> str | None:
    """What grew that must not, in a sentence; None if nothing did.

    samples: of most epochs. epochs: how many were done.
    """
    if len(samples) < MIN_EPOCHS:
        return f"only {len(samples)} of {epochs} epochs were seen, expected {MIN_EPOCHS} at least"
    tenth = len(samples) // 10
    warm = samples[min(WARM_UP_EPOCHS, len(samples) // 2) :]
    parts = samples[:tenth], samples[-tenth:]
    first, last = (part[-1].seconds - part[0].seconds for part in parts)
    if last > MAX_TIMES * first:
        return f"the last tenth of the epochs takes {last:.2f} s, the first {first:.2f} s"
    memory = max(sample.memory_bytes for sample in warm) - warm[0].memory_bytes
    if memory > MAX_GROWTH_BYTES:
        return f"memory grew by {memory / 2**20:.0f} MB in {len(warm)} epochs"
    # A file that is being written may be open at any one look, not at all of many.
    earlier, later = warm[: len(warm) // 2], warm[len(warm) // 2 :]
    open_files = min(s.open_files for s in later) - min(s.open_files for s in earlier)
    if open_files > 0:
        return f"{open_files} more files are open after {epochs} epochs"
    run_bytes = samples[-1].run_bytes - samples[0].run_bytes
    if run_bytes > ROW_BYTES * epochs:
        return f"the run file grew by {run_bytes:,} bytes in {epochs} epochs"
    weights_bytes = samples[-1].weights_bytes - samples[0].weights_bytes
    return f"the weights file grew by {weights_bytes:,} bytes" if weights_bytes else None
