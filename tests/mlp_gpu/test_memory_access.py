"""Which words of memory the threads of a warp access together, and their bank conflicts.

The words are those that compiled kernels touch when they are executed.
"""

from functools import cache

import numpy as np
import pytest
import touches
from compiled_cases import threads_per_block
from programs import needs_toolkit

from cuda_on_cpu import access_stats
from deepbig_runtime.gpu import WARP
from experiments.drawing import launches
from mlp_gpu.kernels import evaluate
from mlp_gpu.tensor_cores import on_tensor_cores

pytestmark = needs_toolkit

# For each kernel a block that has no edge of its layer; of products the second for corrections.
BLOCKS = {
    "pick_image": [(1, 0)],
    "forward_partial": [(0, 1)],
    "forward_reduce": [(1, 0)],
    "output_delta": [(0, 0)],
    "delta_partial": [(1, 1)],
    "delta_reduce": [(1, 0)],
    "update_weights": [(0, 1)],
    "forward_batch": [(1, 1)],
    "forward_products": [(0, 0), (5, 0)],
    "backward_products": [(0, 1), (4, 0)],
    "forward_states": [(1, 2)],
    "backward_deltas": [(0, 3)],
    "update_weights_of_block": [(1, 0)],
    "gather_images": [(0, 7)],
}
HIDDEN = 64  # neurons of the ladder's net: two warps
OF_WINDOW = [(name, block) for name in list(BLOCKS)[8:] for block in BLOCKS[name]]


@cache
def record(name, block=None):
    """The words that a block wants, as touches.warp_words has them."""
    found = launches.perceptron() | launches.window() | launches.ladder(HIDDEN)
    shapes = (128, 32), (128, 128), (64, 128)
    images, states, W = (np.zeros(shape, np.float32) for shape in shapes)
    (found["forward_batch"], *_) = evaluate.evaluate([images, states], [W])
    found["forward_tensor_batch"] = on_tensor_cores(found["forward_batch"])
    return touches.warp_words(found[name], block or BLOCKS.get(name, [(0, 0)])[0])


def consecutive(words, n):
    """Whether n neighbours each want consecutive words, the first a multiple of n."""
    parts = words.reshape(-1, n)
    return (np.diff(parts, axis=1) == 1).all() and (parts[:, 0] % n == 0).all()


@pytest.mark.parametrize("name", list(BLOCKS)[:7])
def test_neighbours_want_consecutive_words(name):
    found = record(name)
    for (array, kind), steps in found.items():
        if array.startswith("shared"):
            continue
        for words in steps:
            one_word = (words == words[0]).all()
            assert one_word or (np.diff(words) == 1).all(), (array, kind)
    # The matrices besides: whole warps, and each takes whole pieces of 128 bytes.
    for array in () if name == "output_delta" else ("W", "partial", "images"):
        for words in found[array, "read"] + found[array, "write"]:
            assert len(words) == WARP
            assert consecutive(words, WARP), array


