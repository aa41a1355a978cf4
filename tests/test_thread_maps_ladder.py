"""The drawn maps of the ladder's kernels are what these do when they are executed."""

from collections import Counter

import numpy as np
import pytest
import touches
from compiled_cases import needs_toolkit

from experiments.drawing import thread_cells_ladder
from experiments.drawing.thread_cells_ladder import FLOATS, kept_and_other, make_mappings, pieces
from mlp_gpu.ladder import one_kernel, tiled
from mlp_gpu.ladder.net import MAX_HIDDEN, N_INPUTS, N_OUTPUTS
from mlp_gpu.ladder.rungs import SIGNATURES

HIDDEN = 33  # a warp, and a thread of another
MAPPINGS = make_mappings(HIDDEN)
SHARED = {
    "forward_tiled": [(MAX_HIDDEN, tiled.ROW), (tiled.TILE,)],
    "forward_shared": [(N_INPUTS,), (MAX_HIDDEN,)],
    "deltas_shared": [(N_OUTPUTS,)],
    "train_chunk": [(MAX_HIDDEN,)] * 3 + [(N_OUTPUTS,)],
}


def test_every_kernel_has_a_mapping():
    assert set(MAPPINGS) == {kernel.py_func.__name__ for kernel in SIGNATURES}


@needs_toolkit
@pytest.mark.parametrize("name", MAPPINGS)
def test_mappings_are_those_of_the_kernels(name):
    """But for the order of what a thread touches, which is the compiler's."""
    mapping = MAPPINGS[name]
    names = mapping.launch.kernel.py_func.__code__.co_varnames
    found = touches.touched(mapping.launch, names, SHARED.get(name, []))
    for block in np.ndindex(mapping.launch.grid):
        for thread in np.ndindex(mapping.threads):
            for (array, kind), cells in mapping.touched(block, thread).items():
                executed = found.get((array, kind, block, thread), [])
                executed = [cell if len(cell) == 2 else (0, *cell) for cell in executed]
                assert Counter(executed) == Counter(cells), (array, kind, block, thread)


@pytest.mark.parametrize("hidden", [10, HIDDEN, 128, 300, 512])
def test_each_weight_of_the_chunk_has_one_thread(hidden):
    threads = one_kernel.MAX_THREADS // hidden * hidden
    kept, other = zip(*(kept_and_other(hidden, t) for t in range(threads)), strict=True)
    taken = Counter(cell for cells in kept + other for cell in cells)
    assert taken == Counter(np.ndindex(N_INPUTS, hidden))
    assert {len(cells) for cells in kept} == {one_kernel.KEPT}


def test_pieces():
    (one,) = pieces([(0, 3), (0, 5)], 16)
    assert one == [(0, i) for i in range(FLOATS)]
    assert pieces([(1, 0)], 10) == [[(0, 8), (0, 9)] + [(1, i) for i in range(6)]]
    assert len(pieces([(i, 0) for i in range(32)], N_INPUTS)) == 32


def test_the_drawn_net_is_the_blogs():
    launches = [mapping.launch for mapping in make_mappings().values()]
    assert thread_cells_ladder.HIDDEN == 128
    assert {launch.threads for launch in launches} == {128, 256, 512}
