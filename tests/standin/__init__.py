"""A stand-in for NVIDIA's driver: the project's GPU code, unmodified, on a machine without a GPU.

    PYTHONPATH=tests python -m standin experiments.table1 --engine cuda --data digits

runs a module so that numba-cuda and cuda.core find the stand-in where they look for the driver.
Kernels are the PTX that numba-cuda makes of them, executed on the CPU. In the environment:

STANDIN_GPUS=7.5,10.0     the compute capabilities of the GPUs (default: one of 9.0)
STANDIN_SEED=1            streams run at random moments; without it as late as CUDA allows
STANDIN_FAIL=cuMemAlloc:3:2    the third call of cuMemAlloc fails with error 2
STANDIN_CALLS=path        each process adds lines to this file: itself, a function, its calls
"""
