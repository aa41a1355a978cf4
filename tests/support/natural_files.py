"""Files like small NORB's and CIFAR-10's, of coloured bars."""

import gzip
import io
import struct
import tarfile

import numpy as np

from experiments.datasets import cifar, norb

BYTES, INTEGERS = 0x1E3D4C55, 0x1E3D4C54  # magic numbers


def mat(array, sizes=None):
    """A .mat file; sizes: of its header, if other than the array's."""
    magic = {"uint8": BYTES, "int32": INTEGERS}[array.dtype.name]
    sizes = array.shape if sizes is None else sizes
    written = (*sizes, *[1] * (3 - len(sizes)))  # three at least
    header = struct.pack(f"<{2 + len(written)}i", magic, len(sizes), *written)
    return header + array.astype(array.dtype.newbyteorder("<")).tobytes()


def make_norb(folder, n_train, n_test):
    """Write pairs of images; returns images (n, 96, 96, 2) and labels of both sets."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = [*_shapes(n_train, 5, 96, 2, seed=0), *_shapes(n_test, 5, 96, 2, seed=1)]
    for i, (file, array) in enumerate(zip(norb.FILES, arrays, strict=True)):
        content = mat(array.astype(np.int32) if i % 2 else array.transpose(0, 3, 1, 2))
        (folder / file.name).write_bytes(gzip.compress(content, 1))
    return arrays


def record(label, image):
    """A record of CIFAR-10. image: uint8 (32, 32, 3)."""
    return bytes([label]) + image.transpose(2, 0, 1).tobytes()


def pack(members):
    """An archive of files by their names."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def make_cifar(folder, n_a_file, n_test):
    """Write images, n_a_file in each training file; returns images (n, 32, 32, 3) and labels.

    The files of the archive are in reversed order, which plays no part.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arrays = [*_shapes(5 * n_a_file, 10, 32, 3, seed=0), *_shapes(n_test, 10, 32, 3, seed=1)]
    train, test = ([*map(record, arrays[i + 1], arrays[i])] for i in (0, 2))
    members = {cifar.TEST: b"".join(test), f"{cifar.FOLDER}/readme.html": b"<p>"}
    for i, name in reversed([*enumerate(cifar.TRAINING)]):
        members[name] = b"".join(train[i * n_a_file : (i + 1) * n_a_file])
    (folder / cifar.ARCHIVE).write_bytes(gzip.compress(pack(members), 1))
    return arrays


def _shapes(n, n_classes, side, maps, seed):
    """Images of a bar, brighter than its background, and labels, each class equally often.

    uint8 (n, side, side, maps). The class is the angle of the bar.
    """
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % n_classes).astype(np.uint8)
    images = np.empty((n, side, side, maps), np.uint8)
    for image, label in zip(images, labels, strict=True):
        angle = np.pi * label / n_classes
        y, x = np.indices((side, side)) - side * rng.uniform(0.4, 0.6, (2, 1, 1))
        inside = abs(y * np.cos(angle) - x * np.sin(angle)) < side / 8
        paper, ink = rng.uniform(0, 90, maps), rng.uniform(130, 255, maps)
        noise = rng.normal(0, 5, image.shape)
        image[:] = (np.where(inside[..., None], ink, paper) + noise).clip(0, 255)
    return images, labels
