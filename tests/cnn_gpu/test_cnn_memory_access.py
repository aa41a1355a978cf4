"""Which words of memory warps of the kernels of convolutional nets access together, as executed.

On the layers that are drawn: 29x29 to 13x13 neurons by 5x5, pooling of 25x9 by 2x2.
"""

import numpy as np
import pytest
import touches
from programs import needs_toolkit

from experiments.drawing import launches

pytestmark = needs_toolkit
PITCH = 32  # words of a line


@pytest.fixture(scope="module")
def wanted():
    """The words that block 1, of map 1 or connection 1, wants: {kernel: what warp_words gives}."""
    found = launches.convolutional()
    return {name: touches.warp_words(launch, (1, 0)) for name, launch in found.items()}


@pytest.mark.parametrize(
    ("name", "array", "n_steps"),
    [
        # 6 warps, 25 weights; 8 warps, 25 weights; 1 warp, 13x13 deltas.
        ("convolve_maps", "w", 6 * 25),
        ("convolve_maps", "bias", 6),
        ("process_maps", "bank", 8 * 25),
        ("adjust_weights", "delta", 13 * 13),
    ],
)
def test_all_threads_of_a_warp_read_one_word(name, array, n_steps, wanted):
    steps = wanted[name][array, "read"]
    assert len(steps) == n_steps
    assert all((words == words[0]).all() for words in steps)


@pytest.mark.parametrize(
    ("name", "array", "what", "apart"),
    [
        ("convolve_maps", "h", "read", 2),  # every second neuron: one is skipped
        ("convolve_maps", "y", "write", 1),
        ("pull_deltas", "h", "read", 1),
        ("pull_deltas", "delta_in", "write", 1),
        ("adjust_weights", "h", "read", 1),
        ("pool_maps", "h", "read", 2),
        ("pool_maps", "y", "write", 1),
        ("pool_maps", "winners", "write", 1),
        ("unpool_deltas", "delta_in", "write", 1),
        ("process_maps", "y", "write", 1),
        ("rows_to_maps", "maps", "write", 1),
        ("maps_to_rows", "maps", "read", 1),
    ],
)
def test_neighbours_want_neighbouring_words_of_a_line(name, array, what, apart, wanted):
    for words in wanted[name][array, what]:
        lines = np.split(words, np.flatnonzero(np.diff(words // PITCH)) + 1)
        assert all((np.diff(line) == apart).all() for line in lines)
        # No line comes twice: threads go through the map.
        assert len({line[0] // PITCH for line in lines}) == len(lines)


def test_weights_of_a_connection_are_in_one_piece(wanted):
    for what in ("read", "write"):
        (words,) = wanted["adjust_weights"]["w", what]
        assert words.tolist() == list(range(25, 50))
