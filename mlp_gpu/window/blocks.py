"""The steps made once a block: its images are gathered, and all weights updated at its end.

    W -= eta H^T D,  the updates of all images of the block at once

images float32 (n, n_in), order int64 (m,); H, D, W and eta as `sums` has them.

`gather_images`, when a block has just begun: a block of 256 threads copies an image and raises
progress[SQUARE] to 1 + the sum of its squared pixels. `update_weights_of_block`, when all images of
a block are done: a block of 16 x 16 threads takes 64 x 64 weights, a thread 4 x 4 of them, 16
apart, in registers; the rows of H and D of 16 images at a time are in shared memory.
"""

import numpy as np

from deepbig_runtime.gpu import WARP, DeviceArray, Launch, cuda
from mlp_gpu.window.progress import BLOCK, FIRST, SQUARE, START, SWEPT, as_bits, sum_of_warp

THREADS = 256  # of gather_images
WARPS = THREADS // WARP
SIDE = 16  # threads along each side of a block
EACH = 4  # rows, and columns, per thread
TILE = SIDE * EACH
IMAGES = 16  # in shared memory at a time


@cuda.jit
def gather_images(H, progress, images, order):
    t, thread = cuda.blockIdx.y, cuda.threadIdx.x
    sums = cuda.shared.array(WARPS, np.float32)
    if progress[SWEPT] > 0 or t >= progress[BLOCK]:
        return
    pixels, h = images[np.uint64(order[np.uint32(progress[START] + t)])], H[np.uint32(t)]
    total = np.float32(0)
    for i in range(thread, images.shape[1], THREADS):
        pixel = pixels[np.uint32(i)]
        h[np.uint32(i + 1)] = pixel
        total += pixel * pixel
    total = sum_of_warp(total)
    if thread % WARP == 0:
        sums[np.uint32(thread // WARP)] = total
    cuda.syncthreads()
    if thread == 0:
        total = np.float32(1)
        for warp in range(WARPS):
            total += sums[np.uint32(warp)]
        cuda.atomic.max(progress, SQUARE, as_bits(total))


@cuda.jit
def update_weights_of_block(W, progress, H, D, eta, n_in, n_out):
    thread = cuda.threadIdx.x
    x, y = thread % SIDE, thread // SIDE
    row0, column0 = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
    n = progress[BLOCK]
    h_tile = cuda.shared.array((IMAGES, TILE), np.float32)
    d_tile = cuda.shared.array((IMAGES, TILE), np.float32)
    step = cuda.local.array((EACH, EACH), np.float32)  # registers
    column = cuda.local.array(EACH, np.float32)
    if n == 0 or progress[FIRST] < n:
        return
    for r in range(EACH):
        for c in range(EACH):
            step[r, c] = 0
    for t0 in range(0, n, IMAGES):
        for r in range(IMAGES * TILE // (SIDE * SIDE)):
            image, place = thread // TILE + SIDE * SIDE // TILE * r, thread % TILE
            t = t0 + image
            h = d = np.float32(0)
            if t < n and row0 + place < H.shape[1]:
                h = H[np.uint32(t), np.uint32(row0 + place)]
            if t < n and column0 + place < D.shape[1]:
                d = D[np.uint32(t), np.uint32(column0 + place)]
            h_tile[np.uint32(image), np.uint32(place)] = h
            d_tile[np.uint32(image), np.uint32(place)] = d
        cuda.syncthreads()
        for image in range(IMAGES):
            for c in range(EACH):
                column[c] = d_tile[np.uint32(image), np.uint32(x + SIDE * c)]
            for r in range(EACH):
                h = h_tile[np.uint32(image), np.uint32(y + SIDE * r)]
                for c in range(EACH):
                    step[r, c] += h * column[c]
        cuda.syncthreads()
    for r in range(EACH):
        for c in range(EACH):
            row, neuron = row0 + y + SIDE * r, column0 + x + SIDE * c
            if row <= n_in and neuron < n_out:
                W[np.uint32(row), np.uint32(neuron)] -= eta[0] * step[r, c]


SIGNATURES = {
    gather_images: "void(float32[:, ::1], int32[::1], float32[:, ::1], int64[::1])",
    update_weights_of_block: "void(float32[:, ::1], int32[::1], float32[:, ::1], float32[:, ::1], "
    "float32[::1], int32, int32)",
}


def gather(
    H: DeviceArray, progress: DeviceArray, images: DeviceArray, order: DeviceArray
) -> list[Launch]:
    """Copy the images of a block that has just begun. Modifies H and progress[SQUARE]."""
    return [Launch(gather_images, (1, H.shape[0]), THREADS, (H, progress, images, order))]


def update(
    W: DeviceArray,
    progress: DeviceArray,
    H: DeviceArray,
    D: DeviceArray,
    eta: DeviceArray,
    n_in: int,
    n_out: int,
) -> list[Launch]:
    """All steps of a block whose images are done. Modifies W."""
    grid = -(-W.shape[1] // TILE), -(-W.shape[0] // TILE)
    arguments = W, progress, H, D, eta, np.int32(n_in), np.int32(n_out)
    return [Launch(update_weights_of_block, grid, SIDE * SIDE, arguments)]
