"""The kernels of the schedule `window`, each as it is launched in the middle of a block."""

from collections.abc import Iterator

import numpy as np

from deepbig_runtime import gpu
from deepbig_runtime.gpu import Stream, play
from experiments.timing import window_work
from experiments.timing.gpu import Kernel, copy_to_gpu
from experiments.timing.host import training_examples
from experiments.timing.mlp import ETA
from mlp_gpu.engine import WINDOW_IMAGES_PER_BLOCK
from mlp_gpu.network import Network
from mlp_gpu.window import progress
from mlp_gpu.window.workspace import Workspace


def window_kernels(network: Network, stream: Stream) -> Iterator[Kernel]:
    """The kernels of a block: of its begin, of a sweep of the largest window half way, of its end.

    Those that only move the window, `slide_window` and `next_block`, are left out: they would move
    it between two repeats.
    """
    sizes, n_block, n = network.sizes, WINDOW_IMAGES_PER_BLOCK, progress.MAX_WINDOW
    weights = [copy_to_gpu(W, stream) for W in network.weights]
    workspace = Workspace(sizes, weights, n_block)
    gpu.fill(workspace.blank(), stream)
    images, labels = training_examples(sizes[0])
    put = {"labels": labels, "order": np.arange(len(labels))}
    put |= {"losses": np.zeros(len(labels), np.float32)}
    epoch = {name: copy_to_gpu(array, stream) for name, array in put.items()}
    eta = copy_to_gpu(np.full(1, ETA, np.float32), stream)
    first = (n_block - n) // 2
    end = first + n

    def at(done: int, swept: int, last: int) -> None:
        """Let the launches that are made next find the window so."""
        state = progress.at_start(n_block, len(labels))
        state[[progress.FIRST, progress.SWEPT, progress.END]] = done, swept, last
        workspace.progress = copy_to_gpu(state, stream)

    at(0, 0, n)
    begin = workspace.begin_block(copy_to_gpu(images, stream), epoch["order"])
    at(first, end, end)
    sweep = workspace.sweep(epoch, eta)[:-1]
    at(n_block, n_block, n_block)
    update = workspace.end_block(eta, len(labels))[:-1]
    play([*begin, *sweep], stream)
    works = window_work.begin_works(sizes, n_block)
    works += window_work.sweep_works(sizes, n, end, n_block)
    works += window_work.update_works(sizes, n_block)
    for launch, (layer, work) in zip([*begin, *sweep, *update], works, strict=True):
        n_in, n_out = sizes[layer - 1 : layer + 1]
        name, n_bytes = launch.kernel.py_func.__name__, round(work.n_bytes)
        yield Kernel(name, layer, n_in, n_out, launch, n_bytes, round(work.flops))
