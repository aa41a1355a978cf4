"""The choice of an engine for convolutional nets, see `mlp_gpu.engines`."""

from cnn_gpu.network import ConvNetwork
from mlp_gpu.engine import SCHEDULES, Engine


def make_engine(name: str, schedule: str = SCHEDULES[0]) -> Engine[ConvNetwork]:
    """The engine of that name, one of ENGINE_NAMES. schedule: for a GPU, one of SCHEDULES."""
    if name == "cuda":
        from cnn_gpu.cuda import ConvCudaEngine  # imports numba

        return ConvCudaEngine(schedule)
    from cnn_gpu.cpu import ConvCpuEngine

    return ConvCpuEngine()
