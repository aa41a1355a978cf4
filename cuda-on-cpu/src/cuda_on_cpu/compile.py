"""Compile kernels without a GPU: to PTX, and to machine code with the resources that it needs."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numba import cuda
from numba.core import config

from cuda_on_cpu.cache import cached_text
from cuda_on_cpu.parse import KNOWN_FUNCTIONS, declared_variable

# When numba-cuda first compiles, it overloads np.row_stack. NumPy 2.5 no longer has that:
# https://github.com/NVIDIA/numba-cuda/issues/907
vars(np).setdefault("row_stack", np.vstack)


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel compiled for a compute capability, cc: the resources that it needs, and its PTX.

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
    if config.ENABLE_CUDASIM:
        return (
            "numba simulates the GPU and compiles nothing, because NUMBA_ENABLE_CUDASIM is set; "
            "unset it"
        )
    if getattr(cuda, "implementation", None) != "NVIDIA":
        return (
            "the package numba-cuda is not installed: pip install 'numba-cuda[cu12]' brings it, "
            "but not on macOS"
        )
    return next(filter(None, map(missing_library, ("nvvm", "nvJitLink"))), None)


def missing_library(name: str) -> str | None:
    """Why one of CUDA's libraries cannot be loaded, in a sentence; None if it can."""
    from cuda import pathfinder

    try:
        pathfinder.load_nvidia_dynamic_lib(name)
    except pathfinder.DynamicLibNotFoundError:
        return (
            f"CUDA's library {name} cannot be found: pip install 'numba-cuda[cu12]' brings it, or "
            "set CUDA_HOME to the folder of a CUDA toolkit"
        )
    return None


def is_mlir(kernel: Any) -> bool:
    """Whether numba-cuda-mlir made a kernel, and not numba-cuda."""
    return type(kernel).__module__.startswith("numba_cuda_mlir.")


def compile_ptx(
    kernel: Any, signature: str | tuple, cc: tuple[int, int], cache: Path | None = None
) -> str:
    """The PTX of a kernel, as Numba makes it for a GPU, with the lines of the source.

    kernel: made by cuda.jit, of numba-cuda or numba-cuda-mlir, without a signature. signature:
    Numba's, or the types of the arguments. cc: compute capability. cache: see `cached_text`; one
    folder for each state of the sources of the kernels.
    """
    function = kernel.py_func

    def make() -> str:
        if is_mlir(kernel):
            return _mlir_ptx(function, signature, cc)
        with _device_functions_for(cc):
            ptx = cuda.compile_ptx(function, signature, cc=cc, lineinfo=True)[0]
            if set(_EXTERNAL.findall(ptx)) <= KNOWN_FUNCTIONS.keys():
                return ptx
            # It calls functions in CUDA C++, such as Numba's half precision.
            how = {"device": False, "abi": "numba", "lineinfo": True}
            parts, _ = cuda.compile_all(function, signature, cc=cc, **how)
        parts = [getattr(part, "code", part) for part in parts]
        with _linked(parts, "LTOIR", cc, "-lto", "-ptx", "-lineinfo") as handle:
            return _output(handle, "linked_ptx").rstrip(b"\0").decode()

    source = f"{function.__module__} {function.__code__.co_filename}"  # PTX names the file
    key = f"{source} {function.__qualname__} {signature} {cc} {type(kernel).__module__}"
    return cached_text(cache, function.__name__, key, make)


def _mlir_ptx(function: Callable, signature: str | tuple, cc: tuple[int, int]) -> str:
    """PTX as made by numba-cuda-mlir, which would ask the driver for a GPU."""
    from numba_cuda_mlir import cuda, tools

    if isinstance(signature, tuple):  # of Numba's types; this compiler has its own, named alike
        signature = f"void({', '.join(map(repr, signature))})"
    name = re.sub(r"\W", "_", function.__name__, flags=re.ASCII)  # and no word of PTX, such as add
    how = {"cc": cc, "lineinfo": True, "abi_info": {"abi_name": f"_ZN{len(name)}{name}E"}}
    with _patching, mock.patch.object(tools, "_cached_cc", cc):
        return cuda.compile_ptx(function, signature, **how)[0].rstrip("\0")


# The functions that PTX calls and does not define.
_EXTERNAL = re.compile(r"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?([\w$]+)")
_patching = threading.Lock()  # mock.patch.object on a module is not thread-safe


