"""Files like MNIST's, for tests of readers and downloads."""

import gzip
import hashlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from experiments.datasets import mnist

NAMES = [*mnist.SHA256]
REAL = os.environ.get("MNIST_DIR") and Path(os.environ["MNIST_DIR"]).absolute()
needs_mnist = pytest.mark.skipif(not REAL, reason="$MNIST_DIR is not set: no real MNIST")


def idx(array):
    header = struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape)
    return header + array.tobytes()


def make_small(folder, monkeypatch):
    """Let mnist.FILES describe 5 training and 3 test images of 4x4; write them into a folder."""
    rng = np.random.default_rng(1)
    arrays = [
        rng.integers(0, 256, (5, 4, 4), np.uint8),
        np.array([3, 1, 4, 1, 5], np.uint8),
        rng.integers(0, 256, (3, 4, 4), np.uint8),
        np.array([9, 2, 6], np.uint8),
    ]
    contents = [idx(array) for array in arrays]
    files = tuple(
        mnist.IdxFile(name, a.shape, hashlib.sha256(content).hexdigest())
        for name, a, content in zip(NAMES, arrays, contents, strict=True)
    )
    monkeypatch.setattr(mnist, "FILES", files)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in zip(NAMES, contents, strict=True):
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    return arrays


def interpolated(images):
    """Bilinear, corners on corners, by SciPy in float64."""
    at = np.linspace(0, images.shape[1] - 1, 29)
    grid = np.meshgrid(at, at, indexing="ij")
    return np.array(
        [map_coordinates(i.astype(float), grid, order=1, mode="nearest") for i in images]
    )
