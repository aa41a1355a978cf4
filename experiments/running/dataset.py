"""A data set in memory, and what is known of each before it is read."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cnn_gpu.layers import Maps
from deform_gpu.parameters import SIDE


class Kind(NamedTuple):
    """What data sets are, by their names.

    choice: what `data.load` and --data call it. white: the largest value of its pixels. source:
    what nets see of an image.
    """

    choice: str
    white: int
    n_classes: int
    source: Maps


DIGIT = Maps(1, SIDE, SIDE)
PAIR, COLOURS = Maps(2, 96, 96), Maps(3, 32, 32)
KINDS = {
    "MNIST": Kind("mnist", 255, 10, DIGIT),
    "load_digits": Kind("digits", 16, 10, DIGIT),
    "NORB": Kind("norb", 255, 5, PAIR),
    "CIFAR10": Kind("cifar10", 255, 10, COLOURS),
    # Files of the same formats that are not those of the sets.
    "NORB-like": Kind("norb", 255, 5, PAIR),
    "CIFAR10-like": Kind("cifar10", 255, 10, COLOURS),
}


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
