"""Whether a save delays the launches of blocks: the loop of the GPU's engine on a clock.

`python -m experiments.benchmarks.late_launches` trains net 4 by `runs.train_run`, with real saves
of the run file and the weights, and by the loop of `WindowCudaEngine`. In the GPU's place is a
clock: a block keeps it busy for 2 ms, and a launch the host for 5 us. An epoch is 235 blocks of 256
images.
The rows go into startup.csv of this machine: seconds of training in 20 epochs, without saves; with
a save after each epoch and 3 blocks launched ahead; and as it is now.
"""

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from deepbig_runtime import files
from experiments.datasets import data
from experiments.results.rows import StartupRow, read_rows, rows_text
from experiments.training import provenance, runs
from experiments.training.configs import make_config
from mlp_gpu.network import NETS, Network
from mlp_gpu.training import Schedule
from mlp_gpu.window import engine, progress

EPOCHS, REPEATS = 20, 5
BLOCK = 256  # images
BLOCK_SECONDS, LAUNCH_SECONDS = 2e-3, 5e-6
SWEEPS = 2  # that a block needs
WAYS = {  # blocks of a chunk, and the least seconds between two saves
    "without saves": (engine.CHUNK, math.nan),  # no time is at least NaN
    "a save after each epoch, 3 blocks launched ahead": (3, 0),
    "a save every 5 seconds, 16 blocks launched ahead": (engine.CHUNK, runs.GPU_SAVE_SECONDS),
}


class ClockEngine(engine.WindowCudaEngine):
    """The GPU's engine of windows, with a clock in the GPU's place: it computes nothing."""

    name = "cpu"  # whose provenance is known here
    batch_size = 1000

    def __init__(self) -> None:
        self.schedule, self._n_block, self._n_sweeps = engine.WINDOW, BLOCK, engine.FIRST_SWEEPS
        self.images = self._reader = self.stream = None
        self.epoch = {"order": None}
        self._workspace: Any = SimpleNamespace(at_start=lambda n: n, progress=None)
        self._seen = [SimpleNamespace(copy_to_device=self._note) for _ in range(2)]
        self._busy_until = 0.0
        self._n = self._done = self._swept = 0
        parts = {"begin": self._begin, "sweep": lambda: None, "end": lambda: None}
        self._graphs = {
            (name,): SimpleNamespace(launch=self._launch(parts[name])) for name in parts
        }

    def _launch(self, work: Callable[[], None]) -> Callable[[Any], None]:
        def launch(stream: Any) -> None:
            until = time.perf_counter() + LAUNCH_SECONDS
            while time.perf_counter() < until:
                pass
            work()

        return launch

    def _begin(self) -> None:
        if self._done < self._n:
            self._busy_until = max(self._busy_until, time.perf_counter()) + BLOCK_SECONDS
            self._done = min(self._done + BLOCK, self._n)
            self._swept += SWEEPS

    def _note(self, _progress: Any, stream: Any) -> None:
        state = np.zeros(progress.FIELDS, np.int32)
        state[progress.START], state[progress.SWEEPS] = self._done, self._swept
        self._seen[1].state, self._seen[1].at = state, self._busy_until

    def fill(self, n: int, stream: Any) -> None:
        self._n, self._done, self._swept = n, 0, 0

    @staticmethod
    def read(seen: list, stream: Any) -> list:
        time.sleep(max(0, seen[0].at - time.perf_counter()))
        return [seen[0].state]

    def set_network(self, network: Network) -> None:
        self._network = network

    def get_network(self) -> Network:
        weights = tuple(matrix.copy() for matrix in self._network.weights)
        return Network(self._network.sizes, weights)

    def train(self, images: Any, labels: Any, order: Any, eta: float, tick: Any = None) -> float:
        self._train_epoch(len(order), tick)
        return 1.0

    def _tell_losses(self, start: int, n: int, tick: Any, stream: Any) -> None:
        tick(n, 1.0)

    def keep(self, images: Any) -> Any:
        return images

    def predict(self, images: Any) -> np.ndarray:
        return np.full((len(images), 10), 0.1, np.float32)


def seconds(dataset: data.Dataset, chunk: int, between_saves: float) -> float:
    """Seconds of training in all epochs of net 4."""
    config = make_config(dataset, NETS[4], Schedule(EPOCHS), 0, None, "cuda", windows=True)
    clock = ClockEngine()
    fake = SimpleNamespace(
        fill=clock.fill, read=clock.read, let_wait=lambda *_: None, array_key=lambda _: ()
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(engine, "gpu", fake),
        mock.patch.object(engine, "CHUNK", chunk),
        mock.patch.object(runs, "seconds_between_saves", return_value=between_saves),
    ):
        run = runs.train_run(Path(folder) / "run.h5", config, dataset, clock, runs.Callbacks())
    return sum(run.metrics.train_seconds)


def main() -> None:
    dataset = data.load("mnist", None)
    taken = {name: np.empty(REPEATS) for name in WAYS}
    for repeat in range(REPEATS):
        for name, way in WAYS.items():
            taken[name][repeat] = seconds(dataset, *way)
            print(repeat, name, taken[name][repeat])
    source = provenance.collect("cpu").columns()
    path = provenance.device_folder(provenance.device()) / "startup.csv"
    rows = {row.what: row for row in read_rows(path, StartupRow)} if path.exists() else {}
    for name, times in taken.items():
        low, median, high = np.percentile(times, [20, 50, 80]).tolist()
        what = f"{EPOCHS} epochs of net 4 on a clock, {name}"
        rows[what] = StartupRow(
            source=source,
            what=what,
            repeats=REPEATS,
            seconds=median,
            seconds_p20=low,
            seconds_p80=high,
        )
    files.replace(path, rows_text(rows.values()).encode())


if __name__ == "__main__":
    main()
