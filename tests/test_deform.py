"""deform_gpu against tests/reference_deform.py, and what the papers ask of the deformations."""

import dataclasses
import json
import math

import numpy as np
import pytest
import reference_deform as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal, stats

from deform_gpu import COMMITTEE, TABLE1, Deformation, deform
from deform_gpu.batches import make_displacement, make_matrices
from deform_gpu.field import FIELD, INNER, convolve_field, fill_field, gaussian_weights
from deform_gpu.philox import philox4x32, philox4x32_formula, uniform, uniform_formula
from deform_gpu.warp import bilinear, inverse_affine, inverse_affine_formula

EPS = np.finfo(np.float32).eps
TINY = np.finfo(np.float32).smallest_subnormal
SEED = 2**40 * 77 + 5  # both halves of the key in use
IDENTITY = Deformation(sigma=5.5, alpha=0, beta=(0,) * 10, gamma_x=0, gamma_y=0)
BETAS = (15, 7.5, 45, 30, 1, 60, 20, 5, 10, 40)  # every digit another one


def make_images(n):
    """Noise in [-1, 1], in which no error of position hides, and labels."""
    rng = np.random.default_rng(n)
    return rng.uniform(-1, 1, (n, 29, 29)).astype(np.float32), rng.integers(0, 10, n)


# philox.py ----------------------------------------------------------------------------------------

# Random123, kat_vectors: philox4x32, 10 rounds. Counter, key, result.
KNOWN = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5e169c58dbc57ac4c9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d41c83b0ea20bc7c66d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe0994fdcceb5001e42024126ea1",
    ),
]


@pytest.mark.parametrize("function", [philox4x32, philox4x32_formula])
@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_philox_gives_the_published_answers(function, counter, key, result):
    counter = [int(word, 16) for word in counter.split()]
    key = [int(word, 16) for word in key.split()]
    words = function(*map(np.uint32, counter + key))
    assert "".join(f"{word:08x}" for word in words) == result
    assert "".join(f"{int(word):08x}" for word in reference.philox(counter, key)) == result


@pytest.mark.parametrize("function", [uniform, uniform_formula])
def test_uniform_is_exact(function):
    words = [0, 255, 256, 2**31 - 1, 2**31, 2**32 - 257, 2**32 - 256, 123456789, 2**32 - 1]
    values = np.array([function(np.uint32(word)) for word in words])
    assert (values == reference.uniform(words)).all()
    assert values[0] == -1
    assert values[-1] == 1 - 2.0**-23


# field.py -----------------------------------------------------------------------------------------


def make_random_field(epoch=3, batch=4):
    field = np.full((2, FIELD, FIELD), np.nan, np.float32)
    key = map(np.uint32, reference.key_of(SEED))
    fill_field(field, *key, np.uint32(epoch), np.uint32(batch))
    return field


def test_random_field_equals_the_reference_and_leaves_the_margin_alone():
    field = make_random_field()
    inner = (slice(None), slice(10, 300), slice(10, 300))
    assert (field[inner] == reference.random_field(SEED, 3, 4)[inner]).all()
    assert np.isnan(field).sum() == 2 * (FIELD**2 - INNER**2)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (144, 289), (145, 0), (289, 289), (200, 31)])
