"""The kernels of the 2011 paper, section 3, one file an operation. Kernels import no engine.

The maps of a layer lie below each other in one matrix: row m height + y has line y of map m. A row
is padded to a multiple of 32 floats, the paper's pitch, so that every line begins where a warp
reads fast. In front is an axis for images, which has one image in a training. Connections between
two layers have numbers, by map and then in the order of its row in `connections`; a connection has
a kernel of weights, by y, then x.

Like the paper's, the kernels rely "on the L2 cache for many of the device memory accesses, instead
of manually writing code that uses textures and shared memory". Departures: rows of weights are not
padded, because a block takes a whole kernel of them, one after another; nor are columns of maps,
because no thread is outside its map, so that there are no "bounding tests" to avoid.

In all kernels np.uint32 makes an index that cannot be negative, as in `mlp_gpu.kernels`.
"""

from cnn_gpu.kernels import backward, forward, layout, pooling, processing, weights

# Each kernel with the types of its arguments. The engine launches it with these types, and without
# a GPU it is compiled for them.
SIGNATURES = {
    **layout.SIGNATURES,
    **processing.SIGNATURES,
    **forward.SIGNATURES,
    **pooling.SIGNATURES,
    **backward.SIGNATURES,
    **weights.SIGNATURES,
}
