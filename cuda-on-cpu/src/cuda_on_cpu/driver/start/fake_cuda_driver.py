"""The fake driver's launches: its C library calls back into Python, which executes PTX.

This folder is on the path of programs that run on the fake driver.
"""

import atexit
import ctypes
import functools
import importlib.util
import itertools
import linecache
import os
import sys
import traceback
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_ubyte, c_uint
from typing import Any

LAUNCH_FAILED = 719  # CUDA_ERROR_LAUNCH_FAILED
ALLOCATED, FREED, WROTE = range(3)

Launcher = ctypes.CFUNCTYPE(
    c_int,
    c_char_p,  # PTX
    c_char_p,  # the kernel's name
    POINTER(c_uint),  # blocks in x, y, z
    POINTER(c_uint),  # threads in x, y, z
    c_uint,  # bytes of dynamic shared memory
    c_int,  # how many parameters
    POINTER(c_size_t),  # their sizes
    POINTER(c_ubyte),  # the parameters, one after another
)
SET_HANDLER = 304  # PyDataMem_SetHandler in the table of NumPy's functions

Listener = ctypes.CFUNCTYPE(None, c_int, c_size_t, c_size_t)


def install() -> None:
    """Load the library before anything looks for the driver or for NVIDIA's linker."""
    library = ctypes.CDLL(os.environ["CUDA_ON_CPU_LIBRARY"], ctypes.RTLD_GLOBAL)
    for register, function in (
        (library.fake_set_launcher, _launch),
        (library.fake_set_listener, _listen),
    ):
        register(function)
        atexit.register(register, None)  # streams may be destroyed after Python has ended
    sys.meta_path.insert(0, _Finder())


COMPILER = "numba.cuda.compiler"  # the module
ADDRESS = 4  # of an array's parameters
# Of kernels, the arguments by the parameter that may be an address: the name, the number of an
# array's dimensions or None, and whether threads write its items whole.
_arguments: dict[str, dict[int, tuple[str, int | None, bool]]] = {}


class _Finder:
    """Has numba-cuda compile with the lines of the source: it finds COMPILER, and changes it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != COMPILER:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_change(module: Any) -> None:
            execute(module)
            from numba.cuda.cudadrv import nvvm

            nvvm.compile_ir = functools.partial(_compile_ir, nvvm.compile_ir)
            module.compile_cuda = functools.partial(_compile, module.compile_cuda)

        spec.loader.exec_module = execute_and_change
        return spec


def _compile_ir(compile_ir: Any, parts: list[str], **options: Any) -> Any:
    from cuda_on_cpu.compile import compile_to_link  # which imports what is being imported here

    return compile_to_link(compile_ir, parts, **options)


def _compile(
    compile_cuda: Any, function: Any, result: Any, types: Any, debug: Any = False, **options: Any
) -> Any:
    """Compile with lines, and note the names of a kernel's arguments.

    Without a source, of which numba-cuda would warn, only the kernel's own options decide.
    """
    if debug:  # its exceptions are in variables of the module, which are not executed
        raise ValueError(f"{function.__name__}: cuda_on_cpu cannot compile with debug=True")
    if linecache.getlines(function.__code__.co_filename):
        options["lineinfo"] = True
    compiled = compile_cuda(function, result, types, **options)
    from numba import types as numba_types

    arguments = _arguments[compiled.fndesc.llvm_func_name] = {}
    first = 0
    for name, kind in zip(function.__code__.co_varnames, types, strict=False):
        arguments[first] = name, None, False
        if isinstance(kind, numba_types.Array):
            is_whole = not isinstance(kind.dtype, numba_types.Record | numba_types.Complex)
            arguments[first + ADDRESS] = name, kind.ndim, is_whole
        first += len(compiled.target_context.get_arg_packer([kind]).argument_types)
    return compiled


@functools.cache
def _spoil_freed_arrays() -> None:
    """Have NumPy overwrite the arrays that it makes from now on when it frees them."""
    import numpy as np

    python = ctypes.pythonapi
    python.PyCapsule_New.argtypes = ctypes.c_void_p, c_char_p, ctypes.c_void_p
    python.PyCapsule_New.restype = ctypes.py_object
    python.PyCapsule_GetPointer.argtypes = ctypes.py_object, c_char_p
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    table = python.PyCapsule_GetPointer(vars(np)["_core"]._multiarray_umath._ARRAY_API, None)
    function = (ctypes.c_void_p * (SET_HANDLER + 1)).from_address(table)[SET_HANDLER]
    assert function
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(function)
    library = ctypes.CDLL(os.environ["CUDA_ON_CPU_LIBRARY"])
    handler = ctypes.c_byte.in_dll(library, "fake_host_memory")
    set_handler(python.PyCapsule_New(ctypes.addressof(handler), b"mem_handler", None))


# Changes of the GPU's memory since the last launch. Importing cuda_on_cpu takes seconds: so not
# before the first launch.
_happened: list[tuple[int, int, int]] = []


@Listener
def _listen(happened: int, address: int, n_bytes: int) -> None:
    _spoil_freed_arrays()
    _happened.append((happened, address, n_bytes))


def report(sentence: str) -> None:
    """Say why a launch failed. `cuda_on_cpu.pytest_plugin` puts its own function here."""
    print(f"fake driver: a kernel failed: {sentence}", file=sys.stderr)


@Launcher
def _launch(
    image: Any,
    name: Any,
    grid: Any,
    block: Any,
    shared_bytes: int,
    n_parameters: int,
    sizes: Any,
    values: Any,
) -> int:
    try:
        from cuda_on_cpu.driver import memory

        for happened, address, n_bytes in _happened:
            if happened == ALLOCATED:
                memory.memory.add(address, n_bytes)
            elif happened == FREED:
                memory.memory.remove(address)
            else:
                memory.memory.wrote(address, n_bytes)
        _happened.clear()
        ends = [0, *itertools.accumulate(sizes[:n_parameters])]
        parameters = [bytes(values[start:end]) for start, end in itertools.pairwise(ends)]
        kernel, shapes = name.decode(), (tuple(grid[:3]), tuple(block[:3]))
        arguments = _arguments.get(kernel, {})
        memory.launch(image.decode(), kernel, *shapes, parameters, arguments, shared_bytes)
    except Exception as error:  # ctypes would print it and go on
        if type(error).__name__ == "UnknownPtx":
            from cuda_on_cpu.run import readable_name

            error = ValueError(f"{readable_name(kernel)}: cuda_on_cpu does not know {error}")
        elif type(error).__name__ != "KernelFault":
            traceback.print_exc()
        report(str(error))
        return LAUNCH_FAILED
    return 0
