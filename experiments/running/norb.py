"""Small NORB: stereo pairs of 50 toys of five kinds, in the .mat.gz files of its authors.

A .mat file is little-endian: an int32 magic number, which says the type; the int32 number of
dimensions; as many int32 sizes, but three at least; then the numbers. The `info` files, with pose
and lighting, are not needed.
"""

import gzip
import hashlib
import math
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deepbig_runtime.files import open_regular
from experiments.running import download
from experiments.running.dataset import KINDS, Dataset
from experiments.running.errors import Problem
from experiments.running.gzipped import Unpacked

MIRRORS = ("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small",)
N_PAIRS = 24_300  # of the training set, and of the test set
PAIR = 2, 96, 96  # left and right, y, x
TYPES: dict[int, np.dtype] = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}
PAIRS_A_BLOCK = 100  # read at once


class MatFile(NamedTuple):
    """One of the files; md5: of the .mat.gz as its authors give it, magic: its type."""

    name: str
    magic: int
    sizes: tuple[int, ...]  # of an item
    md5: str

    @property
    def item_bytes(self) -> int:
        return math.prod(self.sizes) * TYPES[self.magic].itemsize


FILES = (
    MatFile(
        "smallnorb-5x46789x9x18x6x2x96x96-training-dat.mat.gz",
        0x1E3D4C55,
        PAIR,
        "66054832f9accfe74a0f4c36a75bc0a2",
    ),
    MatFile(
        "smallnorb-5x46789x9x18x6x2x96x96-training-cat.mat.gz",
        0x1E3D4C54,
        (),
        "23c8b86101fbf0904a000b43d3ed2fd9",
    ),
    MatFile(
        "smallnorb-5x01235x9x18x6x2x96x96-testing-dat.mat.gz",
        0x1E3D4C55,
        PAIR,
        "e4ad715691ed5a3a5f138751a4ceb071",
    ),
    MatFile(
        "smallnorb-5x01235x9x18x6x2x96x96-testing-cat.mat.gz",
        0x1E3D4C54,
        (),
        "5aa791cd7e6016cf957ce9bdb93b8603",
    ),
)


def files() -> download.Files:
    """What to look for and to download."""
    wanted = (
        download.File(
            (file.name,), partial(_check, file=file), N_PAIRS * file.item_bytes + download.SLACK
        )
        for file in FILES
    )
    return download.Files("NORB", "norb", "NORB_DIR", ".mat.gz", MIRRORS, tuple(wanted))


def load(paths: list[Path]) -> Dataset:
    """The data in the files, in the order of FILES: images uint8 (n, 96, 96, 2), labels 0 to 4.

    Files with as many pairs as NORB has must be NORB's. Others may have fewer, for experiments with
    files of one's own; the data are then called NORB-like. Raises Problem for a file that is not as
    it should be.
    """
    arrays: list[np.ndarray] = []
    digests = []
    for path, file in zip(paths, FILES, strict=True):
        try:
            array, digest = _read(path, file)
            if not file.sizes:
                array = _labels(array, len(arrays[-1]))
        except ValueError as fault:
            raise Problem(f"{path} is damaged or wrong: {fault}; put a good copy there") from None
        arrays.append(array)
        digests.append(digest)
    name = "NORB" if all(len(array) == N_PAIRS for array in arrays) else "NORB-like"
    sha256 = hashlib.sha256("".join(digests).encode()).hexdigest()
    train_images, train_labels, test_images, test_labels = arrays
    source = str(paths[0].parent)
    return Dataset(name, train_images, train_labels, test_images, test_labels, sha256, source)


def _check(path: Path, file: MatFile) -> None:
    """Raise ValueError unless the file is NORB's."""
    with open_regular(path) as raw:
        digest = hashlib.file_digest(raw, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if digest != file.md5:
        raise ValueError(f"expected content of MD5 {file.md5}, found {digest}")


def _labels(found: np.ndarray, n: int) -> np.ndarray:
    """Labels uint8 of n pairs. Raises ValueError if they are others."""
    n_classes = KINDS["NORB"].n_classes
    if len(found) != n:
        raise ValueError(f"expected {n} labels, one for each pair of images, found {len(found)}")
    if found.min() < 0 or found.max() >= n_classes:
        raise ValueError(
            f"expected labels from 0 to {n_classes - 1}, found {found.min()} to {found.max()}"
        )
    return found.astype(np.uint8)


def _read(path: Path, file: MatFile) -> tuple[np.ndarray, str]:
    """The array of a file, and the SHA-256 of its unpacked content.

    Pairs are uint8 (n, 96, 96, 2), labels int32 (n,). Raises ValueError: what is wrong with it.
    """
    try:
        with open_regular(path) as raw, Unpacked(raw) as stream:
            array, digest = _read_mat(stream, file)
            if len(array) == N_PAIRS:
                _check(path, file)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"expected a whole gzip file, found it unreadable: {why}") from None
    return array, digest


def _read_mat(stream: gzip.GzipFile, file: MatFile) -> tuple[np.ndarray, str]:
    header = stream.read(8)
    magic, n_sizes = struct.unpack("<2i", header) if len(header) == 8 else (0, 0)
    if magic != file.magic:
        dtype = TYPES[file.magic]
        raise ValueError(
            f"expected the magic number {file.magic:#x} ({dtype.name}) at its start, found "
            f"{header[:4][::-1].hex() if len(header) == 8 else 'the end of the file'}"
        )
    expected = (f"up to {N_PAIRS}", *file.sizes)
    said = f"expected sizes {' x '.join(map(str, expected))}"
    if n_sizes != len(expected):
        raise ValueError(f"{said}, found {n_sizes} dimensions")
    rest = stream.read(4 * max(3, n_sizes))
    if len(rest) < 4 * max(3, n_sizes):
        raise ValueError(f"{said}, found the end of the file")
    n, *sizes = struct.unpack(f"<{n_sizes}i", rest[: 4 * n_sizes])
    if not 1 <= n <= N_PAIRS or tuple(sizes) != file.sizes:
        raise ValueError(f"{said}, found {' x '.join(map(str, (n, *sizes)))}")

    digest = hashlib.sha256(header + rest)
    dtype = TYPES[magic]
    if file.sizes:  # by y, x and map, as nets take them
        maps, height, width = file.sizes
        array = np.empty((n, height, width, maps), dtype)
    else:
        array = np.empty(n, dtype)
    for start in range(0, n, PAIRS_A_BLOCK):
        block = array[start : start + PAIRS_A_BLOCK]
        content = stream.read(block.nbytes)
        if len(content) < block.nbytes:
            raise ValueError(f"expected {n} items, found the end of the file within them")
        items = np.frombuffer(content, dtype).reshape(-1, *file.sizes)
        block[:] = np.moveaxis(items, 1, -1) if file.sizes else items.ravel()
        digest.update(content)
    if stream.read(1):
        raise ValueError(f"expected {n} items, found more")
    return array, digest.hexdigest()
