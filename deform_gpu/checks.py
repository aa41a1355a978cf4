"""Checks of what is deformed: compiled loops and kernels check no index."""

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


def check_epoch(epoch: int) -> np.uint32:
    """The epoch as kernels want it. Raises ValueError outside 0..2**32 - 1."""
    if not 0 <= epoch < 2**32:
        raise ValueError(f"epoch is {epoch}; expected an integer from 0 to 2**32 - 1")
    return np.uint32(epoch)


def check_place(first: int, n: int) -> None:
    """Raise ValueError unless n images from place `first` on have places in a set."""
    if not 0 <= first <= 2**32 - n:
        raise ValueError(
            f"first is {first}; expected an integer from 0 to {2**32 - n}, for {n} images"
        )
