"""What an engine is, and how one is chosen.

An engine holds the weights where it computes. All agree with `tests/reference.py` up to rounding,
and which one ran is part of every run's configuration.
"""

from typing import Protocol

import numpy as np

from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network


class Engine(Protocol):
    """Trains and evaluates one net. Images are float32 (n, 29, 29) or (n, n_inputs), C order."""

    name: str

    def set_network(self, network: Network) -> None:
        """Take a copy of the network; call this first."""

    def get_network(self) -> Network:
        """Give back a copy of the network as it is now."""

    def train(self, images: np.ndarray, labels: np.ndarray, order: np.ndarray, eta: float) -> float:
        """On-line steps on images[order], one update an image; returns their mean loss.

        labels: uint8 (n,). order: int64 (m,), m >= 1. eta: learning rate. Modifies the weights.
        Raises ValueError for shapes, types, labels or indices that do not fit.
        """

    def predict(self, images: np.ndarray) -> np.ndarray:
        """Class probabilities, float32 (n, n_classes), in batches and without any update."""


ENGINES = {"cpu": CpuEngine}


def make_engine(name: str) -> Engine:
    """The engine of that name; `auto` is the fastest one that this machine can run."""
    return ENGINES["cpu" if name == "auto" else name]()
