"""Kernels with a planted fault, and right ones that look alike: all are told apart."""

import re
import shutil
import textwrap
from importlib import import_module

import numpy as np
import pytest
from programs import COMPILERS, needs_driver, needs_toolkit, run, run_on_driver

from cuda_on_cpu import Executor, KernelFault, device_array

pytestmark = needs_toolkit

BLOCKS, THREADS = 2, 64
START = """
def kernel(out, x, total):
    t, i = cuda.threadIdx.x, cuda.grid(1)
    tile = cuda.shared.array(128, np.float32)
"""
OUTSIDE, MISALIGNED = "is outside of every array", "is not a multiple of its size"
UNWRITTEN, THREAD = "reads uninitialised memory", "races with another thread"
BLOCK, ELSEWHERE = "races with another block", "waits for threads that wait at another"
# The fault, a kernel that has it, and one without it. `out` is uninitialised, `total` is zero.
PAIRS = [
    (OUTSIDE, "out[i] = x[i + 1]", "if i + 1 < x.size: out[i] = x[i + 1]"),
    (OUTSIDE, "out[i] = x[np.uint64(i - 1)]", "out[i] = x[i - 1]"),
    (
        OUTSIDE,
        "tile[2 * t + 2] = x[i]; cuda.syncthreads(); out[i] = tile[128 - 2 * t]",
        "tile[2 * t + 1] = x[i]; cuda.syncthreads(); out[i] = tile[127 - 2 * t]",
    ),
    (OUTSIDE, "cuda.atomic.add(total, i + 1, 1)", "cuda.atomic.add(total, i // 2, 1)"),
    *(
        (MISALIGNED, code.format(start, end), code.format(8, 504))
        for code, start, end in (
            ("out[i] = x.view(np.uint8)[{}:{}].view(np.float32)[0]", 2, 506),
            ("out[i] = x.view(np.uint8)[{}:{}].view(np.float64)[0]", 4, 508),
            ("if i < 60: total.view(np.uint8)[{}:{}].view(np.float32)[i] = 1", 1, 505),
            ("cuda.atomic.add(total.view(np.uint8)[{}:{}].view(np.int32), 0, 1)", 2, 506),
        )
    ),
    (
        UNWRITTEN,
        "tile[t] = x[i]; cuda.syncthreads(); out[i] = tile[t + 1]",
        "tile[t] = x[i]; cuda.syncthreads(); out[i] = tile[63 - t]",
    ),
    (
        UNWRITTEN,
        "if t: tile[t] = x[i]\ncuda.syncthreads(); out[i] = tile[t]",
        "if t: tile[t] = x[i]\ncuda.syncthreads(); out[i] = tile[t] if t else 0",
    ),
    (
        UNWRITTEN,
        "if i < 64: tile[t] = x[i]\ncuda.syncthreads(); out[i] = tile[t]",
        "if t < 64: tile[t] = x[i]\ncuda.syncthreads(); out[i] = tile[t]",
    ),
    (UNWRITTEN, "out[i] += x[i]", "out[i] = x[i]; out[i] += 1"),
    (
        THREAD,
        "tile[t] = x[i]; cuda.syncthreads(); tile[t] += tile[63 - t]; out[i] = tile[t]",
        "tile[t] = x[i]; cuda.syncthreads(); out[i] = tile[t] + tile[63 - t]",
    ),
    (
        f"{THREAD}|{UNWRITTEN}",
        "tile[t] = x[i]; cuda.syncwarp(); out[i] = tile[63 - t]",
        "tile[t] = x[i]; cuda.syncwarp(); out[i] = tile[t ^ 31]",
    ),
    (THREAD, "if i < 64: total[0] += x[i]", "if i < 64: cuda.atomic.add(total, 0, x[i])"),
    (
        THREAD,
        "if i == 0: cuda.atomic.add(total, 0, 1)\nif i == 1: out[i] = total[0]",
        "if i == 0: cuda.atomic.add(total, 0, 1)\nif i == 0: out[i] = total[0]",
    ),
    (THREAD, "total[i // 2] = t", "if t % 2: total[i // 2] = t"),
    (BLOCK, "total[t] = i", "total[i] = i"),
    (BLOCK, "if t == 0: total[0] += 1", "if i == 0: total[0] += 1"),
    (BLOCK, "total[i] = i; out[i] = total[i ^ 64]", "total[i] = i; out[i] = total[i]"),
    (
        f"{BLOCK}|{THREAD}",
        "cuda.atomic.add(total, 0, 1); out[i] = total[0]",
        "out[i] = cuda.atomic.add(total, 0, 1)",
    ),
    (
        ELSEWHERE,
        "if t < 16: cuda.syncthreads()\nout[i] = x[i]",
        "if i < 64: cuda.syncthreads()\nout[i] = x[i]",
    ),
    (
        ELSEWHERE,
        "if t > 40: return\ncuda.syncthreads(); out[i] = x[i]",
        "if t > 31: return\ncuda.syncthreads(); out[i] = x[i]",
    ),
    (
        ELSEWHERE,
        "for _ in range(1 + t % 2): cuda.syncthreads()",
        "for _ in range(1 + i // 64): cuda.syncthreads()",
    ),
    (
        ELSEWHERE,
        "if t % 32 < 16: cuda.syncwarp()\ncuda.syncthreads()",
        "if t % 32 < 16: cuda.syncwarp(0xFFFF)\ncuda.syncthreads()",
    ),
]


