"""Data of your own: a folder of four IDX files, or of pictures in train/CLASS/ and test/CLASS/."""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from PIL import Image
from safetensors import SafetensorError

from cnn_gpu.layers import Maps
from deepbig_runtime import files
from deepbig_runtime.errors import Problem, tell
from experiments.datasets import mnist, reading
from experiments.datasets.dataset import CIFAR10_JPEG, DIGIT, KINDS, LARGEST, SMALLEST, Dataset
from mlp_gpu import random

MOST_CLASSES = 256
MOST_BYTES = 2**32  # of all images of a file, or of a folder of pictures
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".gif", ".bmp", ".ppm", ".pgm")
IDX_NAME = re.compile(
    r"(?:emnist-(?P<set>[a-z]+)-)?(?P<part>train|t10k|test)-"
    r"(?P<kind>images[-.]idx3|labels[-.]idx1)[-.]ubyte(?:\.gz)?"
)
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
EXPECTED = (
    "expected four IDX files (train-images-idx3-ubyte, train-labels-idx1-ubyte, "
    "t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, plain or .gz), or pictures in "
    "train/CLASS/*.png, *.jpg and the like, and test/CLASS/"
)
CIFAR10_JPEG_SHA256 = "29a02d567d2157150bf76e6d49c28e1d8e4f47ce4d1e6a2b4f033f18c4609e7a"
TEST_PART = 6  # one picture in six of each class is for testing, without test/
TEST_SEED = 2010


def load(folder: Path, size: int | None = None) -> Dataset:
    """The data in a folder: uint8 images (n, side, side), or (n, side, side, 3) of colour pictures.

    size: the side that pictures are scaled to, part of the set's name; None: not scaled. MNIST if
    the files are MNIST's, else a set of the folder's name. Labels count the classes in order: of
    IDX files the numbers that occur, of pictures the names of folders.
    Raises Problem, a sentence that names the file or folder that is not as it should be.
    """
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise Problem(f"--data {folder}: expected a folder, found {found}; {EXPECTED}")
    try:
        if (folder / "train").is_dir():
            return _load_pictures(folder, size)
        if size:
            raise Problem(
                f"--size {size} scales pictures in train/CLASS/, which {folder} lacks; leave it out"
            )
        return _load_idx(folder)
    except OSError as error:
        raise Problem(f"cannot read {error.filename or folder}: {error.strerror}") from None


def _name(folder: Path) -> str:
    """A folder's name as that of its data, part of the names of files."""
    name = re.sub(r"[^A-Za-z0-9._]+", "-", folder.resolve().name).strip("-.")[:60] or "data"
    while name in (*KINDS, CIFAR10_JPEG):  # which has NORB-like, too
        name += "-like"
    return name


def _check_number(folder: Path, names: Sequence[str]) -> None:
    """Raise Problem for too few or too many classes."""
    if not 2 <= len(names) <= MOST_CLASSES:
        raise Problem(f"{folder} has {len(names)} class(es); expected 2 to {MOST_CLASSES}")


def _dataset(
    folder: Path,
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    names: Sequence[str],
    sha256: str,
) -> Dataset:
    """The data set of training and test images and their labels, by place in names."""
    name = CIFAR10_JPEG if sha256 == CIFAR10_JPEG_SHA256 else _name(folder)
    return Dataset(name, *arrays, sha256, str(folder), classes=tuple(names))


# --- IDX files


def _load_idx(folder: Path) -> Dataset:
    paths = _find_idx(folder)
    arrays = []
    for path, n_dimensions in zip(paths, (3, 1, 3, 1), strict=True):
        with reading.refused(path):
            arrays.append(reading.read_idx(path, n_dimensions, MOST_BYTES))
    if _is_mnist(arrays):
        return mnist.load(paths)
    _require_fitting(paths, arrays)
    train_images, train_labels, test_images, test_labels = arrays
    occurring = np.unique(train_labels)
    names = list(map(str, occurring))
    _check_number(folder, names)
    train, test = (
        np.searchsorted(occurring, part).astype(np.uint8) for part in (train_labels, test_labels)
    )
    digests = [hashlib.sha256(array.tobytes()).hexdigest() for array in arrays]
    sha256 = hashlib.sha256("".join(digests).encode()).hexdigest()
    return _dataset(folder, (train_images, train, test_images, test), names, sha256)


