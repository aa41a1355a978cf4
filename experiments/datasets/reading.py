"""Reading the files of data sets, which are untrusted input."""

import gzip
import hashlib
import io
import struct
import tarfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from deepbig_runtime.errors import Problem
from deepbig_runtime.files import open_regular
from experiments.datasets.dataset import KINDS, Dataset

# Formats of pictures. Not all that Pillow knows: for some it starts other programs.
PICTURES = "PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP", "PPM"
ORIENTATION = 0x0112  # tag of EXIF, how the camera was held; 1: upright
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
MAX_PIXELS = 80_000_000  # Pillow warns of more than 89 million, and opens none of 179 million
NOT_AS_EXPECTED = ValueError, EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError

T = TypeVar("T")


def unpacked(raw: io.BufferedReader) -> gzip.GzipFile | io.BufferedReader:
    """The content of an open file, packed by gzip or plain.

    By content, not by name: some programs unpack a .gz and leave its name.
    """
    return gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw


@contextmanager
def picture(path: Path, content: bytes) -> Iterator[Image.Image]:
    """The picture in the content of a file.

    Raises Problem, also for errors in the body, if it is none, damaged or too large.
    """
    try:
        with (
            warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning),
            Image.open(io.BytesIO(content), formats=PICTURES) as image,
        ):
            if image.width * image.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            yield image
    except Image.DecompressionBombError:
        raise Problem(
            f"{path} is too large: expected at most {MAX_PIXELS / 1e6:g} million pixels"
        ) from None
    except (OSError, SyntaxError, ValueError, TypeError, struct.error):  # as Pillow's readers do
        raise Problem(
            f"cannot read {path}: it is damaged, or no picture; expected one of "
            f"{', '.join(PICTURES)}"
        ) from None


def upright(image: Image.Image) -> Image.Image:
    """A copy of a picture, turned as its camera says.

    Pillow's own function also writes all tags anew, and fails where one has an unusual type.
    """
    image.load()  # a PNG may have its tags at the end
    turn = TURNS.get(image.getexif().get(ORIENTATION, 1))
    return image.copy() if turn is None else image.transpose(turn)


def border(pixels: np.ndarray) -> np.ndarray:
    """The pixels at the border of a picture (height, width, ...), in one row."""
    return np.concatenate((pixels[0], pixels[-1], pixels[1:-1, 0], pixels[1:-1, -1]))


@contextmanager
def refused(path: Path) -> Iterator[None]:
    """In the body errors of reading become Problem, a sentence that names the file."""
    try:
        yield
    except (OSError, *NOT_AS_EXPECTED) as error:
        why = getattr(error, "strerror", None) or error
        raise Problem(f"{path} is damaged or wrong: {why}; put a good copy there") from None


def check_digest(path: Path, algorithm: str, expected: str) -> None:
    """Raise ValueError unless a file has the expected digest. algorithm: as hashlib calls it."""
    if (found := digest(path, algorithm)) != expected:
        raise ValueError(f"expected content of {algorithm.upper()} {expected}, found {found}")


def digest(path: Path, algorithm: str) -> str:
    """The digest of a file in hexadecimal digits."""
    with open_regular(path) as file:
        start = partial(hashlib.new, algorithm, usedforsecurity=False)
        return hashlib.file_digest(file, start).hexdigest()


def read_idx(path: Path, n_dimensions: int, most_bytes: int) -> np.ndarray:
    """The array of an IDX file, plain or packed by gzip, uint8 and read-only.

    most_bytes: of the array. Raises OSError or one of NOT_AS_EXPECTED if the file is none.
    """
    with open_regular(path) as raw:
        stream = unpacked(raw)
        header = stream.read(4 + 4 * n_dimensions)
        magic = struct.pack(">I", 0x0800 + n_dimensions)
        if header[:4] != magic or len(header) != 4 + 4 * n_dimensions:
            raise ValueError(
                f"expected {magic.hex()} at its start (IDX, uint8, {n_dimensions} dimensions), "
                f"found {header.hex(' ', -4) or 'nothing'}"
            )
        shape = struct.unpack(f">{n_dimensions}I", header[4:])
        size = int(np.prod(shape, dtype=object))
        if not 0 < size <= most_bytes:
            raise ValueError(f"expected 1 to {most_bytes:,} bytes, its header says {size:,}")
        content = stream.read(size + 1)  # one byte more shows excess
        if len(content) != size:
            length = "more" if len(content) > size else f"{len(content):,}"
            raise ValueError(f"expected {size:,} bytes after its header, found {length}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def read_four(
    name: str,
    paths: Sequence[Path],
    files: Sequence[T],
    read: Callable[[Path, T], tuple[np.ndarray, str]],
) -> Dataset:
    """A data set in four files: training images, their labels, test images, their labels.

    name: one of KINDS. files: the descriptions of the files. read: gives the array of a file and
    the SHA-256 of its content. Raises Problem for a file that is not as it should be.
    """
    arrays: list[np.ndarray] = []
    digests = []
    for path, file in zip(paths, files, strict=True):
        with refused(path):
            array, sha256 = read(path, file)
            if len(arrays) % 2:
                check_labels(array, KINDS[name].n_classes, len(arrays[-1]))
                array = array.astype(np.uint8)
        arrays.append(array)
        digests.append(sha256)
    train_images, train_labels, test_images, test_labels = arrays
    sha256 = hashlib.sha256("".join(digests).encode()).hexdigest()
    source = str(paths[0].parent)
    return Dataset(name, train_images, train_labels, test_images, test_labels, sha256, source)


def check_labels(labels: np.ndarray, n_classes: int, n: int, name: str = "labels") -> None:
    """Raise ValueError unless there are n labels, all of them classes. name: in messages."""
    if len(labels) != n:
        raise ValueError(f"expected {n} {name}, one for each image, found {len(labels)}")
    low, high = labels.min(), labels.max()
    if low < 0 or high >= n_classes:
        raise ValueError(f"expected {name} from 0 to {n_classes - 1}, found {low} to {high}")
