"""The trained nets that come with the package, and any net of a file, to use on arrays."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deepbig_runtime.errors import Problem
from deepbig_runtime.files import FileFault
from deform_gpu.parameters import SIDE
from experiments.results import trained
from experiments.training.net_files import NetFile
from experiments.training.nets import AnyNetwork

FOLDER = Path(__file__).with_name("nets")


class Pretrained(NamedTuple):
    """A net that comes with the package: its name, and the command that trained it."""

    name: str
    command: str

    @property
    def path(self) -> Path:
        """Its net file."""
        return FOLDER / f"{self.name}.safetensors"


PRETRAINED = (  # those with fewer test errors first
    Pretrained("20M-60M-100M-150N", 'make cnn ARGS="--nets 3 --profile paper"'),
    Pretrained("net1", 'make table1 ARGS="--nets 1 --profile paper"'),
    Pretrained(
        "841-800-10",
        'make committee ARGS="--experiment 3 --epochs 300 --eta 3e-3 --eta-decay 0.98854"',
    ),
)
FILES = [net.path for net in PRETRAINED]


class UnusableNet(Problem, ValueError):
    """No net has that name, or its files cannot be used on pictures; one sentence says why."""


class UnreadableNet(FileFault, OSError):
    """A net's file is missing or damaged; one sentence says which file, and why."""


@dataclass(frozen=True, repr=False)
class TrainedNet:
    """A trained net, to use on images. title: net, data and seed; classes: names of its classes."""

    _file: NetFile

    def __repr__(self) -> str:
        return f"TrainedNet({self._file.described})"

    @property
    def title(self) -> str:
        return self._file.config.title

    @property
    def classes(self) -> tuple[str, ...]:
        return self._file.config.class_names

    @property
    def network(self) -> AnyNetwork:
        """Layers and weights: an mlp_gpu.network.Network or a cnn_gpu.network.ConvNetwork."""
        return self._file.network

    def read(self, picture: str | Path) -> np.ndarray:
        """A picture of any size as the net's data have theirs: uint8, (28, 28) of a digit.

        A digit is cut out and centred, as `make recognise` does. Raises deepbig_runtime.faults.
        Fault, one sentence, if the file cannot be read or shows no single digit.
        """
        return trained.read_picture(Path(picture), self._file.config)

    def predict_proba(self, images: np.ndarray) -> np.ndarray:
        """Class probabilities, float32 (n, classes).

        images: uint8 as the net's data have them, (n, 28, 28) or (n, 29, 29) of MNIST's digits,
        with 255 for ink. Raises ValueError for images of another dtype or size.
        """
        source = self._file.config.kind.source
        maps = (source.n,) if source.n > 1 else ()
        sides = [28, SIDE] if source.width == SIDE and not maps else [source.width]
        shapes = [(side, side, *maps) for side in sides]
        if images.dtype != np.uint8 or images.shape[1:] not in shapes:
            expected = " or ".join(f"(n, {', '.join(map(str, shape))})" for shape in shapes)
            raise ValueError(f"images are {images.dtype} {images.shape}; expected uint8 {expected}")
        return trained.recognise([self._file], images)

    def predict(self, images: np.ndarray) -> np.ndarray:
        """The most likely class of each image, its place in `classes`: int64 (n,)."""
        return self.predict_proba(images).argmax(axis=1)


def load_net(name: str | Path = PRETRAINED[0].name) -> TrainedNet:
    """A trained net: that of a name in `PRETRAINED`, or of a run file or a net file.

    Raises UnusableNet, a ValueError, if there is none of that name, it is not for pictures, or a
    run file and its weights file do not belong together; UnreadableNet, an OSError, if a file is
    missing or damaged.
    """
    known = {net.name: net.path for net in PRETRAINED}
    path = known.get(str(name), Path(name))
    if not path.exists():
        raise UnusableNet(f"there is no net {name}: expected a file, or one of {', '.join(known)}")
    try:
        return TrainedNet(trained.load(path))
    except FileFault as fault:
        raise UnreadableNet(str(fault)) from fault.__cause__
    except Problem as problem:
        raise UnusableNet(str(problem)) from None
