"""A multi-layer perceptron as data: sizes and padded weight matrices, from a seed or a file.

A layer with n_in inputs and n_out neurons holds W of shape (pad32(n_in + 1), pad32(n_out)),
float32, C order. Row 0 is the bias, row i the weights from input i - 1. The padding is zero and
every engine keeps it zero. The papers call such matrices "strided" (2010, appendix).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np

from mlp_gpu import hdf5, random

N_INPUTS = 29 * 29
N_CLASSES = 10

# The hidden layers of the five nets of Table 1 (2010).
HIDDEN = {
    1: (1000, 500),
    2: (1500, 1000, 500),
    3: (2000, 1500, 1000, 500),
    4: (2500, 2000, 1500, 1000, 500),
    5: (1000,) * 9,
}
NETS = {net: (N_INPUTS, *hidden, N_CLASSES) for net, hidden in HIDDEN.items()}

INITIAL_WEIGHT = 0.05  # initial weights are uniform in [-0.05, 0.05] (2010, section 3)

SCHEMA, SCHEMA_VERSION = "deepbig weights", 1


def pad32(n: int) -> int:
    """The smallest multiple of 32, the warp size, that is at least n."""
    return -(-n // 32) * 32


def count_weights(sizes: tuple[int, ...]) -> int:
    """Weights of a net, biases included and padding not."""
    return sum((n_in + 1) * n_out for n_in, n_out in pairwise(sizes))


@dataclass(frozen=True, eq=False)
class Network:
    """A net between engines and files.

    sizes: neurons of each layer, the inputs first: (841, 1000, 500, 10) is net 1.
    weights: a float32 array (pad32(n_in + 1), pad32(n_out)) for each pair of sizes.
    """

    sizes: tuple[int, ...]
    weights: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or min(self.sizes) < 1:
            raise ValueError(f"a net needs two or more positive sizes, not {self.sizes}")
        shapes = padded_shapes(self.sizes)
        if [W.shape for W in self.weights] != shapes:
            raise ValueError(f"weights of {self.sizes} must have the shapes {shapes}")
        if any(W.dtype != np.float32 or not W.flags.c_contiguous for W in self.weights):
            raise ValueError("weights must be float32 arrays in C order")

    @classmethod
    def initial(cls, sizes: tuple[int, ...], seed: int) -> "Network":
        """A new net, its weights and biases uniform in [-0.05, 0.05] (2010, section 3)."""
        rng = random.generator(seed, random.WEIGHTS)
        weights = []
        for n_in, n_out in pairwise(sizes):
            W = np.zeros((pad32(n_in + 1), pad32(n_out)), np.float32)
            W[: n_in + 1, :n_out] = rng.uniform(-INITIAL_WEIGHT, INITIAL_WEIGHT, (n_in + 1, n_out))
            weights.append(W)
        return cls(sizes, tuple(weights))

    def unpadded(self) -> list[np.ndarray]:
        """Views of the weight matrices without their padding, (n_in + 1, n_out)."""
        return [
            W[: n_in + 1, :n_out]
            for W, (n_in, n_out) in zip(self.weights, pairwise(self.sizes), strict=True)
        ]

    @property
    def n_weights(self) -> int:
        """Weights, biases included and padding not."""
        return count_weights(self.sizes)


def padded_shapes(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Shapes of the weight matrices of a net, in order."""
    return [(pad32(n_in + 1), pad32(n_out)) for n_in, n_out in pairwise(sizes)]


def save(path: Path, networks: Mapping[str, Network], attributes: Mapping[str, str | int]) -> None:
    """Write networks by name into one weights file, with root attributes of the caller's.

    Raises files.FileFault if that fails; the old file then stays.
    """

    def fill(file: h5py.File) -> None:
        file.attrs.update(schema=SCHEMA, schema_version=SCHEMA_VERSION, **attributes)
        for name, network in networks.items():
            group = file.create_group(name)
            group.attrs["sizes"] = network.sizes
            for layer, W in enumerate(network.weights, start=1):
                group.create_dataset(f"W{layer}", data=W, track_times=False)

    hdf5.write(path, fill)


def load(path: Path) -> tuple[dict[str, Network], dict]:
    """The networks of a weights file by name, and its root attributes.

    Raises files.FileFault if the file is missing, damaged or of another kind.
    """
    with hdf5.opened(path, SCHEMA, SCHEMA_VERSION) as file:
        networks = {}
        for name, group in file.items():
            sizes = tuple(int(size) for size in group.attrs["sizes"])
            weights = tuple(group[f"W{layer}"][()] for layer in range(1, len(sizes)))
            networks[name] = Network(sizes, weights)
        return networks, dict(file.attrs)
