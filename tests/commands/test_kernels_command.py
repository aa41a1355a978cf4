"""What the kernels become when they are compiled, from PTX and from the compiler's log."""

import re

import numpy as np
import pytest
from compiled_cases import threads_per_block
from programs import needs_toolkit

from cnn_gpu import kernels as cnn_kernels
from cuda_on_cpu import compile_kernel
from deepbig_runtime.compiled_cache import FOLDER
from deepbig_runtime.errors import Problem
from experiments import kernels
from experiments.benchmarks.executor import SIGNATURES
from mlp_gpu import tensor_cores
from mlp_gpu.ladder import formulas
from mlp_gpu.ladder import rung7_one_kernel as one_kernel
from mlp_gpu.ladder.rungs import SIGNATURES as LADDER

SINES = "draw_matrices"  # CUDA's sine has a way for huge angles that needs a stack and float64
# Without and with tensor cores: of what other tests execute, which so share the PTX.
EXECUTED = [(k, (10, 0) if k in tensor_cores.SIGNATURES else (7, 5)) for k in SIGNATURES]


@pytest.fixture(scope="module", params=["executed", pytest.param("all", marks=pytest.mark.slow)])
def compiled(request):
    """{(name, compute capability): kernel} of all kernels; compiling for all takes minutes."""
    if request.param == "all":
        found = kernels.compile_all()
    else:
        found = [compile_kernel(k, SIGNATURES[k], cc, FOLDER) for k, cc in EXECUTED]
    assert {one.name for one in found} == set(threads_per_block())
    return {(one.name, one.cc): one for one in found}


def versions(compiled, *names):
    """The kernels of these names, each for every compute capability."""
    found = [one for one in compiled.values() if one.name in names]
    assert {one.name for one in found} == set(names)
    return found


def global_accesses(ptx):
    """Loads from global memory, and stores to it, in the order of the text."""
    return re.findall(r"\b(ld|st)\.global\b", ptx)


@needs_toolkit
def test_every_kernel_is_compiled_for_its_compute_capability(compiled):
    assert {kernel.py_func.__name__ for kernel in SIGNATURES} == set(threads_per_block())
    for one in compiled.values():
        assert f".target sm_{one.cc[0]}{one.cc[1]}\n" in one.ptx
        assert one.ptx.count(".entry") == 1


