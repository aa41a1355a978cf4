"""The stand-in's launches: what the C library asks of Python, handed to what executes PTX."""

import atexit
import ctypes
import functools
import os
import sys
import traceback
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_ubyte

LAUNCH_FAILED = 719  # CUDA_ERROR_LAUNCH_FAILED
ALLOCATED, FREED, WROTE = range(3)

Launcher = ctypes.CFUNCTYPE(
    c_int,
    c_char_p,  # PTX
    c_char_p,  # the kernel's name
    POINTER(c_uint),  # blocks in x, y, z
    POINTER(c_uint),  # threads in x, y, z
    c_uint,  # bytes of shared memory beside what the kernel declares
    c_int,  # how many parameters
    POINTER(c_size_t),  # their sizes
    POINTER(c_ubyte),  # the parameters, one after another
)
SET_HANDLER = 304  # PyDataMem_SetHandler in the table of NumPy's functions

Listener = ctypes.CFUNCTYPE(None, c_int, c_size_t, c_size_t)


def install() -> None:
    """Load the library before anything looks for the driver or for NVIDIA's linker."""
    library = ctypes.CDLL(os.environ["STANDIN_LIBRARY"], ctypes.RTLD_GLOBAL)
    for register, function in (
        (library.standin_set_launcher, _launch),
        (library.standin_set_listener, _listen),
    ):
        register(function)
        atexit.register(register, None)  # streams may be destroyed after Python has ended


@functools.cache
def _spoil_freed_arrays() -> None:
    """Have NumPy's arrays spoilt when they are freed, if NumPy makes them from now on."""
    import numpy as np

    python = ctypes.pythonapi
    python.PyCapsule_New.argtypes = ctypes.c_void_p, c_char_p, ctypes.c_void_p
    python.PyCapsule_New.restype = ctypes.py_object
    python.PyCapsule_GetPointer.argtypes = ctypes.py_object, c_char_p
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    table = python.PyCapsule_GetPointer(np._core._multiarray_umath._ARRAY_API, None)
    function = (ctypes.c_void_p * (SET_HANDLER + 1)).from_address(table)[SET_HANDLER]
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(function)
    library = ctypes.CDLL(os.environ["STANDIN_LIBRARY"])
    handler = ctypes.c_byte.in_dll(library, "standin_host_memory")
    set_handler(python.PyCapsule_New(ctypes.addressof(handler), b"mem_handler", None))


@Launcher
def _launch(image, name, grid, block, shared_bytes, n_parameters, sizes, values) -> int:
    try:
        parameters, start = [], 0
        for size in sizes[:n_parameters]:
            parameters.append(bytes(values[start : start + size]))
            start += size
        from standin import executor

        executor.launch(
            image.decode(), name.decode(), tuple(grid[:3]), tuple(block[:3]), parameters
        )
    except Exception:
        print(f"stand-in: kernel {name.decode()}:", file=sys.stderr)
        traceback.print_exc()
        return LAUNCH_FAILED
    return 0


@Listener
def _listen(happened, address, n_bytes) -> None:
    _spoil_freed_arrays()
    from standin import executor

    if happened == ALLOCATED:
        executor.memory.add(address, n_bytes)
    elif happened == FREED:
        executor.memory.remove(address)
    else:
        executor.memory.wrote(address, n_bytes)
