"""What the kernels become when they are compiled, and which words their threads touch.

The compiler's side is read from PTX and from the compiler's log. The words are noted while the
kernels' Python runs, thread by thread, on arrays that remember each access.
"""

import inspect
import os
import re
import subprocess
import sys
from collections import defaultdict
from itertools import groupby
from types import SimpleNamespace

import numpy as np
import pytest

from deform_gpu import TABLE1
from deform_gpu.kernels import listing1, matrices, stages, tiles
from experiments import kernels
from experiments.running.provenance import REPOSITORY
from experiments.timing import compiled as compiled_kernels
from experiments.timing.compiled import SIGNATURES
from mlp_gpu.gpu import WARP
from mlp_gpu.kernels import backward, evaluate, forward, output, pick, update

needs_toolkit = pytest.mark.skipif(
    compiled_kernels.missing_toolkit() is not None, reason=str(compiled_kernels.missing_toolkit())
)

THREADS = {
    "pick_image": 256,
    "forward_partial": 256,
    "forward_reduce": 32,
    "output_delta": 32,
    "delta_partial": 32,
    "delta_reduce": 32,
    "update_weights": 256,
    "forward_batch": 256,
    "softmax_rows": 128,
    "convolve_field": (21, 10),
    "draw_matrices": 128,
    "deform_tiles": 256,
    "fill_field": (32, 8),
    "convolve_columns": (32, 8),
    "convolve_rows": (32, 8),
    "warp_images": (32, 8),
}  # a block
SINES = "draw_matrices"  # CUDA's sine has a way for huge angles that needs a stack and float64

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
    for first in range(0, THREADS[name], WARP):
        words = defaultdict(lambda: [[] for _ in range(WARP)])
        for t in range(WARP):

            def note(array, value, words=words, t=t):
                return Noting(value, words[array, "read"][t], words[array, "write"][t])

            monkeypatch.setattr(module, "cuda", Thread(block, first + t, THREADS[name], note))
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
    n_warps = THREADS["forward_batch"] // WARP
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
    n_warps = THREADS[name] // WARP
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


@pytest.fixture(scope="module")
def compiled():
    """{(name, compute capability): kernel} of all kernels."""
    return {(one.name, one.cc): one for one in compiled_kernels.compile_all()}


def versions(compiled, *names):
    """The kernels of these names, each for every compute capability."""
    found = [one for one in compiled.values() if one.name in names]
    assert len(found) == len(names) * len(compiled_kernels.COMPUTE_CAPABILITIES)
    return found


def global_accesses(ptx):
    """Loads from global memory, and stores to it, in the order of the text."""
    return re.findall(r"\b(ld|st)\.global\b", ptx)


@needs_toolkit
def test_every_kernel_is_compiled_for_every_compute_capability(compiled):
    assert {kernel.py_func.__name__ for kernel in SIGNATURES} == set(THREADS)
    ccs = (7, 5), (8, 0), (9, 0), (10, 0)
    assert set(compiled) == {(name, cc) for name in THREADS for cc in ccs}
    for one in compiled.values():
        assert f".target sm_{one.cc[0]}{one.cc[1]}\n" in one.ptx
        assert one.ptx.count(".entry") == 1


@needs_toolkit
def test_threads_a_block_are_those_of_the_launches():
    x, y, z, step = (np.zeros(n) for n in (70, 50, 10, 1))
    W, V, partial = np.zeros((96, 64)), np.zeros((64, 32)), np.zeros((2, 96))
    batch = [np.zeros((200, n)) for n in (70, 50, 10)]
    images, scratch = np.zeros((3, 5, 5)), list(map(np.zeros, stages.scratch_shapes(1, 5)))
    launches = [
        *pick.pick(x, batch[0], step, step),
        *forward.propagate_forward(y, partial, W, x),
        *output.output_deltas(z, step, step, partial, V, y, step, step),
        *backward.propagate_back(y, partial, V, z, y),
        *update.update(W, x, y, 0.1),
        *evaluate.evaluate(batch, [W, V]),
        *matrices.draw(np.zeros((3, 2, 2)), z, TABLE1, (0, 0, 0), 0),
        *tiles.deform(images, images, step, step, TABLE1, (0, 0, 0), 0),
        *stages.displace(scratch, step, TABLE1, (0, 0, 0), 0),
        *stages.warp(images, images, step, scratch[2], TABLE1, 0),
        *listing1.convolve(W, W, W, 37.0, 64),
    ]
    assert {launch.kernel.py_func.__name__: launch.threads for launch in launches} == THREADS


