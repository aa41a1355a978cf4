"""Folders of data of your own, for tests: IDX files of three letters, pictures of two things."""

import numpy as np
import pytest
from mnist_files import NAMES, idx
from PIL import Image

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (40, 12, 12), np.uint8)
LETTERS = np.arange(40, dtype=np.uint8) % 3 * 5 + 1  # 1, 6, 11


@pytest.fixture
def letters(sandbox, tmp_path):
    """A folder of IDX files: 30 images for training, 10 for testing, three classes."""
    folder = tmp_path / "my letters"
    folder.mkdir()
    arrays = IMAGES[:30], LETTERS[:30], IMAGES[30:], LETTERS[30:]
    for name, array in zip(NAMES, arrays, strict=True):
        (folder / name).write_bytes(idx(array))
    return folder


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def things(sandbox, tmp_path):
    """A folder of colour pictures of two classes: 6 of each for training, 2 for testing."""
    folder = tmp_path / "things"
    for part, n in (("train", 6), ("test", 2)):
        for name in ("cup", "hat"):
            for i in range(n):
                pixels = RNG.integers(0, 256, (10, 10, 3), np.uint8)
                save(folder / part / name / f"{i}.png", pixels)
    return folder
