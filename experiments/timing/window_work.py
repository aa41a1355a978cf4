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


LayerWork = tuple[int, Work]  # a layer, from 1, and what one of its kernels does


def sweep_works(sizes: tuple[int, ...], n: float, end: float, n_block: int) -> list[LayerWork]:
    """Each kernel of a sweep, in the order of launches but for the last, which slides the window.

    A sweep of n images, of which the last is image end - 1 of its block. sizes: of the layers.
    Deltas are read before they are overwritten, to see how they changed.
    """
    found: list[LayerWork] = []
    layers = list(enumerate(pairwise(sizes), start=1))
    for layer, (n_in, n_out) in layers:
        product, parts = _product(n_in + 1, n_out, n, end, n_block)
        found += [(layer, product)] if layer > 1 else []
        found.append((layer, _sum(parts, n_out, n, end)))
    found.append((len(layers), Work(4 * 3 * n * sizes[-1])))
    for layer, (n_in, n_out) in reversed(layers[1:]):
        product, parts = _product(n_out, n_in + 1, n, end, n_block)
        found += [(layer, product), (layer, _sum(parts, n_in, n, end) + Work(4 * n * n_in))]
    return found


def begin_works(sizes: tuple[int, ...], n_block: int) -> list[LayerWork]:
    """Each kernel of a block's begin: its images, and layer 1's products."""
    product, _ = _product(sizes[0] + 1, sizes[1], n_block, n_block, n_block)
    return [(1, Work(4 * 2 * n_block * sizes[0])), (1, product)]


def update_works(sizes: tuple[int, ...], n_block: int) -> list[LayerWork]:
    """Each kernel of a block's end but for the last: the update of a layer's weights."""
    found = []
    for layer, (n_in, n_out) in enumerate(pairwise(sizes), start=1):
        words = 2 * (n_in + 1) * n_out + n_block * (n_in + 1 + n_out)
        found.append((layer, Work(4 * words, 2 * n_block * (n_in + 1) * n_out)))
    return found


def sweep_work(sizes: tuple[int, ...], n: float, end: float, n_block: int) -> Work:
    """A sweep as a whole; arguments as of `sweep_works`."""
    return sum((work for _, work in sweep_works(sizes, n, end, n_block)), Work())


def block_work(sizes: tuple[int, ...], n_block: int) -> Work:
    """A block's share: its begin and its end."""
    works = begin_works(sizes, n_block) + update_works(sizes, n_block)
    return sum((work for _, work in works), Work())


def work_of_an_image(
    sizes: tuple[int, ...], sweeps_per_block: float, window: float, n_block: int
) -> Work:
    """What an image needs, where blocks need so many sweeps of so many images on average."""
    sweep = sweep_work(sizes, window, (n_block + window) / 2, n_block)
    return (sweep * sweeps_per_block + block_work(sizes, n_block)) * (1 / n_block)
