"""Tests of experiments/running/data.py: how images are scaled, split and normalised."""

import hashlib
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mnist_files import interpolated

from deform_gpu import is_narrow
from experiments.running import data
from experiments.running.errors import Problem
from mlp_gpu.training import image_order

pytestmark = pytest.mark.usefixtures("sandbox")


# Scaling


@pytest.mark.parametrize(("n", "side"), [(1, 1), (7, 2), (2003, 8), (33, 28), (3, 29), (2, 31)])
def test_scaling_is_bilinear(n, side):
    images = np.random.default_rng(side).uniform(-1, 1, (n, side, side)).astype(np.float32)
    scaled = data.to_29(images)
    assert scaled.dtype == np.float32
    assert scaled.flags.c_contiguous
    assert scaled.shape == (n, 29, 29)
    # Two interpolations of four roundings, each of values of at most 2 in magnitude.
    assert (np.abs(scaled - interpolated(images)) <= 16 * np.finfo(np.float32).eps).all()


def test_scaling_keeps_corners_and_range():
    images = np.random.default_rng(2).integers(0, 256, (50, 28, 28), np.uint8)
    scaled = data.to_29(images)
    np.testing.assert_array_equal(scaled[:, ::28, ::28], images[:, ::27, ::27])
    assert (scaled >= images.min(axis=(1, 2), keepdims=True)).all()
    assert (scaled <= images.max(axis=(1, 2), keepdims=True)).all()


@given(value=st.floats(width=32, min_value=-1e6, max_value=1e6), side=st.integers(1, 40))
def test_scaling_keeps_constants(value, side):
    assert (data.to_29(np.full((2, side, side), value, np.float32)) == np.float32(value)).all()


def test_scaling_needs_little_memory():
    images = np.zeros((20_000, 28, 28), np.uint8)
    tracemalloc.start()
    try:
        scaled = data.to_29(images)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - scaled.nbytes < 32e6  # a float32 copy of the images would be 63e6


# load_digits


def test_digits_are_split_1437_to_360(digits):
    from sklearn.datasets import load_digits

    whole = load_digits()
    assert digits.name == "load_digits"
    assert digits.source.startswith("scikit-learn ")
    assert digits.train_images.shape == (1437, 29, 29)
    assert digits.test_images.shape == (360, 29, 29)
    assert digits.train_images.dtype == digits.test_images.dtype == np.float32
    assert digits.train_labels.dtype == digits.test_labels.dtype == np.uint8
    # Every fourth pixel of the 29 is one of the 8, unchanged: the two parts make up the whole.
    images = np.concatenate([digits.train_images, digits.test_images])[:, ::4, ::4]
    labels = np.concatenate([digits.train_labels, digits.test_labels])
    rows = np.column_stack([labels, images.reshape(-1, 64)])
    expected = np.column_stack([whole.target, whole.data / 8 - 1])
    np.testing.assert_array_equal(rows[np.lexsort(rows.T)], expected[np.lexsort(expected.T)])


def test_digits_are_stratified(digits):
    train, test = np.bincount(digits.train_labels), np.bincount(digits.test_labels)
    assert (np.abs(test - (train + test) * 360 / 1797) <= 1).all()


def test_digits_split_is_fixed(digits):
    """A change of scikit-learn that changed the split would change every result."""
    assert digits.sha256 == "4edecd175a422bfe39fd13da68449907835e81668e391592146bbcb4a92b43df"
    labels = hashlib.sha256(digits.train_labels.tobytes()).hexdigest()
    assert labels == "8045d56acaec0a8b755102923824266cfaa5a4d8d426e211e2345aa886a6a502"


def test_digits_need_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(Problem, match="scikit-learn is not installed"):
        data.load("digits")


# Options


@pytest.mark.parametrize("limit", [1, 100, 1437])
def test_limit_keeps_the_first_training_images(digits, limit):
    some = data.limit(digits, limit)
    np.testing.assert_array_equal(some.train_images, digits.train_images[:limit])
    np.testing.assert_array_equal(some.train_labels, digits.train_labels[:limit])
    np.testing.assert_array_equal(some.test_images, digits.test_images)
    assert some.sha256 == digits.sha256


@pytest.mark.parametrize("limit", [-1, 0, 1438])
def test_limit_out_of_range(digits, limit):
    with pytest.raises(Problem, match=f"{limit}, expected 1 to 1437, .* load_digits"):
        data.limit(digits, limit)


def test_limit_of_mnist(small_mnist):
    some = data.limit(data.load("mnist", small_mnist.folder), 2)
    assert some.train_images.shape == (2, 29, 29)
    assert some.train_labels.tolist() == [3, 1]
    assert len(some.test_labels) == len(some.test_images) == 3
    with pytest.raises(Problem, match=r"6, expected 1 to 5, .* MNIST"):
        data.limit(data.load("mnist", small_mnist.folder), 6)


def numbered(n, name="load_digits"):
    """n training images that are known by their values, labels 0 to 9 in turn, 4 test images."""
    images = np.repeat(np.arange(n, dtype=np.float32), 29 * 29).reshape(n, 29, 29)
    labels = np.arange(n, dtype=np.uint8) % 10
    return data.Dataset(name, images, labels, images[:4], labels[:4], "0" * 64, "here")


def numbers(images):
    assert (images == images[:, :1, :1]).all()
    return images[:, 0, 0].astype(int).tolist()


