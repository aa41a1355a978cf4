"""A convolutional net as data: its layers, its connection tables and its weights, from a seed.

Neurons are numbered by y, then x, then map. A layer's weights are a float32 matrix of a row for the
bias, then a row for each place of the kernel and map of the layer before, by y, x and map; a column
for each map. So a convolution is the product of its patches with that matrix, and a fully connected
layer, whose kernel covers the whole source, is one of a single patch. Connections that a net does
not have are zeros that stay zero.
"""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from cnn_gpu.layers import Layer, Maps, parse
from deepbig_runtime.files import Malformed
from deepbig_runtime.hdf5 import Group
from mlp_gpu import random
from mlp_gpu.network import INITIAL_WEIGHT

MAX_LETTERS, MAX_INPUTS = 1000, 100_000  # of a net that a file describes


@dataclass(frozen=True, eq=False)
class ConvNetwork:
    """A net between engines and files.

    description: the hidden layers as text, see `cnn_gpu.layers`. source: the input. layers: all,
    with the output layer. connections: for each layer bool (maps of its source, maps), whether a
    map reads a map of the source. weights: for each layer float32 (1 + kernel height * kernel width
    * maps of its source, maps). connections and weights are None for layers that are not trained.
    Raises ValueError for connections or weights that do not fit the layers.
    """

    description: str
    source: Maps
    layers: tuple[Layer, ...]
    connections: tuple[np.ndarray | None, ...]
    weights: tuple[np.ndarray | None, ...]

    SCHEMA: ClassVar = ("deepbig convolutional weights", 1)

    def __post_init__(self) -> None:
        # Compiled loops and kernels check no index.
        expected = [(layer.source.n, layer.maps.n) for layer in self.layers]
        for layer, shape, table, W in zip(
            self.layers, expected, self.connections, self.weights, strict=True
        ):
            if not layer.has_weights:
                continue
            if table is None or table.shape != shape or table.dtype != bool:
                raise ValueError(f"connections of {layer.maps.n} maps must be bool, {shape}")
            if W is None or W.shape != weight_shape(layer) or W.dtype != np.float32:
                raise ValueError(f"weights must be float32, {weight_shape(layer)}")

    @classmethod
    def initial(cls, description: str, source: Maps, n_classes: int, seed: int) -> "ConvNetwork":
        """A new net: random connections, weights and biases uniform in [-0.05, 0.05] (2011).

        Guess: each map draws the maps that it reads by itself, all equally likely.
        Raises ValueError if no such net can be made.
        """
        layers = parse(description, source, n_classes)
        rng = random.generator(seed, random.CONNECTIONS)
        connections = tuple(_draw_connections(layer, rng) for layer in layers)
        rng = random.generator(seed, random.WEIGHTS)
        weights: list[np.ndarray | None] = []
        for layer, table in zip(layers, connections, strict=True):
            if table is None:
                weights.append(None)
                continue
            mask = weight_mask(layer, table)
            W = rng.uniform(-INITIAL_WEIGHT, INITIAL_WEIGHT, mask.shape).astype(np.float32)
            weights.append(np.where(mask, W, np.float32(0)))
        return cls(description, source, layers, connections, tuple(weights))

    @property
    def n_classes(self) -> int:
        return self.layers[-1].maps.n

    @property
    def n_weights(self) -> int:
        """Weights, biases included and absent connections not."""
        return sum(layer.n_weights for layer in self.layers)

    def stored(self) -> Group:
        """As `mlp_gpu.network.Stored.stored`."""
        source = self.source.n, self.source.height, self.source.width
        attrs = {"layers": self.description, "source": source, "n_classes": self.n_classes}
        arrays: dict[str, np.ndarray] = {}
        for k, (table, W) in enumerate(zip(self.connections, self.weights, strict=True), start=1):
            if table is not None and W is not None:
                arrays |= {f"C{k}": table, f"W{k}": W}
        return Group("", attrs, arrays)

    @classmethod
    def read(cls, group: Group) -> "ConvNetwork":
        """As `mlp_gpu.network.Stored.read`."""
        attributes = {"layers": str, "source": tuple, "n_classes": int}
        group.check(attributes, group.arrays)
        description, source, n_classes = (group.attrs[name] for name in attributes)
        is_small = len(source) == 3 and min(source) > 0 and prod(source) <= MAX_INPUTS
        if len(description) > MAX_LETTERS or not is_small:
            raise Malformed(f"{group.name} has layers or a source of an unreasonable size")
        try:
            layers = parse(description, Maps(*source), n_classes)
        except ValueError as error:
            raise Malformed(f"{group.name}: {error}") from None
        trained = {k: layer for k, layer in enumerate(layers, start=1) if layer.has_weights}
        group.check(attributes, [f"{letter}{k}" for letter in "CW" for k in trained])
        connections: list[np.ndarray | None] = []
        weights: list[np.ndarray | None] = []
        for k, layer in enumerate(layers, start=1):
            if k not in trained:
                connections.append(None)
                weights.append(None)
                continue
            table = group.array(f"C{k}", "bool", (layer.source.n, layer.maps.n))
            if (table.sum(axis=0) != layer.reads).any():
                raise Malformed(f"{group.name}C{k}: expected {layer.reads} connections a map")
            W = group.array(f"W{k}", "float32", weight_shape(layer))
            if W[~weight_mask(layer, table)].any():
                raise Malformed(f"{group.name}W{k} has weights of connections that are not there")
            connections.append(table)
            weights.append(W)
        return cls(description, Maps(*source), layers, tuple(connections), tuple(weights))


def weight_shape(layer: Layer) -> tuple[int, int]:
    """Of a layer's weight matrix."""
    return 1 + layer.kernel[0] * layer.kernel[1] * layer.source.n, layer.maps.n


def weight_mask(layer: Layer, table: np.ndarray) -> np.ndarray:
    """Which entries of a layer's weight matrix are weights, bool. table: of its connections."""
    height, width = layer.kernel
    rows = np.tile(table, (height * width, 1))
    return np.concatenate((np.ones((1, layer.maps.n), bool), rows))


def connection_kernels(layer: Layer, W: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The kernels of the connections that there are, (connections, height * width).

    By map and then map of the source. W, table: a convolution's weights and connections.
    """
    return W[1:].reshape(-1, layer.source.n, layer.maps.n).transpose(2, 1, 0)[table.T]


def weight_matrix(
    layer: Layer, kernels: np.ndarray, bias: np.ndarray, table: np.ndarray
) -> np.ndarray:
    """A convolution's weights from its kernels, see `connection_kernels`, and biases (maps,)."""
    found = np.zeros((layer.maps.n, layer.source.n, kernels.shape[1]), np.float32)
    found[table.T] = kernels
    return np.concatenate((bias[None], found.transpose(2, 1, 0).reshape(-1, layer.maps.n)))


def _draw_connections(layer: Layer, rng: np.random.Generator) -> np.ndarray | None:
    if not layer.has_weights:
        return None
    table = np.zeros((layer.source.n, layer.maps.n), bool)
    for m in range(layer.maps.n):
        table[rng.permutation(layer.source.n)[: layer.reads], m] = True
    return table
