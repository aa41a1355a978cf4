"""On-line back-propagation by a window of images on a GPU: see docs/online-in-blocks.md.

A block of images is solved by sweeps: all images of a window go forward and backward at once, as
products of matrices, until their deltas stay. A few are done, the window slides on over them, and
at the end of the block all weights are updated. It is the same sequence of on-line steps.
"""

from mlp_gpu.window import blocks, products, progress, sums, tensor_products, tensor_sums

# As `mlp_gpu.kernels.SIGNATURES`. Those of TENSOR_SIGNATURES need tensor_products.LOWEST_CC.
TENSOR_SIGNATURES = {**tensor_products.SIGNATURES, **tensor_sums.SIGNATURES}
SIGNATURES = {
    **blocks.SIGNATURES,
    **products.SIGNATURES,
    **sums.SIGNATURES,
    **progress.SIGNATURES,
    **TENSOR_SIGNATURES,
}
