"""Which cells of arrays the drawn threads touch, as `tracing` wrote them to traces.json."""

from functools import cache
from pathlib import Path

import msgspec

PATH = Path(__file__).with_name("traces.json")

Pair = tuple[int, int]
Box = tuple[int, int, int, int]  # first row and column, and the ones after the last
Strip = tuple[int, int, int]  # cells side by side: their row, the first column and the last


class Trace(msgspec.Struct, frozen=True):
    """A launch, and the cells of one of its arrays that are read, or written.

    grid, threads: thread blocks, and threads of a block, by x, y, z. shape: rows and columns of the
    array. region: the part that is drawn, which has all cells below. blocks: bounds of the cells of
    each block. of_all: cells of all blocks. of_block: cells of the drawn block. own: cells of the
    drawn thread, in the order of its first accesses. step: cells of its warp at one step. moved:
    cells in the sectors of global memory that this step transfers. n_own, n_step: numbers of cells,
    drawn or not. n_turns: sectors of the step; in shared memory turns of the banks.
    """

    grid: tuple[int, ...]
    threads: Pair
    shape: Pair
    region: Box
    blocks: list[Box]
    of_all: list[Strip]
    of_block: list[Strip]
    own: list[Strip]
    step: list[Strip]
    moved: list[Strip]
    n_own: int
    n_step: int
    n_turns: int


def cells_of(strips: list[Strip]) -> list[Pair]:
    """The cells (row, column) of strips, in their order."""
    return [(row, column) for row, first, last in strips for column in range(first, last + 1)]


@cache
def read_traces() -> dict[str, Trace]:
    """The traces, by their names, such as "forward_partial W read"."""
    return msgspec.json.decode(PATH.read_bytes(), type=dict[str, Trace])