def test_neighbours_want_consecutive_words_in_evaluation():
    found = record("forward_batch")
    reads = found["W", "read"]
    n_warps = threads_per_block()["forward_batch"] // WARP
    n_neurons = 128  # words of a row of W; the first row is of biases
    biases = [words for words in reads if words[0] < n_neurons]
    weights = [words for words in reads if words[0] >= n_neurons]
    assert len(weights) == n_warps * 2 * 4  # 32 inputs in two pieces
    assert len(biases) == n_warps * 16  # one for each result
    assert all(consecutive(words, WARP) for words in weights)
    assert all(consecutive(words, WARP // 2) for words in biases)
    for words in found["H", "read"] + found["Y", "write"]:
        assert consecutive(words, WARP // 2)


@pytest.mark.parametrize(("name", "block"), OF_WINDOW)
def test_neighbours_want_consecutive_words_in_the_window(name, block):
    found = record(name, block)
    assert any(kind == "read" for _, kind in found)
    for (array, kind), steps in found.items():
        # Of 16 threads side by side where a thread has several columns, else of 32.
        n = WARP // 2 if "products" in name or name.startswith("update") else WARP
        for words in steps:
            # Fewer threads have work only at the edge of the triangle of corrections.
            if array.startswith("shared") or (words == words[0]).all() or len(words) < WARP:
                continue
            rows = words.reshape(-1, n)
            # Past the end threads repeat the last word.
            expected = np.minimum(rows[:, :1] + np.arange(n), rows[:, -1:])
            assert (rows == expected).all(), (array, kind)


@pytest.mark.parametrize(("name", "inner"), [("forward_products", 224), ("backward_products", 160)])
def test_matrices_are_read_by_whole_warps_in_the_window(name, inner):
    """The sum over the layer's 224 inputs, and a part of one over its 320 neurons."""
    words = record(name)["W", "read"]
    assert all(len(step) == WARP and (np.diff(step) == 1).all() for step in words)
    every = np.concatenate(words)
    assert len(set(every.tolist())) == len(every) == 64 * inner  # each once


STAGED = "forward_partial", "delta_partial", "update_weights", "forward_batch"
STAGED += "forward_shared", "deltas_shared", "train_chunk"
WITHOUT_CONFLICTS = [(name, None) for name in STAGED]


@pytest.mark.parametrize(("name", "block"), WITHOUT_CONFLICTS + OF_WINDOW)
def test_no_access_to_shared_memory_meets_a_bank_conflict(name, block):
    """But for the largest deltas, of which fewer and fewer threads look for the largest."""
    found = record(name, block)
    shared = {key: steps for key, steps in found.items() if key[0].startswith("shared")}
    assert {kind for _, kind in shared} == {"read", "write"}
    for key, steps in shared.items():
        if name != "backward_deltas" or key[0] == "shared 0":
            assert all(access_stats.words_per_bank(words.tolist()) == 1 for words in steps), key
    if name == "delta_partial":  # the patch, then the deltas
        assert len(shared["shared 0", "write"]) == len(shared["shared 0", "read"]) == 32
        assert len(shared["shared 1", "write"]) == 1
        assert len(shared["shared 1", "read"]) == 32


PRODUCTS_ON_TENSOR_CORES = [  # and blocks of scalar products
    *(("forward_tensor_products", block, block[0] == 5) for block in ((0, 0), (5, 0))),
    *(("backward_tensor_products", block, block[0] == 4) for block in ((0, 0), (4, 0))),
    *((f"{name}_tensor_sums", (0, 0), False) for name in ("forward", "backward")),
    ("update_tensor_products", (0, 0), False),
    ("forward_tensor_batch", (1, 1), True),
]


@pytest.mark.parametrize(("name", "block", "leaves_results"), PRODUCTS_ON_TENSOR_CORES)
def test_tensor_cores_get_their_factors_from_32_banks(name, block, leaves_results):
    """Results go to even or to odd columns at a time: two words for each of 16 banks."""
    found = record(name, block)
    for shared in ("shared 0", "shared 1"):
        assert found[shared, "read"]
        for words in found[shared, "read"]:
            assert len(words) == WARP
            assert access_stats.words_per_bank(words.tolist()) == 1
    written = found["shared 0", "write"]
    assert bool(written) == leaves_results
    assert all(access_stats.words_per_bank(words.tolist()) <= 2 for words in written)


def test_reads_of_a_tile_meet_no_bank_conflict():
    """Its rows are 9 words apart; writing them, four rows of 8 words, two threads may meet."""
    found = record("forward_tiled")
    reads = found["shared 0", "read"] + found["shared 1", "read"]
    assert all(access_stats.words_per_bank(words.tolist()) == 1 for words in reads)
    writes = [access_stats.words_per_bank(words.tolist()) for words in found["shared 0", "write"]]
    assert max(writes) == 2