def _find_idx(folder: Path) -> list[Path]:
    """The four files: training images, their labels, test images, their labels."""
    found: dict[tuple[str, str], list[Path]] = {}
    sets = set()
    for path in sorted(folder.iterdir()):
        if match := IDX_NAME.fullmatch(path.name):
            part = "train" if match["part"] == "train" else "test"
            found.setdefault((part, match["kind"][:6]), []).append(path)
            sets.add(match["set"])
    wanted = [(part, kind) for part in ("train", "test") for kind in ("images", "labels")]
    if missing := [" ".join(key) for key in wanted if key not in found]:
        some = f"no {' and no '.join(missing)}" if found else "none of them"
        raise Problem(f"--data {folder}: {EXPECTED}; found {some}")
    if twice := next((paths for paths in found.values() if len(paths) > 1), None):
        raise Problem(
            f"{folder} holds both {twice[0].name} and {twice[1].name}; put each set into a folder "
            "of its own"
        )
    if sets != {None}:
        tell(f"note: images of EMNIST lie transposed, and stay so: {folder}")
    return [found[key][0] for key in wanted]


def _require_fitting(paths: Sequence[Path], arrays: Sequence[np.ndarray]) -> None:
    """Raise Problem unless images and labels of the four files fit together."""
    train_images, train_labels, test_images, test_labels = arrays
    for i in (0, 2):
        with reading.refused(paths[i + 1]):
            reading.check_labels(arrays[i + 1], MOST_CLASSES, len(arrays[i]))
    (height, width), shape = train_images.shape[1:], test_images.shape[1:]
    if shape != (height, width):
        raise Problem(
            f"images of {paths[2]} are {shape[1]}x{shape[0]} pixels; expected {width}x{height} as "
            f"in {paths[0]}"
        )
    if height != width or not SMALLEST <= width <= LARGEST:
        raise Problem(
            f"images of {paths[0]} are {width}x{height} pixels; expected squares of {SMALLEST} to "
            f"{LARGEST} pixels"
        )
    if unknown := set(np.unique(test_labels)) - set(np.unique(train_labels)):
        raise Problem(
            f"{paths[3]} has the label {min(unknown)}, which no training image has; expected the "
            "same classes for training and testing"
        )


def _is_mnist(arrays: Sequence[np.ndarray]) -> bool:
    """Whether the arrays are MNIST's, by their checksums."""
    return all(
        array.shape == file.shape and file.digest(array) == file.sha256
        for array, file in zip(arrays, mnist.FILES, strict=True)
    )


# --- pictures


def _load_pictures(folder: Path, size: int | None) -> Dataset:
    parts = {"train": _list_pictures(folder / "train")}
    if (folder / "test").is_dir():
        parts["test"] = _list_pictures(folder / "test")
    _name_skipped(folder)
    if "test" in parts:
        for name in sorted(parts["test"].keys() - parts["train"].keys()):
            raise Problem(
                f"{folder / 'test' / name} is a class that {folder / 'train'} lacks; expected the "
                "same classes for training and testing"
            )
    names = list(parts["train"])
    _check_number(folder, names)  # before all pictures are decoded
    listed = [
        (part, names.index(name), entry)
        for part, classes in parts.items()
        for name, entries in classes.items()
        for entry in entries
    ]
    pixels, sha256 = _cached(folder, [entry for _, _, entry in listed], size)
    labels = np.array([label for _, label, _ in listed], np.uint8)
    if "test" in parts:
        is_test = np.array([part == "test" for part, _, _ in listed])
    else:
        is_test = _choose_test(folder, labels, names)
    arrays = pixels[~is_test], labels[~is_test], pixels[is_test], labels[is_test]
    dataset = _dataset(folder, arrays, names, sha256)
    return replace(dataset, name=f"{dataset.name}-size{size}", size=size) if size else dataset


def _list_pictures(folder: Path) -> dict[str, list[os.DirEntry]]:
    """The pictures of each class, sorted. Raises Problem for a class without any."""
    classes = {}
    for name in sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()):
        if _is_hidden(name):
            continue
        if UNPRINTABLE.search(name):  # run files hold the names of classes
            raise Problem(
                f"the name of the class {str(folder / name)!a} cannot be printed; rename it"
            )
        with os.scandir(folder / name) as entries:
            seen = [entry for entry in entries if not _is_hidden(entry.name)]
        found = [entry for entry in seen if entry.name.lower().endswith(SUFFIXES)]
        if not found:
            raise Problem(
                f"{folder / name} holds no picture; expected {', '.join(SUFFIXES)} of its class, "
                "or no such folder"
            )
        classes[name] = sorted(found, key=lambda entry: entry.name)
    if not classes:
        raise Problem(f"{folder} holds no classes; {EXPECTED}")
    return classes


