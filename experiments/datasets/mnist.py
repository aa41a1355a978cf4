"""MNIST, in the IDX files of its authors, plain or packed by gzip.

An IDX file is big-endian: an int32 magic number, which says the type and the number of dimensions;
as many int32 sizes; then the numbers.
"""

import hashlib
import math
import struct
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.datasets import download, reading
from experiments.datasets.dataset import MNIST, Dataset

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)


class IdxFile(NamedTuple):
    """One of the files; sha256: of its decompressed content, header included."""

    name: str
    shape: tuple[int, ...]  # of its uint8 array
    sha256: str

    def digest(self, array: np.ndarray) -> str:
        """The SHA-256 of the decompressed content with an array of this shape."""
        header = struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *self.shape)
        return hashlib.sha256(header + array.tobytes()).hexdigest()


SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
SHAPES = (60_000, 28, 28), (60_000,), (10_000, 28, 28), (10_000,)
FILES = tuple(map(IdxFile, SHA256, SHAPES, SHA256.values()))


def files() -> download.Files:
    """The files to look for and to download."""
    wanted = []
    for file in FILES:
        authors = file.name, file.name.replace("-idx", ".idx")
        names = dict.fromkeys((*authors, *(name.replace("t10k", "test") for name in authors)))
        packed = (f"{name}.gz" for name in reversed(names))
        wanted.append(download.File((*names, *packed), partial(read, file=file)))
    return download.Files(MNIST, "four files, plain or .gz", MIRRORS, wanted)


def load(paths: list[Path]) -> Dataset:
    """The data in the files, in the order of FILES: images uint8 (n, 28, 28), labels 0 to 9.

    Raises Problem for a file that is not MNIST's.
    """
    return reading.read_four(MNIST, paths, FILES, read)


def read(path: Path, file: IdxFile) -> tuple[np.ndarray, str]:
    """The array of a file, uint8 and read-only, and the SHA-256 of its content.

    Raises OSError or one of reading.NOT_AS_EXPECTED unless it is MNIST's.
    """
    array = reading.read_idx(path, len(file.shape), math.prod(file.shape))
    if array.shape != file.shape:
        raise ValueError(f"expected an array {file.shape}, found {array.shape}")
    if (digest := file.digest(array)) != file.sha256:
        raise ValueError(f"expected content of SHA256 {file.sha256}, found {digest}")
    return array, digest
