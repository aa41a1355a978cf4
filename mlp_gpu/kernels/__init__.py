"""The papers' kernels, one file an operation. Kernels import no engine.

Each file has the mathematics and the shapes, the kernels, and a function that turns arrays on the
GPU into launches. Listings are those of the 2010 paper; 2012 prints them again as 1.1 to 1.4.
`tensor_evaluate` has a kernel alone: `mlp_gpu.tensor_cores` launches it in the place of another.

In all of them np.uint32, or np.uint64, makes an index that cannot be negative, which spares the
wrap-around of Python's negative indices and lets the compiler unroll the loops.
"""

from mlp_gpu.kernels import backward, evaluate, forward, output, pick, update

# Each kernel with the types of its arguments. The engine launches it with these types, and without
# a GPU it is compiled for them.
SIGNATURES = {
    **pick.SIGNATURES,
    **forward.SIGNATURES,
    **output.SIGNATURES,
    **backward.SIGNATURES,
    **update.SIGNATURES,
    **evaluate.SIGNATURES,
}
