"""Which cells of arrays the drawn threads touch, as `tracing` wrote them to traces.json."""

from functools import cache
from pathlib import Path

import msgspec

PATH = Path(__file__).with_name("traces.json")

Pair = tuple[int, int]
Run = tuple[int, int, int]  # cells side by side: their row, the first column and the last


class Trace(msgspec.Struct, frozen=True):
    """A launch, and the cells of one of its arrays that are read, or written.

    grid, threads: thread blocks, and threads of a block, in x and y. block, thread: the drawn ones.
    shape: rows and columns of the array. reached: the first row and column that the launch touches,
    and the ones after its last. of_block, own: the cells of the drawn block and of the drawn
    thread. step: cells of its warp at one step; empty where that is not drawn.
    """

    grid: Pair
    threads: Pair
    block: Pair
    thread: Pair
    shape: Pair
    reached: tuple[int, int, int, int]
    of_block: list[Run]
    own: list[Run]
    step: list[Run]


def cells_of(runs: list[Run]) -> list[Pair]:
    """The cells (row, column) of runs, in order of rows and columns."""
    return [(row, column) for row, first, last in runs for column in range(first, last + 1)]


@cache
def read_traces() -> dict[str, Trace]:
    """The traces, by their names, such as "forward_partial W read"."""
    return msgspec.json.decode(PATH.read_bytes(), type=dict[str, Trace])