@needs_toolkit
def test_kernels_fit_a_multiprocessor(compiled):
    for one in compiled.values():
        assert one.spill_store_bytes == one.spill_load_bytes == 0, one.name
        assert one.stack_bytes == 0 or one.name == SINES, one.name
        assert 0 < one.registers <= 255, one.name
        allotted = -(-one.registers // 8) * 8  # registers come in eights
        assert allotted * np.prod(THREADS[one.name]) <= 65536, one.name
        assert one.shared_bytes <= 48 * 1024, one.name


@needs_toolkit
def test_shared_memory_is_what_the_shapes_say(compiled):
    expected = dict.fromkeys(THREADS, 0) | {
        "forward_partial": 32 * 4,
        "delta_partial": (33 * 32 + 32) * 4,
        "update_weights": 16 * 4,
        "forward_batch": 2 * 64 * 16 * 4,
        "convolve_field": (21 * 21 + 30 * 21 + 10 * 21) * 4,
        "deform_tiles": 2 * (52 + 30) * 49 * 4,
    }
    for one in compiled.values():
        assert one.shared_bytes == expected[one.name], one.name


@needs_toolkit
def test_all_arithmetic_is_float32_and_in_line(compiled):
    for one in compiled.values():
        if one.name != SINES:
            assert ".f64" not in one.ptx, one.name
            assert ".local" not in one.ptx, one.name
        assert not re.search(r"\bcall\b", one.ptx), one.name
        assert "tanh.approx" not in one.ptx, one.name  # 2^-11, too rough
    for one in versions(
        compiled, "forward_reduce", "forward_batch", "output_delta", "softmax_rows"
    ):
        # tanh in the first two, exp in the others
        assert re.search(r"\bex2\.approx(\.ftz)?\.f32\b", one.ptx), one.cc


@needs_toolkit
def test_loops_of_the_listings_are_unrolled(compiled):
    for one in versions(compiled, "forward_partial", "delta_partial"):
        # 32 weights, a state or a delta; a partial sum
        assert global_accesses(one.ptx) == ["ld"] * 33 + ["st"], one.cc
        assert len(re.findall(r"\bfma\.rn\.f32\b", one.ptx)) == 32, one.cc
    for one in versions(compiled, "forward_batch"):
        assert len(re.findall(r"\bfma\.rn\.f32\b", one.ptx)) >= 16, one.cc


@needs_toolkit
def test_update_reads_its_weights_before_it_writes_one(compiled):
    for one in versions(compiled, "update_weights"):
        # a state, a delta, the weights; the weights
        assert global_accesses(one.ptx) == ["ld"] * 18 + ["st"] * 16, one.cc


@needs_toolkit
def test_barriers_are_kept(compiled):
    shared = ["st.shared", "bar.sync", "ld.shared"]
    expected = {
        "forward_partial": shared,
        "delta_partial": shared,
        "update_weights": shared,
        "forward_batch": [*shared, "bar.sync"],  # before the next pieces are written
        "output_delta": ["bar.sync"],
        "convolve_field": [*shared, *shared],
    }
    for one in versions(compiled, *expected):
        found = re.findall(r"\b(?:st\.shared|bar\.sync|ld\.shared)\b", one.ptx)
        assert [step for step, _ in groupby(found)] == expected[one.name], one.name
        one_only = one.name in ("forward_partial", "delta_partial", "update_weights")
        assert found.count("bar.sync") == (1 if one_only else 2), one.name
    for one in versions(compiled, "deform_tiles"):  # whose blocks a compiler puts in another order
        assert one.ptx.count("bar.sync") == 2, one.cc


@needs_toolkit
def test_convolutions_are_unrolled(compiled):
    expected = {
        "convolve_field": 21,  # a strip; the strips are then added up
        "convolve_columns": 21,  # y and x in turn, or both
        "convolve_rows": 21,
        "deform_tiles": (6 + 2) * 21,  # 6 rows of one axis; then y and x of a pixel
    }
    for one in versions(compiled, *expected):
        assert len(re.findall(r"\bfma\.rn\.f32\b", one.ptx)) >= expected[one.name], one.name


@needs_toolkit
def test_second_stages_read_16_rows_together(compiled):
    for one in versions(compiled, "forward_reduce", "delta_reduce"):
        loops = re.split(r"^\$L__BB\d+_\d+:", one.ptx, flags=re.MULTILINE)
        assert max(global_accesses(loop).count("ld") for loop in loops) == 16, one.name


@needs_toolkit
def test_script_lists_everything(compiled, monkeypatch, capsys):
    monkeypatch.setattr(compiled_kernels, "compile_all", compiled.values)
    kernels.main([])
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:-2]]
    assert cells[0][:3] == ["kernel", "compute capability", "registers per thread"]
    found = {(name, cc): numbers for name, cc, *numbers in cells[2:]}
    assert set(found) == {(name, f"{cc[0]}.{cc[1]}") for name, cc in compiled}
    one = compiled["delta_partial", (9, 0)]
    assert found["delta_partial", "9.0"] == [str(one.registers), "4,352", "0", "0", "0"]
    assert lines[-2] == ""
    assert "1 when it writes the patch of weights and 1 when it reads it" in lines[-1]
    assert "32 words instead of 33 they would be 1 and 32." in lines[-1]


