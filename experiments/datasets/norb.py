"""Small NORB: stereo pairs of 50 toys of five kinds, in the .mat.gz files of its authors.

A .mat file is little-endian: an int32 magic number, which says the type; the int32 number of
dimensions; as many int32 sizes, but three at least; then the numbers. The `info` files, with pose
and lighting, are not needed.
"""

import gzip
import hashlib
import math
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deepbig_runtime.files import open_regular
from experiments.datasets import download, reading
from experiments.datasets.dataset import Dataset

MIRRORS = ("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small",)
N_PAIRS = 24_300  # of the training set, and of the test set


class MatFile(NamedTuple):
    """One of the files; md5: of the .mat.gz of its authors."""

    name: str
    md5: str
    magic: int
    dtype: np.dtype
    sizes: tuple[int, ...]  # of an item


MD5 = {
    "smallnorb-5x46789x9x18x6x2x96x96-training-dat.mat.gz": "66054832f9accfe74a0f4c36a75bc0a2",
    "smallnorb-5x46789x9x18x6x2x96x96-training-cat.mat.gz": "23c8b86101fbf0904a000b43d3ed2fd9",
    "smallnorb-5x01235x9x18x6x2x96x96-testing-dat.mat.gz": "e4ad715691ed5a3a5f138751a4ceb071",
    "smallnorb-5x01235x9x18x6x2x96x96-testing-cat.mat.gz": "5aa791cd7e6016cf957ce9bdb93b8603",
}
PAIRS = 0x1E3D4C55, np.dtype("u1"), (2, 96, 96)  # left and right, y, x
LABELS = 0x1E3D4C54, np.dtype("<i4"), ()
FILES = tuple(
    MatFile(name, md5, *(PAIRS if "-dat." in name else LABELS)) for name, md5 in MD5.items()
)


def files() -> download.Files:
    """The files to look for and to download."""
    check = partial(reading.check_digest, algorithm="md5")
    wanted = [download.File((file.name,), partial(check, expected=file.md5)) for file in FILES]
    return download.Files("NORB", "four files, .mat.gz", MIRRORS, wanted)


def load(paths: list[Path]) -> Dataset:
    """The data in the files, in the order of FILES: images uint8 (n, 96, 96, 2), labels 0 to 4.

    Files with as many pairs as NORB has must be NORB's. Others may have fewer, for experiments with
    other files of this format; the data are then called NORB-like. Raises Problem for a file that
    is not as it should be.
    """
    dataset = reading.read_four("NORB", paths, FILES, read)
    is_whole = len(dataset.train_labels) == len(dataset.test_labels) == N_PAIRS
    return dataset if is_whole else replace(dataset, name="NORB-like")


def read(path: Path, file: MatFile) -> tuple[np.ndarray, str]:
    """The array of a file, and the SHA-256 of its unpacked content.

    Pairs are uint8 (n, 96, 96, 2), labels int32 (n,). Raises OSError or one of
    reading.NOT_AS_EXPECTED.
    """
    n_sizes = 1 + len(file.sizes)
    with open_regular(path) as raw, gzip.GzipFile(fileobj=raw) as stream:
        header = stream.read(8 + 4 * max(3, n_sizes))
        padded = header.ljust(8 + 4 * max(3, n_sizes), b"\0")
        magic, *sizes = struct.unpack_from(f"<I{1 + n_sizes}i", padded)
        n = sizes[1]
        if (magic, *sizes) != (file.magic, n_sizes, n, *file.sizes) or not 1 <= n <= N_PAIRS:
            expected = hex(file.magic), n_sizes, f"1 to {N_PAIRS}", *file.sizes
            raise ValueError(
                f"expected a header of {', '.join(map(str, expected))} ({file.dtype.name}), found "
                f"{', '.join(map(str, (hex(magic), *sizes))) if header else 'an empty file'}"
            )
        content = stream.read(n * math.prod(file.sizes) * file.dtype.itemsize)
        array = np.frombuffer(content, file.dtype).reshape(n, *file.sizes)
        if stream.read(1):
            raise ValueError(f"expected {n} items, found more")
    if n == N_PAIRS:
        reading.check_digest(path, "md5", file.md5)
    if file.sizes:  # maps last, for nets
        array = np.ascontiguousarray(np.moveaxis(array, 1, -1))
    sha256 = hashlib.sha256(header)
    sha256.update(content)
    return array, sha256.hexdigest()