def compile_to_link(compile_ir: Callable, parts: list[str], **options: Any) -> Any:
    """Compile as Numba's compile_ir, so that code with lines links with CUDA C++.

    Different versions of debug information become an error, as in the CUDA C++ code.
    """
    flag = re.compile(r'(!{\s*i32) 2(, !"Debug Info Version")')
    return compile_ir([flag.sub(r"\1 1\2", part) for part in parts], **options)


@contextmanager
def _device_functions_for(cc: tuple[int, int]) -> Iterator[None]:
    """Numba compiles the device functions that a kernel calls for `cc`, with their lines.

    It would ask the driver for a GPU, and take their lines only where their decorator says so.
    """
    # Numba keeps a device function by its argument types alone, as compiled for the first `cc`.
    # That does no harm: its LLVM IR is the same for each; machine code is made with the kernel's.
    from numba.cuda import compiler, dispatcher
    from numba.cuda.cudadrv import nvvm

    def compile_with_lines(*arguments: Any, **options: Any) -> Any:
        return compiler.compile_cuda(*arguments, **options | {"lineinfo": True})

    to_link = partial(compile_to_link, nvvm.compile_ir)
    device = SimpleNamespace(compute_capability=cc)
    with (
        _patching,
        mock.patch.object(dispatcher, "get_current_device", return_value=device),
        mock.patch.object(dispatcher, "compile_cuda", compile_with_lines),
        mock.patch.object(nvvm, "compile_ir", to_link),
    ):
        yield


def compile_kernel(
    kernel: Any, signature: str | tuple, cc: tuple[int, int], cache: Path | None = None
) -> CompiledKernel:
    """Compile a kernel for a compute capability, as `compile_ptx` does, and then with ptxas.

    Raises ValueError if the compiler's log lacks a number.
    """
    ptx = compile_ptx(kernel, signature, cc, cache)
    name = kernel.py_func.__name__
    log = cached_text(cache, f"log-{name}", ptx, lambda: link(ptx, cc)[0])
    # "used", not "Used": an earlier line of the log counts registers too.
    (registers,) = _numbers(r"\bused (\d+) registers", log)
    stack, stores, loads = _numbers(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log
    )
    return CompiledKernel(name, cc, registers, shared_bytes(ptx), stack, stores, loads, ptx)


def link(ptx: str, cc: tuple[int, int]) -> tuple[str, bytes]:
    """Translate PTX into machine code; returns the log, and the code as a cubin."""
    with _linked([ptx.encode()], "PTX", cc, "-verbose") as handle:
        return _output(handle, "info_log").decode(), _output(handle, "linked_cubin")


@contextmanager
def _linked(parts: list[bytes], kind: str, cc: tuple[int, int], *options: str) -> Iterator[Any]:
    """A handle of nvJitLink, which has linked parts of a kind."""
    from cuda.bindings import nvjitlink

    options = f"-arch=sm_{cc[0]}{cc[1]}", *options
    handle = nvjitlink.create(len(options), list(options))
    try:
        for part in parts:
            kind_number = getattr(nvjitlink.InputType, kind)
            nvjitlink.add_data(handle, kind_number, part, len(part), "kernel")
        nvjitlink.complete(handle)
        yield handle
    finally:
        nvjitlink.destroy(handle)


def _output(handle: Any, name: str) -> bytes:
    """One of the results of nvJitLink."""
    from cuda.bindings import nvjitlink

    content = bytearray(getattr(nvjitlink, f"get_{name}_size")(handle))
    getattr(nvjitlink, f"get_{name}")(handle, content)
    return bytes(content)


def _numbers(pattern: str, text: str) -> list[int]:
    """The numbers in the only match of a pattern. Raises ValueError if there is not exactly one."""
    matches = list(re.finditer(pattern, text))
    if len(matches) != 1:
        raise ValueError(f"expected {pattern!r} once, found {len(matches)} times in:\n{text}")
    return [int(number) for number in matches[0].groups()]


def shared_bytes(ptx: str) -> int:
    """Bytes of shared memory that PTX declares. Raises ValueError for an unknown declaration.

    Dynamic shared memory is not counted. The log's figure includes, for 9.0, 1,024 bytes more,
    which CUDA itself takes of each block.
    """
    total = 0
    for text in re.findall(r"^\s*((?:\.\w+\s+)*\.shared\s[^;]*)", ptx, re.MULTILINE):
        declared = declared_variable(text)
        if declared is None:
            raise ValueError(f"expected a declaration of shared memory: {text}")
        total += declared[2].size
    return total
