"""Images and labels: MNIST, small NORB, CIFAR-10, and scikit-learn's small `load_digits`.

Files are never trusted: for MNIST the SHA-256 of each file's decompressed content decides.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np

import deform_gpu
from deepbig_runtime.errors import Problem, tell
from deform_gpu.parameters import SIDE
from experiments.datasets import cifar, download, mnist, norb, own
from experiments.datasets.dataset import KINDS, Dataset
from mlp_gpu import random

READERS: dict[str, ModuleType] = {"auto": mnist, "mnist": mnist, "norb": norb, "cifar10": cifar}
DIGITS_TEST = 360  # of load_digits' 1,797 images
DIGITS_SEED = 2010


def load(choice: str = "auto", data_dir: str | os.PathLike | None = None) -> Dataset:
    """The data of `load_pixels`, whose parameters and errors are the same, scaled."""
    return scale(load_pixels(choice, data_dir))


def to_29(images: np.ndarray) -> np.ndarray:
    """Images of any real dtype (n, k, k) as new float32 (n, 29, 29), C order, values kept."""
    # Guess: the paper (2010, appendix) says only "scaled ... to get a proper center". We take
    # bilinear interpolation, corner pixels on corner pixels.
    from deform_gpu.resize import resize  # imports numba

    return resize(images, SIDE)


def scale(dataset: Dataset, to_29: Callable[[np.ndarray], np.ndarray] = to_29) -> Dataset:
    """The data of `load_pixels`, scaled as the paper does (2010, section 2 and appendix).

    to_29: makes images of the papers' size of smaller ones.
    Guess: so are images of several maps, which keep their size; 2011 does not say. It does say that
    it normalises nothing else (section 4).
    """

    def scaled(pixels: np.ndarray) -> np.ndarray:
        side = dataset.kind.source.width
        is_scaled = pixels.ndim == 3 and pixels.shape[1] != side
        images = to_29(pixels) if is_scaled else pixels.astype(np.float32)
        images /= np.float32(dataset.kind.white / 2)  # v / 127.5 - 1 for MNIST (2010, section 2)
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
    size: int | None = None,
) -> Dataset:
    """Training and test images as the files have them, verified but not scaled.

    choice: "mnist", "norb", "cifar10", "digits", the path of a folder of your own, see `own`, or
    "auto": MNIST, and where it can be neither found nor downloaded load_digits, with a notice on
    stderr. data_dir: as `download.find` takes it. mirrors: None for the usual ones.
    size: side in pixels that pictures of a folder of your own are scaled to; None: not scaled.

    Raises `Problem` for a folder or file that is damaged or wrong, for any choice, and for a size
    of others than pictures of your own.
    """
    if size and choice in ("digits", *READERS):
        raise Problem("--size scales pictures of a folder of your own; name the folder with --data")
    if choice == "digits":
        return _load_digits()
    if choice not in READERS:
        return own.load(Path(choice), size)
    files = READERS[choice].files()
    if mirrors is not None:
        files = files._replace(mirrors=mirrors)
    try:
        return READERS[choice].load(download.find(files, data_dir))
    except download.NotDownloaded as problem:
        if choice != "auto":
            raise
        _print_notice(problem)
        return _load_digits()


_pixels: dict[tuple, Dataset] = {}


def cached_pixels(choice: str, data_dir: Path | None, size: int | None = None) -> Dataset:
    """The data of `load_pixels`, read once a process."""
    if (key := (choice, data_dir, size)) not in _pixels:
        dataset = load_pixels(choice, data_dir, size=size)
        _pixels[key] = _pixels[choice_of(dataset.name, data_dir), data_dir, size] = dataset
    return _pixels[key]


@cache
def cached(
    choice: str,
    data_dir: Path | None,
    size: int | None = None,
    to_29: Callable[[np.ndarray], np.ndarray] = to_29,
) -> Dataset:
    """The data of `cached_pixels`, scaled once a process; its pixels are dropped.

    to_29: as `scale` takes it.
    """
    dataset = cached_pixels(choice, data_dir, size)
    for key in [key for key, one in _pixels.items() if one is dataset]:
        del _pixels[key]
    return scale(dataset, to_29)


def choice_of(name: str, data_dir: Path | None) -> str:
    """The choice for `load` of the data set of that name.

    data_dir: the folder of data of your own. Raises Problem if it is None for these.
    """
    if name in KINDS:
        return KINDS[name].choice
    if data_dir is None:
        raise Problem(f"{name} is data of your own: name its folder with --data-dir")
    return os.path.join(data_dir, "")  # a folder, even if it is named like data of a choice


def limit(dataset: Dataset, n: int | None) -> Dataset:
    """The data with the first n training images only; None keeps all.

    Of images that lie class by class, as pictures in folders do, n random ones, always the same.
    Raises Problem if there are not that many.
    """
    n_train = len(dataset.train_labels)
    if n is None:
        return dataset
    if not 1 <= n <= n_train:
        raise Problem(
            f"the limit is {n}, expected 1 to {n_train}, the training images of {dataset.name}"
        )
    labels = dataset.train_labels
    kept: slice | np.ndarray = slice(n)
    if n < n_train and (labels[:-1] <= labels[1:]).all():
        kept = random.generator(0, random.SPLIT).permutation(n_train)[:n]
    return replace(dataset, train_images=dataset.train_images[kept], train_labels=labels[kept])


def stratified(dataset: Dataset, n: int, part: int) -> np.ndarray:
    """Indices of n training images, of each class its share: always the same, int64 (n,).

    part: 1, or 2 for n others than those of part 1. Raises Problem if there are too few images.
    """
    from sklearn.model_selection import train_test_split  # takes most of a second to import

    labels = dataset.train_labels
    rest = chosen = np.arange(len(labels))
    try:
        for _ in range(part):
            classes = labels[rest]
            rest, chosen = train_test_split(rest, test_size=n, stratify=classes, random_state=0)
    except ValueError as error:  # of the many there are
        raise Problem(
            f"{n:,} of the {len(labels):,} training images of {dataset.name} cannot be held out "
            f"with as large a share of each class{' twice' if part > 1 else ''}: {error}; "
            "give another --validation"
        ) from error
    return chosen


def split(dataset: Dataset, n: int, seed: int, part: int | None = None) -> Dataset:
    """The data with n of the training images held out for validation.

    part: as `stratified` has it; None: sampled at random by the seed. The others keep their order.
    Raises Problem if none would be left, or too few.
    """
    n_train = len(dataset.train_labels)
    if not 1 <= n < n_train:
        raise Problem(
            f"{n} images are to be held out, expected 1 to {n_train - 1}, for "
            f"there are {n_train} training images of {dataset.name}"
        )
    if part:
        held_out = stratified(dataset, n, part)
    else:
        held_out = random.generator(seed, random.SPLIT).permutation(n_train)[:n]
    train = np.setdiff1d(np.arange(n_train), held_out)
    return replace(
        dataset,
        train_images=dataset.train_images[train],
        train_labels=dataset.train_labels[train],
        validation=(dataset.train_images[held_out], dataset.train_labels[held_out]),
    )


def normalize(dataset: Dataset, width: int) -> Dataset:
    """The data with bounding boxes `width` columns wide, of 29, except digits that look like a one.

    The same rule finds these in training and test images: deform_gpu.is_narrow, without labels.
    """

    def narrow(images: np.ndarray) -> np.ndarray:
        return deform_gpu.normalize_width(images, width, keep=deform_gpu.is_narrow(images))

    return replace(
        dataset,
        train_images=narrow(dataset.train_images),
        test_images=narrow(dataset.test_images),
        validation=dataset.validation and (narrow(dataset.validation[0]), dataset.validation[1]),
    )


def _load_digits() -> Dataset:
    import sklearn
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    pixels, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=DIGITS_TEST, random_state=DIGITS_SEED, stratify=labels
    )
    arrays = pixels[train], labels[train], pixels[test], labels[test]
    sha256 = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    return Dataset("load_digits", *arrays, sha256, f"scikit-learn {sklearn.__version__}")


def _print_notice(problem: Problem) -> None:
    frame = "!" * 80
    tell(
        f"{frame}\n"
        "NOT MNIST: what follows uses the 1,797 small digits of scikit-learn's load_digits.\n"
        "Its numbers must not be compared with the paper's.\n"
        f"Why, and what to do: {problem}.\n"
        f"{frame}"
    )
