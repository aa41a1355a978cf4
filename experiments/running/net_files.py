"""Net files: the weights of a run at its chosen epoch, alone, to keep or to hand on.

One sealed HDF5 file, RUN.net, of half the size of the weights where half precision changes no
answer. A run file and its weights file, which a training needs to go on, have four times as much.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from deepbig_runtime import files, hdf5
from deepbig_runtime.hdf5_parts import Dataset, Group
from experiments.running import configs, nets
from experiments.running.configs import Config
from experiments.running.nets import AnyNetwork

SCHEMA, SCHEMA_VERSION = "deepbig net", 1
SUFFIX = ".net"
NET = "net"  # the one group of a file
WEIGHT = np.dtype(np.float32)


@dataclass(frozen=True)
class NetFile:
    """What a net file holds: the run's configuration, its chosen epoch, and the net there."""

    config: Config
    epoch: int
    network: AnyNetwork


class _Halved:
    """A group into which a net writes its weights, which become float16."""

    def __init__(self, group: h5py.Group):
        self._group, self.attrs = group, group.attrs

    def create_dataset(self, name: str, data: np.ndarray, **options: Any) -> None:
        data = data.astype(np.float16) if data.dtype == WEIGHT else data
        self._group.create_dataset(name, data=data, **options)


def halved(network: AnyNetwork) -> AnyNetwork:
    """The net with all weights rounded to float16, as float32.

    Raises ValueError if a weight is too large for float16.
    """
    with np.errstate(over="ignore"):
        weights: list[Any] = [
            None if W is None else W.astype(np.float16).astype(WEIGHT) for W in network.weights
        ]
    if not all(W is None or np.isfinite(W).all() for W in weights):
        raise ValueError("a weight is beyond float16's largest number, 65,504")
    return replace(network, weights=tuple(weights))


def write(path: Path, found: NetFile, half: bool) -> None:
    """Replace a net file. half: weights as float16. Raises files.FileFault if that fails."""

    def fill(file: h5py.File) -> None:
        file.attrs.update(schema=SCHEMA, schema_version=SCHEMA_VERSION)
        file.attrs.update(config=found.config.to_json(), epoch=found.epoch)
        group = file.create_group(NET)
        found.network.write(_Halved(group) if half else group)

    hdf5.write(path, fill)


def read(path: Path) -> NetFile:
    """The content of a net file.

    Raises files.FileFault if it is missing, damaged or something else, or holds what no net can.
    """
    with hdf5.opened(path, SCHEMA, SCHEMA_VERSION) as file:
        attributes = {"schema": str, "schema_version": int, "config": str, "epoch": int}
        file.check({NET}, attributes)
        config = configs.from_json("config", str(file.attrs["config"]))
        epoch = int(file.attrs["epoch"])
        if not 1 <= epoch <= config.epochs:
            raise files.Malformed(f"its epoch is {epoch}, expected 1 to {config.epochs}")
        network = nets.kind(config).read(_widened(file.group(NET)))
        if not nets.is_of(network, config):
            raise files.Malformed(f"its net has other layers than {config.net_name}")
        return NetFile(config, epoch, network)


def _widened(group: Group) -> Group:
    """A group with its float16 arrays as float32."""
    return Group(
        group.name,
        group.attrs,
        {
            name: Dataset(member.values.astype(WEIGHT), member.attrs)
            if isinstance(member, Dataset) and member.values.dtype == np.float16
            else member
            for name, member in group.members.items()
        },
    )
