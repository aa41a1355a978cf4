"""SciPy and kornia deform as ours does, as far as kornia lets them."""

import itertools
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest

from deform_gpu import TABLE1, Deformation, deform
from experiments.benchmarks import baselines

SIDE, CENTRE = 29, 14
MIDDLE = slice(10, 19)  # at least 10 pixels from the edge, which is as far as a kernel reaches
SLACK = 1e-3  # pixels, by rounding
NO_ANGLES = (0,) * 10


def ours(images, labels, deformation):
    epochs = itertools.count()
    return lambda: deform(images, labels, deformation, epoch=next(epochs))


# Ours too, which shows that the tests measure rightly.
MAKERS = {
    "ours": ours,
    "scipy recipe": baselines.scipy_recipe,
    "kornia, CPU": baselines.kornia_batch,
    "kornia, GPU": partial(baselines.kornia_batch, device="cuda"),
}


def test_optional_baseline_is_installed():
    """Skipped here, and not in every test below, which leave it out."""
    if error := baselines.import_error("kornia"):
        pytest.skip(f"kornia, an optional baseline, cannot be used: {error}")


@pytest.fixture(params=["ours", "scipy recipe", *(["kornia, CPU"] if find_spec("kornia") else [])])
def name(request):
    """The name of the deformation that is tested."""
    if request.param == "kornia, CPU":
        test_optional_baseline_is_installed()
    return request.param


def deformed(name, images, deformation, labels=None):
    """Images deformed once, float32 (n, 29, 29). labels: all 0 where None."""
    if labels is None:
        labels = np.zeros(len(images), np.uint8)
    if "kornia" in name:
        import torch

        torch.manual_seed(0)
    result = MAKERS[name](images, labels, deformation)()
    if name == "kornia, GPU":
        result = result.cpu().numpy()
    assert (result.dtype, result.shape) == (np.float32, images.shape)
    return result


def ramps(down, right, n):
    """Images (n, 29, 29) that tell where a pixel comes from: down * y + right * x, within 1."""
    y, x = np.indices((SIDE, SIDE)) - CENTRE
    image = (down * y + right * x) / CENTRE / (abs(down) + abs(right))
    return np.tile(image.astype(np.float32), (n, 1, 1))


def sources(name, down, right, deformation, n, labels=None):
    """down * y + right * x of the sources of middle pixels of n images, pixels from the centre."""
    result = deformed(name, ramps(down, right, n), deformation, labels)[:, MIDDLE, MIDDLE]
    return result * CENTRE * (abs(down) + abs(right))


def inverse_rows(name, down, right, deformation, labels=None):
    """down times the first row of an image's M^-1 plus right times its second, (n, 2); n is 200."""
    n = 200 if labels is None else len(labels)
    found = sources(name, down, right, deformation, n, labels).reshape(n, 81)
    target = np.indices((9, 9)).reshape(2, 81).T - 4
    rows, *_ = np.linalg.lstsq(target, found.T)
    assert abs(target @ rows - found.T).max() < SLACK  # linear, and the centre stays
    return rows.T


def displacements(name, down, right, deformation, n):
    """down * y + right * x of source minus target, pixels."""
    here = ramps(down, right, 1)[:, MIDDLE, MIDDLE] * CENTRE * (abs(down) + abs(right))
    return sources(name, down, right, deformation, n) - here


def test_rotation_angles_are_uniform(name):
    beta = 25.0
    turned = Deformation(5.5, 0, (beta,) * 10, gamma_x=0, gamma_y=0, shear_probability=0)
    for down, right in ((1, 0), (0, 1)):
        rows = inverse_rows(name, down, right, turned)
        assert abs(np.hypot(*rows.T) - 1).max() < SLACK
        along, across = (rows if down else rows[:, ::-1]).T
        angles = np.rad2deg(np.arctan2(across, along))
        uniform_in(angles, -beta, beta)


def test_shear_is_horizontal_and_uniform(name):
    beta = 25.0
    sheared = Deformation(5.5, 0, (beta,) * 10, gamma_x=0, gamma_y=0, shear_probability=1)
    assert abs(inverse_rows(name, 1, 0, sheared) - [1, 0]).max() < SLACK
    xy, xx = inverse_rows(name, 0, 1, sheared).T
    assert abs(xx - 1).max() < SLACK
    uniform_in(np.rad2deg(np.arctan(xy)), -beta, beta)


def test_image_is_either_rotated_or_sheared(name):
    turned = Deformation(5.5, 0, (25.0,) * 10, gamma_x=0, gamma_y=0, shear_probability=0.25)
    _, yx = inverse_rows(name, 1, 0, turned).T
    assert np.mean(abs(yx) < SLACK) == pytest.approx(0.25, abs=0.12)  # four standard deviations
    xy, xx = inverse_rows(name, 0, 1, turned).T
    assert ((abs(np.hypot(xy, xx) - 1) < SLACK) | (abs(xx - 1) < SLACK)).all()