def _is_hidden(name: str) -> bool:
    """Whether a name is hidden, or of the folder that macOS adds to archives."""
    return name.startswith(".") or name == "__MACOSX"


def _name_skipped(folder: Path) -> None:
    """Name on stderr the files and folders that are not read; their owner may expect them to count.

    Folders beside train/ and test/; in those two, files beside the classes and of other formats.
    """
    others = {entry.name for entry in os.scandir(folder) if entry.is_dir()} - {"train", "test"}
    if others := {name for name in others if not _is_hidden(name)}:
        text = ", ".join(str(folder / name) for name in sorted(others))
        tell(f"note: skipped, beside train/ and test/: {text}")
    loose = [path for part in ("train", "test") for path in folder.glob(f"{part}/*")]
    if loose := sorted(p for p in loose if p.is_file() and not _is_hidden(p.name)):
        tell(f"note: skipped, beside the folders of classes: {len(loose)}, such as {loose[0]}")
    of_classes = (folder.glob(f"{part}/*/*") for part in ("train", "test"))
    unread = [path for path in chain(*of_classes) if not path.name.lower().endswith(SUFFIXES)]
    if unread := sorted(path for path in unread if not _is_hidden(path.name)):
        tell(f"note: skipped, no pictures: {len(unread)}, such as {unread[0]}")


