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
from deepbig_runtime import files
from deepbig_runtime.gpu import Launch
from deform_gpu.kernels import listing1, tiles
from experiments.benchmarks import compiled
from experiments.drawing import traces
from experiments.drawing.launches import FIRST, make_launches
from experiments.drawing.traces import Pair, Run, Trace
from mlp_gpu import tensor_cores
from mlp_gpu.kernels import backward
from mlp_gpu.ladder import rung7_one_kernel as one_kernel
from mlp_gpu.ladder.net import SIDE


@dataclass(frozen=True)
class View:
    """A thread of a kernel, and an array that it touches.

    name: kernel, argument, and "read" or "write"; "shared 0" is the first array in shared memory.
    block, thread: in x and y. step: the drawn step of the warp is the one at which the thread
    touches its cell of that number. columns: cells in a row, by default as many as the array's last
    dimension has. corner: row and column that are drawn as 0, 0. shown: rows and columns that are
    drawn, by default all. transposed: rows are drawn as columns.
    """

    name: str
    block: Pair
    thread: Pair
    step: int | None = None
    columns: int | None = None
    corner: Pair = (0, 0)
    shown: Pair | None = None
    transposed: bool = False


KEPT, ROWS, SUMS, REGION = one_kernel.KEPT, tiles.FIELD_ROWS, tiles.ROWS, tiles.REGION
VIEWS = (
    View("forward_partial W read", (0, 1), (100, 0), 10),
    View("forward_reduce partial read", (3, 0), (4, 0), 1),
    View("output_delta partial read", (0, 0), (4, 0), 3),
    View("delta_partial W read", (3, 1), (4, 0), 10),
    View("delta_partial shared 0 write", (3, 1), (4, 0), 10, columns=backward.STRIDE),
    View("delta_partial shared 0 read", (3, 1), (4, 0), 10, columns=backward.STRIDE),
    View("delta_reduce partial read", (0, 0), (4, 0), 3),
    View("update_weights W write", (0, 2), (100, 0), 5),
    View("pick_image h write", (1, 0), (110, 0), 0),
    View("softmax_rows Y write", (1, 0), (10, 0), 0),
    View("forward_batch Y write", (1, 1), (37, 0)),
    View("draw_matrices matrices write", (0, 0), (40, 0), 0, columns=6),
    # Of fields the y axis, which comes first.
    View("fill_field field write", (0, 1), (12, 3), 0, shown=(50, 50)),
    View("convolve_columns sums write", (0, 1), (12, 5), 0, shown=(30, 50)),
    View("convolve_columns field read", (0, 1), (12, 5), shown=(50, 50)),
    View("convolve_rows displacement write", (0, 1), (12, 5), 0, shown=(30, 30)),
    View("convolve_rows sums read", (0, 1), (12, 5), shown=(30, 50)),
    View("warp_images out write", (0, 1), (12, 3), 0),
    View("deform_tiles shared 0 write", (0, 0), (70, 0), columns=REGION, shown=(ROWS, REGION)),
    View("deform_tiles shared 1 write", (0, 0), (70, 0), columns=REGION, shown=(SUMS, REGION)),
    View("deform_tiles out write", (0, 0), (70, 0)),
    View("convolve_field shared 1 read", (1, 1), (6, 3), columns=listing1.KERNEL),
    View("convolve_field shared 2 write", (1, 1), (6, 3), columns=listing1.KERNEL),
    View("forward_products W read", (2, 0), (37, 0)),
    View("forward_products partial write", (2, 0), (37, 0)),
    View("backward_products W read", (1, 1), (37, 0), transposed=True),
    View("backward_products partial write", (1, 1), (37, 0)),
    View("forward_tensor_products W read", (2, 0), (37, 0)),
    View("forward_tensor_products partial write", (2, 0), (37, 0)),
    View("backward_tensor_products W read", (1, 1), (37, 0), transposed=True),
    View("backward_tensor_products partial write", (1, 1), (37, 0)),
    View("forward_states H_next write", (2, 1), (37, 0), corner=(FIRST, 1)),
    View("backward_deltas D write", (1, 2), (37, 0), corner=(FIRST, 0)),
    View("update_weights_of_block W write", (1, 1), (37, 0)),
    View("update_tensor_products W write", (1, 1), (37, 0)),
    View("forward_tensor_sums H_next write", (2, 0), (37, 0), corner=(FIRST, 1)),
    View("backward_tensor_sums D write", (1, 0), (37, 0), corner=(FIRST, 0)),
    View("gather_images H write", (0, 4), (110, 0), 0, corner=(0, 1)),
    View("output_deltas D write", (0, 11), (5, 0), 0, corner=(FIRST, 0)),
    View("slide_window changes read", (0, 0), (41, 0)),
    View("convolve_maps h read", (0, 0), (5, 4), 0),
    View("convolve_maps w read", (0, 0), (5, 4), 0),
    View("convolve_maps y write", (0, 0), (5, 4), 0),
    View("pull_deltas delta read", (0, 0), (13, 12)),
    View("pull_deltas w read", (0, 0), (13, 12)),
    View("pull_deltas delta_in write", (0, 0), (13, 12), 0),
    View("adjust_weights delta read", (1, 0), (3, 1)),
    View("adjust_weights h read", (1, 0), (3, 1)),
    View("adjust_weights w write", (1, 0), (3, 1)),
    View("pool_maps h read", (1, 0), (7, 2)),
    View("pool_maps y write", (1, 0), (7, 2), 0),
    View("unpool_deltas winners read", (0, 0), (15, 5)),
    View("unpool_deltas delta_in write", (0, 0), (15, 5), 0),
    View("process_maps h read", (1, 0), (9, 4)),
    View("process_maps y write", (1, 0), (9, 4), 0),
    View("rows_to_maps rows read", (1, 0), (9, 4), columns=50),
    View("rows_to_maps maps write", (1, 0), (9, 4), 0),
    View("forward_naive W1 read", (0, 0), (5, 0), 11, shown=(32, 32)),
    View("deltas_naive W2 read", (0, 0), (5, 0), 4, shown=(10, 40)),
    View("update_hidden_naive W1 write", (0, 0), (5, 0), 0, shown=(32, 32)),
    View("update_outputs_naive W2 write", (0, 0), (5, 0), 0, shown=(10, 40)),
    View("forward_tiled W1 read", (0, 0), (21, 0), 0, shown=(32, 24)),
    View("forward_coalesced W1 read", (0, 0), (5, 0), 11, shown=(32, 32)),
    View("deltas_coalesced W2 read", (0, 0), (5, 0), 4, shown=(32, 10)),
    View("update_hidden_coalesced W1 write", (0, 0), (5, 0), 0, shown=(32, 32)),
    View("update_outputs_coalesced W2 write", (0, 0), (5, 0), 0, shown=(32, 10)),
    View("forward_shared images read", (0, 0), (5, 0), 0, columns=SIDE),
    View("forward_shared W1 read", (0, 0), (5, 0), 11, shown=(32, 32)),
    View("deltas_shared W2 read", (0, 0), (5, 0), 4, shown=(32, 10)),
    View("update_hidden_shared W1 write", (0, 0), (5, 0), 0, shown=(32, 32)),
    View("train_chunk W1 read", (0, 0), (5, 0), KEPT + 1, shown=(48, 32)),
)


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
    return compiled.execute(_executor(cc), replace(launch, arguments=arguments))


