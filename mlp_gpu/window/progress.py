"""Where a window stands, in the GPU's memory, so that no launch needs a number from the host.

progress int32 (FIELDS,). Kernels read it and return at once where nothing is left to do: sweep
kernels if the block is done, block-start kernels if it has been swept, block-end kernels if it is
not done.

`slide_window`, one block, ends a sweep: it finds how many images at the front are done, those
before which all kept their deltas. A thread takes an image of the window. `next_block`, one
thread, ends a block.

changes int32 (layers, 2, MAX_WINDOW), the bits of float32: of each layer and image of the window,
the largest change of a delta against the sweep before, and the largest delta. Stage 2 raises them,
in any order, and `slide_window` sets them to zero. As int32 the bits of absolute values have the
order of the numbers, and the bits of NaN are larger than all others.
"""

import numpy as np

from deepbig_runtime.gpu import WARP, DeviceArray, Launch, cuda, device_function
from mlp_gpu.window_rule import GPU_ROUNDING, Limits, larger, next_window, tolerance

START = 0  # images of the epoch that earlier blocks trained
BLOCK = 1  # images of this block; none after the last
FIRST = 2  # images of this block that are done: the window's first
END = 3  # the one after the window's last
SWEPT = 4  # images of this block that went forward and backward at least once
WINDOW = 5  # images that a window has where its block does not end before
TIMES = 6  # how often images of this block went forward and backward, together
SWEEPS = 7  # sweeps of the epoch
ALL_TIMES = 8  # how often images of the epoch went forward and backward, together
SQUARE = 9  # the largest |h|^2 of an image of this block in layer 1: the bits of a float32
FIELDS = 10

MIN_WINDOW, MAX_WINDOW = 8, 512  # images
# A larger window needs fewer sweeps, but each image passes through more of them. It pays while an
# image needs fewer than about `few`: by a model of an H100's records a sweep costs as much as 160
# images in it.
LIMITS = Limits(MIN_WINDOW, MAX_WINDOW, few=4, many=8)
FIRST_WINDOW = 128  # of an epoch

WARPS = MAX_WINDOW // WARP
ALL = -1  # mask of a warp's threads: all 32 bits set


larger_of = device_function(larger)
window_after = device_function(next_window)
tolerance_at = device_function(tolerance)


@device_function
def as_float(bits):
    return cuda.libdevice.int_as_float(bits)


@device_function
def as_bits(value):
    return cuda.libdevice.float_as_int(value)


@device_function
def sum_of_warp(value):
    """The sum of the values of the warp's threads, the same for all."""
    lanes = WARP // 2
    while lanes > 0:
        value += cuda.shfl_xor_sync(ALL, value, lanes)
        lanes //= 2
    return value


@device_function
def largest_of_warp(value):
    """The largest value of the warp's threads; NaN if one is."""
    lanes = WARP // 2
    while lanes > 0:
        value = larger_of(value, cuda.shfl_xor_sync(ALL, value, lanes))
        lanes //= 2
    return value


@cuda.jit
def slide_window(progress, changes, inputs, eta):
    image = cuda.threadIdx.x
    lane, warp = image % WARP, image // WARP
    first, end = progress[FIRST], progress[END]
    n = end - first
    largest = cuda.shared.array((2, WARPS), np.float32)
    stops = cuda.shared.array(WARPS, np.int32)
    if n == 0:
        return
    square = as_float(progress[SQUARE])
    stop = np.int32(n)  # the image that the window must keep; n if it may pass this thread's
    for layer in range(changes.shape[0]):
        of_layer = changes[np.uint64(layer)]
        change, size = as_float(of_layer[0, image]), as_float(of_layer[1, image])
        of_layer[0, image] = of_layer[1, image] = 0
        size = largest_of_warp(size)
        half = np.uint64(layer % 2)  # so that one barrier for each layer is enough
        if lane == 0:
            largest[half, warp] = size
        cuda.syncthreads()
        for other in range(WARPS):
            size = larger_of(size, largest[half, np.uint64(other)])
        n_in = np.float32(inputs[np.uint64(layer)])
        # States of hidden layers are about 1.
        least = tolerance_at(eta[0], n_in, n_in if layer > 0 else square, GPU_ROUNDING)
        if image < n and not change <= least * size:  # is done, later ones used its old deltas
            stop = min(stop, np.int32(image + 1))
    lanes = WARP // 2
    while lanes > 0:
        stop = min(stop, cuda.shfl_xor_sync(ALL, stop, lanes))
        lanes //= 2
    if lane == 0:
        stops[warp] = stop
    cuda.syncthreads()
    if image == 0:
        for other in range(WARPS):
            stop = min(stop, stops[np.uint64(other)])
        first += stop
        progress[FIRST] = first
        progress[SWEPT] = end
        progress[TIMES] += n
        progress[ALL_TIMES] += n
        progress[SWEEPS] += 1
        progress[END] = min(first + progress[WINDOW], progress[BLOCK])


@cuda.jit
def next_block(progress, n_block, n_images):
    n = progress[BLOCK]
    if n > 0 and progress[FIRST] == n:
        window = progress[WINDOW]
        if n == n_block:  # the last one of an epoch may be short
            window = window_after(window, progress[TIMES], n, LIMITS)
        start = progress[START] + n
        block = min(n_block, n_images - start)
        progress[START], progress[BLOCK] = start, block
        progress[FIRST] = progress[SWEPT] = progress[TIMES] = progress[SQUARE] = 0
        progress[WINDOW], progress[END] = window, min(window, block)


SIGNATURES = {
    slide_window: "void(int32[::1], int32[:, :, ::1], int32[::1], float32[::1])",
    next_block: "void(int32[::1], int32, int32)",
}


def most_images(n_block: int) -> int:
    """Images of the largest window of a block."""
    return min(n_block, MAX_WINDOW)


def changes_shape(n_layers: int) -> tuple[int, int, int]:
    return n_layers, 2, MAX_WINDOW


def at_start(n_block: int, n_images: int) -> np.ndarray:
    """The progress at the start of an epoch, on the host."""
    progress = np.zeros(FIELDS, np.int32)
    progress[BLOCK] = min(n_block, n_images)
    progress[WINDOW] = FIRST_WINDOW
    progress[END] = min(FIRST_WINDOW, n_block, n_images)
    return progress


def slide(
    progress: DeviceArray, changes: DeviceArray, inputs: DeviceArray, eta: DeviceArray
) -> list[Launch]:
    """End a sweep. inputs: of each layer, with the bias's 1. Modifies progress and changes."""
    return [Launch(slide_window, (1, 1), MAX_WINDOW, (progress, changes, inputs, eta))]


def end_block(progress: DeviceArray, n_block: int, n_images: int) -> list[Launch]:
    """If all images of the block are done, begin the next one. Modifies progress."""
    sizes = np.int32(n_block), np.int32(n_images)
    return [Launch(next_block, (1, 1), 1, (progress, *sizes))]
