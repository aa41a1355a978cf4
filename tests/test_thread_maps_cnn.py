"""The drawn cells of convolutional nets are those that the compiled kernels touch when executed."""

import numpy as np
import pytest
import touches
from compiled_cases import needs_toolkit

from cnn_gpu.layers import Maps, parse
from experiments.drawing.thread_cells_cnn import CONNECTIONS, make_mappings

SIZES = {  # a convolution, and the maps that all kernels read
    "a block a map": ("3M3x4s1x0", Maps(2, 5, 7)),
    "a block a line": ("3M2x1", Maps(2, 32, 35)),
}


def mappings(size):
    convolution, maps = SIZES[size]
    layers = [parse(text, maps, 1)[0] for text in (convolution, "MP3x2", "IP(sobel)")]
    return make_mappings(layers[0], CONNECTIONS, *layers[1:])


MAPPINGS = {(size, name): mapping for size in SIZES for name, mapping in mappings(size).items()}


def cell(array, index, maps):
    """The cell (row, column) of an index into an argument."""
    if array == "rows":
        return divmod(index[1], maps.width * maps.n)
    return (0, *index) if array == "bias" else index[-2:]


@needs_toolkit
@pytest.mark.parametrize(("size", "name"), MAPPINGS)
def test_cells_are_those_of_the_kernel(size, name):
    mapping, (_, maps) = MAPPINGS[size, name], SIZES[size]
    drawn, found = {}, {}
    for block in np.ndindex(mapping.launch.grid[:2]):
        for thread in np.ndindex(mapping.threads):
            for key, cells in mapping.touched(block, thread).items():
                if cells:
                    drawn[*key, block, thread] = set(cells)
    kinds = {key[:2] for key in drawn}
    for (array, what, *who), indices in touches.touched(mapping.launch, (), ()).items():
        if (array, what) in kinds:
            found[array, what, *who] = {cell(array, index, maps) for index in indices}
    assert drawn == found


@pytest.mark.parametrize("name", ["convolve_maps", "pull_deltas"])
def test_maps_of_more_neurons_than_a_block_has_threads_take_a_block_a_line(name):
    assert MAPPINGS["a block a line", name].launch.grid[1] == 32
    assert MAPPINGS["a block a map", name].launch.grid[1] == 1
