"""A pytest plugin: kernels are compiled by numba-cuda-mlir, the successor of numba-cuda, executed.

    PYTHONPATH=tests/support python -m pytest -p numba_mlir tests/mlp_gpu/test_kernels.py

Each statement here is one of the differences between the two packages.
"""

import os

os.environ["NUMBA_NUM_THREADS"] = "1"  # it fails if that changes later, as conftest.py does

import numpy as np
from numba_cuda_mlir import cuda, tools

from cuda_on_cpu import compile, executor
from deepbig_runtime import compiled_cache, gpu


def compile_ptx(*arguments, **options):
    """PTX, at whose end numba-cuda-mlir may leave the zero byte of C's strings."""
    ptx, returned = compile_ptx_with_zero(*arguments, **options)
    return ptx.rstrip("\0"), returned


def array_parameters(array):
    """MLIR's parameters for an array: address twice, offset, shape, strides in elements."""
    address, strides = array.ctypes.data, (n // array.itemsize for n in array.strides)
    return [np.int64(number).tobytes() for number in (address, address, 0, *array.shape, *strides)]


compile_ptx_with_zero, cuda.compile_ptx = cuda.compile_ptx, compile_ptx
tools._cached_cc = (7, 5)  # else it asks the driver for a GPU, whatever it compiles for
gpu.cuda = compile.cuda = cuda
gpu.device_function = cuda.jit(device=True, inline="always")
gpu.missing = lambda n_bytes=0: "these kernels are executed"
executor._array_parameters = array_parameters
compiled_cache.FOLDER = None  # its code is numba-cuda's
