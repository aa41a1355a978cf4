"""Rung 6, graph: the launches of several images are one.

What changed: the kernels are those of rung 4, in one stream. Their launches for 20 images are
captured once in a CUDA graph; then the host launches the graph. The image of a step is found in the
GPU's memory, so each time the graph trains other images. The blog does not have this rung.

Why it helps: the host has to do something every 80 kernels instead of every kernel, and the GPU
knows beforehand what comes next. What is left is the time between two kernels, four times an image,
and the time of the kernels themselves.
"""

from deepbig_runtime import gpu
from deepbig_runtime.gpu import Stream, play
from mlp_gpu.ladder import rung4_shared as shared
from mlp_gpu.ladder.arrays import Arrays

TRANSPOSED = shared.TRANSPOSED
SIGNATURES = shared.SIGNATURES
IMAGES_PER_GRAPH = 20
launches = shared.launches


def train(a: Arrays, stream: Stream) -> None:
    """All steps of the epoch, launched by the host and not waited for."""
    one_step = launches(a)
    n_graphs, rest = divmod(a.steps, IMAGES_PER_GRAPH)
    if n_graphs:
        graph = gpu.capture(lambda captured: play(one_step * IMAGES_PER_GRAPH, captured))
        for _ in range(n_graphs):
            graph.launch(stream)
    play(one_step * rest, stream)
