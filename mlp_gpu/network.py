"""A multi-layer perceptron as data: sizes and padded weight matrices, from a seed or a file.

A layer with n_in inputs and n_out neurons holds W of shape (pad32(n_in + 1), pad32(n_out)),
float32, C order. Row 0 is the bias, row i the weights from input i - 1. The padding is zero and
every engine keeps it zero. The papers call such matrices "padded" (2010, Figure 2) or "strided"
(2011).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

import h5py
import numpy as np

from deepbig_runtime import hdf5
from deepbig_runtime.files import Malformed
from deepbig_runtime.hdf5 import Group
from mlp_gpu import random

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
    weights: a float32 array (pad32(n_in + 1), pad32(n_out)) for each pair of sizes. Raises
    ValueError for fewer than two sizes, one below 1, or weights that do not fit them.
    """

    sizes: tuple[int, ...]
    weights: tuple[np.ndarray, ...]

    SCHEMA: ClassVar = ("deepbig weights", 1)

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

    @classmethod
    def blank(cls, sizes: tuple[int, ...]) -> "Network":
        """A net whose weights are all zero."""
        return cls(sizes, tuple(np.zeros(shape, np.float32) for shape in padded_shapes(sizes)))

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

    def stored(self) -> Group:
        """As `Stored.stored`."""
        arrays = {f"W{layer}": W for layer, W in enumerate(self.weights, start=1)}
        return Group("", {"sizes": self.sizes}, arrays)

    @classmethod
    def read(cls, group: Group) -> "Network":
        """As `Stored.read`."""
        sizes = group.attrs.get("sizes")
        if not isinstance(sizes, tuple) or len(sizes) < 2 or min(sizes) < 1:
            raise Malformed(f"sizes of {group.name}: expected two or more positive integers")
        shapes = {f"W{layer}": shape for layer, shape in enumerate(padded_shapes(sizes), start=1)}
        group.check({"sizes": tuple}, shapes)
        network = cls(
            sizes, tuple(group.array(name, "float32", shape) for name, shape in shapes.items())
        )
        for W, weights in zip(network.weights, network.unpadded(), strict=True):
            if np.count_nonzero(W) != np.count_nonzero(weights):
                raise Malformed(f"{group.name} has padding that is not zero")
        return network


def padded_shapes(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Shapes of the weight matrices of a net, in order."""
    return [(pad32(n_in + 1), pad32(n_out)) for n_in, n_out in pairwise(sizes)]


class Stored(Protocol):
    """A kind of net that a weights file can hold, a group each."""

    SCHEMA: ClassVar[tuple[str, int]]  # name and version of the group's content

    def stored(self) -> Group:
        """The network as attributes and arrays, which it shares."""

    @classmethod
    def read(cls, group: Group) -> Self:
        """The network that `stored` has put there. Raises Malformed if it did not."""


Kind = TypeVar("Kind", bound=Stored)


def save(path: Path, networks: Mapping[str, Kind], attributes: Mapping[str, str | int]) -> None:
    """Write networks of one kind, by name, into a weights file, with root attributes of the caller.

    Raises files.FileFault if that fails; the old file then stays.
    """
    schema, version = next(iter(networks.values())).SCHEMA

    def fill(file: h5py.File) -> None:
        file.attrs.update(schema=schema, schema_version=version, **attributes)
        for name, network in networks.items():
            stored, group = network.stored(), file.create_group(name)
            group.attrs.update(stored.attrs)
            for key, values in stored.arrays.items():
                group.create_dataset(key, data=values, track_times=False)

    hdf5.write(path, fill)


def load(path: Path, kind: type[Kind]) -> tuple[dict[str, Kind], dict[str, Any]]:
    """The networks of a weights file by name, and its root attributes.

    Raises files.FileFault if the file is missing, damaged, holds another kind of nets, or weights
    that no net of its sizes can have.
    """
    with hdf5.opened(path, *kind.SCHEMA) as file:
        if file.arrays:
            raise Malformed("it holds arrays that are of no net")
        return {name: kind.read(group) for name, group in file.groups.items()}, file.attrs
