"""experiments/datasets/own.py: IDX files and folders of pictures, whole and wrong."""
# ruff: noqa: F401, F811 - fixtures are imported

import gzip
import os
import re
import struct
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from mnist_files import NAMES, idx
from own_folders import IMAGES, LETTERS, RNG, letters, save, things
from PIL import Image, ImageOps

from cnn_gpu.layers import Maps
from deepbig_runtime.errors import Problem
from deepbig_runtime.files import FileFault
from experiments.datasets import data, own, reading
from experiments.datasets.data import to_29
from experiments.datasets.dataset import DIGIT


def test_idx_labels_are_the_places_of_those_that_occur(letters):
    found = own.load(letters)
    assert (found.name, found.classes) == ("my-letters", ("1", "6", "11"))
    assert (found.train_images == IMAGES[:30]).all()
    assert (found.test_images == IMAGES[30:]).all()
    assert found.train_labels.tolist() == [0, 1, 2] * 10
    assert found.test_labels.tolist() == [*[0, 1, 2] * 3, 0]
    assert found.train_labels.dtype == np.uint8


@pytest.mark.parametrize("source", ["Debian's Fashion-MNIST", "EMNIST"])
def test_packed_idx_files_hold_the_same_data(letters, source):
    plain = own.load(letters)
    for name in NAMES:
        content = (letters / name).read_bytes()
        (letters / name).unlink()
        other = name.replace("-idx", ".idx").replace("t10k", "test")
        packed = f"emnist-some-{other}.gz" if source == "EMNIST" else f"{name}.gz"
        (letters / packed).write_bytes(gzip.compress(content))
    assert own.load(letters).sha256 == plain.sha256


def test_emnist_is_said_to_lie_transposed(letters, capsys):
    assert "transposed" not in capsys.readouterr().err
    for name in NAMES:
        (letters / name).rename(letters / f"emnist-letters-{name}")
    assert own.load(letters).classes == ("1", "6", "11")
    assert "images of EMNIST lie transposed" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["MNIST", "NORB", "CIFAR10"])
def test_folder_with_a_known_name_is_no_known_data(letters, tmp_path, name):
    letters.rename(tmp_path / name)
    assert own.load(tmp_path / name).kind.n_classes == 3


def test_folder_named_as_a_choice_is_a_folder(letters, tmp_path, monkeypatch):
    letters.rename(tmp_path / "digits")
    monkeypatch.chdir(tmp_path)
    assert len(data.load_pixels(data.choice_of("digits", Path("digits"))).classes) == 3


def replaced(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def with_255_more_classes(folder):
    for k in range(255):
        (folder / "train" / f"{k}").mkdir()
        (folder / "train" / f"{k}" / "0.png").touch()


def rewritten(first, make):
    """A change of the training and the test file from NAMES[first], made of their lengths."""

    def change(folder):
        for name, n in zip(NAMES[first::2], (30, 10), strict=True):
            (folder / name).write_bytes(idx(make(n)))

    return change


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda folder: (folder / NAMES[3]).unlink(), "found no test labels"),
        (lambda folder: [(folder / name).unlink() for name in NAMES], "found none of them"),
        (replaced("emnist-digits-" + NAMES[0], b""), "holds both emnist-digits-train"),
        (replaced(NAMES[0], b"PNG!" + bytes(20)), "train-images.* expected 00000803"),
        (replaced(NAMES[1], idx(LETTERS[:29])), "train-labels.* expected 30 labels, one"),
        (replaced(NAMES[1], idx(LETTERS[:30] * 0)), "has the label 1, which no training image"),
        (replaced(NAMES[2], idx(IMAGES[30:, :11])), "are 12x11 pixels; expected 12x12"),
        (rewritten(0, lambda n: np.zeros((n, 7, 7), np.uint8)), "expected squares of 8 to 64 pix"),
        (rewritten(0, lambda n: np.zeros((n, 12, 10), np.uint8)), "expected squares of 8 to 64 p"),
        (rewritten(1, lambda n: np.full(n, 7, np.uint8)), r"has 1 class\(es\); expected 2 to 256"),
    ],
)
def test_idx_files_that_do_not_fit_are_named(letters, spoil, expected):
    spoil(letters)
    with pytest.raises(Problem, match=expected):
        own.load(letters)


