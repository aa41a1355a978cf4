"""Which words the warps of the window's kernels access together, and their bank conflicts."""

from functools import cache

import numpy as np
import pytest
import touches
import window_cases
from compiled_cases import needs_toolkit

from cuda_on_cpu import access_stats
from deepbig_runtime.gpu import WARP

# For each kernel blocks that have no edge of the layer, by what they are for.
BLOCKS = {
    "forward_products": {"W": (0, 0), "H": (2, 0)},
    "backward_products": {"W": (0, 1), "D": (2, 0)},
    "forward_states": {"partial": (1, 2)},
    "backward_deltas": {"partial": (0, 3)},
    "update_weights_of_block": {"W": (1, 0)},
    "gather_images": {"images": (0, 7)},
}
CASES = [(name, array) for name, found in BLOCKS.items() for array in found]


@cache
def record(name, block):
    return touches.warp_words(window_cases.launches()[name], block)


@needs_toolkit
@pytest.mark.parametrize(("name", "array"), CASES)
def test_neighbours_want_consecutive_words(name, array):
    found = record(name, BLOCKS[name][array])
    assert found[array, "read"]
    for (one, kind), steps in found.items():
        # Of 16 threads side by side where a thread has several columns, else of 32.
        n = WARP // 2 if "products" in name or name.startswith("update") else WARP
        for words in steps:
            # Fewer threads have work only at the edge of the triangle of corrections.
            if one.startswith("shared") or (words == words[0]).all() or len(words) < WARP:
                continue
            assert (np.diff(words.reshape(-1, n)) == 1).all(), (one, kind)


@needs_toolkit
@pytest.mark.parametrize(("name", "inner"), [("forward_products", 96), ("backward_products", 64)])
def test_matrices_are_read_by_whole_warps(name, inner):
    """Of the layer's 96 inputs in one part, and its 128 neurons in two."""
    splits = {"forward_products": 1, "backward_products": 2}[name]
    assert window_cases.launches()[name].grid == (3, splits)
    words = record(name, BLOCKS[name]["W"])["W", "read"]
    assert all(len(step) == WARP and (np.diff(step) == 1).all() for step in words)
    every = np.concatenate(words)
    assert len(set(every.tolist())) == len(every) == 64 * inner  # each once


@needs_toolkit
@pytest.mark.parametrize(("name", "array"), CASES)
def test_no_access_to_shared_memory_meets_a_bank_conflict(name, array):
    """But for the largest deltas, of which fewer and fewer threads look for the largest."""
    found = record(name, BLOCKS[name][array])
    shared = {key: steps for key, steps in found.items() if key[0].startswith("shared")}
    assert bool(shared) == (name != "gather_images")
    for key, steps in shared.items():
        if name != "backward_deltas" or key[0] == "shared 0":
            assert all(access_stats.words_per_bank(words.tolist()) == 1 for words in steps), key
