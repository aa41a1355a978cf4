"""The interface of an engine, and the names and constants that configurations have of engines.

An engine holds the weights where it computes. All engines agree with
`tests/references/reference.py` up to rounding. The engine's name is part of every run's
configuration.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from deepbig_runtime.gpu import DeviceArray

ENGINE_NAMES = ("cpu", "cuda")
SCHEDULES = ("graph", "launch")  # of the GPU's engine, see `mlp_gpu.cuda`
WINDOW = "window"  # another, of perceptrons alone, see `mlp_gpu.window`
PERCEPTRON_SCHEDULES = (WINDOW, *SCHEDULES)

# Version of an engine's arithmetic: the order of its sums, and the rule by which it chooses blocks
# and windows. It is part of a run's configuration, because bits depend on it; older runs lack it.
CPU_ARITHMETIC, CONV_CPU_ARITHMETIC = 4, 3  # of perceptrons and of convolutional nets
WINDOW_ARITHMETIC = 3  # of the GPU's schedule `window`
WINDOW_IMAGES_PER_BLOCK = 512  # of the schedule `window`: the more, the fewer launches an image


Net = TypeVar("Net")  # the kind of nets that an engine trains


class Engine(Protocol[Net]):
    """Trains and evaluates one net. Images are float32 (n, ...), C order, n_inputs numbers each."""

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
        int64 (m,), m >= 1. eta: learning rate. tick: called after each chunk with the number of
        images trained since its last call and their mean loss; an exception that it raises ends
        the training. Modifies the weights.
        Raises ValueError for shapes, types, labels or indices that do not fit, and gpu.GpuFault,
        as all methods do, if the GPU fails.
        """

    def keep(self, images: np.ndarray) -> "np.ndarray | DeviceArray":
        """The images for `predict`, on the GPU if that computes and has room for them."""

    def predict(self, images: "np.ndarray | DeviceArray") -> np.ndarray:
        """Class probabilities, float32 (n, n_classes), in batches and without any update."""
