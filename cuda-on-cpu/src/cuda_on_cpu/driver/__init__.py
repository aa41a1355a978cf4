"""A fake driver: whole programs that use CUDA from Python, unmodified, on a machine without a GPU.

    python -m cuda_on_cpu PROGRAM.py [ARGUMENTS]        or -m MODULE, or -c CODE

starts Python so that numba-cuda and cuda.core find this library where they look for NVIDIA's
driver. The PTX that numba-cuda compiles is executed as by `cuda_on_cpu.Executor`: a kernel that
breaks a rule fails the launch, and a sentence on stderr says how. In the environment:

CUDA_ON_CPU_GPUS=7.5,10.0        compute capabilities of the GPUs (default: one of 9.0)
CUDA_ON_CPU_SEED=1               streams run at random moments; without it as late as CUDA allows
CUDA_ON_CPU_CACHE=folder         where compiled kernels are kept, a private one; "": nowhere
                                 (default: ~/.cache/cuda_on_cpu/kernels)
CUDA_ON_CPU_EXCLUSIVE=folder     GPUs in exclusive-process mode; processes meet in this folder
CUDA_ON_CPU_FAIL=cuMemAlloc:3:2  the third call of cuMemAlloc fails with error 2
CUDA_ON_CPU_CALLS=path           each process adds lines here: its id, a function's name, its calls
"""
