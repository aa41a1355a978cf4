"""One training of many epochs, of which no epoch may cost more than those before it."""

import contextlib
import os
import resource
import time
from pathlib import Path

import commands
import numpy as np
import pytest
from tries import tries

from experiments.training import store

EPOCHS = tries(400, 2000)
LINE = (
    *("experiments.cnn", "--net=1M1-MP29", "--data=digits", "--limit=10", "--engine=cpu"),
    *(f"--epochs={EPOCHS}", "--workers=1", "--out=out"),
)
POLL_SECONDS = 0.005
# Until then memory may grow: libraries keep some, and the first table of metrics is small.
WARM_UP = tries(100, 200)
MAX_GROWTH_BYTES = 16 * 2**20
MAX_TIMES = 2  # processor time of an epoch in a late tenth, in that of one in the first
ROW_BYTES = 8 * len(store.METRICS)  # of an epoch, in the run file


@pytest.mark.slow
def test_a_training_of_many_epochs_does_not_grow(tmp_path, tried):
    samples = {}  # by the time at which the run file was replaced

    def watch(process):
        while process.poll() is None:
            with contextlib.suppress(OSError):
                for path in store.run_files(tmp_path / "out"):
                    samples.setdefault(path.stat().st_mtime_ns, look(path, process.pid))
            time.sleep(POLL_SECONDS)

    commands.run(LINE, tmp_path, meanwhile=watch).check(0)
    tried(EPOCHS)
    (path,) = store.run_files(tmp_path / "out")
    assert store.read_run(path).epochs == EPOCHS
    assert len(samples) >= EPOCHS // 4, "most epochs were not seen"
    seconds, memory, open_files, run_bytes, weights_bytes = np.transpose([*samples.values()])
    # A tenth has a row in the run file for each of its epochs, of which some were not seen.
    tenths = zip(np.array_split(seconds, 10), np.array_split(run_bytes, 10), strict=True)
    first, *_, late, last = (np.ptp(of_core) / np.ptp(rows) for of_core, rows in tenths)
    assert min(late, last) <= MAX_TIMES * first  # what else runs on the core may disturb one
    assert np.ptp(memory[WARM_UP:]) <= MAX_GROWTH_BYTES
    # A file that is being written may be open at any one look, not at all of many.
    earlier, later = np.array_split(open_files[WARM_UP:], 2)
    assert later.min() <= earlier.min()
    assert np.ptp(run_bytes) <= ROW_BYTES * EPOCHS
    assert np.ptp(weights_bytes) == 0


def look(path, pid):
    """Of a command: processor seconds until now, bytes of memory, open files, bytes of its files.

    Wall time would grow with the load of the machine.
    """
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return (
        (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"),
        int(pages) * resource.getpagesize(),
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
        path.stat().st_size,
        store.weights_path(path).stat().st_size,
    )
