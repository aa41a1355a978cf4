"""CIFAR-10: colour images of ten kinds of things, in the archive of its binary version.

The archive has five training files and a test file of 10,000 records: a label, a byte, then 1,024
bytes each of red, green and blue, row by row. It is read in place; nothing is extracted. (The
version for Python holds pickles, which would run as programs; this is not that one.)
"""

import gzip
import tarfile
from functools import partial
from pathlib import Path

import numpy as np

from deepbig_runtime.files import open_regular
from experiments.datasets import download, reading
from experiments.datasets.dataset import KINDS, Dataset

MIRRORS = ("https://www.cs.toronto.edu/~kriz",)
ARCHIVE = "cifar-10-binary.tar.gz"
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
FOLDER = "cifar-10-batches-bin"
TRAINING = tuple(f"{FOLDER}/data_batch_{i}.bin" for i in range(1, 6))
TEST = f"{FOLDER}/test_batch.bin"
N_RECORDS = 10_000  # of each file
IMAGE = 3, 32, 32  # red, green and blue, y, x
RECORD = 1 + 3 * 32 * 32  # bytes


def files() -> download.Files:
    """The file to look for and to download."""
    check = partial(reading.check_digest, algorithm="sha256", expected=SHA256)
    return download.Files("CIFAR10", ARCHIVE, MIRRORS, [download.File((ARCHIVE,), check)])


def load(paths: list[Path]) -> Dataset:
    """The data in the archive: images uint8 (n, 32, 32, 3), labels 0 to 9.

    An archive with as many images as CIFAR-10 has must be CIFAR-10's. Others may have fewer, for
    experiments with other files of this format; the data are then called CIFAR10-like. Raises
    Problem for an archive that is not as it should be.
    """
    (path,) = paths
    with reading.refused(path):
        digest = reading.digest(path, "sha256")
        records = _read(path)
        is_whole = all(len(part) == N_RECORDS for part in records.values())
        if is_whole:
            reading.check_digest(path, "sha256", SHA256)
    train = np.concatenate([records[name] for name in TRAINING])
    name = "CIFAR10" if is_whole else "CIFAR10-like"
    return Dataset(name, *_images(train), *_images(records[TEST]), digest, str(path.parent))


def _read(path: Path) -> dict[str, np.ndarray]:
    """The records of each file in the archive, uint8 (n, RECORD).

    Raises OSError or one of reading.NOT_AS_EXPECTED.
    """
    found = {}
    with open_regular(path) as raw, gzip.GzipFile(fileobj=raw) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if member.name in (*TRAINING, TEST):
                    if member.name in found:
                        raise ValueError(f"expected {member.name} once, found it twice")
                    found[member.name] = _records(archive, member)
        while stream.read(2**20):  # to the end, where gzip has its own checksum
            pass
    missing = [name for name in (*TRAINING, TEST) if name not in found]
    if missing:
        raise ValueError(f"expected six files in {FOLDER}, found no {' and no '.join(missing)}")
    return found


def _records(archive: tarfile.TarFile, member: tarfile.TarInfo) -> np.ndarray:
    n, excess = divmod(member.size, RECORD)
    file = archive.extractfile(member) if member.isreg() else None
    if file is None or excess or not 1 <= n <= N_RECORDS:
        raise ValueError(
            f"expected {member.name} to have 1 to {N_RECORDS} records of {RECORD} bytes, found "
            f"{member.size} bytes" + ("" if member.isreg() else " and no plain file")
        )
    records = np.frombuffer(file.read(member.size), np.uint8).reshape(n, RECORD)
    reading.check_labels(records[:, 0], KINDS["CIFAR10"].n_classes, n, f"labels in {member.name}")
    return records


def _images(records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images by y, x and map, for nets, and labels."""
    images = np.moveaxis(records[:, 1:].reshape(-1, *IMAGE), 1, -1)
    return np.ascontiguousarray(images), records[:, 0].copy()
