"""scoring/voting.py: what a committee decides, against plain loops and the definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from experiments.results import voting

many = settings(deadline=None, max_examples=150)

# Few values, so that ties are frequent.
votes = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        arrays(np.float32, (n, 10), elements=st.sampled_from([0, 0.125, 0.25, 0.5])),
        arrays(np.uint8, n, elements=st.integers(0, 9)),
    )
)


def random_outputs(n, seed):
    rows = np.random.default_rng(seed).exponential(size=(n, 10))
    return (rows / rows.sum(axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("n_members", [1, 7])
def test_average_is_the_mean_in_float64(n_members):
    outputs = [random_outputs(50, seed) for seed in range(n_members)]
    before = [member.copy() for member in outputs]
    found = voting.average(outputs)
    assert found.dtype == np.float64
    for (digit, class_), value in np.ndenumerate(found):
        exact = math.fsum(float(member[digit, class_]) for member in outputs) / n_members
        assert abs(value - exact) <= n_members * np.spacing(exact)
    assert all((a == b).all() for a, b in zip(outputs, before, strict=True))


@many
@given(votes)
def test_wrong_and_guesses_agree_with_a_loop_at_ties_too(case):
    outputs, labels = case
    wrong, guesses = voting.find_wrong(outputs, labels), voting.guesses(outputs)
    assert wrong.dtype == bool
    assert guesses.shape == (len(labels), 2)
    for row, label, is_wrong, two in zip(outputs, labels, wrong, guesses, strict=True):
        # Of equal outputs the one of the lower digit comes first.
        order = sorted(range(10), key=lambda class_: (-row[class_], class_))
        assert two.tolist() == order[:2]
        assert is_wrong == (order[0] != label)


def test_second_guesses_counted_by_hand():
    outputs = np.zeros((6, 10))
    outputs[0, [3, 5]] = 0.7, 0.3  # right at once: its second guess counts for nothing
    outputs[1, [3, 5]] = 0.3, 0.7
    outputs[2, [3, 5]] = 0.5, 0.4  # neither
    outputs[3, [0, 9]] = 0.5, 0.5
    outputs[4, [0, 9]] = 0.5, 0.5
    outputs[5, [1, 2, 3]] = 0.4, 0.3, 0.3  # its third guess is right
    labels = np.array([3, 3, 7, 0, 9, 3], np.uint8)
    assert voting.find_wrong(outputs, labels).tolist() == [False, True, True, False, True, True]
    assert voting.count_second_guesses(outputs, labels) == 2
    assert type(voting.count_second_guesses(outputs, labels)) is int


def mcnemar(only_a, only_b):
    """The exact p: twice the smaller tail of a fair coin, 1 at most."""
    n = only_a + only_b
    tail = sum(math.comb(n, k) for k in range(min(only_a, only_b) + 1))
    return min(1.0, 2 * tail / 2**n)


def split(only_a, only_b, both=3, neither=4):
    """What two classifiers get wrong, with these counts, in an order at random."""
    a = [1] * only_a + [0] * only_b + [1] * both + [0] * neither
    b = [0] * only_a + [1] * only_b + [1] * both + [0] * neither
    order = np.random.default_rng(only_a).permutation(len(a))
    return np.array(a, bool)[order], np.array(b, bool)[order]


@pytest.mark.parametrize(
    ("only_a", "only_b"),
    [(0, 0), (1, 0), (1, 1), (0, 5), (3, 9), (9, 3), (120, 160)],
)
def test_comparison_is_mcnemars_exact_test(only_a, only_b):
    found = voting.compare(*split(only_a, only_b))
    assert found == (only_a, only_b, pytest.approx(mcnemar(only_a, only_b), rel=1e-9))
    assert found == voting.compare(*split(only_a, only_b, both=0, neither=0))


@many
@given(st.integers(1, 4).flatmap(lambda m: st.integers(0, 30).map(lambda n: (m, n))), st.data())
def test_shared_errors_agree_with_loops(shape, source):
    m, n = shape
    wrong = [source.draw(arrays(bool, n)) for _ in range(m)]
    shared = voting.count_shared(wrong)
    assert shared.shape == (m, m)
    for i in range(m):
        assert shared[i, i] == wrong[i].sum()
        for j in range(m):
            expected = sum(bool(x and y) for x, y in zip(wrong[i], wrong[j], strict=True))
            assert shared[i, j] == shared[j, i] == expected


def test_shared_errors_of_a_whole_test_set_do_not_overflow():
    assert (voting.count_shared([np.ones(70_000, bool)] * 2) == 70_000).all()
