"""Compiled kernels are kept for the next process, as `jit` does for functions of the CPU."""

from typing import Any

from numba.cuda.dispatcher import CUDACache

from mlp_gpu.jit import Kept, keep


class _KeptKernel(Kept, CUDACache):
    """Of a kernel, for each compute capability and version of CUDA."""


def keep_kernel(kernel: Any) -> None:
    """Let a kernel that was not launched before be loaded, if it was compiled before."""
    keep(kernel, _KeptKernel, kernel.py_func)