def test_cell_of_the_random_field_is_computable_alone(row, column):
    counter = (row % 145 * 290 + column, 4, 3, 0)
    words = philox4x32(*map(np.uint32, counter + reference.key_of(SEED)))
    first = 2 * (row // 145)
    expected = [uniform(np.uint32(word)) for word in words[first : first + 2]]
    assert (make_random_field()[:, 10 + row, 10 + column] == expected).all()


def test_random_field_is_uniform():
    values = make_random_field()[:, 10:300, 10:300].astype(np.float64)
    n = values.size
    assert values.min() >= -1
    assert values.max() < 1
    assert abs(values.mean()) < 5 * math.sqrt(1 / 3 / n)
    assert abs(values.var() - 1 / 3) < 5 * math.sqrt((1 / 5 - 1 / 9) / n)
    assert stats.kstest(values.ravel(), stats.uniform(-1, 2).cdf).pvalue > 1e-3
    # No cell resembles its neighbours, its other axis or the cell that shares its Philox call.
    y, x = values
    for a, b in [(y, x), (y[1:], y[:-1]), (x[:, 1:], x[:, :-1]), (y[:145], y[145:])]:
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / math.sqrt(a.size)


@pytest.mark.parametrize("sigma", [1e-200, 0.1, 5.5, 6.0, 1e4])
def test_gaussian_weights_are_the_normalised_kernel(sigma):
    weights = gaussian_weights(sigma)
    assert weights.dtype == np.float32
    with np.errstate(over="ignore"):  # the reference squares 1e201
        kernel = reference.gaussian_kernel(sigma)
    # Each weight is rounded once, to EPS / 2 of itself or, if it is tiny, to a whole TINY.
    assert (abs(np.outer(weights, weights.astype(float)) - kernel) <= 2 * EPS * kernel + TINY).all()
    assert abs(weights.sum(dtype=np.float64) - 1) <= EPS


@pytest.mark.parametrize("shape", [(1, 1), (1, 33), (31, 1), (97, 35), (INNER, INNER)])
@pytest.mark.parametrize("taps", [1, 4, 21])
def test_convolution_equals_the_reference(shape, taps):
    rng = np.random.default_rng(taps)
    # Weights of no symmetry; for them Listing 1.1 computes a correlation.
    weights = rng.uniform(-1, 1, taps).astype(np.float32)
    field = rng.uniform(-1, 1, np.add(shape, taps - 1)).astype(np.float32)
    alpha = np.float32(36.7)
    out = np.full(shape, np.nan, np.float32)
    convolve_field(out, field, weights, alpha)
    kernel = float(alpha) * np.outer(weights.astype(float), weights.astype(float))
    expected = signal.correlate2d(field.astype(float), kernel, mode="valid")
    terms = signal.correlate2d(abs(field.astype(float)), abs(kernel), mode="valid")
    # n = taps**2 terms: sqrt(n) = taps; each also carries the roundings of two products and alpha.
    assert (abs(out - expected) <= (taps + 2) * EPS * terms).all()


def displacement_tolerance(epoch, batch, sigma, alpha):
    """As in the convolution's test: sqrt(n) * EPS * sum|terms|, and each weight rounded."""
    kernel = alpha * reference.gaussian_kernel(sigma)
    field = reference.random_field(SEED, epoch, batch)
    terms = np.array([signal.convolve2d(abs(axis), kernel, mode="valid") for axis in field])
    return (21 + 4) * EPS * terms


@pytest.mark.parametrize(("sigma", "alpha"), [(5.5, 37), (0.2, 3), (100, 500), (6, 0)])
def test_displacement_equals_the_reference(sigma, alpha):
    deformation = dataclasses.replace(TABLE1, sigma=sigma, alpha=alpha)
    actual = make_displacement(deformation, SEED, 3, 4)
    expected = reference.displacement(SEED, 3, 4, sigma, alpha)
    assert (abs(actual - expected) <= displacement_tolerance(3, 4, sigma, alpha)).all()


# warp.py ------------------------------------------------------------------------------------------


def inverse_affine_tolerance(u, beta, gamma_x, gamma_y, shear_probability):
    """Bound of the rounding errors of M^-1, entry by entry.

    The angle carries three roundings, so at most 2 EPS of itself, which a tangent amplifies by
    1 + tan^2; sine, cosine and tangent add an EPS; a scale is off by 2 EPS; then a division.
    """
    angle = np.deg2rad(abs(u[1] * beta))
    scale = np.array([1 + u[3] * gamma_y / 100, 1 + u[2] * gamma_x / 100])[:, None]
    inverse = np.linalg.inv(reference.affine(u, beta, gamma_x, gamma_y, shear_probability))
    turn = abs(inverse) * scale
    turn_error = EPS * (2 * angle * (1 + np.tan(angle) ** 2) + turn)
    return (turn_error + turn * 2 * EPS / scale) / scale + EPS * abs(inverse)


@pytest.mark.parametrize("function", [inverse_affine, inverse_affine_formula])
@given(
    u=st.tuples(*[st.integers(-(2**23), 2**23 - 1).map(lambda i: i / 2**23)] * 4),
    beta=st.sampled_from([0.0, 7.5, 15.0, 45.0, 80.0]),
    gamma_x=st.sampled_from([0.0, 12.5, 50.0, 99.0]),
    gamma_y=st.sampled_from([0.0, 17.5, 50.0, 99.0]),
    shear_probability=st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(deadline=None, max_examples=200)
def test_inverse_affine_inverts_the_reference(
    function, u, beta, gamma_x, gamma_y, shear_probability
):
    parameters = (beta, gamma_x, gamma_y, shear_probability)
    actual = np.reshape(function(*map(np.float32, u + parameters)), (2, 2))
    expected = np.linalg.inv(reference.affine(u, *parameters))
    assert (abs(actual - expected) <= inverse_affine_tolerance(u, *parameters)).all()


@pytest.mark.parametrize(
    ("u", "shear_probability", "source", "target"),
    [
        ((0, 1, 0, 0), 0, (0, 10), (50**0.5, 50**0.5)),  # clockwise: what was right goes down
        ((0, -1, 0, 0), 0, (10, 0), (50**0.5, 50**0.5)),
        ((0, 1, 0, 0), 1, (10, 0), (10, 10)),  # tan 45 degrees = 1: as far right as it is low
        ((0, 1, 0, 0), 1, (0, 10), (0, 10)),
        ((0, 0, 0.5, 0), 0, (10, 10), (10, 12)),  # 20 % wider
        ((0, 0, 0, -0.5), 0, (10, 10), (9, 10)),  # 10 % lower
        ((0, 1, 0.5, 0), 1, (10, 10), (10, 22)),  # scaled first, then sheared
        ((0, 1, 0, -0.5), 1, (10, 10), (9, 19)),
    ],
)
def test_affine_moves_points_as_the_paper_says(u, shear_probability, source, target):
    parameters = map(np.float32, (*u, 45, 40, 20, shear_probability))
    inverse = np.reshape(inverse_affine(*parameters), (2, 2))
    assert (abs(inverse @ target - source) <= 100 * EPS).all()


def test_bilinear_equals_the_reference():
    rng = np.random.default_rng(29)
    image = make_images(1)[0][0]
    special = [-1, -1 + 1e-7, -0.5, -1e-7, -0.0, 0, 1e-7, 13.25, 27.5, 28, 28.5, 29 - 2e-6, 29, 40]
    y, x = map(np.ravel, np.meshgrid(special, special))
    y = np.concatenate((y, rng.uniform(-2, 31, 5000))).astype(np.float32)
    x = np.concatenate((x, rng.uniform(-2, 31, 5000))).astype(np.float32)
    background = np.float32(-0.7)
    actual = np.array(
        [bilinear(image, *position, background) for position in zip(y, x, strict=True)]
    )
    expected = reference.ndimage.map_coordinates(
        image.astype(float), (y, x), order=1, mode="grid-constant", cval=float(background)
    )
    # Three interpolations, each of two roundings of numbers up to 2, and one of the fraction.
    assert (abs(actual - expected) <= 10 * EPS).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_bilinear_far_away_is_background(bad):
    image, background = make_images(1)[0][0], np.float32(-0.7)
    assert bilinear(image, np.float32(bad), np.float32(3), background) == background
    assert bilinear(image, np.float32(3), np.float32(bad), background) == background


# deform -------------------------------------------------------------------------------------------

MIXED = Deformation(5.5, 37, BETAS, 17.5, 30)
EXTREMES = {
    "Table 1": TABLE1,
    "committee": COMMITTEE,
    "each digit its beta": MIXED,
    "sigma small": dataclasses.replace(MIXED, sigma=0.2, alpha=2),
    "sigma large": dataclasses.replace(MIXED, sigma=50, alpha=300),
    "affine only": dataclasses.replace(MIXED, alpha=0),
    "elastic only": dataclasses.replace(MIXED, beta=(0,) * 10, gamma_x=0, gamma_y=0),
    "shears only": dataclasses.replace(MIXED, beta=(45,) * 10, shear_probability=1),
    "rotations only": dataclasses.replace(MIXED, beta=(45,) * 10, shear_probability=0),
    "gamma_x only": dataclasses.replace(IDENTITY, gamma_x=50),
    "gamma_y only": dataclasses.replace(IDENTITY, gamma_y=50),
    "background": dataclasses.replace(MIXED, gamma_x=50, gamma_y=50, background=0.25),
}


def deform_tolerance(labels, deformation, epoch):
    """Error of the source position, times how steep an image can be, for every pixel."""
    n = len(labels)
    tolerance = np.empty((n, 29, 29))
    target = np.indices((29, 29)) - 14
    for i in range(n):
        if i % 100 == 0:
            arguments = (epoch, i // 100, deformation.sigma, deformation.alpha)
            field = abs(reference.displacement(SEED, *arguments))
            field_error = displacement_tolerance(*arguments)
        row, column = divmod(i % 100, 10)
        own = (slice(None), slice(29 * row, 29 * row + 29), slice(29 * column, 29 * column + 29))
        parameters = (
            reference.affine_numbers(SEED, epoch, i),
            deformation.beta[labels[i]],
            deformation.gamma_x,
            deformation.gamma_y,
            deformation.shear_probability,
        )
        inverse = np.linalg.inv(reference.affine(*parameters))
        matrix_error = np.tensordot(inverse_affine_tolerance(*parameters), abs(target), 1)
        # Two products and three sums of these terms.
        rounding = 3 * EPS * (14 + np.tensordot(abs(inverse), abs(target), 1) + field[own])
        # Neighbouring pixels in [-1, 1] differ by 2 at most. The rest as in the bilinear test.
        position_error = (field_error[own] + matrix_error + rounding).sum(axis=0)
        tolerance[i] = 2 * position_error + 10 * EPS
    return tolerance


@pytest.mark.parametrize("name", EXTREMES)
def test_deform_equals_the_reference(name):
    deformation = EXTREMES[name]
    images, labels = make_images(113)  # a whole batch and a part of one
    out = np.full_like(images, np.nan)
    assert deform(images, labels, deformation, SEED, 3, out) is out
    expected = reference.deform(images, labels, deformation, SEED, 3)
    assert (abs(out - expected) <= deform_tolerance(labels, deformation, 3)).all()
    assert not np.isclose(out, images, atol=0.1).all()


def test_deforming_by_nothing_gives_the_image_back_bit_for_bit():
    images, labels = make_images(113)
    assert deform(images, labels, IDENTITY, SEED).tobytes() == images.tobytes()


def test_results_depend_on_neither_number_nor_threads_nor_time():
    images, labels = make_images(313)
    expected = deform(images, labels, MIXED, SEED, 3, threads=1)
    for n, threads in [(313, 2), (313, 3), (313, 9), (313, None), (1, 2), (99, 1), (201, 2)]:
        out = np.full((n, 29, 29), np.nan, np.float32)
        deform(images[:n], labels[:n].astype(np.uint8), MIXED, SEED, 3, out, threads)
        assert out.tobytes() == expected[:n].tobytes()


def test_images_are_not_modified_and_may_be_read_only():
    images, labels = make_images(5)
    images.flags.writeable = False
    assert deform(images, labels).shape == (5, 29, 29)


def test_no_images():
    images, labels = make_images(0)
    assert deform(images, labels).shape == (0, 29, 29)


def test_every_image_epoch_and_seed_is_deformed_its_own_way():
    image = make_images(1)[0]
    images, labels = np.repeat(image, 201, axis=0), np.zeros(201, int)
    sets = [
        deform(images, labels, deformation, seed, epoch)
        for deformation in (EXTREMES["affine only"], EXTREMES["elastic only"])
        for seed, epoch in [(0, 0), (0, 1), (1, 0), (2**32, 0), (2**64 - 1, 2**32 - 1)]
    ]
    results = np.concatenate(sets).reshape(-1, 841)
    assert len(np.unique(results, axis=0)) == len(results)


def test_angles_and_scales_are_distributed_as_the_paper_says():
    n = 60_000
    labels = np.arange(n) % 10
    deformation = dataclasses.replace(MIXED, shear_probability=0.25)
    matrices = np.linalg.inv(make_matrices(labels, deformation, SEED, 7).astype(float))
    shear = matrices[:, 0, 1] == 0
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
        ]
    )
    for numbers in drawn:
        for some in (numbers[shear], numbers[~shear]):
            assert stats.kstest(some, stats.uniform(-1, 2).cdf).pvalue > 1e-3
    for digit in range(10):
        largest = abs(drawn[0, labels == digit]).max()  # of 6,000 numbers
        assert 0.99 < largest < 1 + 1e-3
    correlations = np.corrcoef(np.vstack((drawn, shear)))
    assert (abs(correlations - np.eye(4)) < 5 / math.sqrt(n)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((3, 29, 29))}, "images is float64"),
        ({"images": [[0.0]]}, "images is list"),
        ({"images": np.zeros((3, 28, 28), np.float32)}, "images has shape"),
        ({"images": np.zeros((3, 841), np.float32)}, "images has shape"),
        ({"images": np.zeros((3, 29, 58), np.float32)[:, :, ::2]}, "images has shape"),
        ({"labels": np.zeros(2, int)}, "2 labels for 3 images"),
        ({"labels": np.zeros((3, 1), int)}, "labels are"),
        ({"labels": 3}, "labels are"),
        ({"labels": np.zeros(3)}, "labels are float64"),
        ({"labels": np.array([0, 10, 0])}, "from 0 to 10"),
        ({"labels": np.array([0, -1, 0])}, "from -1 to 0"),
        ({"out": np.zeros((3, 29, 29))}, "out is float64"),
        ({"out": np.zeros((4, 29, 29), np.float32)}, "out has shape"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is"),
        ({"epoch": -1}, "epoch is -1"),
        ({"epoch": 2**32}, "epoch is"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_bad_input_is_refused(change, message):
    good = {"images": np.zeros((3, 29, 29), np.float32), "labels": np.zeros(3, int)}
    with pytest.raises(ValueError, match=message):
        deform(**(good | change))


def test_out_must_be_memory_of_its_own():
    images = np.zeros((6, 29, 29), np.float32)
    labels = np.zeros(3, int)
    for out in (images[:3], images[2:5]):
        with pytest.raises(ValueError, match="overlaps"):
            deform(images[:3], labels, out=out)
    out = np.zeros((3, 29, 29), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        deform(images[:3], labels, out=out)


# parameters.py ------------------------------------------------------------------------------------


def test_presets_are_the_papers():
    assert (TABLE1.sigma, TABLE1.alpha, TABLE1.gamma_x, TABLE1.gamma_y) == (5.5, 37, 17.5, 17.5)
    assert TABLE1.beta == (15, 7.5, 15, 15, 15, 15, 15, 7.5, 15, 15)
    assert (TABLE1.shear_probability, TABLE1.background) == (0.5, -1)
    assert dataclasses.astuple(COMMITTEE) == (6, 36, (12.5,) * 10, 12.5, 12.5, 0, -1)


def test_parameters_survive_json():
    stored = json.dumps(dataclasses.asdict(TABLE1))
    assert Deformation(**json.loads(stored)) == TABLE1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sigma", [0, -1, math.inf]),
        ("alpha", [-0.1, math.inf]),
        ("beta", [(15,) * 9, (15,) * 11, (15,) * 9 + (90,), (-90,) + (15,) * 9]),
        ("gamma_x", [-1, 100]),
        ("gamma_y", [-1, 100]),
        ("shear_probability", [-0.1, 1.1]),
        ("background", [math.inf]),
    ],
)
def test_parameters_out_of_range_are_refused(name, values):
    not_a_number = (math.nan,) * 10 if name == "beta" else math.nan
    for value in [*values, not_a_number]:
        with pytest.raises(ValueError, match=f"^{name} is .* expected"):
            dataclasses.replace(TABLE1, **{name: value})
