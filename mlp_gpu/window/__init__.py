"""On-line back-propagation by a window of images on a GPU: see docs/online-in-blocks.md.

A block of images is solved by sweeps. In a sweep all images of a window go forward and backward at
once, as products of matrices. The window slides past images whose deltas no longer change. At the
end of the block all weights are updated. The result is that of the same on-line steps in sequence.
"""

from mlp_gpu.window import blocks, products, progress, sums

# As `mlp_gpu.kernels.SIGNATURES`; those for tensor cores: see `mlp_gpu.tensor_cores`.
SIGNATURES = {
    **blocks.SIGNATURES,
    **products.SIGNATURES,
    **sums.SIGNATURES,
    **progress.SIGNATURES,
}
