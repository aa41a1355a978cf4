"""Products of a window's rows with weights and with rows of the block, stage 1 of a sweep.

    forward:  [A | G] = H (W | H^T),   backward:  [E | G] = D (W^T | D^T)

of the window's images, whose rows of H are the inputs of a layer and whose rows of D its deltas. G
are the scalar products with the images of the block, from its first to the window's last: the
corrections need those with images before. H (B, pad32(n_in + 1)), column 0 is 1; D (B,
pad32(n_out)); W (pad32(n_in + 1), pad32(n_out)); partial (splits, ring, columns + pad32(B)), where
columns are those of W or, backward, its rows: float32, C order. Image t of the block has row t
modulo ring, a power of 2.

A block of 128 threads takes 32 images and 64 columns, and one part of the sum: `depth` inputs or
neurons, 32 at a time in shared memory. A thread adds up 4 x 4 products in registers. The matrix is
transposed on its way into shared memory, or not: either way a column's 32 numbers lie in a row
there, 33 words from the next one's. So threads side by side always read consecutive words of
memory, and write and read 32 different banks. Each number from memory is used 32 or 64 times.

The sums of the parts are stage 2, as in the papers: see `sums`.
"""

import numpy as np

from deepbig_runtime.gpu import DeviceArray, Launch, cuda, device_function
from mlp_gpu.network import pad32
from mlp_gpu.tensor_tiles import DEPTH, TILE
from mlp_gpu.window.progress import BLOCK, END, FIRST, SWEPT, most_images

THREADS = 128
WARPS = THREADS // 32
IMAGES = 32  # rows per block
COLUMNS = 64  # columns per block
STRIDE = DEPTH + 1  # words from one row of shared memory to the next
ROW_WORDS, COLUMN_WORDS = IMAGES * STRIDE, COLUMNS * STRIDE
X, Y = 16, THREADS // 16  # threads along the columns and along the images
EACH = 4  # images, and columns, per thread
MIN_CHUNKS = 4  # of DEPTH inputs in a part of the sum
MAX_BLOCKS = 330  # about: with those of G three for each multiprocessor of a large GPU


