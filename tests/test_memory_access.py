"""Which words of memory the threads of a warp access together, and their bank conflicts.

The words are noted while the kernels' Python runs, thread by thread, on arrays that remember each
access.
"""

import inspect
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from compiled_cases import THREADS_PER_BLOCK, needs_toolkit

from experiments.timing import compiled as compiled_kernels
from mlp_gpu.gpu import WARP
from mlp_gpu.kernels import backward, evaluate, forward, output, pick, update

# Arguments of a layer of 95 inputs and 512 neurons, and a block that has no edge of it. Arrays are
# given by their shapes.
LAYER = {"W": (96, 512), "h": (95,), "delta": (512,), "n_in": 95, "n_out": 512}
EPOCH = {"images": (9, 512), "labels": (9,), "order": (9,), "step": (1,), "losses": (9,)}
IMAGES = {"H": (128, 32), "W": (64, 128), "Y": (128, 128), "n_in": 32, "n_out": 128}

CASES = {
    "pick_image": (pick, (1, 0), EPOCH | {"h": (512,)}),
    "forward_partial": (forward, (1, 2), LAYER | {"partial": (3, 512)}),
    "forward_reduce": (forward, (1, 0), {"partial": (35, 512), "y": (512,)}),
    "output_delta": (output, (0, 0), EPOCH | {"partial": (35, 64), "delta": (64,)}),
    "delta_partial": (backward, (1, 2), LAYER | {"partial": (16, 96)}),
    "delta_reduce": (backward, (1, 0), {"partial": (35, 96), "y": (95,), "delta_in": (95,)}),
    "update_weights": (update, (1, 5), LAYER | {"eta": 0.1}),
    "forward_batch": (evaluate, (1, 1), IMAGES | {"hidden": True}),
}

INTEGERS = {"order": np.int64, "step": np.int64, "labels": np.uint8}


class Noting:
    """An array that notes the word, in C order, of each access by the thread that runs.

    What is written is lost, so that every thread finds what was there at first.
    """

    def __init__(self, array, reads, writes):
        self.shape = array.shape
        self._array, self._reads, self._writes = array, reads, writes

    def __getitem__(self, index):
        self._reads.append(self._word(index))
        return self._array[index]

    def __setitem__(self, index, value):
        self._writes.append(self._word(index))

    def _word(self, index):
        index = index if isinstance(index, tuple) else (index,)
        return int(np.ravel_multi_index(index, self.shape))  # refuses what is outside


class Thread:
    """What a kernel knows as `cuda`, for one thread.

    Shared arrays are all zeros to it. So its results are wrong, but not the words that it wants:
    they depend on no result.
    """

    def __init__(self, block, thread, n_threads, note):
        self.threadIdx = SimpleNamespace(x=thread)
        self.blockIdx = SimpleNamespace(x=block[0], y=block[1])
        self.shared = SimpleNamespace(array=self._shared)
        self.local = SimpleNamespace(array=np.zeros)
        self._first = block[0] * n_threads
        self._note, self._n_shared = note, 0

    def _shared(self, shape, dtype):
        self._n_shared += 1
        return self._note(f"shared {self._n_shared}", np.zeros(shape, dtype))

    def grid(self, n_dimensions):
        assert n_dimensions == 1
        return self._first + self.threadIdx.x

    def syncthreads(self):
        pass