def test_pictures_are_of_the_classes_of_their_folders(things):
    found = own.load(things)
    assert (found.name, found.classes) == ("things", ("cup", "hat"))
    assert found.train_labels.tolist() == [0] * 6 + [1] * 6
    assert found.test_labels.tolist() == [0, 0, 1, 1]
    for i in range(6):
        with Image.open(things / "train" / "hat" / f"{i}.png") as picture:
            assert (found.train_images[6 + i] == np.asarray(picture)).all()


def test_pictures_are_read_again_only_when_they_change(things, monkeypatch):
    first = own.load(things)
    with monkeypatch.context() as patch:
        patch.setattr(own, "_decoded", None)
        again = own.load(things)
    assert again.sha256 == first.sha256
    assert (again.train_images == first.train_images).all()
    save(things / "train" / "cup" / "0.png", np.zeros((10, 10, 3), np.uint8))
    changed = own.load(things)
    assert changed.sha256 != first.sha256
    assert not changed.train_images[0].any()
    path, other = things / "train" / "cup" / "0.png", things / "train" / "cup" / "1.png"
    lengths = [len(one.read_bytes()) for one in (path, other)]
    for one in (path, other):  # pictures of one length
        one.write_bytes(one.read_bytes().ljust(max(lengths)))
    own.load(things)
    path.write_bytes(other.read_bytes())
    found = own.load(things)
    assert (found.train_images[0] == found.train_images[1]).all()


