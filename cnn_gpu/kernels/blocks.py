"""Which threads take which neurons of a layer's maps.

"A straightforward way of parallelizing FP is to assign a thread block to each map": a thread a
neuron. "For maps bigger than 1024 neurons, the job is further split into smaller blocks by
assigning a block to each line of the map" (2011, section 3.2).
"""

import numpy as np

from cnn_gpu.layers import Maps
from deepbig_runtime.gpu import WARP, cuda, device_function

MAX_THREADS = 1024  # per block


def pitch(width: int) -> int:
    """Floats from a row to the next one."""
    return -(-width // WARP) * WARP


def shape(maps: Maps, n: int) -> tuple[int, int, int]:
    """Shape of the array that holds a layer's maps for n images.

    Raises ValueError if a line of a map has more neurons than a block can have threads.
    """
    if maps.width > MAX_THREADS:
        raise ValueError(
            f"a map is {maps.width} neurons wide; the GPU's kernels take at most {MAX_THREADS}; "
            "take the CPU"
        )
    return n, maps.n * maps.height, pitch(maps.width)


def over(maps: Maps, n: int) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """Grid and threads per block of a launch over all neurons of n images' maps."""
    rows = maps.height if maps.width * maps.height <= MAX_THREADS else 1
    return (maps.n, maps.height // rows, n), (maps.width, rows)


@device_function
def line():
    """The line of the map that this thread is in."""
    return cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y


@device_function
def row_of(m, height, y):
    """The row of line y of map m."""
    return np.uint32(m * height + y)