def record(name, monkeypatch):
    """The words that a block wants: {(array, "read" or "write"): [words of a warp's step, ...]}.

    A step is the k-th access, in the order of the program, of all threads of a warp that make it.
    """
    module, block, arguments = CASES[name]
    kernel = getattr(module, name).py_func
    for other, value in list(vars(module).items()):
        if hasattr(value, "py_func"):  # device functions run as Python too
            monkeypatch.setattr(module, other, value.py_func)
    rng = np.random.default_rng(0)
    values = {}
    for argument in inspect.signature(kernel).parameters:
        values[argument] = arguments[argument]
        if argument in INTEGERS:
            values[argument] = np.zeros(arguments[argument], INTEGERS[argument])
        elif isinstance(arguments[argument], tuple):
            values[argument] = rng.uniform(-1, 1, arguments[argument]).astype(np.float32)

    found = defaultdict(list)
    for first in range(0, THREADS_PER_BLOCK[name], WARP):
        words = defaultdict(lambda: [[] for _ in range(WARP)])
        for t in range(WARP):

            def note(array, value, words=words, t=t):
                return Noting(value, words[array, "read"][t], words[array, "write"][t])

            monkeypatch.setattr(
                module, "cuda", Thread(block, first + t, THREADS_PER_BLOCK[name], note)
            )
            kernel(
                *(
                    note(argument, value) if isinstance(value, np.ndarray) else value
                    for argument, value in values.items()
                )
            )
        for key, lists in words.items():
            for k in range(max(map(len, lists))):
                found[key].append(np.array([one[k] for one in lists if len(one) > k]))
    return found


def consecutive(words, n):
    """Whether n neighbours each want consecutive words, the first a multiple of n."""
    parts = words.reshape(-1, n)
    return (np.diff(parts, axis=1) == 1).all() and (parts[:, 0] % n == 0).all()


@needs_toolkit
@pytest.mark.parametrize("name", [name for name in CASES if name != "forward_batch"])
def test_neighbours_want_consecutive_words(name, monkeypatch):
    found = record(name, monkeypatch)
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
def test_neighbours_want_consecutive_words_in_evaluation(monkeypatch):
    found = record("forward_batch", monkeypatch)
    reads = found["W", "read"]
    n_warps = THREADS_PER_BLOCK["forward_batch"] // WARP
    assert len(reads) == n_warps * (2 * 4 + 16)  # 32 inputs in two pieces; a bias for each result
    per_warp = np.array_split(np.array(reads), n_warps)
    assert all(consecutive(words, WARP) for warp in per_warp for words in warp[:8])
    assert all(consecutive(words, WARP // 2) for warp in per_warp for words in warp[8:])
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
def test_each_word_is_wanted_once(name, counts, monkeypatch):
    found = record(name, monkeypatch)
    n_warps = THREADS_PER_BLOCK[name] // WARP
    for key, count in counts.items():
        assert len(found[key]) == n_warps * count, key
        words = np.concatenate(found[key])
        assert len(set(words.tolist())) == len(words), key


@needs_toolkit
@pytest.mark.parametrize(
    "name", ["forward_partial", "delta_partial", "update_weights", "forward_batch"]
)
def test_no_access_to_shared_memory_meets_a_bank_conflict(name, monkeypatch):
    found = record(name, monkeypatch)
    shared = {key: steps for key, steps in found.items() if key[0].startswith("shared")}
    assert {kind for _, kind in shared} == {"read", "write"}
    for key, steps in shared.items():
        assert all(compiled_kernels.words_per_bank(words.tolist()) == 1 for words in steps), key
    if name == "delta_partial":  # the patch, then the deltas
        assert len(shared["shared 1", "write"]) == len(shared["shared 1", "read"]) == 32
        assert len(shared["shared 2", "write"]) == 1
        assert len(shared["shared 2", "read"]) == 32


def test_bank_conflicts():
    assert compiled_kernels.bank_conflicts(backward.patch_index) == (1, 1)
    assert compiled_kernels.bank_conflicts(lambda row, column: 33 * row + column) == (1, 1)
    assert compiled_kernels.bank_conflicts(lambda row, column: 32 * row + column) == (1, 32)
    assert compiled_kernels.bank_conflicts(lambda row, column: 34 * row + column) == (1, 2)
    assert compiled_kernels.bank_conflicts(lambda row, column: row + 32 * column) == (32, 1)
    assert compiled_kernels.words_per_bank([7] * 32) == 1  # one word for all
