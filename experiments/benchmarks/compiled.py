"""Our kernels compiled without a GPU: the resources of each; bank conflicts as executed."""

from collections.abc import Collection
from typing import Any

import numpy as np

from cnn_gpu import kernels as cnn_kernels
from cuda_on_cpu import (
    CompiledKernel,
    Executor,
    Launched,
    accesses,
    compile_kernel,
)
from cuda_on_cpu.access_stats import words_per_bank
from deepbig_runtime.compiled_cache import FOLDER
from deepbig_runtime.gpu import Launch
from deform_gpu import kernels as deform_kernels
from experiments.training.messages import tell
from mlp_gpu import kernels as mlp_kernels
from mlp_gpu import tensor_cores, window
from mlp_gpu.kernels import backward
from mlp_gpu.ladder import rungs

COMPUTE_CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))
SIGNATURES = {
    **mlp_kernels.SIGNATURES,
    **window.SIGNATURES,
    **tensor_cores.SIGNATURES,
    **deform_kernels.SIGNATURES,
    **cnn_kernels.SIGNATURES,
    **rungs.SIGNATURES,
}


def new_executor(cc: tuple[int, int], **options: Any) -> Executor:
    """An executor of our kernels, which keeps compiled code. options: of the Executor."""
    return Executor(cc, signatures=SIGNATURES, cache=FOLDER, **options)


def execute(executor: Executor, launch: Launch) -> Launched:
    """Run a launch on a CPU. Modifies the arrays that its kernel writes. Raises KernelFault."""
    return executor.launch(launch.kernel, launch.grid, launch.threads, launch.arguments)


def compile_all(ccs: Collection[tuple[int, int]] = COMPUTE_CAPABILITIES) -> list[CompiledKernel]:
    """Compile every kernel for every compute capability that can run it."""
    found = []
    for kernel, signature in SIGNATURES.items():
        tell(f"compiling {kernel.py_func.__name__} ...")
        lowest = tensor_cores.LOWEST_CC if kernel in tensor_cores.SIGNATURES else (0, 0)
        found += [compile_kernel(kernel, signature, cc, FOLDER) for cc in ccs if cc >= lowest]
    return found


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
    shapes = (
        (n_in,),
        backward.partial_shape((n_in + 1, n_out)),
        (n_in + 1, n_out),
        (n_out,),
        (n_in,),
    )
    launch, _ = backward.propagate_back(*(np.ones(shape, np.float32) for shape in shapes))
    found = accesses(execute(new_executor(COMPUTE_CAPABILITIES[0], traced=True), launch))
    write, read = found["shared", "write"], found["shared", "read"]
    tight = words_per_bank(range(0, backward.PATCH**2, backward.PATCH))
    return (
        "Bank conflicts of delta_partial, as executed: its warps write shared memory "
        f"{write.warps} times in {write.passes} passes and read it {read.warps} times in "
        f"{read.passes} passes, where as many passes as times mean no conflict; with rows of "
        f"{backward.PATCH} words instead of {backward.STRIDE} each read of a row of the patch "
        f"would take {tight} passes."
    )