@device_function
def load_rows(tile, M, n_tile, first, end, i0, thread):
    """tile = rows first, first + 1, ... of M from column i0 on; zero from row `end` on."""
    lane, warp = thread % 32, thread // 32
    for r in range(n_tile // WARPS):
        row = warp + WARPS * r
        value = np.float32(0)
        if first + row < end:
            value = M[np.uint32(first + row), np.uint32(i0 + lane)]
        tile[np.uint32(row * STRIDE + lane)] = value


@device_function
def load_columns(tile, M, j0, i0, thread):
    """tile = columns j0, j0 + 1, ... of M from row i0 on, transposed; zero past the last column."""
    column = thread % COLUMNS
    for r in range(DEPTH * COLUMNS // THREADS):
        depth = thread // COLUMNS + THREADS // COLUMNS * r
        value = np.float32(0)
        if j0 + column < M.shape[1]:
            value = M[np.uint32(i0 + depth), np.uint32(j0 + column)]
        tile[np.uint32(column * STRIDE + depth)] = value


@device_function
def multiply(z, a, b, thread):
    """z += a b^T, for the thread's images and columns."""
    x, y = thread % X, thread // X
    row = cuda.local.array(EACH, np.float32)  # registers
    column = cuda.local.array(EACH, np.float32)
    for i in range(DEPTH):
        # Unsigned 64 bits: so no index counts from the end, and constants become part of a load.
        for c in range(EACH):
            column[c] = b[np.uint64((x + X * c) * STRIDE + i)]
        for r in range(EACH):
            row[r] = a[np.uint64((y + Y * r) * STRIDE + i)]
        for r in range(EACH):
            for c in range(EACH):
                z[r, c] += row[r] * column[c]


@device_function
def store(partial, z, first, end, j0, offset, n_columns, thread):
    """Columns j0, j0 + 1, ... of n_columns, which `partial` has from `offset` on."""
    x, y = thread % X, thread // X
    for r in range(EACH):
        image = first + y + Y * r
        if image < end:
            row = np.uint32(image & (partial.shape[0] - 1))
            for c in range(EACH):
                if j0 + x + X * c < n_columns:
                    partial[row, np.uint32(offset + j0 + x + X * c)] = z[r, c]


@device_function
def images_of(progress, whole, number, n):
    """The rows that a block takes, n for each number: its first image, the one after its last.

    whole: of all images of a block that has just begun; otherwise of the window.
    """
    start = 0 if whole else progress[FIRST]
    stop = progress[BLOCK] if whole else progress[END]
    first = start + number * n
    end = min(first + n, stop)
    return first, first if whole and progress[SWEPT] > 0 else end


@device_function
def sum_part(partial, A, W, first, end, split, depth, transposed):
    """A part of A (W | A^T) for the block's images and columns; `transposed`: of A (W^T | A^T)."""
    thread = cuda.threadIdx.x
    inner, columns = (W.shape[1], W.shape[0]) if transposed else W.shape
    tiles = -(-columns // COLUMNS)
    is_gram = cuda.blockIdx.x >= tiles
    j0 = (cuda.blockIdx.x - tiles if is_gram else cuda.blockIdx.x) * COLUMNS
    a_tile = cuda.shared.array(ROW_WORDS, np.float32)
    m_tile = cuda.shared.array(COLUMN_WORDS, np.float32)
    z = cuda.local.array((EACH, EACH), np.float32)  # registers
    for r in range(EACH):
        for c in range(EACH):
            z[r, c] = 0
    if first < end and not (is_gram and j0 >= end):
        for i0 in range(split * depth, min((split + 1) * depth, inner), DEPTH):
            load_rows(a_tile, A, IMAGES, first, end, i0, thread)
            if is_gram:
                load_rows(m_tile, A, COLUMNS, j0, end, i0, thread)
            elif transposed:
                load_rows(m_tile, W, COLUMNS, j0, columns, i0, thread)
            else:
                load_columns(m_tile, W, j0, i0, thread)
            cuda.syncthreads()
            multiply(z, a_tile, m_tile, thread)
            cuda.syncthreads()
        offset, n_columns = (columns, end) if is_gram else (0, columns)
        store(partial[np.uint32(split)], z, first, end, j0, offset, n_columns, thread)


@cuda.jit
def forward_products(partial, progress, H, W, depth, whole):
    first, end = images_of(progress, whole, cuda.blockIdx.z, IMAGES)
    sum_part(partial, H, W, first, end, cuda.blockIdx.y, depth, False)


@cuda.jit
def backward_products(partial, progress, D, W, depth):
    first, end = images_of(progress, False, cuda.blockIdx.z, IMAGES)
    sum_part(partial, D, W, first, end, cuda.blockIdx.y, depth, True)


SIGNATURES = {
    forward_products: "void(float32[:, :, ::1], int32[::1], float32[:, ::1], "
    "float32[:, ::1], int32, boolean)",
    backward_products: "void(float32[:, :, ::1], int32[::1], float32[:, ::1], "
    "float32[:, ::1], int32)",
}


def depth_of(inner: int, columns: int, n_images: int) -> int:
    """How long the parts of a sum over `inner` inputs or neurons, a multiple of 32, are.

    Shorter parts give a GPU more blocks to work on at once, longer ones have fewer sums to store.
    n_images: the most that a product is of.
    """
    chunks, tiles = inner // DEPTH, -(-columns // COLUMNS) * -(-n_images // TILE)
    splits = max(1, min(chunks // MIN_CHUNKS, MAX_BLOCKS // tiles))
    return DEPTH * -(-chunks // splits)


def partial_shape(inner: int, columns: int, n_block: int, n_images: int) -> tuple[int, int, int]:
    """Shape of `partial`. inner, columns: of W, the side that is summed over and the other.

    n_images: as in `depth_of`.
    """
    splits = -(-inner // depth_of(inner, columns, n_images))
    return splits, 1 << (n_images - 1).bit_length(), columns + pad32(n_block)


def forward(
    partial: DeviceArray,
    progress: DeviceArray,
    H: DeviceArray,
    W: DeviceArray,
    whole: bool = False,
) -> list[Launch]:
    """Of the window's images; if `whole`, of all of a block that has just begun. Modifies partial.

    partial: see `partial_shape`, with n_images of the block if `whole`, else `most_images`.
    """
    (inner, columns), n = W.shape, H.shape[0] if whole else most_images(H.shape[0])
    arguments = partial, progress, H, W, np.int32(depth_of(inner, columns, n)), whole
    return [Launch(forward_products, _grid(partial, columns, n), THREADS, arguments)]


def backward(
    partial: DeviceArray, progress: DeviceArray, D: DeviceArray, W: DeviceArray
) -> list[Launch]:
    """Of the window's images. Modifies partial."""
    (columns, inner), n = W.shape, most_images(D.shape[0])
    arguments = partial, progress, D, W, np.int32(depth_of(inner, columns, n))
    return [Launch(backward_products, _grid(partial, columns, n), THREADS, arguments)]


def _grid(partial: DeviceArray, columns: int, n_images: int) -> tuple[int, int, int]:
    splits, _, width = partial.shape
    tiles = -(-columns // COLUMNS) + -(-(width - columns) // COLUMNS)
    return tiles, splits, -(-n_images // IMAGES)
