"""Checks of the arguments of deformations, because compiled loops and kernels check no index."""

import operator

import numpy as np


def check_images(name: str, images: np.ndarray) -> None:
    """Raise ValueError unless images are float32 (n, side, side), C order."""
    if not isinstance(images, np.ndarray) or images.dtype != np.float32:
        kind = getattr(images, "dtype", type(images).__name__)
        raise ValueError(f"{name} is {kind}; expected a NumPy array of float32")
    square = images.ndim == 3 and images.shape[1] == images.shape[2] >= 1
    if not square or not images.flags.c_contiguous:
        raise ValueError(
            f"{name} has shape {images.shape}, strides {images.strides}; "
            "expected (n, side, side) in C order"
        )


def check_integer(name: str, value: int, low: int, high: int) -> int:
    """The value as Python's int. Raises ValueError unless it is an integer from low to high."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or not low <= number <= high:
        raise ValueError(f"{name} is {value}; expected an integer from {low} to {high}")
    return number


def check_epoch(epoch: int) -> np.uint32:
    """The epoch as kernels want it. Raises ValueError unless it is an integer below 2**32."""
    return np.uint32(check_integer("epoch", epoch, 0, 2**32 - 1))


def check_place(first: int, n: int) -> int:
    """The place of the first of n images. Raises ValueError unless all places are below 2**32."""
    return check_integer("first", first, 0, 2**32 - n)