@settings(deadline=None, max_examples=60)
@given(n_train=st.integers(2, 60), seed=st.integers(0, 2**64 - 1), source=st.data())
def test_split_is_disjoint_and_complete(n_train, seed, source):
    n = source.draw(st.integers(1, n_train - 1))
    whole = numbered(n_train)
    found = data.split(whole, n, seed)
    apart, apart_labels = found.validation
    train = numbers(found.train_images)
    assert len(apart) == n
    assert sorted(train + numbers(apart)) == list(range(n_train))
    assert train == sorted(train)  # the others keep their order
    # Every image keeps its label.
    assert found.train_labels.tolist() == [i % 10 for i in train]
    assert apart_labels.tolist() == [i % 10 for i in numbers(apart)]
    assert found.train_images.flags.c_contiguous
    assert apart.flags.c_contiguous
    assert found.train_labels.dtype == apart_labels.dtype == np.uint8
    # All else stays, and so does what was given.
    assert found.test_images is whole.test_images
    assert found.test_labels is whole.test_labels
    assert (found.name, found.sha256, found.source) == (whole.name, whole.sha256, whole.source)
    assert numbers(whole.train_images) == list(range(n_train))
    assert whole.validation is None


def test_split_is_a_function_of_the_seed():
    sets = [set(numbers(data.split(numbered(60), 10, seed).validation[0])) for seed in range(7)]
    again = [set(numbers(data.split(numbered(60), 10, seed).validation[0])) for seed in range(7)]
    assert sets == again
    assert len(set(map(frozenset, sets))) == 7
    assert sets[0] != set(range(10))  # drawn at random, not the first


def test_split_draws_every_image_equally_often():
    drawn = [
        i for seed in range(600) for i in numbers(data.split(numbered(12), 2, seed).validation[0])
    ]
    counts = np.bincount(drawn, minlength=12)
    assert (abs(counts - 100) <= 5 * np.sqrt(100 * 10 / 12)).all()  # five standard deviations


def test_split_is_not_the_order_of_the_images():
    """The same seed must not draw the same numbers for two purposes."""
    apart = numbers(data.split(numbered(60), 10, 3).validation[0])
    for epoch in (0, 1):
        assert apart != image_order(60, 3, epoch)[:10].tolist()


@pytest.mark.parametrize("n", [-1, 0, 60, 61])
def test_split_out_of_range(n):
    with pytest.raises(Problem, match=rf"^{n} images .* expected 1 to 59, .* 60 .* of MNIST$"):
        data.split(numbered(60, "MNIST"), n, 0)


def boxes(*sizes):
    """An image for each (width, height) of a bounding box, with ink all over it."""
    images = np.full((len(sizes), 29, 29), -1, np.float32)
    for image, (width, height) in zip(images, sizes, strict=True):
        ink = np.linspace(-0.5, 1, width * height, dtype=np.float32)
        image[2 : 2 + height, 3 : 3 + width] = ink.reshape(height, width)
    return images


def widths(images):
    return [int(np.ptp(np.nonzero((image != -1).any(axis=0))[0])) + 1 for image in images]


@pytest.fixture
def mixed():
    """Narrow digits and others in all three parts."""
    labels = np.array([1, 7, 1, 0], np.uint8)
    train = boxes((4, 20), (5, 20), (6, 20), (20, 20))
    test = boxes((20, 9), (5, 20), (13, 20), (4, 18))
    apart = boxes((1, 2), (2, 2), (20, 20), (3, 20))
    return data.Dataset("MNIST", train, labels, test, labels, "", "", (apart, labels))


@pytest.mark.parametrize("width", [1, 10, 20, 29])
def test_normalize_has_one_rule_for_all_parts(mixed, width):
    found = data.normalize(mixed, width)
    parts = {
        "train": (mixed.train_images, found.train_images, [True, True, False, False]),
        "test": (mixed.test_images, found.test_images, [False, True, False, True]),
        "validation": (mixed.validation[0], found.validation[0], [True, False, False, True]),
    }
    for before, after, narrow in parts.values():
        assert is_narrow(before).tolist() == narrow
        narrow = np.array(narrow)
        assert after[narrow].tobytes() == before[narrow].tobytes()
        assert widths(after[~narrow]) == [width] * np.count_nonzero(~narrow)
        assert after.dtype == np.float32
        assert after.flags.c_contiguous
    assert found.train_labels is mixed.train_labels
    assert found.test_labels is mixed.test_labels
    assert found.validation[1] is mixed.validation[1]
    assert widths(mixed.train_images) == [4, 5, 6, 20]  # what was given stays


def test_normalize_uses_no_label(mixed):
    others = np.array([0, 1, 3, 1], np.uint8)
    relabelled = replace(
        mixed, train_labels=others, test_labels=others, validation=(mixed.validation[0], others)
    )
    found, expected = data.normalize(relabelled, 12), data.normalize(mixed, 12)
    assert (found.train_images == expected.train_images).all()
    assert (found.test_images == expected.test_images).all()
    assert (found.validation[0] == expected.validation[0]).all()
    assert (found.validation[1] == others).all()


def test_normalize_without_validation_images(digits):
    found = data.normalize(digits, 14)
    assert found.validation is None
    wide = ~is_narrow(digits.test_images)
    assert wide.any()
    assert widths(found.test_images[wide]) == [14] * np.count_nonzero(wide)


def test_unknown_choice():
    with pytest.raises(Problem, match="'MNIST', expected auto, mnist, norb, cifar10 or digits"):
        data.load("MNIST")
