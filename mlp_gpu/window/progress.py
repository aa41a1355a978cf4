"""Where a window stands, in the GPU's memory, so that no launch needs a number from the host.

progress int32 (FIELDS,). Kernels read it and return at once where nothing is left to do: sweep
kernels if the block is done, block-start kernels if it has been swept, block-end kernels if it is
not done.

`slide_window`, one block, ends a sweep: it finds how many images at the front are done. Eight
threads take an image of the window, each every eighth of the places where `sums` left the largest
deltas and changes. `next_block`, one thread, ends a block.
"""

import numpy as np

from deepbig_runtime.gpu import DeviceArray, Launch, cuda
from mlp_gpu.window_rule import Limits, larger, next_window

START = 0  # images of the epoch that earlier blocks trained
BLOCK = 1  # images of this block; none after the last
FIRST = 2  # images of this block that are done: the window's first
END = 3  # the one after the window's last
SWEPT = 4  # images of this block that went forward and backward at least once
WINDOW = 5  # images that a window has where its block does not end before
TIMES = 6  # how often images of this block went forward and backward, together
SWEEPS = 7  # sweeps of the epoch
ALL_TIMES = 8  # how often images of the epoch went forward and backward, together
FIELDS = 9

MIN_WINDOW, MAX_WINDOW = 8, 32  # images
LIMITS = Limits(MIN_WINDOW, MAX_WINDOW, few=4, many=8)
FIRST_WINDOW = 16  # of an epoch
TOLERANCE = np.float32(1e-4)  # of the window's largest delta of a layer: less is no change

GROUPS = 8
THREADS = GROUPS * MAX_WINDOW


larger_of = cuda.jit(device=True, inline="always")(larger)
window_after = cuda.jit(device=True, inline="always")(next_window)


@cuda.jit(device=True, inline="always")
def largest_of_rows(values, rows, width, thread, threads):
    """The first of each row of `values` becomes the row's largest. width: a power of 2."""
    half = width // 2
    while half > 0:
        for place in range(thread, rows * half, threads):
            here = np.uint32(place // half * width + place % half)
            values[here] = larger_of(values[here], values[np.uint32(here + half)])
        cuda.syncthreads()
        half //= 2


@cuda.jit
def slide_window(progress, changes):
    thread = cuda.threadIdx.x
    image, group = thread // GROUPS, thread % GROUPS
    first, end = progress[FIRST], progress[END]
    n = end - first
    changed = cuda.shared.array(THREADS, np.float32)
    largest = cuda.shared.array(THREADS, np.float32)
    is_same = cuda.shared.array(MAX_WINDOW, np.int32)
    if n == 0:
        return
    same = True
    for layer in range(changes.shape[0]):
        change = size = np.float32(0)
        if image < n:
            for tile in range(group, changes.shape[2], GROUPS):
                where = np.uint32(layer), np.uint32(tile), np.uint32(image)
                change = larger_of(change, changes[where[0], 0, where[1], where[2]])
                size = larger_of(size, changes[where[0], 1, where[1], where[2]])
        changed[thread], largest[thread] = change, size
        cuda.syncthreads()
        largest_of_rows(changed, MAX_WINDOW, GROUPS, thread, THREADS)
        largest_of_rows(largest, 1, THREADS, thread, THREADS)
        if not changed[np.uint32(image * GROUPS)] <= TOLERANCE * largest[0]:
            same = False
        cuda.syncthreads()
    if group == 0:
        is_same[image] = same
    cuda.syncthreads()
    if thread == 0:
        done = np.int32(1)  # the first is corrected by images that are done: it is exact
        while done < n and is_same[np.uint32(done)]:
            done += 1
        first += done
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
        progress[FIRST] = progress[SWEPT] = progress[TIMES] = 0
        progress[WINDOW], progress[END] = window, min(window, block)


SIGNATURES = {
    slide_window: "void(int32[::1], float32[:, :, :, ::1])",
    next_block: "void(int32[::1], int32, int32)",
}


def at_start(n_block: int, n_images: int) -> np.ndarray:
    """The progress at the start of an epoch, on the host."""
    progress = np.zeros(FIELDS, np.int32)
    progress[BLOCK] = min(n_block, n_images)
    progress[WINDOW] = FIRST_WINDOW
    progress[END] = min(FIRST_WINDOW, n_block, n_images)
    return progress


def slide(progress: DeviceArray, changes: DeviceArray) -> list[Launch]:
    """End a sweep. changes: as `sums` has them. Modifies progress."""
    return [Launch(slide_window, (1, 1), THREADS, (progress, changes))]


def end_block(progress: DeviceArray, n_block: int, n_images: int) -> list[Launch]:
    """If all images of the block are done, begin the next one. Modifies progress."""
    sizes = np.int32(n_block), np.int32(n_images)
    return [Launch(next_block, (1, 1), 1, (progress, *sizes))]
