"""Kernels compiled to PTX and machine code: the compiler's log, and missing packages."""

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda
from programs import COMPILERS, needs_mlir, needs_toolkit, run

from cuda_on_cpu import Executor, KernelFault
from cuda_on_cpu import compile as compiler

LOG = """\
ptxas .  8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 41 registers, used 1 barriers
info    : used 40 registers, used 1 barriers, 8 stack, 1152 bytes smem
"""


def fill(out):
    out[cuda.grid(1)] = 1


@needs_toolkit
def test_compile_kernel_reads_the_log_and_refuses_one_that_lacks_a_number(monkeypatch):
    arguments = cuda.jit(fill), "void(float32[::1])", (9, 0)
    monkeypatch.setattr(compiler, "link", lambda ptx, cc: (LOG, b""))
    kernel = compiler.compile_kernel(*arguments)
    spills = kernel.spill_store_bytes, kernel.spill_load_bytes
    assert (kernel.name, kernel.cc) == ("fill", (9, 0))
    assert (kernel.registers, kernel.stack_bytes, *spills) == (40, 8, 16, 24)
    for lacking in ("used 40 registers", "spill stores"):
        monkeypatch.setattr(
            compiler, "link", lambda ptx, cc, one=lacking: (LOG.replace(one, ""), b"")
        )
        with pytest.raises(ValueError, match="expected"):
            compiler.compile_kernel(*arguments)


def halves(out, x, n):
    i = cuda.threadIdx.x
    out[i] = cuda.fp16.hfma(x[i], x[i], x[i]) - np.float16(i) if x[i + n] > x[0] else x[i]


@needs_toolkit
def test_half_precision_is_linked_with_the_functions_that_numba_calls():
    kernel, x = cuda.jit(halves), np.linspace(-2, 2, 32).astype(np.float16)
    out = np.zeros_like(x)
    Executor((9, 0)).launch(kernel, 1, 32, (out, x, 0))
    fused = (x.astype(np.float64) ** 2 + x).astype(np.float16)
    np.testing.assert_array_equal(out, np.where(x > x[0], fused - np.arange(32, dtype="f2"), x))
    line = halves.__code__.co_firstlineno + 2
    with pytest.raises(KernelFault, match=rf"\(test_compile.py:{line}\).*outside of every array"):
        Executor((9, 0)).launch(kernel, 1, 32, (out, x, 1))
    arguments = "void(float16[::1], float16[::1], int64)", (9, 0)
    assert compiler.compile_kernel(kernel, *arguments).registers > 0


def test_shared_bytes_sums_declarations_and_refuses_an_unknown_one():
    known = "\t.visible .shared .align 4 .b8 a[128];\n.shared .align 4 .b8 b_2[64];\n"
    known += ".extern .shared .align 4 .b8 c[];\n"
    assert compiler.shared_bytes("\tst.shared.f32 \t[%rd3], %f2;\n") == 0
    known += "\t.shared .align 8 .f32 d_$_0;\n\t.shared .align 16 .b8 __dynamic_shmem__0;\n"
    assert compiler.shared_bytes(known) == 196
    with pytest.raises(ValueError, match="expected"):
        compiler.shared_bytes(known + ".shared .align 4 .f32 c[4];\n")


def made_by(cuda):
    """A kernel, made by a compiler's module `cuda`."""

    @cuda.jit
    def mixed(out, most, x, scale, flag, step):
        i = cuda.grid(1)
        signs, rows = cuda.shared.array(33, np.int8), cuda.shared.array(0, np.float64)
        lanes = cuda.shared.array(32, np.int64)
        rows[i], signs[i], lanes[i] = x[i, 1], -i, i
        cuda.syncthreads()
        for k in range(i, x.shape[0], step):
            cuda.atomic.max(most, 0, x[k, 0])
        if flag:
            out[i] = rows[31 - i] * scale + signs[i ^ 1] + cuda.shfl_down_sync(-1, lanes[i ^ 2], 1)
        if most[1]:
            raise ValueError

    return mixed


MIXED = "void(float64[::1], float64[::1], float64[:,::1], float32, boolean, int64)"


@needs_toolkit
@pytest.mark.parametrize(("order", "cc"), [("forward", (7, 5)), ("reverse", (10, 0))])
@pytest.mark.parametrize("module", COMPILERS)
def test_a_kernel_of_each_compiler_is_executed(module, order, cc):
    kernel, i = made_by(import_module(module)), np.arange(32)
    out, most, x = np.zeros(32), np.zeros(2), np.arange(80.0).reshape(40, 2)
    arguments = out, most, x, np.float32(0.5), True, 32
    Executor(cc, order=order).launch(kernel, 1, 32, arguments, 256)
    assert most[0] == 78
    assert (out == x[31 - i, 1] / 2 - (i ^ 1) + (np.minimum(i + 1, 31) ^ 2)).all()
    assert compiler.compile_kernel(kernel, MIXED, cc).shared_bytes == 33 + 256


@needs_toolkit
@needs_mlir
def test_an_exception_of_numba_cuda_mlir_is_a_fault():
    kernel = made_by(import_module("numba_cuda_mlir.cuda"))
    start = kernel.py_func.__code__.co_firstlineno
    for flag, step, line in ((0, 0, start + 7), (1, 32, start + 12)):
        arguments = np.zeros(32), np.full(2, flag), np.ones((40, 2)), np.float32(1), True, step
        says = (
            rf"mixed \(test_compile.py:{line}\): atom.*constant table.*__numba_cuda_mlir_error_code"
        )
        with pytest.raises(KernelFault, match=says):
            Executor((9, 0)).launch(kernel, 1, 32, arguments, 256)


@needs_toolkit
@needs_mlir
def test_a_function_is_cached_for_each_compiler(tmp_path):
    def one(out):
        out[0] = 1

    modules = map(import_module, ("numba.cuda", "numba_cuda_mlir.cuda"))
    arguments = "void(float32[::1])", (9, 0), tmp_path
    ptx = [compiler.compile_ptx(module.jit(one), *arguments) for module in modules]
    assert ["__numba_cuda_mlir_error_code" in text for text in ptx] == [False, True]


WITHOUT_ROW_STACK = """
import numpy as np
vars(np).pop("row_stack", None)
import cuda_on_cpu
from numba import cuda
print(".entry" in cuda.compile_ptx(lambda out: None, "void(float32[::1])", cc=(9, 0))[0])
"""


@needs_toolkit
def test_numba_cuda_compiles_with_a_numpy_that_it_does_not_know():
    done = run("-c", WITHOUT_ROW_STACK)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_missing_toolkit_names_the_package(monkeypatch):
    monkeypatch.setattr(compiler, "config", SimpleNamespace(ENABLE_CUDASIM=0))
    monkeypatch.setattr(compiler, "cuda", SimpleNamespace(implementation="Built-in"))
    assert "numba-cuda is not installed" in compiler.missing_toolkit()
