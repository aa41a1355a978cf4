"""The kernels of the deformation: the paper's Listing 1, and two ways to do all on the GPU.

Each file begins with its maths and shapes, then the kernels, then functions that make launches.
"""

from deform_gpu.kernels import listing1, matrices, stages, tiles

# How each kernel is compiled.
SIGNATURES = {
    **listing1.SIGNATURES,
    **matrices.SIGNATURES,
    **stages.SIGNATURES,
    **tiles.SIGNATURES,
}