@needs_toolkit
def test_progress_is_told_on_stderr(monkeypatch, capsys):
    monkeypatch.setattr(
        compiled_kernels, "SIGNATURES", {pick.pick_image: SIGNATURES[pick.pick_image]}
    )
    (one,) = compiled_kernels.compile_all([(8, 0)])
    assert (one.name, one.cc) == ("pick_image", (8, 0))
    assert capsys.readouterr() == ("", "compiling pick_image ...\n")


LOG = """\
ptxas .  8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 41 registers, used 1 barriers
info    : used 40 registers, used 1 barriers, 8 stack, 1152 bytes smem
"""


@needs_toolkit
def test_figures_come_from_the_log(monkeypatch):
    kernel = pick.pick_image
    monkeypatch.setattr(compiled_kernels, "_link", lambda ptx, cc: LOG)
    one = compiled_kernels.compile_kernel(kernel, SIGNATURES[kernel], (9, 0))
    spills = one.spill_store_bytes, one.spill_load_bytes
    assert (one.registers, one.stack_bytes, *spills) == (40, 8, 16, 24)
    for lacking in ("used 40 registers", "spill stores"):
        monkeypatch.setattr(
            compiled_kernels, "_link", lambda ptx, cc, lacking=lacking: LOG.replace(lacking, "")
        )
        with pytest.raises(ValueError, match="expected"):
            compiled_kernels.compile_kernel(kernel, SIGNATURES[kernel], (9, 0))


def test_shared_bytes():
    known = "\t.visible .shared .align 4 .b8 a[128];\n.shared .align 4 .b8 b_2[64];\n"
    assert compiled_kernels.shared_bytes("\tst.shared.f32 \t[%rd3], %f2;\n") == 0
    assert compiled_kernels.shared_bytes(known) == 192
    with pytest.raises(ValueError, match="expected"):
        compiled_kernels.shared_bytes(known + ".extern .shared .align 4 .b8 c[];\n")


@needs_toolkit
@pytest.mark.parametrize("library", ["nvvm", "nvJitLink"])
def test_missing_library_is_named(library, monkeypatch):
    from cuda import pathfinder

    load = pathfinder.load_nvidia_dynamic_lib

    def lacking(name):
        if name == library:
            raise pathfinder.DynamicLibNotFoundError("some long story")
        return load(name)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", lacking)
    with pytest.raises(kernels.cli.Problem, match=f"library {library} cannot be found"):
        kernels.main([])


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(compiled_kernels, "SIMULATED", False)
    monkeypatch.setattr(compiled_kernels, "cuda", SimpleNamespace(implementation="Built-in"))
    assert "numba-cuda is not installed" in compiled_kernels.missing_toolkit()


def test_simulator_is_refused_in_one_sentence():
    done = subprocess.run(
        [sys.executable, "-m", "experiments.kernels"],
        cwd=REPOSITORY,
        env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: numba simulates the GPU .+\n", done.stderr)
