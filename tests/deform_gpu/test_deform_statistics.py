"""Whether random numbers and deformations are distributed as the papers and the parameters say."""

import dataclasses
import math

import numpy as np
import pytest
import reference_deform as reference
from deform_cases import BETAS, MIXED, SEED
from scipy import stats

from deform_gpu import COMMITTEE, TABLE1
from deform_gpu.batches import make_displacement, make_matrices
from deform_gpu.field import MARGIN, fill_field

BATCHES = 40


def random_field(seed, epoch, batch, inner=290):
    """(2, inner, inner) float64, y and x."""
    field = np.empty((2, inner + 2 * MARGIN, inner + 2 * MARGIN), np.float32)
    fill_field(field, 0, *map(np.uint32, (*reference.key_of(seed), epoch, batch)))
    return field[:, MARGIN:-MARGIN, MARGIN:-MARGIN].astype(np.float64)


def correlation(a, b):
    return np.corrcoef(a.ravel(), b.ravel())[0, 1]


@pytest.fixture(scope="module")
def displacements():
    """Of Table 1, away from the rim of the grid, where fields end: (BATCHES, 2, 270, 270)."""
    fields = [make_displacement(TABLE1, SEED, 1, batch) for batch in range(BATCHES)]
    return np.array(fields, np.float64)[:, :, MARGIN:-MARGIN, MARGIN:-MARGIN]


def autocovariance(sigma, alpha):
    """Of displacements a number of rows and columns apart, from 0 to 20: (21, 21)."""
    kernel = reference.gaussian_kernel(sigma)
    full = alpha**2 / 3 * reference.signal.correlate2d(kernel, kernel)
    return full[20:, 20:]


def spread(covariance, n):
    """Standard deviation, as a part of it, of a variance that is estimated from n cells.

    Cells that resemble each other count as one: n / sum of squared correlations of them.
    """
    rho = np.pad(covariance / covariance[0, 0], ((20, 0), (20, 0)), "reflect")
    return math.sqrt(2 * (rho**2).sum() / n)


@pytest.mark.parametrize("deformation", [TABLE1, COMMITTEE, dataclasses.replace(TABLE1, sigma=1.5)])
def test_displacements_are_as_large_as_sigma_and_alpha_say(deformation):
    fields = np.array([make_displacement(deformation, SEED, 1, b) for b in range(BATCHES)], float)
    fields = fields[:, :, MARGIN:-MARGIN, MARGIN:-MARGIN]
    expected = autocovariance(deformation.sigma, deformation.alpha)
    n = fields[:, 0].size
    for axis in (0, 1):
        values = fields[:, axis]
        assert abs(values.var() / expected[0, 0] - 1) < 5 * spread(expected, n)
        # The mean of a field is that of its random numbers, nearly.
        assert abs(values.mean()) < 5 * deformation.alpha * math.sqrt(1 / 3 / n)
        for lag in (1, 3, 8, 15):
            for a, b in (
                (values[:, lag:], values[:, :-lag]),
                (values[:, :, lag:], values[:, :, :-lag]),
            ):
                found = (a * b).mean() / expected[0, 0]
                assert abs(found - expected[0, lag] / expected[0, 0]) < 5 * spread(expected, n)
    # Sums of that many terms are nearly normal: 68 and 95 % within one and two deviations.
    if deformation.sigma > 5:
        deviation = math.sqrt(expected[0, 0])
        for k, part in ((1, 0.6827), (2, 0.9545)):
            within = (abs(fields) < k * deviation).mean()
            assert abs(within - part) < 5 * spread(expected, 2 * n)
    y, x = fields[:, 0].ravel(), fields[:, 1].ravel()
    assert abs(correlation(y, x)) < 5 * spread(expected, n)


@pytest.mark.parametrize("direction", [2, 3], ids=["rows", "columns"])
def test_no_edge_shows_in_the_field_between_neighbouring_images(displacements, direction):
    steps = (np.diff(displacements, axis=direction) ** 2).mean(axis=(0, 1, 5 - direction))
    # From pixel o of an image to the next, for all images of the grid but the first and the last.
    borders = np.arange(MARGIN, MARGIN + len(steps)) % 29
    mean = np.array([steps[borders == o].mean() for o in range(29)])
    inside, between = mean[:28], mean[28]
    assert abs(between - inside.mean()) < 4 * inside.std()
    # Nor do curves have a corner there.
    bends = (np.diff(displacements, 2, axis=direction) ** 2).mean(axis=(0, 1, 5 - direction))
    mean = np.array([bends[borders[:-1] == o].mean() for o in range(29)])
    assert (abs(mean[27:] - mean[:27].mean()) < 4 * mean[:27].std()).all()


def test_angles_scales_and_translations_are_distributed_as_the_papers_say():
    n, side = 60_000, 96
    labels = np.arange(n) % 10
    deformation = dataclasses.replace(MIXED, shear_probability=0.25)
    inverses, columns = np.split(
        make_matrices(labels, deformation, SEED, 7, side=side).astype(float), [2], axis=2
    )
    shear = inverses[:, 0, 1] == 0  # LAPACK may leave some rounding there when it inverts
    matrices = np.linalg.inv(inverses)
    assert abs(shear.mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / n)

    turn = matrices[~shear]
    scale = np.empty((n, 2))
    scale[shear] = matrices[shear][:, [0, 1], [0, 1]]
    scale[~shear] = np.hypot(turn[:, 0], turn[:, 1])
    angle = np.empty(n)
    angle[shear] = np.arctan2(matrices[shear, 1, 0], matrices[shear, 0, 0])
    angle[~shear] = np.arctan2(turn[:, 0, 1], turn[:, 1, 1])
    # Cosines of small angles: EPS in one is sqrt(EPS) in the other, hence arctan2 above.
    drawn = np.array(
        [
            np.rad2deg(angle) / np.array(BETAS)[labels],
            (scale[:, 0] - 1) / (deformation.gamma_y / 100),
            (scale[:, 1] - 1) / (deformation.gamma_x / 100),
            *(-matrices @ columns)[:, :, 0].T / (deformation.translation / 100 * side),
        ]
    )
    for numbers in drawn:
        for some in (numbers[shear], numbers[~shear]):
            assert stats.kstest(some, stats.uniform(-1, 2).cdf).pvalue > 1e-3
    for digit in range(10):
        largest = abs(drawn[0, labels == digit]).max()  # of 6,000 numbers
        assert 0.99 < largest < 1 + 1e-3
    assert (abs(drawn[3:]).max(axis=1) > 0.999).all()
    correlations = np.corrcoef(np.vstack((drawn, shear)))
    assert (abs(correlations - np.eye(6)) < 5 / math.sqrt(n)).all()


def test_matrices_have_nothing_in_common_with_the_fields():
    n = 5_000  # of batches, whose first cells have the counters nearest to those of images
    matrices = make_matrices(np.zeros(n, int), MIXED, SEED, 7).reshape(n, 6)[:, [0, 2, 3, 4, 5]]
    cells = np.array([random_field(SEED, 7, batch, inner=2).ravel() for batch in range(n)])
    found = np.corrcoef(matrices.T, cells.T)[:5, 5:]
    assert (abs(found) < 5 / math.sqrt(n)).all()
