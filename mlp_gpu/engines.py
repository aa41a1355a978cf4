"""The choice of an engine.

Engines are imported where one is made: numba takes half a second to import, and reading run files
or asking for --help needs none.
"""

from collections.abc import Callable

from deepbig_runtime import driver
from mlp_gpu.engine import ENGINE_NAMES, WINDOW, WINDOW_IMAGES_PER_BLOCK, Engine
from mlp_gpu.network import Network


def choose_engine(
    choice: str, missing: Callable[[], str | None], tell: Callable[[str], None]
) -> str:
    """The name of the engine to take, one of ENGINE_NAMES.

    choice: one of ENGINE_NAMES, or `auto`: the GPU's engine where a GPU is usable, else the CPU's.
    missing: returns why the GPU cannot be used, or None, as gpu.missing does. tell: called with a
    sentence on why `auto` does not take the GPU, unless there is neither a driver nor a GPU.
    Raises gpu.GpuFault if the choice is `cuda` and the GPU cannot be used, ValueError if the
    choice is none of these.
    """
    if choice not in (names := ("auto", *ENGINE_NAMES)):
        raise ValueError(f"engine is {choice!r}; expected one of {', '.join(names)}")
    if choice == "cpu":
        return "cpu"
    reason = missing()
    if reason is None:
        return "cuda"
    if choice == "cuda":
        from deepbig_runtime.faults import GpuFault

        raise GpuFault(f"{reason}; engine cpu needs no GPU")
    if reason != driver.MISSING or driver.finds_gpu():
        tell(f"no GPU is used: {reason}")
    return "cpu"


def make_engine(
    name: str, schedule: str = "graph", images_per_block: int | None = None
) -> Engine[Network]:
    """The engine of that name, one of ENGINE_NAMES.

    schedule: for the GPU's engine, one of PERCEPTRON_SCHEDULES. images_per_block: for WINDOW; None:
    the usual number.
    """
    if name == "cuda" and schedule == WINDOW:
        from mlp_gpu.window.engine import WindowCudaEngine

        return WindowCudaEngine(images_per_block or WINDOW_IMAGES_PER_BLOCK)
    if name == "cuda":
        from mlp_gpu.cuda import CudaEngine

        return CudaEngine(schedule)
    from mlp_gpu.cpu import CpuEngine

    return CpuEngine()
