"""Images and labels: MNIST, small NORB, CIFAR-10, and scikit-learn's small `load_digits`.

What is found is never trusted: for MNIST the SHA-256 of each file's decompressed content decides.
"""

import hashlib
import math
import os
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import deform_gpu
from deepbig_runtime.files import open_regular
from deform_gpu.parameters import SIDE
from experiments.running import cifar, download, norb
from experiments.running.dataset import KINDS, Dataset
from experiments.running.errors import Problem
from experiments.running.gzipped import Unpacked
from mlp_gpu import random

CHOICES = {name: kind.choice for name, kind in KINDS.items()}

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
DIGITS_TEST = 360  # of load_digits' 1,797 images
DIGITS_SEED = 2010


class IdxFile(NamedTuple):
    """One of MNIST's files; `sha256` is that of the decompressed content, header included."""

    name: str
    magic: int
    dims: tuple[int, ...]
    sha256: str

    @property
    def header(self) -> bytes:
        return struct.pack(f">{1 + len(self.dims)}I", self.magic, *self.dims)

    @property
    def size(self) -> int:
        """Bytes of the decompressed content."""
        return len(self.header) + math.prod(self.dims)


FILES = (
    IdxFile(
        "train-images-idx3-ubyte",
        0x0803,
        (60000, 28, 28),
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    IdxFile(
        "train-labels-idx1-ubyte",
        0x0801,
        (60000,),
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    IdxFile(
        "t10k-images-idx3-ubyte",
        0x0803,
        (10000, 28, 28),
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    IdxFile(
        "t10k-labels-idx1-ubyte",
        0x0801,
        (10000,),
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)


def load(
    choice: str = "auto",
    data_dir: str | os.PathLike | None = None,
    mirrors: Sequence[str] | None = None,
) -> Dataset:
    """Training and test images, scaled as the paper does (2010, section 2 and appendix).

    Parameters and errors are those of `load_pixels`.
    """
    return scale(load_pixels(choice, data_dir, mirrors))


def scale(dataset: Dataset) -> Dataset:
    """The data that `load_pixels` gave, scaled as the paper does (2010, section 2 and appendix).

    Guess: so are images of several maps, which keep their size; 2011 does not say. It does say that
    it normalises nothing else (section 4).
    """

    def scaled(pixels: np.ndarray) -> np.ndarray:
        images = to_29(pixels) if pixels.ndim == 3 else pixels.astype(np.float32)
        white = KINDS[dataset.name].white
        images /= np.float32(white / 2)  # v / 127.5 - 1 for MNIST (2010, section 2)
        images -= 1
        return images

    return replace(
        dataset,
        train_images=scaled(dataset.train_images),
        test_images=scaled(dataset.test_images),
    )


def load_pixels(
    choice: str = "auto",
    data_dir: str | os.PathLike | None = None,
    mirrors: Sequence[str] | None = None,
) -> Dataset:
    """Training and test images as they were found, verified but not scaled.

    `choice` is "mnist", "norb", "cifar10", "digits" (`data_dir` and `mirrors` then play no part),
    or "auto": MNIST, and where it can be neither found nor downloaded load_digits, with a notice on
    stderr. Files are looked for in `data_dir`; where that is None in $MNIST_DIR, ./data/mnist and
    the cache folder, then they are downloaded into the cache folder from the first of `mirrors`
    that has them; None: the usual ones. For the other sets it is $NORB_DIR and ./data/norb, and
    $CIFAR10_DIR and ./data/cifar10.

    Raises `Problem` for a folder or file that is not as it should be, whatever the choice.
    """
    if choice == "digits":
        return _load_digits()
    if choice not in READERS:
        raise Problem(f"the choice of data is {choice!r}, expected {', '.join(READERS)} or digits")
    list_files, read = READERS[choice]
    files = list_files()
    if mirrors is not None:
        files = files._replace(mirrors=mirrors)
    try:
        return read(download.find(files, data_dir))
    except download.NotDownloaded as problem:
        if choice != "auto":
            raise
        _print_notice(problem)
        return _load_digits()


def limit(dataset: Dataset, n: int | None) -> Dataset:
    """The data with the first n training images only; None keeps all. Copies nothing.

    Raises Problem if there are not that many.
    """
    n_train = len(dataset.train_labels)
    if n is None:
        return dataset
    if not 1 <= n <= n_train:
        raise Problem(
            f"the limit is {n}, expected 1 to {n_train}, the training images of {dataset.name}"
        )
    return replace(
        dataset, train_images=dataset.train_images[:n], train_labels=dataset.train_labels[:n]
    )


def split(dataset: Dataset, n: int, seed: int) -> Dataset:
    """The data with n of the training images, drawn at random, kept apart for validation.

    The others keep their order. Raises Problem if none would be left.
    """
    n_train = len(dataset.train_labels)
    if not 1 <= n < n_train:
        raise Problem(
            f"{n} images are to be kept apart for validation, expected 1 to {n_train - 1}, for "
            f"there are {n_train} training images of {dataset.name}"
        )
    order = random.generator(seed, random.SPLIT).permutation(n_train)
    apart, train = order[:n], np.sort(order[n:])
    return replace(
        dataset,
        train_images=dataset.train_images[train],
        train_labels=dataset.train_labels[train],
        validation=(dataset.train_images[apart], dataset.train_labels[apart]),
    )


def normalize(dataset: Dataset, width: int) -> Dataset:
    """The data with bounding boxes `width` of the 29 columns wide, but for what looks like a one.

    Training and test images go by the same rule for that, deform_gpu.is_narrow: it knows no label.
    """

    def narrow(images: np.ndarray) -> np.ndarray:
        return deform_gpu.normalize_width(images, width, keep=deform_gpu.is_narrow(images))

    return replace(
        dataset,
        train_images=narrow(dataset.train_images),
        test_images=narrow(dataset.test_images),
        validation=dataset.validation and (narrow(dataset.validation[0]), dataset.validation[1]),
    )


def to_29(images: np.ndarray) -> np.ndarray:
    """Images of any real dtype (n, k, k) as new float32 (n, 29, 29), C order, values kept."""
    # Guess: the paper (2010, appendix) says only "scaled ... to get a proper center". We take
    # bilinear interpolation, corner pixels on corner pixels.
    from deform_gpu.resize import resize  # imports numba

    return resize(images, SIDE)


def mnist_files() -> download.Files:
    """What to look for and to download."""
    files = (
        download.File(
            (file.name, f"{file.name}.gz"), partial(_read, file=file), file.size + download.SLACK
        )
        for file in FILES
    )
    return download.Files("MNIST", "mnist", "MNIST_DIR", "plain or .gz", MIRRORS, tuple(files))


def _load_mnist(paths: list[Path]) -> Dataset:
    arrays = []
    for path, file in zip(paths, FILES, strict=True):
        try:
            content = _read(path, file)
        except ValueError as fault:
            raise Problem(f"{path} is damaged or wrong: {fault}; put a good copy there") from None
        array = np.frombuffer(content, np.uint8, offset=4 + 4 * len(file.dims))
        arrays.append(array.reshape(file.dims))
    train_pixels, train_labels, test_pixels, test_labels = arrays
    sha256 = hashlib.sha256("".join(file.sha256 for file in FILES).encode()).hexdigest()
    return Dataset(
        "MNIST",
        train_pixels,
        train_labels.copy(),  # because frombuffer's arrays are read-only
        test_pixels,
        test_labels.copy(),
        sha256,
        str(paths[0].parent),
    )


READERS = {
    "auto": (mnist_files, _load_mnist),
    "mnist": (mnist_files, _load_mnist),
    "norb": (norb.files, norb.load),
    "cifar10": (cifar.files, cifar.load),
}


def advice(choice: str) -> str:
    """What to do where the data of that choice are missing."""
    list_files, _ = READERS.get(choice, READERS["mnist"])
    return list_files().advice


def _load_digits() -> Dataset:
    try:
        import sklearn
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError:
        raise Problem(
            "load_digits cannot be had: scikit-learn is not installed; install it, or "
            f"{advice('mnist')}"
        ) from None
    digits = load_digits()
    pixels, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=DIGITS_TEST, random_state=DIGITS_SEED, stratify=labels
    )
    parts = (pixels[train], labels[train]), (pixels[test], labels[test])
    sha256 = hashlib.sha256(b"".join(a.tobytes() for part in parts for a in part)).hexdigest()
    source = f"scikit-learn {sklearn.__version__}"
    return Dataset("load_digits", *parts[0], *parts[1], sha256, source)


def _print_notice(problem: Problem) -> None:
    frame = "!" * 80
    print(
        frame,
        "NOT MNIST: what follows uses the 1,797 small digits of scikit-learn's load_digits.",
        "Its numbers must not be compared with the paper's.",
        f"Why, and what to do: {problem}.",
        frame,
        sep="\n",
        file=sys.stderr,
    )


def _read(path: Path, file: IdxFile) -> bytes:
    """The content of an IDX file, header included. Raises ValueError: what is wrong with it."""
    header, size = file.header, file.size
    try:
        with open_regular(path) as raw:
            # By content, not by name: some programs unpack a .gz and leave its name.
            stream = Unpacked(raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw
            content = stream.read(size + 1)  # one byte more shows excess; never all of it
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(
            f"expected a whole file, plain or gzip, found it unreadable: {why}"
        ) from None

    digest = hashlib.sha256(content).hexdigest()
    if digest == file.sha256:
        return content
    if content[:4] != header[:4]:
        wanted, found = f"{header[:4]!r} (IDX) at its start", repr(content[:4])
    elif content[: len(header)] != header:
        whole = len(content[: len(header)]) // 4 * 4
        wanted = f"dimensions {file.dims}"
        found = str(tuple(dim for (dim,) in struct.iter_unpack(">I", content[4:whole])))
    elif len(content) != size:
        wanted, found = f"{size} bytes", "more" if len(content) > size else str(len(content))
    else:
        wanted, found = f"content of SHA-256 {file.sha256}", digest
    raise ValueError(f"expected {wanted}, found {found}")
