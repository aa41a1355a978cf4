"""CIFAR-10: colour images of ten kinds of things, in the archive of its binary version.

The archive has five training files and a test file of 10,000 records: a label, a byte, then 1,024
bytes each of red, green and blue, row by row. It is read where it lies; nothing is extracted. (The
version for Python holds pickles, which would run as programs; this is not that one.)
"""

import hashlib
import tarfile
import zlib
from pathlib import Path

import numpy as np

from deepbig_runtime.files import open_regular
from experiments.running import download
from experiments.running.dataset import KINDS, Dataset
from experiments.running.errors import Problem
from experiments.running.gzipped import Unpacked

MIRRORS = ("https://www.cs.toronto.edu/~kriz",)
ARCHIVE = "cifar-10-binary.tar.gz"
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
FOLDER = "cifar-10-batches-bin"
TRAINING = tuple(f"{FOLDER}/data_batch_{i}.bin" for i in range(1, 6))
TEST = f"{FOLDER}/test_batch.bin"
N_RECORDS = 10_000  # of each file
IMAGE = 3, 32, 32  # red, green and blue, y, x
RECORD = 1 + 3 * 32 * 32  # bytes
LIMIT = 6 * N_RECORDS * RECORD + 2**22  # bytes of the unpacked archive, with room for its texts


def files() -> download.Files:
    """What to look for and to download."""
    wanted = download.File((ARCHIVE,), _check, LIMIT)
    return download.Files("CIFAR10", "cifar10", "CIFAR10_DIR", ARCHIVE, MIRRORS, (wanted,))


def load(paths: list[Path]) -> Dataset:
    """The data in the archive: images uint8 (n, 32, 32, 3), labels 0 to 9.

    An archive with as many images as CIFAR-10 has must be CIFAR-10's. Others may have fewer, for
    experiments with files of one's own; the data are then called CIFAR10-like. Raises Problem for
    an archive that is not as it should be.
    """
    (path,) = paths
    try:
        digest = _digest(path)
        found = _read(path)
        if all(len(records) == N_RECORDS for records in found.values()):
            _require(digest)
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Problem(f"{path} is damaged or wrong: {why}; put a good copy there") from None
    name = "CIFAR10" if digest == SHA256 else "CIFAR10-like"
    train = _images([found[member] for member in TRAINING])
    return Dataset(name, *train, *_images([found[TEST]]), digest, str(path.parent))


def _digest(path: Path) -> str:
    with open_regular(path) as raw:
        return hashlib.file_digest(raw, "sha256").hexdigest()


def _check(path: Path) -> None:
    """Raise ValueError unless the archive is CIFAR-10's."""
    _require(_digest(path))


def _require(digest: str) -> None:
    if digest != SHA256:
        raise ValueError(f"expected content of SHA-256 {SHA256}, found {digest}")


class _Bounded(Unpacked):
    """A file whose unpacked content must not be longer than LIMIT."""

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        if self.tell() > LIMIT:
            raise ValueError(f"expected up to {LIMIT} bytes when unpacked, found more")
        return content


def _read(path: Path) -> dict[str, np.ndarray]:
    """The records of each file in the archive, uint8 (n, RECORD).

    Raises ValueError, OSError, EOFError, zlib.error or tarfile.TarError: what is wrong with it.
    """
    found = {}
    with open_regular(path) as raw, _Bounded(raw) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if member.name in (*TRAINING, TEST):
                    if member.name in found:
                        raise ValueError(f"expected {member.name} once, found it twice")
                    found[member.name] = _records(archive, member)
        while stream.read(2**20):  # to the end, where gzip has its own checksum
            pass
    missing = [member for member in (*TRAINING, TEST) if member not in found]
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
    n_classes = KINDS["CIFAR10"].n_classes
    if records[:, 0].max() >= n_classes:
        raise ValueError(
            f"expected labels from 0 to {n_classes - 1} in {member.name}, found "
            f"{records[:, 0].max()}"
        )
    return records


def _images(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Images by y, x and map, as nets take them, and labels, of all records."""
    labels = np.concatenate([records[:, 0] for records in parts])
    maps, height, width = IMAGE
    images = np.empty((len(labels), height, width, maps), np.uint8)
    end = 0
    for records in parts:
        start, end = end, end + len(records)
        images[start:end] = np.moveaxis(records[:, 1:].reshape(-1, *IMAGE), 1, -1)
    return images, labels
