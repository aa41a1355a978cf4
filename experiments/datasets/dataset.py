"""What each data set is, and a data set in memory."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cnn_gpu.layers import Maps
from deform_gpu.parameters import SIDE


class Kind(NamedTuple):
    """The properties of a data set that are known before it is read.

    choice: its name for `data.load` and --data. white: the largest value of its pixels. source:
    the input of a net for one image.
    """

    choice: str
    white: int
    n_classes: int
    source: Maps


MNIST = "MNIST"
DIGIT = Maps(1, SIDE, SIDE)
PAIR, COLOURS = Maps(2, 96, 96), Maps(3, 32, 32)
KINDS = {  # by the names of data sets
    MNIST: Kind("mnist", 255, 10, DIGIT),
    "load_digits": Kind("digits", 16, 10, DIGIT),
    "NORB": Kind("norb", 255, 5, PAIR),
    "CIFAR10": Kind("cifar10", 255, 10, COLOURS),
    # Files of the same formats that are not those of the sets.
    "NORB-like": Kind("norb", 255, 5, PAIR),
    "CIFAR10-like": Kind("cifar10", 255, 10, COLOURS),
}
SMALLEST, LARGEST = 8, 64  # sides of images of your own, pixels
# CIFAR-10 compressed as JPEG, a folder of 60,000 pictures: not the pixels that the paper had.
CIFAR10_JPEG = "CIFAR10-JPEG"


def own_kind(source: Maps, n_classes: int) -> Kind:
    """The kind of data of your own."""
    return Kind("a folder", 255, n_classes, source)


def is_mnist(name: str) -> bool:
    """Whether a data set is MNIST; other results stand next to no figure of the papers on MNIST."""
    return name == MNIST


def name_parts(name: str) -> list[str]:
    """The part that a data set has in the names of run files: none for MNIST."""
    return [] if is_mnist(name) else [name]


@dataclass(frozen=True)
class Dataset:
    """Images float32 (n, side, side) in [-1, 1], C order; labels uint8 (n,), from 0.

    Digits have side 29 and background -1. Images of several maps are (n, height, width, maps). As
    `data.load_pixels` gives them: uint8 (n, k, k), or with maps, from 0 to the white of their kind.
    """

    name: str  # one of KINDS, or the name of a folder of your own
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    sha256: str  # identifies the whole of the data, before any limit
    source: str  # the folder, or "scikit-learn x.y"
    # Images and labels to choose the epoch by; None: the training images (2010 section 2).
    validation: tuple[np.ndarray, np.ndarray] | None = None
    classes: tuple[str, ...] = ()  # names, in the order of labels, of data of your own
    size: int | None = None  # side that pictures of your own were scaled to, pixels

    @property
    def kind(self) -> Kind:
        """The properties of the data set."""
        if self.name in KINDS:
            return KINDS[self.name]
        side, *maps = self.train_images.shape[2:]
        source = Maps(maps[0], side, side) if maps else Maps(1, *[SIDE if side == 28 else side] * 2)
        return own_kind(source, len(self.classes))

    @property
    def background(self) -> float:
        """The value of the background after scaling, of images as `data.load_pixels` gives them.

        Guess: of grey images of your own it is the median of the borders of the training images.
        """
        images, kind = self.train_images, self.kind
        if self.name in KINDS or kind.source.n > 1:
            return -1.0
        sides = images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]
        return float(np.median(np.concatenate(sides))) / (kind.white / 2) - 1
