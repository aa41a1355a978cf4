"""Kernels compiled to PTX and machine code: the compiler's log, and missing packages."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda
from programs import needs_toolkit, run

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
    assert compiler.shared_bytes(known) == 192
    with pytest.raises(ValueError, match="expected"):
        compiler.shared_bytes(known + ".shared .align 4 .f32 c[4];\n")


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
