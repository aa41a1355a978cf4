"""On-line back-propagation by a window of images on a GPU: see docs/online-in-blocks.md.

A block of images is solved by sweeps: all images of a window go forward and backward at once, as
products of matrices, until their deltas stay. A few are done, the window slides on over them, and
at the end of the block all weights are updated. It is the same sequence of on-line steps.
"""

from mlp_gpu.window import blocks, products, progress, sums

# As `mlp_gpu.kernels.SIGNATURES`; those for tensor cores: see `mlp_gpu.tensor_cores`.
SIGNATURES = {
    **blocks.SIGNATURES,
    **products.SIGNATURES,
    **sums.SIGNATURES,
    **progress.SIGNATURES,
}