@cache
def _executor(cc: tuple[int, int]) -> Executor:
    return compiled.new_executor(cc, order="forward", traced=True)


def accesses(launched: Launched, array: str, kind: str) -> tuple[Launched, int]:
    """The launch with nothing in its trace but the accesses to an array; words of that array.

    array: an argument, or "shared 0" and so on. kind: "read" or "write". Addresses become words.
    """
    shared = [name for name in launched.arrays if "smem" in name]
    name = shared[int(array[-1])] if array.startswith("shared ") else array
    start, n_bytes = launched.arrays[name]
    n_words = {}  # of instructions of that kind: words that a thread accesses at once
    for place in np.unique(np.concatenate(launched.trace)[:, 0]).tolist():
        _, found, size = access_stats.access_of(launched.code[place])
        if found == kind:
            n_words[place] = max(1, size // access_stats.WORD)

    def cut(trace: np.ndarray) -> np.ndarray:
        address = trace[:, 2] - start
        inside = np.isin(trace[:, 0], list(n_words)) & (address >= 0) & (address < n_bytes)
        rows = trace[inside]
        n = np.array([n_words[place] for place in rows[:, 0].tolist()], int)
        word = address[inside] // access_stats.WORD
        after_first = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        each = np.repeat(np.column_stack((rows[:, :2], word)), n, axis=0)
        each[:, 2] += after_first
        return each

    cut_down = replace(launched, trace=[cut(trace) for trace in launched.trace])
    return cut_down, n_bytes // access_stats.WORD


def _trace(launch: Launch, launched: Launched, view: View) -> Trace:
    """The trace of one view of a launch."""
    array, kind = view.name.split(" ", 1)[1].rsplit(" ", 1)
    arguments = dict(
        zip(launch.kernel.py_func.__code__.co_varnames, launch.arguments, strict=False)
    )
    launched, n_words = accesses(launched, array, kind)
    columns = view.columns or arguments[array].shape[-1]
    shape = n_words // columns, columns

    def cells(words: np.ndarray) -> np.ndarray:
        found = np.stack(divmod(np.unique(words), columns), axis=1) - view.corner
        found = found[((found >= 0) & (found < (view.shown or shape))).all(axis=1)]
        return found[:, ::-1] if view.transposed else found

    threads = launch.threads if isinstance(launch.threads, tuple) else (launch.threads, 1)
    thread = view.thread[1] * threads[0] + view.thread[0]
    block = launched.blocks.tolist().index(view.block[1] * launch.grid[0] + view.block[0])
    of_block = launched.trace[block]
    own = np.unique(of_block[of_block[:, 1] == thread, 2])
    step = own[:0]
    if view.step is not None:
        steps = access_stats.warp_steps(replace(launched, trace=[of_block]))
        step = next(words for _, who, words in steps if own[view.step] in words[who == thread])
    reached = cells(np.concatenate(launched.trace)[:, 2])
    return Trace(
        (launch.grid[0], launch.grid[1]),
        threads,
        view.block,
        view.thread,
        shape[::-1] if view.transposed else shape,
        (*reached.min(axis=0).tolist(), *(reached.max(axis=0) + 1).tolist()),
        *(_runs(cells(words)) for words in (of_block[:, 2], own, step)),
    )


def _runs(cells: np.ndarray) -> list[Run]:
    """Cells, int (n, 2), as runs."""
    cells = cells[np.lexsort(cells.T[::-1])]
    starts = np.flatnonzero((np.diff(cells, axis=0) != (0, 1)).any(axis=1)) + 1
    return [
        (int(part[0, 0]), int(part[0, 1]), int(part[-1, 1]))
        for part in np.split(cells, starts)
        if len(part)
    ]
