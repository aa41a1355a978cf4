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


def is_mnist(name: str) -> bool:
    """Whether a data set is MNIST; other results stand next to no figure of the papers on MNIST."""
    return name == MNIST


def name_parts(name: str) -> list[str]:
    """The part that a data set has in the names of run files: none for MNIST."""
    return [] if is_mnist(name) else [name]


@dataclass(frozen=True)
class Dataset:
    """Images float32 (n, 29, 29) in [-1, 1], C order, background -1; labels uint8 (n,), from 0.

    Images of several maps are (n, height, width, maps). As `data.load_pixels` gives them, images
    are uint8 (n, k, k), or (n, height, width, maps), from 0 to the white of their kind.
    """

    name: str  # one of KINDS
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    sha256: str  # identifies the whole of the data, before any limit
    source: str  # the folder, or "scikit-learn x.y"
    # Images and labels to choose the epoch by; None: the training images (2010 section 2).
    validation: tuple[np.ndarray, np.ndarray] | None = None
