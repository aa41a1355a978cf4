"""Checks of the arguments of engines, because compiled loops and kernels check no index."""

import math

import numpy as np


def flat_images(images: np.ndarray, n_in: int) -> np.ndarray:
    """Images as rows, float32 (n, n_in), C order. Images on the GPU stay there.

    Raises ValueError if they have another type or size.
    """
    if isinstance(images, np.ndarray):
        images = np.ascontiguousarray(images)
    flat = images.reshape(images.shape[0], math.prod(images.shape[1:]))  # -1 fails for no images
    if flat.shape[1] != n_in or flat.dtype != np.float32:
        raise ValueError(
            f"expected float32 images of {n_in} pixels, got {flat.dtype} of {flat.shape[1]}"
        )
    return flat


def check_training(labels: np.ndarray, order: np.ndarray, n: int, n_classes: int) -> None:
    """Raise ValueError unless labels and order fit n images and n_classes classes."""
    if labels.dtype != np.uint8 or labels.shape != (n,) or labels.max() >= n_classes:
        raise ValueError(f"expected labels uint8 ({n},) below {n_classes}")
    if order.dtype.kind not in "iu" or order.ndim != 1 or len(order) == 0:
        raise ValueError("expected order to be integers (m,), m of at least 1")
    if order.min() < 0 or order.max() >= n:
        raise ValueError(f"expected order to hold indices of {n} images")