@needs_toolkit
def test_kernels_fit_a_multiprocessor(compiled):
    for one in compiled.values():
        assert one.spill_store_bytes == one.spill_load_bytes == 0, one.name
        assert one.stack_bytes == 0 or one.name == SINES, one.name
        assert 0 < one.registers <= 255, one.name
        allotted = -(-one.registers // 8) * 8  # registers come in eights
        assert allotted * np.prod(threads_per_block()[one.name]) <= 65536, one.name
        assert one.shared_bytes <= 48 * 1024, one.name


@needs_toolkit
def test_all_arithmetic_is_float32_and_in_line(compiled):
    for one in compiled.values():
        if one.name != SINES:
            assert ".f64" not in one.ptx, one.name
            assert ".local" not in one.ptx, one.name
        assert not re.search(r"\bcall\b", one.ptx), one.name
        assert "tanh.approx" not in one.ptx, one.name  # 2^-11, too rough
    for one in versions(compiled, "output_delta", "softmax_rows"):
        assert re.search(r"\bex2\.approx(\.ftz)?\.f32\b", one.ptx), one.cc  # exp
    for one in versions(compiled, "forward_reduce", "forward_batch", "convolve_maps"):
        assert "ex2" not in one.ptx, one.cc  # tanh is multiplications, and
        assert re.search(r"\bdiv\.rn\.f32\b", one.ptx), one.cc


@needs_toolkit
def test_loops_are_unrolled(compiled):
    multiply_adds = {
        "forward_batch": 16,
        "convolve_field": 21,  # a strip; the strips are then added up
        "convolve_columns": 21,  # y and x in turn, or both
        "convolve_rows": 21,
        "deform_tiles": (6 + 2) * 21,  # 6 rows of one axis; then y and x of a pixel
    }
    for one in versions(compiled, *multiply_adds):
        found = len(re.findall(r"\bfma\.rn\.f32\b", one.ptx))
        assert found >= multiply_adds[one.name], one.name
    for one in versions(compiled, "forward_partial", "delta_partial"):
        # 32 weights, a state or a delta; a partial sum
        assert global_accesses(one.ptx) == ["ld"] * 33 + ["st"], one.cc
        assert len(re.findall(r"\bfma\.rn\.f32\b", one.ptx)) == 32, one.cc
    for one in versions(compiled, "update_weights"):  # which reads its weights before it writes one
        # a state, eta, a delta, the weights; the weights
        assert global_accesses(one.ptx) == ["ld"] * 19 + ["st"] * 16, one.cc


@needs_toolkit
def test_second_stages_read_16_rows_together(compiled):
    """Each behind a branch of its own, which becomes a predicate; none waits for an addition."""
    for one in versions(compiled, "forward_reduce", "delta_reduce"):
        steps = re.findall(r"\b(?:ld\.global|add\.(?:rn\.)?f32)\b", one.ptx)
        loads = sum(step == "ld.global" for step in steps)
        assert loads == (16 if one.name == "forward_reduce" else 17), one.name  # and a state
        assert steps[:17] == ["ld.global"] * 16 + [steps[16]], one.name
        assert steps[16].startswith("add"), one.name


@needs_toolkit
def test_rungs_have_the_constants_and_registers_that_they_say(compiled):
    rates = np.array([formulas.ETA, formulas.MOMENTUM]).view(np.uint32).tolist()
    for one in versions(compiled, *(kernel.py_func.__name__ for kernel in LADDER)):
        # An array of constants whose content is known is no array any more: both rates are
        # numbers of instructions.
        known = one.name in ("update_outputs_shared", "update_hidden_shared")
        assert [f"0f{rate:08X}" in one.ptx for rate in rates] == [known, known], one.name
        assert ".const" not in one.ptx, one.name
    for one in versions(compiled, "train_chunk"):
        assert one.registers >= 2 * one_kernel.KEPT, one.cc  # a weight and its velocity each


@needs_toolkit
def test_threads_of_maps_write_their_own_numbers(compiled):
    """Deltas are pulled: nothing is added up in memory, and no thread waits for another."""
    for one in versions(compiled, *(kernel.py_func.__name__ for kernel in cnn_kernels.SIGNATURES)):
        assert "bar." not in one.ptx, one.name
    for one in compiled.values():
        # A largest number is the same in every order.
        others = re.search(r"\b(atom|red)\.(?!(relaxed\.sys\.)?global\.max\.s32)", one.ptx)
        assert not others, one.name
    names = "convolve_maps", "pull_deltas", "unpool_deltas", "rows_to_maps", "maps_to_rows"
    for one in versions(compiled, *names):
        assert global_accesses(one.ptx).count("st") == 1, one.name
    for one in versions(compiled, "pool_maps"):  # the largest, and which it was
        assert global_accesses(one.ptx).count("st") == 2, one.cc


@needs_toolkit
def test_script_lists_everything(compiled, monkeypatch, capsys):
    monkeypatch.setattr(kernels, "compile_all", compiled.values)
    kernels.main([])
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0][:3] == ["kernel", "compute capability", "registers per thread"]
    found = {(name, cc): numbers for name, cc, *numbers in cells[2:]}
    assert set(found) == {(name, f"{cc[0]}.{cc[1]}") for name, cc in compiled}
    one = compiled["delta_partial", (7, 5)]
    assert found["delta_partial", "7.5"] == [str(one.registers), "4,352", "0", "0", "0"]


@needs_toolkit
def test_missing_library_is_named(monkeypatch):
    from cuda import pathfinder

    load = pathfinder.load_nvidia_dynamic_lib

    def lacking(name):
        if name == "nvJitLink":
            raise pathfinder.DynamicLibNotFoundError("some long story")
        return load(name)

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", lacking)
    with pytest.raises(Problem, match="library nvJitLink cannot be found"):
        kernels.main([])
