"""One training of many epochs, whose cost of an epoch must not grow."""

import contextlib
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import commands
import pytest
from tries import tries

from experiments.running import store

EPOCHS = tries(400, 2000)
LINE = [
    *("experiments.cnn", "--net=1M1-MP29", "--data=digits", "--limit=10", "--engine=cpu"),
    *(f"--epochs={EPOCHS}", "--workers=1", "--out=out"),
]
POLL_SECONDS = 0.005
# Until then memory may grow: libraries keep some, and the first table of metrics is small.
WARM_UP_EPOCHS = 200
MAX_GROWTH_BYTES = 16 * 2**20
MAX_TIMES = 2  # processor time of an epoch in the last tenth, in that of one in the first
ROW_BYTES = 8 * len(store.METRICS)  # of an epoch, in the run file


@dataclass(frozen=True)
class Sample:
    """After an epoch. replaced: when the run file was, ns. seconds: of processors, until then.

    Wall time would grow with the load of the machine.
    """

    replaced: int
    seconds: float
    run_bytes: int
    weights_bytes: int
    memory_bytes: int
    open_files: int


@pytest.mark.slow
def test_a_training_of_many_epochs_does_not_grow(tmp_path, tried):
    samples = {}

    def watch(process):
        while process.poll() is None:
            if sample := look(tmp_path / "out", process.pid):
                samples.setdefault(sample.replaced, sample)
            time.sleep(POLL_SECONDS)

    commands.run(LINE, tmp_path, meanwhile=watch).check(0)
    tried(EPOCHS)
    (path,) = store.run_files(tmp_path / "out")
    assert store.read_run(path).epochs == EPOCHS
    assert len(samples) >= EPOCHS // 4, "most epochs were not seen"
    check_growth(list(samples.values()))


def look(out, pid):
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


def check_growth(samples):
    """samples: of most epochs."""
    tenth = len(samples) // 10
    parts = samples[:tenth], samples[-tenth:]
    first, last = (part[-1].seconds - part[0].seconds for part in parts)
    assert last <= MAX_TIMES * first, "seconds of the last tenth and of the first tenth"
    warm = samples[min(WARM_UP_EPOCHS, len(samples) // 2) :]
    memory = [sample.memory_bytes for sample in warm]
    assert max(memory) - memory[0] <= MAX_GROWTH_BYTES
    # A file that is being written may be open at any one look, not at all of many.
    halves = warm[: len(warm) // 2], warm[len(warm) // 2 :]
    earlier, later = (min(sample.open_files for sample in half) for half in halves)
    assert later <= earlier, "open files"
    begin, end = samples[0], samples[-1]
    assert end.run_bytes - begin.run_bytes <= ROW_BYTES * EPOCHS
    assert end.weights_bytes == begin.weights_bytes
