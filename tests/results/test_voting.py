"""results/voting.py: decisions of a committee, against plain loops and the definitions."""

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


def test_average_is_the_mean_in_float64():
    outputs = np.random.default_rng(0).random((7, 50, 10), np.float32)
    found = voting.average(list(outputs))
    for place, value in np.ndenumerate(found):
        exact = math.fsum(outputs[:, *place].tolist()) / 7
        assert abs(value - exact) <= 7 * np.spacing(exact)


@many
@given(votes)
def test_wrong_and_guesses_agree_with_a_loop_at_ties_too(case):
    outputs, labels = case
    wrong, guesses = voting.find_wrong(outputs, labels), voting.guesses(outputs)
    n_second = 0
    for row, label, is_wrong, two in zip(outputs, labels, wrong, guesses, strict=True):
        # Of equal outputs the one of the lower digit comes first.
        order = sorted(range(10), key=lambda class_: (-row[class_], class_))
        assert two.tolist() == order[:2]
        assert is_wrong == (order[0] != label)
        n_second += order[1] == label
    assert voting.count_second_guesses(outputs, labels) == n_second


def mcnemar(only_a, only_b):
    """The exact p: twice the smaller tail of a fair coin, 1 at most."""
    n = only_a + only_b
    tail = sum(math.comb(n, k) for k in range(min(only_a, only_b) + 1))
    return min(1.0, 2 * tail / 2**n)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (1, 1), (0, 5), (9, 3), (120, 160)])
def test_comparison_is_mcnemars_exact_test(only_a, only_b):
    a = [1] * only_a + [0] * only_b + [1] * 3 + [0] * 4
    b = [0] * only_a + [1] * only_b + [1] * 3 + [0] * 4
    found = voting.compare(np.array(a, bool), np.array(b, bool))
    assert found == (only_a, only_b, pytest.approx(mcnemar(only_a, only_b), rel=1e-9))


def test_shared_errors_agree_with_loops():
    wrong = np.random.default_rng(0).random((4, 70_000)) < 0.98  # more than 16 bits can count
    expected = [[int((a & b).sum()) for b in wrong] for a in wrong]
    assert voting.count_shared(list(wrong)).tolist() == expected


def test_holm_never_lets_a_larger_p_value_become_the_smaller_one():
    assert voting.holm([0.03, 0.01, None, 0.025]) == pytest.approx([0.05, 0.03, None, 0.05])
    assert voting.holm([0.6, 0.4]) == pytest.approx([0.8, 0.8])
    assert voting.holm([0.9, 0.8]) == [1, 1]
