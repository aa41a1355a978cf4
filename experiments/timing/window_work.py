"""What the window's kernels move and compute: bytes and operations of each, of sweeps, of blocks.

As `gpu.kernel_bytes`: each number that a launch reads or writes counts once, 4 bytes; padding, the
numbers of progress and labels do not count.
"""

from dataclasses import dataclass
from itertools import pairwise

from mlp_gpu.network import pad32
from mlp_gpu.window import products


@dataclass(frozen=True)
class Work:
    """n_bytes: read and written. flops: multiplications and additions."""

    n_bytes: float = 0
    flops: float = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.n_bytes + other.n_bytes, self.flops + other.flops)

    def __mul__(self, times: float) -> "Work":
        return Work(self.n_bytes * times, self.flops * times)


def _product(inner: int, columns: int, n: float, end: float, n_block: int) -> tuple[Work, float]:
    """Stage 1 of n images, the last of which is image end - 1 of its block; parts in words."""
    rows, across = pad32(inner), pad32(columns)
    parts = -(-rows // products.depth_of(rows, across, n_block)) * n * (columns + end)
    words = inner * columns + inner * end + parts
    return Work(4 * words, 2 * n * inner * (columns + end)), parts


def _sum(parts: float, columns: int, n: float, end: float) -> Work:
    """Stage 2: the parts, what corrects them, and the results. Images before each correct it."""
    before = n * (end - (n + 1) / 2)  # pairs of an image and one before
    return Work(4 * (parts + end * columns + n * columns), 2 * before * columns + parts)


def sweep_work(sizes: tuple[int, ...], n: float, end: float, n_block: int) -> Work:
    """A sweep of n images, of which the last is image end - 1 of its block.

    sizes: of the layers. Deltas are read before they are overwritten, to see how they changed.
    """
    total = Work(4 * n * (sum(sizes[1:]) + 2 * sizes[-1]))
    for layer, (n_in, n_out) in enumerate(pairwise(sizes)):
        forward, parts = _product(n_in + 1, n_out, n, end, n_block)
        total += _sum(parts, n_out, n, end)
        if layer > 0:
            backward, back_parts = _product(n_out, n_in + 1, n, end, n_block)
            total += forward + backward + _sum(back_parts, n_in, n, end)
    return total


def block_work(sizes: tuple[int, ...], n_block: int) -> Work:
    """A block's share: its images, layer 1's products, and the update of all weights."""
    product, _ = _product(sizes[0] + 1, sizes[1], n_block, n_block, n_block)
    total = Work(4 * 2 * n_block * sizes[0]) + product
    for n_in, n_out in pairwise(sizes):
        words = 2 * (n_in + 1) * n_out + n_block * (n_in + 1 + n_out)
        total += Work(4 * words, 2 * n_block * (n_in + 1) * n_out)
    return total


def work_of_an_image(
    sizes: tuple[int, ...], sweeps_per_block: float, window: float, n_block: int
) -> Work:
    """What an image needs, where blocks need so many sweeps of so many images on average."""
    sweep = sweep_work(sizes, window, (n_block + window) / 2, n_block)
    return (sweep * sweeps_per_block + block_work(sizes, n_block)) * (1 / n_block)
