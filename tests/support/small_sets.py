"""Small data sets in files of their formats, whose readers and downloads have one contract."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from mnist_files import make_small
from natural_files import make_cifar, make_norb

from experiments.datasets import cifar, mnist, norb


class SmallSet(SimpleNamespace):
    """A data set of few images.

    choice: for data.load. name: of the whole set. folder: with `paths`, its files. arrays: images
    and labels for training, then those for tests, as data.load_pixels gives them.
    """

    def check(self, dataset):
        found = dataset.train_images, dataset.train_labels, dataset.test_images, dataset.test_labels
        for array, expected in zip(found, self.arrays, strict=True):
            assert array.dtype == np.uint8
            assert array.flags.c_contiguous
            np.testing.assert_array_equal(array, expected)
        # Read-only arrays are another type to numba.
        assert dataset.train_labels.flags.writeable
        assert dataset.test_labels.flags.writeable

    def be_whole(self, monkeypatch):
        """Let these files be the whole of the data set, by number and by checksum."""
        if self.choice == "norb":
            md5 = (hashlib.md5(path.read_bytes()).hexdigest() for path in self.paths)
            files = (file._replace(md5=sum) for file, sum in zip(norb.FILES, md5, strict=True))
            monkeypatch.setattr(norb, "FILES", tuple(files))
            monkeypatch.setattr(norb, "N_PAIRS", len(self.arrays[1]))
        if self.choice == "cifar10":
            sha256 = hashlib.sha256(self.paths[0].read_bytes()).hexdigest()
            monkeypatch.setattr(cifar, "SHA256", sha256)
            monkeypatch.setattr(cifar, "N_RECORDS", len(self.arrays[3]))


def make(choice: str, folder: Path, monkeypatch) -> SmallSet:
    """Write a small set."""
    if choice == "mnist":
        arrays = make_small(folder, monkeypatch)
        paths = [folder / f"{file.name}.gz" for file in mnist.FILES]
    elif choice == "norb":
        arrays = make_norb(folder, 5, 5)
        paths = [folder / file.name for file in norb.FILES]
    else:
        arrays = make_cifar(folder, 3, 3)
        paths = [folder / cifar.ARCHIVE]
    name = choice.upper()
    return SmallSet(choice=choice, name=name, folder=folder, paths=paths, arrays=arrays)
