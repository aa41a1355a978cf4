"""Executes the drawn kernels on the CPU, as compiled, and writes which cells their threads touch.

`make kernels ARGS=--trace` does so. Drawings read the file, so that they need no compiler; a test
compares it with the kernels.
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby

import msgspec
import numpy as np

from cuda_on_cpu import Executor, Launched, access_stats, to_device
from cuda_on_cpu.access_stats import SECTOR, WORD
from cuda_on_cpu.parse import Instruction
from deepbig_runtime import files
from deepbig_runtime.gpu import Launch
from experiments.benchmarks import executor
from experiments.drawing import traces
from experiments.drawing.launches import make_launches
from experiments.drawing.thread_maps import VIEWS, View
from experiments.drawing.traces import Box, Strip, Trace
from mlp_gpu import tensor_cores


def write_traces() -> None:
    """Execute the kernels of VIEWS and write traces.json, a line for each view.

    Raises files.FileFault if the file cannot be written.
    """
    launches, lines = make_launches(), []
    for kernel, views in groupby(VIEWS, lambda view: view.name.split()[0]):
        launched = execute(launches[kernel])
        for view in views:
            trace = msgspec.json.encode(_trace(launches[kernel], launched, view)).decode()
            lines.append(f'"{view.name}": {trace}')
    files.replace(traces.PATH, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def execute(launch: Launch) -> Launched:
    """Execute a launch on copies of its arrays of the host, and record accesses."""
    copies = {id(a): to_device(a) for a in launch.arguments if isinstance(a, np.ndarray)}
    arguments = tuple(copies.get(id(a), a) for a in launch.arguments)
    # As tests execute them, which so share the compiled code.
    cc = (10, 0) if launch.kernel in tensor_cores.SIGNATURES else (7, 5)
    return executor.execute(_executor(cc), replace(launch, arguments=arguments))


@cache
def _executor(cc: tuple[int, int]) -> Executor:
    return executor.new_executor(cc, order="forward", traced=True)


def _trace(launch: Launch, launched: Launched, view: View) -> Trace:
    """The trace of one view of a launch."""
    array = _array(launch, launched, view)
    shape = array.n_bytes // WORD // array.columns, array.columns
    region = view.region or (0, 0, *shape)
    threads = launch.threads if isinstance(launch.threads, tuple) else (launch.threads, 1)
    thread = view.thread[1] * threads[0] + view.thread[0]
    of_blocks = [array.accesses(trace) for trace in launched.trace]
    of_block = of_blocks[
        launched.blocks.tolist().index(view.block[1] * launch.grid[0] + view.block[0])
    ]
    own = array.words(of_block[of_block[:, 1] == thread])
    step = _step(replace(launched, trace=[of_block]), thread, own[view.step], view)
    in_shared = array.name.startswith("shared")
    in_sector = SECTOR // WORD
    sectors = np.unique(step // in_sector)
    moved = (sectors[:, None] * in_sector + np.arange(in_sector)).reshape(-1)
    drawn = [array.cells(array.words(accessed), region) for accessed in of_blocks]
    bounds = {
        (*cells.min(axis=0).tolist(), *(cells.max(axis=0) + 1).tolist())
        for cells in drawn
        if len(cells)
    }

    def strips(words: np.ndarray) -> list[Strip]:
        return _strips(array.cells(words, region))

    return Trace(
        grid=launch.grid,
        threads=threads,
        shape=shape,
        region=region,
        blocks=sorted(bounds),
        of_all=strips(np.sort(array.words(np.concatenate(of_blocks)))),
        of_block=strips(np.sort(array.words(of_block))),
        own=strips(own),
        step=strips(step),
        moved=[] if in_shared else strips(moved),
        n_own=len(own),
        n_step=len(step),
        n_turns=access_stats.words_per_bank(step.tolist()) if in_shared else len(sectors),
    )


@dataclass(frozen=True)
class _Array:
    """An array of a launch, its bytes from address `start` on, in rows of `columns` words.

    sizes: number of words that each instruction of the launch accesses at once; 0 for those of
    another kind.
    """

    name: str
    start: int
    n_bytes: int
    columns: int
    sizes: np.ndarray

    def accesses(self, trace: np.ndarray) -> np.ndarray:
        """The accesses of a trace to the array: instruction, thread, first word; int (n, 3)."""
        offset = trace[:, 2] - self.start
        inside = (self.sizes[trace[:, 0]] > 0) & (offset >= 0) & (offset < self.n_bytes)
        return np.column_stack((trace[inside, :2], offset[inside] // WORD))

    def words(self, accesses: np.ndarray) -> np.ndarray:
        """The words of accesses, each once, in the order in which they come first."""
        sizes = self.sizes[accesses[:, 0]]
        starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
        words = np.repeat(accesses[:, 2], sizes) + np.arange(len(starts)) - starts
        distinct, first = np.unique(words, return_index=True)
        return distinct[np.argsort(first)]

    def cells(self, words: np.ndarray, region: Box) -> np.ndarray:
        """The words in a region, by row and column."""
        top, left, bottom, right = region
        row, column = np.divmod(words, self.columns)
        inside = (top <= row) & (row < bottom) & (left <= column) & (column < right)
        return np.column_stack((row, column))[inside]


def _array(launch: Launch, launched: Launched, view: View) -> _Array:
    """The array of a view: an argument of the kernel, or shared0, shared1, ..."""
    _, name, kind = view.name.split()
    if name.startswith("shared"):
        start, n_bytes = [v for key, v in launched.arrays.items() if "smem" in key][int(name[-1])]
    else:
        start, n_bytes = launched.arrays[name]
    names = launch.kernel.py_func.__code__.co_varnames
    arguments = dict(zip(names, launch.arguments, strict=False))
    n = len(launched.code)
    times = np.sum([np.bincount(trace[:, 0], minlength=n) for trace in launched.trace], axis=0)
    sizes = np.zeros(n, int)
    for place, code in enumerate(launched.code):
        if times[place] and isinstance(code, Instruction):  # that accesses memory
            _, code_kind, size = access_stats.access_of(code)
            sizes[place] = max(1, size // WORD) if code_kind == kind else 0
    return _Array(name, start, n_bytes, view.width or arguments[name].shape[-1], sizes)


def _step(launched: Launched, thread: int, word: int, view: View) -> np.ndarray:
    """The words that the warp of a thread accesses when this thread accesses a word first."""
    for code, threads, first in access_stats.warp_steps(launched):
        words = first[:, None] + np.arange(max(1, access_stats.access_of(code)[2] // WORD))
        if word in words[threads == thread]:
            return np.unique(words)
    raise ValueError(f"{view.name}: no step of the warp of thread {view.thread} has the cell")


def _strips(cells: np.ndarray) -> list[Strip]:
    """Cells, int (n, 2), as strips, in their order."""
    starts = np.flatnonzero((np.diff(cells, axis=0) != (0, 1)).any(axis=1)) + 1
    parts = np.split(cells, starts) if len(cells) else []
    return [(int(part[0, 0]), int(part[0, 1]), int(part[-1, 1])) for part in parts]
