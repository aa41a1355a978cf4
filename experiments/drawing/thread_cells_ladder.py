"""Which cells the threads of the ladder's kernels touch, computed here once more.

`thread_maps_ladder` draws them.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from cuda_on_cpu.access_stats import SECTOR
from experiments.drawing.thread_cells_cnn import Mapping, Pair, Touched
from mlp_gpu.ladder import coalesced, naive, one_kernel, shared, tiled
from mlp_gpu.ladder.arrays import Arrays, hosts
from mlp_gpu.ladder.net import N_INPUTS, N_OUTPUTS, Net

HIDDEN = 128  # the blog's
STEPS = 2  # of the drawn chunk
FLOATS = SECTOR // 4  # in a piece of memory that is moved together

# A memory space is called as the argument, or "shared 0", "shared 1" in the order of the kernel.
Cells = Callable[[int], Touched]


def on_the_host(hidden: int, turned: bool) -> Arrays:
    """What a rung has on the GPU, on the host: one image in each step, one step made already."""
    images, labels = np.zeros((1, N_INPUTS), np.float32), np.zeros(1, np.uint8)
    order = np.zeros(1 + STEPS, np.int64)
    found = hosts(Net.initial(hidden, 0), images, labels, order, turned)
    found[-1] += 1
    return Arrays(turned, *found)


def _turn(cells: list[Pair], turned: bool) -> list[Pair]:
    return [cell[::-1] for cell in cells] if turned else cells


def _forward(hidden: int, turned: bool, j: int) -> Touched:
    second = [(j, i) for i in range(hidden if j < N_OUTPUTS else 0)]
    return {
        ("W1", "read"): _turn([(j, i) for i in range(N_INPUTS)], turned),
        ("W2", "read"): _turn(second, turned),
        ("images", "read"): [(0, i) for i in range(N_INPUTS)],
    }


def _deltas(turned: bool, j: int) -> Touched:
    return {("W2", "read"): _turn([(k, j) for k in range(N_OUTPUTS)], turned)}


def _update(layer: int, shape: Pair, turned: bool, thread: int) -> Touched:
    """shape: (inputs, neurons) or, where neurons are numbered first too, (neurons, inputs)."""
    rows, columns = shape
    cell = divmod(thread, columns) if turned else divmod(thread, rows)[::-1]
    cells = [cell] if thread < rows * columns else []
    return {(f"{name}{layer}", kind): cells for name in "WV" for kind in ("read", "write")}


def _forward_tiled(hidden: int, j: int) -> Touched:
    place = [divmod(place, tiled.TILE) for place in range(j, hidden * tiled.TILE, hidden)]
    firsts = range(0, N_INPUTS, tiled.TILE)
    return _forward(hidden, False, j) | {
        ("W1", "read"): [(row, first + column) for first in firsts for row, column in place],
        ("images", "read"): [(0, first + i) for first in firsts for i in range(j, 8, hidden)],
        ("shared 0", "write"): place * len(firsts),
        ("shared 0", "read"): [(j, i) for i in range(tiled.TILE)] * len(firsts),
    }


def _forward_shared(hidden: int, j: int) -> Touched:
    pixels = [(0, i) for i in range(j, N_INPUTS, hidden)]
    return _forward(hidden, True, j) | {
        ("images", "read"): pixels,
        ("shared 0", "write"): pixels,
        ("shared 0", "read"): [(0, i) for i in range(N_INPUTS)],
        ("shared 1", "write"): [(0, j)],
    }


def _deltas_shared(hidden: int, j: int) -> Touched:
    return _deltas(True, j) | {
        ("shared 0", "write"): [(0, k) for k in range(j, N_OUTPUTS, hidden)],
        ("shared 0", "read"): [(0, k) for k in range(N_OUTPUTS)],
    }


def kept_and_other(hidden: int, thread: int) -> tuple[list[Pair], list[Pair]]:
    """The cells of W1, turned, that a thread of train_chunk has in registers, and its others."""
    groups = one_kernel.MAX_THREADS // hidden
    group, j = divmod(thread, hidden)
    own = [(i, j) for i in range(group, N_INPUTS, groups)]
    return own[: one_kernel.KEPT], own[one_kernel.KEPT :]


def _train_chunk(hidden: int, steps: int, thread: int) -> Touched:
    threads = one_kernel.MAX_THREADS // hidden * hidden
    kept, other = kept_and_other(hidden, thread)
    lanes = range(thread, N_OUTPUTS * one_kernel.LANES, threads)
    outputs = [divmod(place, one_kernel.LANES) for place in lanes]
    forward = [(i, k) for k, lane in outputs for i in range(lane, hidden, one_kernel.LANES)]
    sums = [(0, k * one_kernel.ROW + lane) for k, lane in outputs]
    own = [(0, thread)]
    neuron = own * steps if thread < hidden else []
    backward = [(thread, k) for k in range(N_OUTPUTS if thread < hidden else 0)]
    places = range(thread, hidden * N_OUTPUTS, threads)
    update = [divmod(place, N_OUTPUTS) for place in places]
    return {
        # The last round updates only, and reads the other weights once more.
        ("W1", "read"): kept + other * (steps + 1),
        ("V1", "read"): kept + other * steps,
        ("W1", "write"): other * steps + kept,
        ("V1", "write"): other * steps + kept,
        ("W2", "read"): (forward + backward + update) * steps,
        ("W2", "write"): update * steps,
        ("V2", "write"): update * steps,
        ("shared 0", "write"): (own + sums) * steps,
        ("shared 1", "write"): neuron,
        ("shared 2", "write"): neuron,
        ("shared 3", "write"): [(0, k) for k in range(thread, N_OUTPUTS, threads)] * steps,
    }


def make_mappings(hidden: int = HIDDEN, steps: int = STEPS) -> dict[str, Mapping]:
    """The kernels of all rungs on one step, `train_chunk` on some, by their names.

    A cell of an array of one dimension is (0, place).
    """
    first, second = (hidden, N_INPUTS), (N_OUTPUTS, hidden)
    layers = {
        False: (partial(_update, 2, second, False), partial(_update, 1, first, False)),
        True: (partial(_update, 2, second[::-1], True), partial(_update, 1, first[::-1], True)),
    }
    forward = {
        naive: partial(_forward, hidden, False),
        tiled: partial(_forward_tiled, hidden),
        coalesced: partial(_forward, hidden, True),
        shared: partial(_forward_shared, hidden),
    }
    deltas = {
        naive: partial(_deltas, False),
        coalesced: partial(_deltas, True),
        shared: partial(_deltas_shared, hidden),
    }
    cells: list[tuple[list, list[Cells]]] = []
    for rung in forward:
        launches = rung.launches(on_the_host(hidden, rung.TURNED))
        new: list[Cells] = [forward[rung]]
        if rung in deltas:
            new += [deltas[rung], *layers[rung.TURNED]]
        cells.append((launches[: len(new)], new))
    chunk = one_kernel.launches(on_the_host(hidden, True), steps)
    cells.append((chunk, [partial(_train_chunk, hidden, steps)]))
    found = {}
    for launches, of_threads in cells:
        for launch, of_thread in zip(launches, of_threads, strict=True):
            touched = partial(_of_block, of_thread, launch.threads)
            found[launch.kernel.py_func.__name__] = Mapping(launch, touched)
    return found


def _of_block(of_thread: Cells, threads: int, block: Pair, thread: Pair) -> Touched:
    return of_thread(block[0] * threads + thread[0])


def pieces(cells: list[Pair], columns: int) -> list[list[Pair]]:
    """The pieces of 32 bytes that hold some cells of a float32 matrix, each as its cells."""
    numbers = {(row * columns + column) // FLOATS for row, column in cells}
    return [
        [divmod(FLOATS * number + i, columns) for i in range(FLOATS)] for number in sorted(numbers)
    ]
