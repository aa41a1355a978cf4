"""An executor of all our kernels, which runs them on a CPU as they are compiled for a GPU."""

from typing import Any

from cnn_gpu import kernels as cnn_kernels
from cuda_on_cpu import Executor, Launched
from deepbig_runtime.compiled_cache import FOLDER
from deepbig_runtime.gpu import Launch
from deform_gpu import kernels as deform_kernels
from mlp_gpu import kernels as mlp_kernels
from mlp_gpu import tensor_cores, window
from mlp_gpu.ladder import rungs

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