def test_pictures_that_change_places_are_read_again_and_kept_once(things, monkeypatch, tmp_path):
    """As where two were in the wrong class, of one size and one time, as archives give it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    one, other = things / "train" / "cup" / "0.png", things / "train" / "hat" / "0.png"
    content = [path.read_bytes() for path in (one, other)]
    for path, text in zip((one, other), content, strict=True):
        path.write_bytes(text.ljust(max(map(len, content))))
        os.utime(path, ns=(10**18, 10**18))
    first = own.load(things)
    one.rename(tmp_path / "aside")
    other.rename(one)
    (tmp_path / "aside").rename(other)
    second = own.load(things)
    places = [int(np.flatnonzero(first.train_labels == label)[0]) for label in (0, 1)]
    assert (second.train_images[places] == first.train_images[places[::-1]]).all()
    assert second.sha256 != first.sha256
    assert len(list((tmp_path / "cache").rglob("*.safetensors"))) == 1


def test_pictures_are_read_by_a_user_without_a_home(things, monkeypatch, capsys):
    monkeypatch.setattr(own.files, "cache_folder", Mock(side_effect=FileFault("no home")))
    assert len(own.load(things).train_images)
    assert "the pictures' pixels are not kept: no home" in capsys.readouterr().err


def test_grey_pictures_have_no_channels_beside_colour_ones_they_have(things):
    grey = RNG.integers(0, 256, (10, 10), np.uint8)
    save(things / "train" / "cup" / "0.png", grey)
    found = own.load(things)
    assert (found.train_images[0] == grey[..., None]).all()
    for path in things.rglob("*.png"):
        save(path, grey)
    assert own.load(things).train_images.shape == (12, 10, 10)


def test_formats_that_people_have_are_read_and_the_rest_is_named(things, capsys):
    cup, white = things / "train" / "cup", np.full((10, 10), 255, np.uint8)
    pixels = RNG.integers(0, 256, (10, 10, 3), np.uint8)
    for k, ending in enumerate(("bmp", "tif", "webp", "ppm")):
        (cup / f"{k}.png").unlink()
        Image.fromarray(pixels).save(cup / f"{k}.{ending}", **{"lossless": True} if k == 2 else {})
    glass = np.dstack([pixels, np.where(np.arange(10) < 5, 255, 0) + 0 * white]).astype(np.uint8)
    save(cup / "4.png", glass)
    turned = Image.Exif()
    turned[0x0112] = 6  # the camera was held upright
    Image.fromarray(pixels).save(cup / "5.png", exif=turned)
    (cup / "._0.bmp").write_bytes(b"macOS")
    (things / "__MACOSX").mkdir()
    (things / "val").mkdir()
    (things / "test" / "hat" / "more").mkdir()
    (cup / "a.heic").touch()
    (things / "train" / "b.png").touch()
    found = own.load(things).train_images
    for image in found[:4]:
        np.testing.assert_array_equal(image, pixels)
    np.testing.assert_array_equal(found[4][:, :5], pixels[:, :5])
    assert (found[4][:, 5:] == 255).all()
    np.testing.assert_array_equal(found[5], np.rot90(pixels, -1))
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"note: skipped, beside train/ and test/: {things / 'val'}",
        f"note: skipped, beside the folders of classes: 1, such as {things / 'train' / 'b.png'}",
        f"note: skipped, no pictures: 2, such as {things / 'test' / 'hat' / 'more'}",
    ]


@pytest.mark.parametrize("shape", [(20, 40), (40, 20)])
def test_size_keeps_the_aspect_and_pads_with_the_median_of_the_border(things, shape):
    framed = np.full((*shape, 3), (200, 100, 50), np.uint8)
    framed[0, :9] = 0  # less than half of the border
    framed[2:-2, 2:-2] = 255
    save(things / "train/cup/0.png", framed)
    (found, kept), second = own.load(things, 10).train_images[:2], things / "train/cup/1.png"
    found = found if shape[0] < shape[1] else found.transpose(1, 0, 2)
    is_padding = (found == framed[-1, -1]).all(axis=(1, 2))
    assert is_padding.tolist() == [True] * 2 + [False] * 5 + [True] * 3
    assert (found[4, 2:8] == 255).all()
    np.testing.assert_array_equal(kept, np.asarray(Image.open(second)))


def test_data_of_another_size_are_other_data(things):
    save(things / "train/cup/0.png", np.zeros((1, 3000), np.uint8))
    found = [own.load(things, size) for size in (10, 12, 10)]
    assert [dataset.name for dataset in found[:2]] == ["things-size10", "things-size12"]
    assert found[1].train_images.shape == (12, 12, 12, 3)
    assert found[0].sha256 != found[1].sha256
    assert found[2].sha256 == found[0].sha256  # of the cache


def test_size_is_refused_for_idx_files(letters):
    with pytest.raises(Problem, match=r"--size 16 scales pictures in train/CLASS/, which .* lacks"):
        own.load(letters, 16)


def test_greys_with_a_palette_are_grey(things):
    for path in things.rglob("*.png"):
        Image.fromarray(np.arange(100, dtype=np.uint8).reshape(10, 10)).save(
            path.with_suffix(".gif")
        )
        path.unlink()
    assert own.load(things).train_images.shape == (12, 10, 10)


def test_pictures_are_turned_as_pillow_turns_them():
    image = Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
    for orientation in range(1, 10):
        image.getexif()[0x0112] = orientation
        turned = np.asarray(reading.upright(image))
        np.testing.assert_array_equal(turned, ImageOps.exif_transpose(image))


def test_a_picture_for_a_net_is_as_those_that_it_was_trained_on(things, tmp_path):
    path = things / "test" / "hat" / "1.png"
    pixels = RNG.integers(0, 256, (10, 10, 4), np.uint8)
    pixels[..., 3] = np.where(np.hypot(*np.mgrid[-5:5, -5:5]) < 5, 255, 0)  # most is opaque
    save(path, pixels)
    np.testing.assert_array_equal(
        own.read_whole(path, Maps(3, 10, 10)), own.load(things).test_images[-1]
    )
    for side in (28, 29):
        grey = RNG.integers(0, 256, (side, side), np.uint8)
        save(tmp_path / "grey.png", grey)
        expected = to_29(grey[None])[0] if side == 28 else grey
        found = own.read_whole(tmp_path / "grey.png", DIGIT)
        np.testing.assert_allclose(found, expected, atol=0.51 * (side == 28))
    save(path.with_suffix(".tif"), np.zeros((10, 10), np.float32))
    with pytest.raises(Problem, match="has pixels of floats or of 32 bits"):
        own.read_whole(path.with_suffix(".tif"), DIGIT)


@pytest.mark.skipif(sys.platform != "linux", reason="needs names of any bytes")
def test_names_of_files_are_any_bytes_and_those_of_classes_can_be_printed(things):
    hats = things / "train" / "hat"
    (hats / "0.png").rename(os.fsdecode(os.fsencode(hats) + b"/caf\xe9.png"))
    assert len(own.load(things).train_images) == 12
    hats.rename(hats.with_name("h\tat"))
    with pytest.raises(Problem, match=r"class '.*h\\tat' cannot be printed; rename it"):
        own.load(things)


def test_sixteen_bits_of_grey_become_eight(things):
    for path in things.rglob("*.png"):
        save(path, np.full((10, 10), 0x80FF, np.uint16))
    assert (own.load(things).train_images == 0x80).all()


def test_without_a_test_folder_a_sixth_of_each_class_is_set_aside(things):
    for path in (things / "test").rglob("*.png"):
        path.unlink()
    for name in ("cup", "hat"):
        (things / "test" / name).rmdir()
    (things / "test").rmdir()
    found = own.load(things)
    assert found.test_labels.tolist() == [0, 1]
    assert found.train_labels.tolist() == [0] * 5 + [1] * 5
    pictures = [things / "train" / name for name in ("cup/2.png", "hat/0.png")]  # for ever
    assert (found.test_images == np.stack([Image.open(path) for path in pictures])).all()
    for i in range(6, 12):
        save(things / "train" / "cup" / f"{i}.png", np.zeros((10, 10, 3), np.uint8))
    assert own.load(things).test_labels.tolist() == [0, 0, 1]
    for i in range(2, 6):
        (things / "train" / "hat" / f"{i}.png").unlink()
    assert own.load(things).test_labels.tolist() == [0, 0, 1]  # of two pictures, too
    (things / "train" / "hat" / "1.png").unlink()
    with pytest.raises(Problem, match=r"train/hat holds one picture; expected two or more"):
        own.load(things)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (replaced("train/cup/3.png", b"no picture"), r"train/cup/3.png: it is damaged, or no pict"),
        (
            lambda folder: save(folder / "test/hat/1.png", np.zeros((12, 12, 3), np.uint8)),
            r"test/hat/1.png is 12x12 pixels and .*train/cup/0.png 10x10; .* or --size N",
        ),
        (
            lambda folder: save(folder / "test/hat/1.png", np.zeros((10, 12, 3), np.uint8)),
            r"test/hat/1.png is 12x10 pixels; expected squares of 8 to 64 pixels, or --size N",
        ),
        (
            lambda folder: save(folder / "train/hat/1.png", np.zeros((65, 65), np.uint8)),
            r"train/hat/1.png is 65x65 pixels; expected squares of 8 to 64",
        ),
        (lambda folder: (folder / "train" / "bag").mkdir(), "train/bag holds no picture"),
        (with_255_more_classes, r"things has 257 class\(es\); expected 2 to 256"),
        (
            lambda folder: save(folder / "train/hat/6.tif", np.zeros((10, 10), np.float32)),
            r"train/hat/6.tif has pixels of floats or of 32 bits; expected 8 or 16 bits",
        ),
        (
            lambda folder: save(folder / "train/hat/6.tif", np.zeros((10, 10), np.int32)),
            r"train/hat/6.tif has pixels of floats or of 32 bits; expected 8 or 16 bits",
        ),
        (
            lambda folder: save(folder / "test/bag/1.png", np.zeros((10, 10), np.uint8)),
            "test/bag is a class that .*train lacks",
        ),
    ],
)
def test_pictures_that_do_not_fit_are_named(things, spoil, expected):
    spoil(things)
    with pytest.raises(Problem, match=expected):
        own.load(things)


@pytest.mark.parametrize("name", ["nowhere", "archive.zip"])
def test_anything_but_a_folder_is_refused(tmp_path, name):
    (tmp_path / "archive.zip").write_bytes(b"PK")
    with pytest.raises(Problem, match=r"expected a folder, found (nothing|a file)"):
        own.load(tmp_path / name)