@pytest.mark.filterwarnings("error::cuda_on_cpu.SameValueWarning")
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(("fault", "faulty", "right"), PAIRS)
def test_planted_fault_is_found_in_any_order_and_none_in_its_twin(
    fault, faulty, right, compiler, tmp_path
):
    if fault == MISALIGNED and "mlir" in compiler:
        pytest.skip("numba-cuda-mlir rounds the start of such a view down to whole elements")
    cuda = import_module(compiler)
    x, total = np.ones(128, np.float32), np.zeros(128, np.float32)
    path, names = tmp_path / "planted.py", {"cuda": cuda, "np": np}
    for code in (faulty, right):
        path.write_text(START + textwrap.indent(code, "    "))
        exec(compile(path.read_text(), path, "exec"), names)
        kernel, executor = cuda.jit(names["kernel"]), Executor((9, 0))
        for executor.order in ("forward", "reverse", "random"):
            launch = kernel, BLOCKS, THREADS, (device_array(128, np.float32), x, total)
            if code == right:
                executor.launch(*launch)
            else:
                with pytest.raises(KernelFault, match=rf"^kernel \(planted.py:\d\): .*({fault})"):
                    executor.launch(*launch)


# Modules of numba-cuda's tests for its documentation, all but `random`, which takes a minute.
EXAMPLES = """
import sys, unittest
from unittest.mock import MagicMock
for name in ("matcher", "options", "parser", "finput"):  # these examples do not use the package
    sys.modules["filecheck"] = sys.modules["filecheck." + name] = MagicMock()
names = "cg cpointer cpu_gpu_compat globals laplace matmul montecarlo reduction sessionize ufunc"
modules = ["numba.cuda.tests.doc_examples.test_" + name for name in [*names.split(), "vecadd"]]
unittest.main(module=None, argv=["examples", *modules])
"""


@pytest.mark.slow
@needs_driver
def test_examples_of_numba_cudas_documentation_run():
    done = run_on_driver("-c", EXAMPLES)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^Ran 1\d tests in .*\n\nOK$", done.stderr, re.MULTILINE), done.stderr


# All threads write QT_out[0], after one that wrote another value there.
KERNEL = r"Failed: _compute_and_update_PI_kernel \(gpu_(stump|aamp)\.py:\d+\)"
FILES = "test_gpu_stump.py", "test_gpu_aamp.py", "test_gpu_stimp.py"


@needs_driver
@pytest.mark.slow
def test_stumpys_own_tests_pass_or_fail_by_the_race_of_its_kernels(tmp_path):
    pytest.importorskip("pandas", reason="stumpy's tests need pandas")
    options = "--quiet", "--no-deps", "--no-binary=stumpy", "--dest", tmp_path
    got = run("-m", "pip", "download", *options, "stumpy==1.14.1")
    if got.returncode:
        pytest.skip(f"pip cannot get stumpy's source archive: {got.stderr.splitlines()[-1]}")
    (archive,) = tmp_path.iterdir()
    shutil.unpack_archive(archive, tmp_path, filter="data")
    paths = [tmp_path / "stumpy-1.14.1" / "tests" / name for name in FILES]
    command = "-m", "pytest", "-p", "cuda_on_cpu", "-p", "no:cacheprovider", "--tb=no"
    done = run(*command, *paths, CI="1")  # so the summary has whole lines
    failed = re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE)
    assert [line for line in failed if not re.search(KERNEL + ": st.f64 .* races", line)] == []
    assert f"{len(failed)} failed, {79 - len(failed)} passed" in done.stdout, done.stdout