def test_angle_depends_on_the_label(name):
    labels = np.repeat([1, 7, 0, 9], 100).astype(np.uint8)
    turned = Deformation(5.5, 0, TABLE1.beta, gamma_x=0, gamma_y=0)
    xy, xx = inverse_rows(name, 0, 1, turned, labels).T
    largest = np.rad2deg(np.arctan2(abs(xy), xx)).reshape(4, 100).max(axis=1)
    assert (largest <= np.array([7.5, 7.5, 15, 15]) + np.rad2deg(SLACK)).all()
    assert (largest >= np.array([7, 7, 14, 14])).all()


def test_width_and_height_are_scaled_independently(name):
    scaled = Deformation(5.5, 0, NO_ANGLES, gamma_x=30, gamma_y=10)
    rows_y, rows_x = (inverse_rows(name, *axis, scaled) for axis in ((1, 0), (0, 1)))
    assert abs(rows_y[:, 1]).max() < SLACK
    assert abs(rows_x[:, 0]).max() < SLACK
    uniform_in(1 / rows_y[:, 0], 0.9, 1.1)
    uniform_in(1 / rows_x[:, 1], 0.7, 1.3)
    # x / scale_x + y / scale_y: each with its own scale, or the correlation is 1.
    both = inverse_rows(name, 1, 1, scaled)
    assert abs(np.corrcoef(both.T)[0, 1]) < 0.2


def test_scaling_comes_before_shear(name):
    """In kornia after it: there M^-1 has tan(angle) in its second row without the scale of x."""
    both = Deformation(5.5, 0, (25.0,) * 10, gamma_x=50, gamma_y=0, shear_probability=1)
    xy, xx = inverse_rows(name, 0, 1, both).T
    largest = np.rad2deg(np.arctan(abs(xy / xx).max()))
    assert largest > 28 if "kornia" in name else 24 < largest < 25.3


def uniform_in(values, low, high):
    """Asserts it of 200 values: the range, that its ends occur, mean and standard deviation."""
    width = high - low
    assert low - 0.02 * width < values.min() < low + 0.04 * width
    assert high - 0.04 * width < values.max() < high + 0.02 * width
    # Four standard deviations of each.
    assert values.mean() == pytest.approx((low + high) / 2, abs=0.08 * width)
    assert values.std() == pytest.approx(width / 12**0.5, rel=0.13)


@pytest.mark.parametrize(
    ("down", "right", "sigma", "alpha"), [(1, 0, 5.5, 37), (0, 1, 4.5, 20), (1, 1, 5.5, 37)]
)
def test_elastic_displacements_match_ours(name, down, right, sigma, alpha):
    """In the middle of the image. Of y + x they are so only if y and x move independently."""
    elastic = Deformation(sigma, alpha, NO_ANGLES, gamma_x=0, gamma_y=0)
    theirs = displacements(name, down, right, elastic, 500)
    own = displacements("ours", down, right, elastic, 4000)
    assert abs(theirs.mean()) < 4 * own.std() / 500**0.5
    # Three standard deviations of the first, five of the second.
    assert theirs.std() / own.std() == pytest.approx(1, rel=0.075)
    assert alike(theirs) - alike(own) == pytest.approx(0, abs=0.1)


def alike(moved):
    """How displacements correlate 8 pixels apart, which sigma determines."""
    down, right = (moved[:, 0] * moved[:, -1]).mean(), (moved[:, :, 0] * moved[:, :, -1]).mean()
    return (down + right) / 2 / moved.var()


@pytest.mark.parametrize("alpha", [0, 37])
def test_outside_the_image_is_background(name, alpha):
    """Also where only the elastic displacement leaves the image."""
    gamma = 0 if alpha else 50
    other = Deformation(5.5, alpha, NO_ANGLES, gamma_x=gamma, gamma_y=gamma, background=-0.5)
    result = deformed(name, np.ones((50, SIDE, SIDE), np.float32), other)
    assert result.min() == pytest.approx(-0.5, abs=1e-5)
    assert result.max() == pytest.approx(1, abs=1e-5)
    assert result[:, MIDDLE, MIDDLE].min() == pytest.approx(1, abs=1e-5)


def test_every_call_and_image_differs(name):
    call = MAKERS[name](ramps(0, 1, 3), np.zeros(3, np.uint8), TABLE1)
    results = [*call(), *call()]
    for i, one in enumerate(results):
        assert all(abs(one - other).max() > 0.01 for other in results[:i])


@pytest.mark.gpu
def test_kornia_does_the_same_on_a_gpu():
    test_optional_baseline_is_installed()
    if not baselines.sees_gpu("torch"):
        pytest.skip("PyTorch sees no GPU")
    test_angle_depends_on_the_label("kornia, GPU")
    test_every_call_and_image_differs("kornia, GPU")
