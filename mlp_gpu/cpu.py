"""The CPU engine: on-line back-propagation in blocks, by a team of threads.

Each image needs, for every layer, W^T h forward, W delta backward, and W -= eta h delta^T. In the
papers each of the three is a pass over W. Here W is only read within a block of images and updated
once for all of them, with corrections that make the sequence of updates that of the papers: see
`blocks`.

Evaluation needs no update between images, so it is a matrix product for many images at once.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from mlp_gpu import blocks, team
from mlp_gpu.blas import SGEMM
from mlp_gpu.blocks import FASTMATH, scaled_tanh
from mlp_gpu.checks import check_training, flat_images
from mlp_gpu.engines import IMAGES_PER_BLOCK
from mlp_gpu.jit import njit
from mlp_gpu.network import Network, count_weights

WEIGHTS_PER_TICK = 500_000_000  # weight updates: some tenths of a second
PREDICT_BATCH = 500  # images per matrix product, so that states take little memory


@njit(nogil=True, fastmath=FASTMATH, error_model="numpy")
def activate(a):
    """The scaled tanh of every element of a, float32 (n,), in place."""
    for i in range(a.shape[0]):
        a[i] = scaled_tanh(a[i])


def train_in_chunks(
    train: Callable[[np.ndarray], float],
    order: np.ndarray,
    images_per_tick: int,
    tick: Callable[[int, float], None],
) -> float:
    """The mean loss of a training on images in this order, with a tick after each chunk of it.

    train: makes the steps of a chunk and returns their summed loss. order, tick: see
    `mlp_gpu.engines`.
    """
    total = 0.0
    for start in range(0, len(order), images_per_tick):
        chunk = order[start : start + images_per_tick]
        loss = train(chunk)
        total += loss
        tick(len(chunk), loss / len(chunk))
    return total / len(order)


def predict_in_threads(
    activations: Callable[[np.ndarray], np.ndarray],
    images: np.ndarray,
    n_classes: int,
    threads: int | None = None,
) -> np.ndarray:
    """Class probabilities of images, float32 (n, n_classes).

    activations: of the output layer for some of the images. Called in several threads at once;
    threads: in how many, None: in all that Numba may use.
    """
    outputs = np.empty((len(images), n_classes), np.float32)
    starts = range(0, len(images), PREDICT_BATCH)
    # Our own threads, one each for BLAS: how BLAS rounds depends on how many threads it has.
    with threadpool_limits(1, user_api="blas"):

        def predict(start: int) -> None:
            part = slice(start, start + PREDICT_BATCH)
            outputs[part] = activations(images[part])

        team.share(predict, starts, threads or numba.config.NUMBA_NUM_THREADS)
    outputs -= outputs.max(axis=1, keepdims=True)
    np.exp(outputs, out=outputs)
    outputs /= outputs.sum(axis=1, keepdims=True)
    return outputs


class CpuEngine:
    """On-line training and batched prediction on the CPU. See `mlp_gpu.engines` for the methods.

    images_per_block: how many images are trained between two updates of the weight matrices; other
    numbers round otherwise. threads: how many take part, None: all that Numba may use; the results
    are the same bits for any number of them.
    """

    name = "cpu"
    schedule = None

    def __init__(self, images_per_block: int = IMAGES_PER_BLOCK, threads: int | None = None):
        self._images_per_block = images_per_block
        self._threads = threads

    def set_network(self, network: Network) -> None:
        self._sizes = network.sizes
        self._weights = blocks.to_weights(network)

    def get_network(self) -> Network:
        return blocks.to_network(self._sizes, self._weights)

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
        n_panels = max(W.shape[0] for W in self._weights.hidden)
        members = max(1, min(self._threads or numba.config.NUMBA_NUM_THREADS, n_panels))
        block = blocks.make_block(self._sizes, self._images_per_block, members)
        sizes = np.array(self._sizes)
        n_blocks = WEIGHTS_PER_TICK // (self._images_per_block * count_weights(self._sizes))

        def train(chunk: np.ndarray) -> float:
            def work(member: int, meeting: np.ndarray) -> float:
                return blocks.train_blocks(
                    member,
                    meeting,
                    members,
                    sizes,
                    self._weights,
                    block,
                    images,
                    labels,
                    chunk,
                    np.float32(eta),
                    SGEMM,
                )

            return team.run(executor, members, work)[0]

        with (
            threadpool_limits(1, user_api="blas"),  # how BLAS rounds depends on its threads
            ThreadPoolExecutor(members) as executor,
        ):
            images_per_tick = self._images_per_block * max(1, n_blocks)
            return train_in_chunks(train, order, images_per_tick, tick)

    def predict(self, images: np.ndarray) -> np.ndarray:
        images = flat_images(images, self._sizes[0])
        weights = self.get_network().unpadded()

        def activations(h: np.ndarray) -> np.ndarray:
            for layer, W in enumerate(weights):
                if layer > 0:
                    activate(h.ravel())
                h = h @ W[1:]
                h += W[0]
            return h

        return predict_in_threads(activations, images, self._sizes[-1], self._threads)
