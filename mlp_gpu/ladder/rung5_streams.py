"""Rung 5, streams: the updates of the two layers side by side.

What changed: the kernels are those of rung 4. The update of layer 2 is launched on a second stream,
which waits for the deltas; the first stream waits for it before the next image. The blog: the two
updates "can be parallelized as they are independent", and "this actually gave slightly poorer
results so I decided against it".

Why it does not help: layer 2 has one weight for 78 of layer 1, so there is nothing to hide. And
each image now needs two events, each of them two more calls by a host that is late already.
"""

from deepbig_runtime import gpu
from deepbig_runtime.gpu import Stream
from mlp_gpu.ladder import rung4_shared as shared
from mlp_gpu.ladder.arrays import Arrays

TRANSPOSED = shared.TRANSPOSED
SIGNATURES = shared.SIGNATURES
launches = shared.launches


def train(a: Arrays, stream: Stream) -> None:
    """All steps of the epoch, launched by the host and not waited for."""
    beside = gpu.new_stream()
    forward, deltas, update_outputs, update_hidden = launches(a)
    for _ in range(a.steps):
        forward(stream)
        deltas(stream)
        gpu.let_wait(beside, stream)
        update_outputs(beside)
        update_hidden(stream)
        gpu.let_wait(stream, beside)
