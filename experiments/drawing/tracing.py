"""Executes the drawn kernels on the CPU, as compiled, and writes which cells their threads touch.

`make kernels ARGS=--trace` does so. Drawings read the file, so that they need no compiler; a test
compares it with the kernels.
"""

from dataclasses import replace
from functools import cache
from itertools import groupby

import msgspec
import numpy as np

from cuda_on_cpu import Executor, Launched, access_stats, to_device
from cuda_on_cpu.access_stats import SECTOR, WORD
from deepbig_runtime import files
from deepbig_runtime.gpu import Launch
from experiments.benchmarks import executor
from experiments.drawing import traces
from experiments.drawing.launches import make_launches
from experiments.drawing.thread_maps import VIEWS, View
from experiments.drawing.traces import Run, Trace
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
    cc = tensor_cores.LOWEST_CC if launch.kernel in tensor_cores.SIGNATURES else (7, 5)
    return executor.execute(_executor(cc), replace(launch, arguments=arguments))


@cache
def _executor(cc: tuple[int, int]) -> Executor:
    return executor.new_executor(cc, order="forward", traced=True)


def _trace(launch: Launch, launched: Launched, view: View) -> Trace:
    """The trace of one view of a launch."""
    _, array, kind = view.name.split()
    in_shared = array.startswith("shared")
    shared = [name for name in launched.arrays if "smem" in name]
    start, n_bytes = launched.arrays[shared[int(array[-1])] if in_shared else array]
    names = launch.kernel.py_func.__code__.co_varnames
    arguments = dict(zip(names, launch.arguments, strict=False))
    columns = view.width or arguments[array].shape[-1]
    rows = n_bytes // WORD // columns
    top, left, bottom, right = region = view.region or (0, 0, rows, columns)
    # Words that a thread accesses at once, of each instruction of that kind.
    sizes = {}
    for place in np.unique(np.concatenate(launched.trace)[:, 0]).tolist():
        _, code_kind, size = access_stats.access_of(launched.code[place])
        if code_kind == kind:
            sizes[place] = max(1, size // WORD)

    def accesses(trace: np.ndarray) -> np.ndarray:
        """Those to the array: instruction, thread, first word; int (n, 3)."""
        offset = trace[:, 2] - start
        inside = np.isin(trace[:, 0], list(sizes)) & (offset >= 0) & (offset < n_bytes)
        return np.column_stack((trace[inside, :2], offset[inside] // WORD))

    def words(accessed: np.ndarray) -> np.ndarray:
        """The words of accesses, each once, in the order in which they come first."""
        each = [first + i for place, _, first in accessed.tolist() for i in range(sizes[place])]
        return np.array(list(dict.fromkeys(each)), int)

    def cells(found: np.ndarray) -> np.ndarray:
        """The words that are drawn, by row and column."""
        row, column = np.divmod(found, columns)
        inside = (top <= row) & (row < bottom) & (left <= column) & (column < right)
        return np.column_stack((row, column))[inside]

    threads = launch.threads if isinstance(launch.threads, tuple) else (launch.threads, 1)
    thread = view.thread[1] * threads[0] + view.thread[0]
    block = launched.blocks.tolist().index(view.block[1] * launch.grid[0] + view.block[0])
    of_blocks = [accesses(trace) for trace in launched.trace]
    own = words(of_blocks[block][of_blocks[block][:, 1] == thread])
    for code, who, first in access_stats.warp_steps(replace(launched, trace=[of_blocks[block]])):
        each = first[:, None] + np.arange(max(1, access_stats.access_of(code)[2] // WORD))
        if own[view.step] in each[who == thread]:
            step = np.unique(each)
            break
    else:
        raise ValueError(f"{view.name}: no step of the warp of thread {view.thread} has the cell")
    in_sector = SECTOR // WORD
    sectors = np.unique(step // in_sector)
    moved = (sectors[:, None] * in_sector + np.arange(in_sector)).reshape(-1)
    drawn = [found for trace in of_blocks if len(found := cells(words(trace)))]
    bounds = {(*found.min(axis=0).tolist(), *(found.max(axis=0) + 1).tolist()) for found in drawn}
    return Trace(
        launch.grid,
        threads,
        (rows, columns),
        region,
        sorted(bounds),
        _runs(cells(np.sort(words(np.concatenate(of_blocks))))),
        _runs(cells(np.sort(words(of_blocks[block])))),
        _runs(cells(own)),
        _runs(cells(step)),
        [] if in_shared else _runs(cells(moved)),
        len(own),
        len(step),
        access_stats.words_per_bank(step.tolist()) if in_shared else len(sectors),
    )


def _runs(cells: np.ndarray) -> list[Run]:
    """Cells, int (n, 2), as runs, in their order."""
    starts = np.flatnonzero((np.diff(cells, axis=0) != (0, 1)).any(axis=1)) + 1
    parts = np.split(cells, starts) if len(cells) else []
    return [(int(part[0, 0]), int(part[0, 1]), int(part[-1, 1])) for part in parts]
