"""A Dask cluster of two workers on this machine, until SIGTERM.

Writes its address and the number of workers that it has at the moment to the file that it is given.
Starts workers anew that die.
"""

import signal
import sys
import threading
from pathlib import Path

import distributed

from deepbig_runtime import files

POLL_SECONDS = 0.1
WORKERS = 2


def main(path: Path) -> None:
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    with distributed.LocalCluster(
        n_workers=WORKERS,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        local_directory=str(path.parent),
    ) as cluster:
        said = ""
        while not is_over.wait(POLL_SECONDS):
            state = f"{cluster.scheduler_address} {len(cluster.scheduler.workers)}"
            if state != said:
                files.replace(path, state.encode())
                said = state


if __name__ == "__main__":
    main(Path(sys.argv[1]))
