"""A convolutional net as data: its layers, its connection tables and its weights, from a seed.

Neurons are numbered by y, then x, then map. A layer's weights are a float32 matrix of a row for the
bias, then a row for each place of the kernel and map of the layer before, by y, x and map; a column
for each map. So a convolution is the product of its patches with that matrix, and a fully connected
layer, whose kernel covers the whole source, is one of a single patch. Connections that a net does
not have are zeros that stay zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from cnn_gpu.layers import MAX_POOLING, Layer, Maps, parse
from mlp_gpu import hdf5, random
from mlp_gpu.network import INITIAL_WEIGHT

SCHEMA, SCHEMA_VERSION = "deepbig convolutional weights", 1


@dataclass(frozen=True, eq=False)
class ConvNetwork:
    """A net between engines and files.

    description: of its hidden layers, as `layers` reads it. source: its input. layers: with the
    last one. connections: for each layer bool (maps of its source, maps), whether a map reads one
    of the source; None for max-pooling. weights: for each layer float32 (1 + kernel height * kernel
    width * maps of its source, maps); None for max-pooling.
    """

    description: str
    source: Maps
    layers: tuple[Layer, ...]
    connections: tuple[np.ndarray | None, ...]
    weights: tuple[np.ndarray | None, ...]

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


def weight_mask(layer: Layer, table: np.ndarray) -> np.ndarray:
    """Which entries of a layer's weight matrix are weights, bool. table: of its connections."""
    height, width = layer.kernel
    rows = np.tile(table, (height * width, 1))
    return np.concatenate((np.ones((1, layer.maps.n), bool), rows))


def _draw_connections(layer: Layer, rng: np.random.Generator) -> np.ndarray | None:
    if layer.kind == MAX_POOLING:
        return None
    table = np.zeros((layer.source.n, layer.maps.n), bool)
    for m in range(layer.maps.n):
        table[rng.permutation(layer.source.n)[: layer.reads], m] = True
    return table


def save(
    path: Path, networks: Mapping[str, ConvNetwork], attributes: Mapping[str, str | int]
) -> None:
    """Write networks by name into one weights file, with root attributes of the caller's.

    Raises files.FileFault if that fails; the old file then stays.
    """

    def fill(file: h5py.File) -> None:
        file.attrs.update(schema=SCHEMA, schema_version=SCHEMA_VERSION, **attributes)
        for name, network in networks.items():
            group, source = file.create_group(name), network.source
            group.attrs["layers"] = network.description
            group.attrs["source"] = source.n, source.height, source.width
            group.attrs["n_classes"] = network.n_classes
            for k, (table, W) in enumerate(zip(network.connections, network.weights, strict=True)):
                if W is not None:
                    group.create_dataset(f"C{k + 1}", data=table, track_times=False)
                    group.create_dataset(f"W{k + 1}", data=W, track_times=False)

    hdf5.write(path, fill)


def load(path: Path) -> tuple[dict[str, ConvNetwork], dict]:
    """The networks of a weights file by name, and its root attributes.

    Raises files.FileFault if the file is missing, damaged or of another kind.
    """
    with hdf5.opened(path, SCHEMA, SCHEMA_VERSION) as file:
        networks = {}
        for name, group in file.items():
            description, source = group.attrs["layers"], Maps(*map(int, group.attrs["source"]))
            layers = parse(description, source, int(group.attrs["n_classes"]))

            def read(letter: str, group: h5py.Group = group, n: int = len(layers)) -> tuple:
                names = (f"{letter}{k}" for k in range(1, n + 1))
                return tuple(group[name][()] if name in group else None for name in names)

            networks[name] = ConvNetwork(description, source, layers, read("C"), read("W"))
        return networks, dict(file.attrs)
