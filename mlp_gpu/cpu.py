"""The CPU engine: on-line back-propagation by a window of images, on a team of threads.

Each image needs, for every layer, W^T h forward, W delta backward, and W -= eta h delta^T. In the
papers each of the three is a pass over W. Here W is only read within a block of images and updated
once for all of them, with corrections that make the sequence of updates that of the papers: see
`cpu_window`. Evaluation needs no update between images: it multiplies W with many images at once.
All products of matrices are those of `vector_kernel`; no BLAS is called.

The numbers of images in a block and in a window follow from the number of weights, from eta, and
from how often the images of the last blocks went forward and backward. They never follow from the
machine, so every machine gives the same bits.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np

from deepbig_runtime.arrays import check_training, flat_images
from mlp_gpu import cpu_window, team
from mlp_gpu.network import Network, count_weights
from mlp_gpu.window_rule import CPU_ROUNDING, Limits

WEIGHTS_PER_TICK = 500_000_000  # weight updates: some tenths of a second
PREDICT_BATCH = 192  # images that go through a layer together

MANY_WEIGHTS = 5_000_000  # of a net from here on: more than a usual cache holds
FEW_BLOCK, MANY_BLOCK = 48, 96  # images of a block, of nets below MANY_WEIGHTS and of others
LIMITS = Limits(smallest=6, largest=24, few=2.2, many=4.4)
# At larger rates images of a window need more sweeps than reading weights from a cache is worth.
SINGLE_ETA = 2e-4  # above it, windows of nets below MANY_WEIGHTS have one image


def train_in_chunks(
    train: Callable[[np.ndarray], float],
    order: np.ndarray,
    first: int,
    most: int,
    tick: Callable[[int, float], None],
) -> float:
    """The mean loss of a training on images in this order, with a tick after each chunk of it.

    train: makes the steps of a chunk and returns their summed loss. first: number of images of the
    first chunk; each chunk is twice as large as the one before, up to `most`. order, tick: see
    `mlp_gpu.engine`.
    """
    total, start, size = 0.0, 0, first
    while start < len(order):
        chunk = order[start : start + size]
        loss = train(chunk)
        total += loss
        tick(len(chunk), loss / len(chunk))
        start, size = start + size, min(2 * size, most)
    return total / len(order)


def predict_in_threads(
    fill: Callable[[np.ndarray, np.ndarray], None],
    images: np.ndarray,
    n_classes: int,
    threads: int | None = None,
) -> np.ndarray:
    """Class probabilities of images, float32 (n, n_classes).

    fill(outputs, part): writes the class probabilities of the images `part` into `outputs`; several
    threads call it at once. threads: number of them, None for as many as Numba may use.
    """
    outputs = np.empty((len(images), n_classes), np.float32)
    parts = [slice(i, i + PREDICT_BATCH) for i in range(0, len(images), PREDICT_BATCH)]
    threads = threads or numba.config.NUMBA_NUM_THREADS
    team.share(lambda part: fill(outputs[part], images[part]), parts, threads)
    return outputs


class CpuEngine:
    """On-line training and batched prediction on the CPU. See `mlp_gpu.engine` for the methods.

    threads: number of threads, None for as many as Numba may use. The results are bit-identical for
    any number. Raises ValueError for fewer than one.
    """

    name = "cpu"
    schedule = None

    def __init__(self, threads: int | None = None):
        if threads is not None and threads < 1:
            raise ValueError(f"expected at least 1 thread, got {threads}")
        self._threads = threads

    def set_network(self, network: Network) -> None:
        self._sizes = network.sizes
        self._weights = cpu_window.to_weights(network)
        self._is_small = count_weights(network.sizes) < MANY_WEIGHTS
        self.images_per_block = FEW_BLOCK if self._is_small else MANY_BLOCK

    def get_network(self) -> Network:
        return cpu_window.to_network(self._sizes, self._weights)

    def train(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        order: np.ndarray,
        eta: float,
        tick: Callable[[int, float], None] = lambda n_images, loss: None,
    ) -> float:
        images = flat_images(images, self._sizes[0])
        check_training(labels, order, len(images), self._sizes[-1])
        n_block, limits = self.images_per_block, LIMITS
        if self._is_small and eta > SINGLE_ETA:
            limits = LIMITS._replace(smallest=1, largest=1)
        most = min(self._threads or numba.config.NUMBA_NUM_THREADS, cpu_window.GROUPS)
        block, private = cpu_window.make_block(self._sizes, n_block, limits.largest, most)
        memory = np.array(self._sizes), self._weights, block, private
        settings = cpu_window.Settings(np.float32(eta), n_block, CPU_ROUNDING, limits)
        self._progress = cpu_window.new_progress(limits)
        pace = team.Pace(most)

        def train(chunk: np.ndarray) -> float:
            def work(number: int, barrier: np.ndarray) -> float:
                net = cpu_window.net_of(*memory)  # here, so that a thread holds what it addresses
                thread = cpu_window.Thread(number, pace.threads)
                return cpu_window.train_blocks(
                    net, thread, barrier, images, labels, chunk, settings, self._progress
                )

            with pace.measured(len(chunk)):
                return pace.run(executor, work)[0]

        blocks = max(1, WEIGHTS_PER_TICK // (n_block * count_weights(self._sizes)))
        with ThreadPoolExecutor(most) as executor:  # the first chunks are short: see `team.Pace`
            return train_in_chunks(train, order, n_block, n_block * blocks, tick)

    def count_sweeps(self) -> tuple[int, int]:
        """Sweeps of the last training, and its passes of an image forward and backward."""
        _, passes, sweeps = self._progress.tolist()
        return sweeps, passes

    def keep(self, images: np.ndarray) -> np.ndarray:
        return images

    def predict(self, images: np.ndarray) -> np.ndarray:
        images = flat_images(images, self._sizes[0])
        sizes = np.array(self._sizes)

        def fill(outputs: np.ndarray, part: np.ndarray) -> None:
            states = cpu_window.make_states(self._sizes, len(part))
            net = cpu_window.net_of(sizes, self._weights, states, states)
            cpu_window.predict(outputs, part, net)

        return predict_in_threads(fill, images, self._sizes[-1], self._threads)