def _choose_test(folder: Path, labels: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Which pictures are for testing, of each class one in TEST_PART, the same each time."""
    is_test = np.zeros(len(labels), bool)
    rng = random.generator(TEST_SEED, random.SPLIT)
    for label, name in enumerate(names):
        (own,) = np.nonzero(labels == label)
        if len(own) < 2:
            raise Problem(
                f"{folder / 'train' / name} holds one picture; expected two or more, because there "
                f"is no {folder / 'test'} and some are set aside for testing"
            )
        is_test[rng.permutation(own)[: max(1, len(own) // TEST_PART)]] = True
    return is_test


def _cached(
    folder: Path, entries: Sequence[os.DirEntry], size: int | None
) -> tuple[np.ndarray, str]:
    """The pixels of pictures, and the SHA-256 of size, names and contents, kept between two runs.

    As long as names, sizes, times and places of the files stay, they are not read again.
    """
    names = [entry.path.removeprefix(f"{folder}{os.sep}") for entry in entries]
    scaled = f"size {size}\n" if size else ""
    listing = hashlib.sha256(b"3")  # version of `_pixels`
    for name, entry in zip(names, entries, strict=True):
        status = entry.stat()  # a file under another name keeps size and time of modification
        marks = status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
        listing.update(os.fsencode(f"{name}\0{marks}\n"))
    listed = listing.digest()
    whose = hashlib.sha256(os.fsencode(f"{scaled}{folder.resolve()}")).hexdigest()
    with suppress(files.FileFault, SafetensorError, LookupError):
        kept = files.read_bytes(files.cache_folder() / "pictures" / f"{whose}.safetensors")
        found = safetensors.numpy.load(kept)
        if found["listed"].tobytes() == listed:
            return found["pixels"], found["sha256"].tobytes().hex()
    content = hashlib.sha256(scaled.encode())
    paths = [Path(entry.path) for entry in entries]
    pixels = _stacked(paths, list(_decoded(folder, names, size, content)))
    digests = {"listed": listed, "sha256": content.digest()}
    tensors = {key: np.frombuffer(digest, np.uint8) for key, digest in digests.items()}
    try:
        cache = files.cache_folder() / "pictures"
        files.make_folder(cache)
        kept = safetensors.numpy.save({"pixels": pixels, **tensors})
        files.replace(cache / f"{whose}.safetensors", kept)
    except files.FileFault as fault:
        tell(f"note: the pictures' pixels are not kept: {fault}")
    return pixels, content.hexdigest()


def _decoded(
    folder: Path, names: Sequence[str], size: int | None, content: Any
) -> Iterator[np.ndarray]:
    """Each picture's pixels, uint8 (side, side) or (side, side, 3). Updates the checksum."""
    total = 0
    for name in names:
        picture = files.read_bytes(folder / name)
        pixels = _decode(folder / name, picture, size)
        content.update(os.fsencode(f"{name}\0{len(picture)}\n") + picture)
        yield pixels
        total += 3 * len(pixels) ** 2
        if total > MOST_BYTES:
            raise Problem(f"{folder} holds more than {MOST_BYTES:,} bytes of pixels; take fewer")


def read_scaled(path: Path, size: int, n_maps: int) -> np.ndarray:
    """A picture as `load` reads and scales it, uint8: in grey (size, size), of 3 maps (..., 3).

    Raises Fault, one sentence, if it cannot be read.
    """
    image = Image.fromarray(_decode(path, files.read_bytes(path), size))
    return np.asarray(image.convert("L" if n_maps == 1 else "RGB"))


def read_whole(path: Path, source: Maps) -> np.ndarray:
    """A picture as `load` reads it, stretched to the size of a net's input, uint8: in grey (height,
    width), of 3 maps (height, width, 3).

    Raises Fault, one sentence, if it cannot be read.
    """
    with reading.picture(path, files.read_bytes(path)) as image:
        _refuse_deep(path, image)
        pixels = _pixels(image)
    converted = Image.fromarray(pixels).convert("L" if source.n == 1 else "RGB")
    side = source.width, source.height
    if source != DIGIT or converted.size == side:
        return np.asarray(converted.resize(side, Image.Resampling.BOX))
    from deform_gpu.resize import resize  # imports numba

    # As `data.scale` makes such a net's inputs of images of 28x28, which nearly all data have.
    small = np.asarray(converted.resize((28, 28), Image.Resampling.BOX))
    return np.round(resize(small[None], source.width)[0]).astype(np.uint8)


def _refuse_deep(path: Path, image: Image.Image) -> None:
    """Raise Problem for a picture of floats or 32 bits."""
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        raise Problem(f"{path} has pixels of floats or of 32 bits; expected 8 or 16 bits")


def _decode(path: Path, content: bytes, size: int | None) -> np.ndarray:
    """The pixels of a picture, uint8 (side, side) or (side, side, 3).

    content: of its file. size: the side that it is scaled to; None: it must be a square.
    """
    with reading.picture(path, content) as image:
        width, height = image.size
        _refuse_deep(path, image)
        if not size and (width != height or not SMALLEST <= width <= LARGEST):
            raise Problem(
                f"{path} is {width}x{height} pixels; expected squares of {SMALLEST} to "
                f"{LARGEST} pixels, or --size N, which scales pictures to NxN"
            )
        pixels = _pixels(image)
    return _scaled(pixels, size) if size else pixels


def _scaled(pixels: np.ndarray, size: int) -> np.ndarray:
    """A picture scaled as a whole and centred in size x size pixels, the rest its border's median,
    rounded down.

    pixels: uint8 (height, width) or (height, width, 3). Guess: bilinear interpolation, of all
    pixels below one of the result.
    """
    square = np.empty((size, size, *pixels.shape[2:]), np.uint8)
    square[:] = np.median(reading.border(pixels), axis=0)
    shape = pixels.shape[:2]
    height, width = (max(1, round(side * size / max(shape))) for side in shape)
    small = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
    top, left = (size - height) // 2, (size - width) // 2
    square[top : top + height, left : left + width] = np.asarray(small)
    return square


def _pixels(image: Image.Image) -> np.ndarray:
    """Grey or colours of the first frame, the right way up; transparent pixels become white."""
    image = reading.upright(image)
    if image.mode.startswith("I"):  # 16 bits of grey
        return (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
    is_grey, has_palette = image.mode in ("1", "L", "LA"), image.mode == "P"
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    pixels = np.asarray(image.convert("L" if is_grey else "RGB"))
    # A GIF of greys has a palette, too.
    return pixels[..., 0] if has_palette and not np.ptp(pixels, axis=2).any() else pixels


def _stacked(paths: Sequence[Path], pictures: list[np.ndarray]) -> np.ndarray:
    """All pictures in one array; in colour if one is."""
    first = pictures[0].shape[:2]
    for path, picture in zip(paths, pictures, strict=True):
        if picture.shape[:2] != first:
            sizes = [f"{width}x{height}" for height, width in (picture.shape[:2], first)]
            raise Problem(
                f"{path} is {sizes[0]} pixels and {paths[0]} {sizes[1]}; expected pictures of "
                "equal size, or --size N, which scales them to NxN"
            )
    if any(picture.ndim == 3 for picture in pictures):
        pictures = [
            picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=2)
            for picture in pictures
        ]
    return np.stack(pictures)
