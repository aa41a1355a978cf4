"""Which words of memory the threads of a warp access together, and their bank conflicts.

The words are those that compiled kernels touch when they are executed.
"""

import numpy as np
import pytest
import touches
from compiled_cases import THREADS_PER_BLOCK, needs_toolkit

from cuda_on_cpu import access_stats
from deepbig_runtime.gpu import WARP
from experiments.benchmarks import compiled as compiled_kernels
from mlp_gpu.kernels import backward, evaluate, forward, output, pick, update

# A layer of 95 inputs and 512 neurons, and for each kernel a block that has no edge of it.
BLOCKS = {
    "pick_image": (1, 0),
    "forward_partial": (1, 2),
    "forward_reduce": (1, 0),
    "output_delta": (0, 0),
    "delta_partial": (1, 2),
    "delta_reduce": (1, 0),
    "update_weights": (1, 5),
    "forward_batch": (1, 1),
}


def launches():
    """A launch of each kernel."""
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return rng.uniform(-1, 1, shape).astype(np.float32)

    W, h, y, delta, delta_in = (
        numbers(96, 512),
        numbers(95),
        numbers(512),
        numbers(512),
        numbers(95),
    )
    step, order, labels = np.zeros(1, int), np.zeros(9, int), np.zeros(9, np.uint8)
    last = output.output_deltas(
        numbers(64),
        numbers(9),
        step,
        numbers(35, 64),
        numbers(1120, 64),
        numbers(1119),
        labels,
        order,
    )[-1]
    found = [
        *pick.pick(numbers(512), numbers(9, 512), order, step),
        *forward.propagate_forward(y, numbers(3, 512), W, h)[:1],
        *forward.propagate_forward(y, numbers(35, 512), numbers(1120, 512), numbers(1119))[1:],
        last,
        *backward.propagate_back(delta_in, numbers(16, 96), W, delta, h)[:1],
        *backward.propagate_back(delta_in, numbers(35, 96), numbers(96, 1120), numbers(1120), h)[
            1:
        ],
        *update.update(W, h, delta, numbers(1)),
        *evaluate.evaluate([numbers(128, 32), numbers(128, 128)], [numbers(64, 128)])[:1],
    ]
    return {launch.kernel.py_func.__name__: launch for launch in found}


def record(name):
    """The words that a block wants, as touches.warp_words has them."""
    return touches.warp_words(launches()[name], BLOCKS[name])


def consecutive(words, n):
    """Whether n neighbours each want consecutive words, the first a multiple of n."""
    parts = words.reshape(-1, n)
    return (np.diff(parts, axis=1) == 1).all() and (parts[:, 0] % n == 0).all()


@needs_toolkit
@pytest.mark.parametrize("name", [name for name in BLOCKS if name != "forward_batch"])
def test_neighbours_want_consecutive_words(name):
    found = record(name)
    for (array, kind), steps in found.items():
        if array.startswith("shared"):
            continue
        for words in steps:
            one_word = (words == words[0]).all()
            assert one_word or (np.diff(words) == 1).all(), (array, kind)
    # The matrices besides: whole warps, and each takes whole pieces of 128 bytes.
    for array in ("W", "partial", "images"):
        for words in found[array, "read"] + found[array, "write"]:
            assert len(words) == WARP
            assert consecutive(words, WARP), array


@needs_toolkit
def test_neighbours_want_consecutive_words_in_evaluation():
    found = record("forward_batch")
    reads = found["W", "read"]
    n_warps = THREADS_PER_BLOCK["forward_batch"] // WARP
    n_neurons = 128  # words of a row of W; the first row is of biases
    biases = [words for words in reads if words[0] < n_neurons]
    weights = [words for words in reads if words[0] >= n_neurons]
    assert len(weights) == n_warps * 2 * 4  # 32 inputs in two pieces
    assert len(biases) == n_warps * 16  # one for each result
    assert all(consecutive(words, WARP) for words in weights)
    assert all(consecutive(words, WARP // 2) for words in biases)
    for words in found["H", "read"] + found["Y", "write"]:
        assert consecutive(words, WARP // 2)


@needs_toolkit
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("forward_partial", {("W", "read"): 32, ("partial", "write"): 1}),
        ("delta_partial", {("W", "read"): 32, ("delta", "read"): 1, ("partial", "write"): 1}),
        ("update_weights", {("W", "read"): 16, ("W", "write"): 16, ("delta", "read"): 1}),
        ("forward_reduce", {("partial", "read"): 35, ("y", "write"): 1}),
        ("delta_reduce", {("partial", "read"): 35, ("y", "read"): 1, ("delta_in", "write"): 1}),
    ],
)
def test_each_word_is_wanted_once(name, counts):
    found = record(name)
    n_warps = THREADS_PER_BLOCK[name] // WARP
    for key, count in counts.items():
        assert len(found[key]) == n_warps * count, key
        words = np.concatenate(found[key])
        assert len(set(words.tolist())) == len(words), key


@needs_toolkit
@pytest.mark.parametrize(
    "name", ["forward_partial", "delta_partial", "update_weights", "forward_batch"]
)
def test_no_access_to_shared_memory_meets_a_bank_conflict(name):
    found = record(name)
    shared = {key: steps for key, steps in found.items() if key[0].startswith("shared")}
    assert {kind for _, kind in shared} == {"read", "write"}
    for key, steps in shared.items():
        assert all(access_stats.words_per_bank(words.tolist()) == 1 for words in steps), key
    if name == "delta_partial":  # the patch, then the deltas
        assert len(shared["shared 0", "write"]) == len(shared["shared 0", "read"]) == 32
        assert len(shared["shared 1", "write"]) == 1
        assert len(shared["shared 1", "read"]) == 32


def test_bank_conflicts():
    assert access_stats.words_per_bank(range(0, 33 * 32, 33)) == 1
    assert access_stats.words_per_bank(range(0, 32 * 32, 32)) == 32
    assert access_stats.words_per_bank(range(0, 34 * 32, 34)) == 2
    assert access_stats.words_per_bank([7] * 32) == 1  # one word for all


@needs_toolkit
def test_the_sentence_on_bank_conflicts_is_of_what_was_executed():
    # 2 x 2 patches of one warp: 32 rows and the deltas are written, 32 of both are read.
    said = compiled_kernels.conflict_sentence()
    assert "write shared memory 132 times in 132 passes" in said
    assert "read it 256 times in 256 passes" in said
    assert "each read of a row of the patch would take 32 passes" in said
