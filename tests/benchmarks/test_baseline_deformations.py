"""SciPy and kornia deform as ours does, as far as kornia lets them."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from deform_gpu import TABLE1, Deformation, deform
from experiments.benchmarks import baselines

SIDE, CENTRE = 29, 14
MIDDLE = slice(10, 19)  # at least 10 pixels from the edge, which is as far as a kernel reaches
SLACK = 1e-3  # pixels, by rounding
NO_ANGLES = (0,) * 10
LABELS = np.resize(np.array([1, 7, 0, 9], np.uint8), 800)


def ours(images, labels, deformation):
    epochs = itertools.count()
    return lambda: deform(images, labels, deformation, epoch=next(epochs))


MAKERS = {
    "ours": ours,
    "scipy recipe": baselines.scipy_recipe,
    "kornia, CPU": baselines.kornia_batch,
    "kornia, GPU": partial(baselines.kornia_batch, device="cuda"),
}


@pytest.fixture(params=list(MAKERS)[1:3])
def name(request):
    """The name of the deformation that is tested."""
    if "kornia" in request.param and (error := baselines.import_error("kornia")):
        pytest.skip(f"kornia, an optional baseline, cannot be used: {error}")
    return request.param


def deformed(name, images, deformation):
    """Images deformed once, float32 (n, 29, 29), with the first of LABELS."""
    if "kornia" in name:
        import torch

        torch.manual_seed(0)
    result = MAKERS[name](images, LABELS[: len(images)], deformation)()
    if name == "kornia, GPU":
        result = result.cpu().numpy()
    assert (result.dtype, result.shape) == (np.float32, images.shape)
    return result


def sources(name, down, right, deformation, n):
    """down * y + right * x of the sources of middle pixels of n images, pixels from the centre.

    Of images that tell where a pixel comes from: down * y + right * x, within 1.
    """
    y, x = np.indices((SIDE, SIDE)) - CENTRE
    largest = CENTRE * (abs(down) + abs(right))
    image = ((down * y + right * x) / largest).astype(np.float32)
    result = deformed(name, np.tile(image, (n, 1, 1)), deformation)
    return result[:, MIDDLE, MIDDLE] * largest


def inverse_rows(name, down, right, deformation):
    """down times the first row of an image's M^-1 plus right times its second, (n, 2)."""
    n = len(LABELS)
    found = sources(name, down, right, deformation, n).reshape(n, 81)
    target = np.indices((9, 9)).reshape(2, 81).T - 4
    rows, *_ = np.linalg.lstsq(target, found.T)
    assert abs(target @ rows - found.T).max() < SLACK  # linear, and the centre stays
    return rows.T


TURNED = Deformation(5.5, 0, (25.0,) * 10, gamma_x=0, gamma_y=0, shear_probability=0)
AFFINE = {
    "rotated": TURNED,
    "sheared": replace(TURNED, shear_probability=1),
    "either": replace(TURNED, shear_probability=0.25),
    "by label": replace(TURNED, beta=TABLE1.beta),
    "scaled": replace(TURNED, beta=NO_ANGLES, gamma_x=30, gamma_y=10),
}


@pytest.mark.parametrize("deformation", AFFINE.values(), ids=AFFINE)
@pytest.mark.parametrize(("down", "right"), [(1, 0), (0, 1), (1, 1)])
def test_matrices_are_spread_as_ours(name, deformation, down, right):
    """Of (1, 1) they are so only if x and y are scaled independently and angles have signs."""
    theirs, own = (inverse_rows(one, down, right, deformation) for one in (name, "ours"))
    for a, b in zip(theirs.T, own.T, strict=True):
        parts = 0, 0.1, 0.25, 0.5, 0.75, 0.9, 1
        a, b = np.quantile(a, parts), np.quantile(b, parts)
        assert abs(a - b).max() < 0.12 * np.ptp(b) + SLACK


def test_angle_depends_on_the_label(name):
    xy, xx = inverse_rows(name, 0, 1, AFFINE["by label"]).T
    largest = np.rad2deg(np.arctan2(abs(xy), xx)).reshape(-1, 4).max(axis=0)
    assert (largest <= np.array([7.5, 7.5, 15, 15]) + np.rad2deg(SLACK)).all()
    assert (largest >= np.array([7, 7, 14, 14])).all()


def test_scaling_comes_before_shear(name):
    """In kornia after it: there M^-1 has tan(angle) in its second row without the scale of x."""
    both = replace(TURNED, gamma_x=50, shear_probability=1)
    xy, xx = inverse_rows(name, 0, 1, both).T
    largest = np.rad2deg(np.arctan(abs(xy / xx).max()))
    assert largest > 28 if "kornia" in name else 24 < largest < 25.3


@pytest.mark.parametrize(
    ("down", "right", "sigma", "alpha"), [(1, 0, 5.5, 37), (0, 1, 4.5, 20), (1, 1, 5.5, 37)]
)
def test_elastic_displacements_match_ours(name, down, right, sigma, alpha):
    """In the middle of the image. Of y + x they are so only if y and x move independently."""
    elastic = Deformation(sigma, alpha, NO_ANGLES, gamma_x=0, gamma_y=0)
    here = (np.indices((9, 9)) - 4).T @ (right, down)  # of pixels before they move
    theirs, own = (sources(one, down, right, elastic, 500) - here for one in (name, "ours"))
    assert abs(theirs.mean()) < 4 * own.std() / 500**0.5
    # Three standard deviations of the first, five of the second.
    assert theirs.std() / own.std() == pytest.approx(1, rel=0.1)
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
    images = np.random.default_rng(0).uniform(-1, 1, (3, SIDE, SIDE)).astype(np.float32)
    call = MAKERS[name](images, LABELS[:3], TABLE1)
    once, again = call() - images, call() - images
    moves = [*once, *again]
    assert all(abs(a - b).max() > 0.01 for a, b in itertools.combinations(moves, 2))


@pytest.mark.gpu
def test_kornia_does_the_same_on_a_gpu():
    if baselines.import_error("kornia") or not baselines.sees_gpu("torch"):
        pytest.skip("kornia, an optional baseline, is not installed or sees no GPU")
    test_angle_depends_on_the_label("kornia, GPU")
