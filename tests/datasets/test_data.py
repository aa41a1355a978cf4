"""Tests of experiments/datasets/data.py: how images are scaled, split and normalised."""

from dataclasses import replace

import numpy as np
import pytest
from committee_cases import numbered, numbers
from hypothesis import given, settings
from hypothesis import strategies as st
from mnist_files import interpolated

from deepbig_runtime.errors import Problem
from experiments.datasets import data
from experiments.datasets.dataset import KINDS, is_mnist, name_parts
from mlp_gpu.training import image_order


def test_only_mnist_is_mnist():
    assert [name for name in KINDS if is_mnist(name)] == ["MNIST"]
    assert [name_parts(name) for name in ("MNIST", "NORB-like")] == [[], ["NORB-like"]]


# Scaling


@pytest.mark.parametrize(("n", "side"), [(1, 1), (7, 2), (2003, 8), (33, 28), (3, 29), (2, 31)])
def test_to_29_is_bilinear(n, side):
    images = np.random.default_rng(side).uniform(-1, 1, (n, side, side)).astype(np.float32)
    scaled = data.to_29(images)
    assert (scaled.shape, scaled.dtype) == ((n, 29, 29), np.float32)
    assert scaled.flags.c_contiguous
    # Two interpolations of four roundings, each of values of at most 2 in magnitude.
    assert (np.abs(scaled - interpolated(images)) <= 16 * np.finfo(np.float32).eps).all()


# load_digits


def test_digits_are_all_images_split_1437_to_360(digits):
    """A change of scikit-learn that changed the split would change every result."""
    assert (digits.name, digits.source[:13]) == ("load_digits", "scikit-learn ")
    assert (len(digits.train_labels), len(digits.test_labels)) == (1437, 360)
    assert digits.train_labels.dtype == digits.test_labels.dtype == np.uint8
    assert digits.sha256 == "4edecd175a422bfe39fd13da68449907835e81668e391592146bbcb4a92b43df"


# Parts of a data set


@pytest.mark.parametrize("limit", [1, 1437])
def test_limit_keeps_the_first_training_images(digits, limit):
    some = data.limit(digits, limit)
    np.testing.assert_array_equal(some.train_images, digits.train_images[:limit])
    np.testing.assert_array_equal(some.train_labels, digits.train_labels[:limit])
    assert some.test_images is digits.test_images
    assert some.sha256 == digits.sha256


def test_limit_of_images_in_the_order_of_classes_keeps_some_of_each(digits):
    labels = np.sort(digits.train_labels)
    by_class = replace(digits, train_images=np.arange(1437), train_labels=labels)
    some, again = (data.limit(by_class, 300) for _ in range(2))
    assert np.bincount(some.train_labels).min() > 15
    assert len(np.unique(some.train_images)) == 300
    np.testing.assert_array_equal(labels[some.train_images], some.train_labels)
    np.testing.assert_array_equal(again.train_images, some.train_images)
    assert some.train_images[:3].tolist() == [147, 981, 266]  # for ever
    np.testing.assert_array_equal(data.limit(by_class, 1437).train_images, np.arange(1437))


@pytest.mark.parametrize("limit", [0, 1438])
def test_limit_out_of_range_is_refused(digits, limit):
    with pytest.raises(Problem, match=f"{limit}, expected 1 to 1437, .* load_digits"):
        data.limit(digits, limit)


@settings(deadline=None, max_examples=60)
@given(n_train=st.integers(2, 60), seed=st.integers(0, 2**64 - 1), source=st.data())
def test_split_is_disjoint_and_complete(n_train, seed, source):
    n = source.draw(st.integers(1, n_train - 1))
    whole = numbered(n_train)
    found = data.split(whole, n, seed)
    held_out, held_out_labels = found.validation
    train = numbers(found.train_images)
    assert len(held_out) == n
    assert sorted(train + numbers(held_out)) == list(range(n_train))
    assert train == sorted(train)  # the others keep their order
    # Every image keeps its label.
    assert found.train_labels.tolist() == [i % 10 for i in train]
    assert held_out_labels.tolist() == [i % 10 for i in numbers(held_out)]
    # All else stays, and so does what was given.
    assert (found.test_images is whole.test_images, found.sha256) == (True, whole.sha256)
    assert numbers(whole.train_images) == list(range(n_train))


def test_split_is_a_function_of_the_seed():
    held_out = [
        numbers(data.split(numbered(60), 10, seed).validation[0]) for seed in (*range(7), 0)
    ]
    assert held_out[7] == held_out[0] == [8, 40, 20, 48, 11, 13, 17, 54, 6, 2]  # for ever
    assert len(set(map(frozenset, held_out))) == 7
    # The same seed does not give the same numbers for two purposes.
    assert held_out[3] not in [image_order(60, 3, epoch)[:10].tolist() for epoch in (0, 1)]


@pytest.mark.parametrize("n", [0, 60])
def test_split_out_of_range_is_refused(n):
    with pytest.raises(Problem, match=rf"^{n} images .* expected 1 to 59, .* 60 .* of MNIST$"):
        data.split(numbered(60, "MNIST"), n, 0)


def test_stratified_parts_have_a_share_of_each_class_and_no_image_in_common():
    whole = numbered(100)
    labels = np.repeat(np.arange(4, dtype=np.uint8), (40, 30, 20, 10))
    whole = replace(whole, train_labels=labels)
    parts = [data.split(whole, 20, seed, part) for seed, part in ((0, 1), (0, 2), (9, 2))]
    held_out = [numbers(one.validation[0]) for one in parts]
    assert not set(held_out[0]) & set(held_out[1])
    assert held_out[1] == held_out[2]  # whatever the seed
    for one, out in zip(parts, held_out, strict=True):
        assert np.bincount(labels[out]).tolist() == [8, 6, 4, 2]
        assert one.validation[1].tolist() == labels[out].tolist()
        assert numbers(one.train_images) == sorted(set(range(100)) - set(out))
    # The same images for ever: what was chosen by them must stay comparable.
    assert held_out[0][:5] == [73, 40, 19, 63, 50]


@pytest.mark.parametrize(("n", "part"), [(3, 1), (98, 1), (60, 2)])
def test_too_few_images_to_stratify_are_refused(n, part):
    labels = np.arange(100, dtype=np.uint8) % 4
    whole = replace(numbered(100, "MNIST"), train_labels=labels)
    with pytest.raises(
        Problem, match=rf"^{n} of the 100 training images of MNIST cannot be held out"
    ):
        data.split(whole, n, 0, part)
