"""A pytest plugin: kernels are compiled by numba-cuda-mlir, the successor of numba-cuda, executed.

    PYTHONPATH=tests/support python -m pytest -p numba_mlir tests/mlp_gpu/test_kernels.py

Each statement here is one of the differences between the two packages.
"""

import os

os.environ["NUMBA_NUM_THREADS"] = "1"  # it fails if that changes later, as conftest.py does

from numba_cuda_mlir import cuda

from deepbig_runtime import gpu

gpu.cuda = cuda
gpu.device_function = cuda.jit(device=True, inline="always")
gpu.missing = lambda n_bytes=0: "these kernels are executed"
