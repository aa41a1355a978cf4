"""What an engine is, and how one is chosen.

An engine holds the weights where it computes. All engines agree with `tests/reference.py` up to
rounding. The engine's name is part of every run's configuration.

Engines are imported where one is made: numba takes half a second to import, and whoever reads run
files or asks for --help needs none.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from mlp_gpu import driver
from mlp_gpu.network import Network

if TYPE_CHECKING:
    from mlp_gpu.gpu import DeviceArray

NAMES = ("cpu", "cuda")
SCHEDULES = ("graph", "launch")  # of the GPU's engine, see `mlp_gpu.cuda`
WINDOW = "window"  # another, of perceptrons alone, see `mlp_gpu.window`
PERCEPTRON_SCHEDULES = (WINDOW, *SCHEDULES)

# Version of the CPU engines' arithmetic: the order of their sums, and the rule by which the
# perceptron's chooses blocks and windows. It is part of a run's configuration, because bits depend
# on it; runs from before lack it.
CPU_ARITHMETIC = 3
WINDOW_IMAGES_PER_BLOCK = 128  # of the schedule `window`: the more, the fewer launches an image


Net = TypeVar("Net")  # the kind of nets that an engine trains


class Engine(Protocol[Net]):
    """Trains and evaluates one net. Images are float32 (n, 29, 29) or (n, n_inputs), C order."""

    name: str

    @property
    def schedule(self) -> str | None:
        """How a GPU's work is launched; None on a CPU."""

    def set_network(self, network: Net) -> None:
        """Take a copy of the network; call this first."""

    def get_network(self) -> Net:
        """Give back a copy of the network as it is now."""

    def train(
        self,
        images: "np.ndarray | DeviceArray",
        labels: np.ndarray,
        order: np.ndarray,
        eta: float,
        tick: Callable[[int, float], None] = lambda n_images, loss: None,
    ) -> float:
        """On-line steps on images[order], one update per image; returns their mean loss.

        images: on the host, or for the GPU's engine also on the GPU. labels: uint8 (n,). order:
        int64 (m,), m >= 1. eta: learning rate. tick: called now and then with the number of images
        trained since its last call and their mean loss; an exception that it raises ends the
        training. Modifies the weights.
        Raises ValueError for shapes, types, labels or indices that do not fit.
        """

    def predict(self, images: np.ndarray) -> np.ndarray:
        """Class probabilities, float32 (n, n_classes), in batches and without any update."""


def choose_engine(
    choice: str, missing: Callable[[], str | None], tell: Callable[[str], None]
) -> str:
    """The name of the engine to take, one of NAMES.

    choice: one of NAMES, or `auto`: the GPU's engine where a GPU is usable, else the CPU's.
    missing: returns why the GPU cannot be used, or None, as gpu.missing does. tell: called with a
    sentence that says why `auto` does not take the GPU; not where there is nothing to take.
    Raises gpu.GpuFault if the choice is `cuda` and the GPU cannot be used.
    """
    if choice == "cpu":
        return "cpu"
    reason = missing()
    if reason is None:
        return "cuda"
    if choice == "cuda":
        from mlp_gpu.faults import GpuFault

        raise GpuFault(f"{reason}; or take --engine cpu")
    if reason != driver.MISSING or driver.finds_gpu():
        tell(f"no GPU is used: {reason}")
    return "cpu"


def make_engine(
    name: str, schedule: str = "graph", images_per_block: int | None = None
) -> Engine[Network]:
    """The engine of that name, one of NAMES.

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
