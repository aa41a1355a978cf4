"""Kernels compiled without a GPU: what each takes of one; bank conflicts as executed."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepbig_runtime.gpu import SIMULATED, cuda, missing_library
from experiments.ptx import report
from experiments.ptx.device import SIGNATURES, DeviceArray, Executor, compile_ptx, device_array
from experiments.running.messages import tell
from mlp_gpu.kernels import backward

COMPUTE_CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel compiled for a compute capability, cc: what it takes of a GPU, and its PTX.

    registers, stack_bytes and spills: per thread. shared_bytes: per block.
    """

    name: str
    cc: tuple[int, int]
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    ptx: str


def missing_toolkit() -> str | None:
    """Why kernels cannot be compiled here, in a sentence; None if they can."""
    if SIMULATED:
        return (
            "numba simulates the GPU and compiles nothing, because NUMBA_ENABLE_CUDASIM is set; "
            "unset it"
        )
    if getattr(cuda, "implementation", None) != "NVIDIA":
        return (
            "the package numba-cuda is not installed: pip install 'numba-cuda[cu12]' brings it, "
            "but not on macOS"
        )
    return missing_library()


def compile_kernel(kernel: Any, signature: str, cc: tuple[int, int]) -> CompiledKernel:
    """Compile a kernel for a compute capability.

    Raises ValueError if the compiler's log lacks a number.
    """
    ptx = compile_ptx(kernel, signature, cc)
    log = _link(ptx, cc)
    # "used", not "Used": an earlier line of the log counts registers too.
    (registers,) = _numbers(r"\bused (\d+) registers", log)
    stack, stores, loads = _numbers(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log
    )
    return CompiledKernel(
        kernel.py_func.__name__, cc, registers, shared_bytes(ptx), stack, stores, loads, ptx
    )


def compile_all(ccs: Collection[tuple[int, int]] = COMPUTE_CAPABILITIES) -> list[CompiledKernel]:
    """Compile every kernel for every compute capability."""
    found = []
    for kernel, signature in SIGNATURES.items():
        tell(f"compiling {kernel.py_func.__name__} ...")
        found += [compile_kernel(kernel, signature, cc) for cc in ccs]
    return found


def _link(ptx: str, cc: tuple[int, int]) -> str:
    """Translate PTX into machine code; returns the log."""
    from cuda.bindings import nvjitlink

    source = ptx.encode()
    options = [f"-arch=sm_{cc[0]}{cc[1]}", "-verbose"]
    handle = nvjitlink.create(len(options), options)
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, source, len(source), "kernel")
        nvjitlink.complete(handle)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
    finally:
        nvjitlink.destroy(handle)
    return log.decode()


def _numbers(pattern: str, text: str) -> list[int]:
    """The numbers in the only match of a pattern. Raises ValueError if there is not exactly one."""
    matches = list(re.finditer(pattern, text))
    if len(matches) != 1:
        raise ValueError(f"expected {pattern!r} once, found {len(matches)} times in:\n{text}")
    return [int(number) for number in matches[0].groups()]


def shared_bytes(ptx: str) -> int:
    """Bytes of shared memory that PTX declares. Raises ValueError for an unknown declaration.

    The log's figure includes, for 9.0, 1,024 bytes more, which CUDA itself takes of each block.
    """
    declarations = re.findall(r"^\s*(?:\.\w+\s+)*\.shared\s.*", ptx, re.MULTILINE)
    return sum(_numbers(r"\.b8 \w+\[(\d+)\];", line)[0] for line in declarations)


def table(compiled: Collection[CompiledKernel]) -> list[dict[str, str]]:
    """The compiled kernels as lines of a table."""
    return [
        {
            "kernel": one.name,
            "compute capability": "{}.{}".format(*one.cc),
            "registers per thread": str(one.registers),
            "shared bytes per block": f"{one.shared_bytes:,}",
            "stack bytes": str(one.stack_bytes),
            "spill store bytes": str(one.spill_store_bytes),
            "spill load bytes": str(one.spill_load_bytes),
        }
        for one in compiled
    ]


def conflict_sentence() -> str:
    """How often warps of delta_partial go over shared memory, as executed on a small layer."""
    n_in, n_out = 2 * backward.PATCH - 1, 2 * backward.PATCH
    W, delta = (_ones(shape) for shape in ((n_in + 1, n_out), (n_out,)))
    y, delta_in = _ones((n_in,)), _ones((n_in,))
    launch, _ = backward.propagate_back(
        delta_in, _ones(backward.partial_shape(W.shape)), W, delta, y
    )
    found = report.accesses(Executor(COMPUTE_CAPABILITIES[0], traced=True).execute(launch))
    write, read = found["shared", "write"], found["shared", "read"]
    tight = report.words_per_bank(range(0, backward.PATCH**2, backward.PATCH))
    return (
        "Bank conflicts of delta_partial, as executed: its warps write shared memory "
        f"{write.warps} times in {write.passes} passes and read it {read.warps} times in "
        f"{read.passes} passes, where as many passes as times mean no conflict; with rows of "
        f"{backward.PATCH} words instead of {backward.STRIDE} each read of a row of the patch "
        f"would take {tight} passes."
    )


def _ones(shape: tuple[int, ...]) -> DeviceArray:
    array = device_array(shape, np.float32)
    array.copy_to_device(np.ones(shape, np.float32))
    return array
