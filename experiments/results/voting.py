"""What a committee of nets decides, and how it compares with its members.

`outputs` are class probabilities (n, n_classes) of n images, `labels` uint8 (n,) the truth.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


def average(outputs: Sequence[np.ndarray]) -> np.ndarray:
    """The committee's outputs: its members' mean (2012 section 5), float64 (n, n_classes)."""
    return np.asarray(outputs).mean(axis=0, dtype=np.float64)


def find_wrong(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Which digits are misclassified, bool (n,)."""
    return outputs.argmax(axis=1) != labels


def guesses(outputs: np.ndarray) -> np.ndarray:
    """The two most likely classes of every digit, the likelier first, int64 (n, 2)."""
    return np.argsort(-outputs, axis=1, kind="stable")[:, :2]


def count_second_guesses(outputs: np.ndarray, labels: np.ndarray) -> int:
    """How many of the misclassified digits are what the second guess says."""
    return int(np.count_nonzero(guesses(outputs)[:, 1] == labels))


def count_sentence(outputs: np.ndarray, labels: np.ndarray) -> str:
    """How many digits are wrong and how often the second guess is right."""
    wrong = np.count_nonzero(find_wrong(outputs, labels))
    second = count_second_guesses(outputs, labels)
    return f"{wrong} of {len(labels):,} wrong; second guess right for {second}"


class Comparison(NamedTuple):
    """Two classifiers, a and b, on the same digits: McNemar's test.

    only_a, only_b: digits that it alone gets wrong. p: how likely so uneven a split is, or a more
    uneven one, if both were equally good; exact and two-sided.
    """

    only_a: int
    only_b: int
    p: float


def compare(wrong_a: np.ndarray, wrong_b: np.ndarray) -> Comparison:
    """Compare what two classifiers get wrong, bool (n,) each."""
    from scipy.special import bdtr  # scipy.stats takes most of a second to import

    only_a = int(np.count_nonzero(wrong_a & ~wrong_b))
    only_b = int(np.count_nonzero(wrong_b & ~wrong_a))
    p = 2 * float(bdtr(min(only_a, only_b), only_a + only_b, 0.5))
    return Comparison(only_a, only_b, min(p, 1.0))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """The p values of several tests, corrected for their number (Holm, 1979); None stays."""
    tested = sorted((p, k) for k, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    most = 0.0
    for rank, (p, k) in enumerate(tested):
        corrected[k] = most = max(most, min(1.0, (len(tested) - rank) * p))
    return corrected


def count_shared(wrong: Sequence[np.ndarray]) -> np.ndarray:
    """How many digits any two classifiers both get wrong, int64 (m, m); each alone on the diagonal.

    wrong: m times bool (n,).
    """
    counts = np.array(wrong, np.int64)
    return counts @ counts.T
