"""Deformed images against tests/references/reference_deform.py; arguments that are refused.

Then the steps of a deformation: random numbers, weights of the field, warps.
"""

import dataclasses
import math

import numpy as np
import pytest
import reference_deform as reference
from deform_cases import (
    EPS,
    EXTREMES,
    IDENTITY,
    MIXED,
    SEED,
    deform_tolerance,
    inverse_affine_tolerance,
    make_images,
)
from executed import ENGINE_DEVICES, on_device
from hypothesis import given, settings
from hypothesis import strategies as st

from deepbig_runtime import gpu
from deform_gpu import COMMITTEE, TABLE1, batches, deform, warp
from deform_gpu.batches import deform_set
from deform_gpu.field import gaussian_weights
from deform_gpu.philox import philox4x32, philox4x32_formula, uniform, uniform_formula
from deform_gpu.warp import inverse_affine, inverse_affine_formula, offset, offset_formula


@pytest.mark.parametrize("name", EXTREMES)
def test_deform_equals_the_reference(name):
    deformation = EXTREMES[name]
    images, labels = make_images(113)  # a whole batch and a part of one
    out = np.full_like(images, np.nan)
    deform_set(out, images, labels, deformation, SEED, 3)
    expected = reference.deform(images, labels, deformation, SEED, 3)
    assert (abs(out - expected) <= deform_tolerance(labels, deformation, 3)).all()
    assert not np.isclose(out, images, atol=0.1).all()


@pytest.mark.parametrize(
    ("side", "n", "first"), [(1, 120, 0), (8, 33, 190), (28, 9, 3), (64, 5, 0), (29, 1, 2**32 - 1)]
)
def test_deform_of_any_size_at_any_place_equals_the_reference(side, n, first):
    images, labels = make_images(n, side)
    out = deform(images, labels, MIXED, SEED, 3, first)
    expected = reference.deform(images, labels, MIXED, SEED, 3, first)
    assert (abs(out - expected) <= deform_tolerance(labels, MIXED, 3, first, side)).all()


def test_deforming_by_nothing_gives_the_image_back_bit_for_bit():
    for side in (29, 12):
        images, labels = make_images(113, side)
        assert deform(images, labels, IDENTITY, SEED).tobytes() == images.tobytes()
        pixels = np.arange(256, dtype=np.uint8).repeat(9).reshape(256, 3, 3)
        assert deform(pixels, None, IDENTITY, SEED).tobytes() == pixels.tobytes()


def test_results_depend_on_neither_number_nor_threads_nor_time():
    images, labels = make_images(313)
    expected = deform(images, labels, MIXED, SEED, 3, threads=1)
    for n, threads in [(313, 2), (313, 3), (313, 9), (313, None), (1, 2), (99, 1), (201, 2)]:
        out = np.full((n, 29, 29), np.nan, np.float32)
        deform_set(out, images[:n], labels[:n].astype(np.uint8), MIXED, SEED, 3, threads=threads)
        assert out.tobytes() == expected[:n].tobytes()


@pytest.mark.parametrize("places", [(0, 1), (57, 58), (99, 101), (95, 205), (212, 213), (312, 313)])
def test_an_image_can_be_made_alone(places):
    images, labels = make_images(313)
    expected = deform(images, labels, MIXED, SEED, 3)
    some = slice(*places)
    found = deform(images[some], labels[some], MIXED, SEED, 3, first=places[0])
    assert found.tobytes() == expected[some].tobytes()


@pytest.mark.parametrize(
    ("places", "expected"),  # batch, first row of the grid, number of rows
    [((157, 161), [(1, 5, 2)]), ((0, 57), [(0, 0, 6)]), ((212, 313), [(2, 1, 9), (3, 0, 2)])],
)
def test_no_more_of_a_field_is_made_than_needed(monkeypatch, places, expected):
    made = []
    fill = batches._fill_displacement

    def watch(scratch, deformation, seed, epoch, batch, top):
        made.append((batch, top, scratch[1].shape[1]))
        return fill(scratch, deformation, seed, epoch, batch, top)

    monkeypatch.setattr(batches, "_fill_displacement", watch)
    images, labels = make_images(313, 1)
    some = slice(*places)
    deform(images[some], labels[some], TABLE1, SEED, 3, places[0], threads=1)
    assert made == expected


def test_uint8_images_are_those_of_the_papers():
    pixels = np.random.default_rng(5).integers(0, 256, (7, 12, 12), np.uint8)
    found = deform(pixels, None, COMMITTEE, SEED, 3)
    as_floats = deform(pixels / np.float32(127.5) - np.float32(1), None, COMMITTEE, SEED, 3)
    assert found.dtype == np.uint8
    assert (abs(found - (as_floats.astype(float) + 1) * 127.5) <= 0.5 + 1e-4).all()
    white = dataclasses.replace(COMMITTEE, background=1.5, gamma_x=90)  # too bright for uint8
    assert deform(pixels, None, white, SEED, 3).max() == 255


@pytest.mark.parametrize(("background", "pixel"), [(-1.5, 0), (0.5, 191), (1.5, 255)])
def test_background_of_uint8_images(background, pixel):
    far = dataclasses.replace(COMMITTEE, alpha=1e6, background=background)  # all is from outside
    found = deform(np.full((3, 5, 5), 77, np.uint8), None, far, SEED)
    assert (found == pixel).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ">f4"])
def test_floats_of_any_kind_and_layout_come_back_as_float32(dtype):
    images, labels = make_images(6)
    images = images.astype(np.float16).astype(dtype)
    expected = deform(images.astype(np.float32), labels)
    for some in (images, np.asfortranarray(images)):
        found = deform(some, labels)
        assert found.dtype == np.float32
        assert found.tobytes() == expected.tobytes()


def test_without_labels_all_are_turned_alike():
    images, labels = make_images(6)
    expected = deform(images, labels, COMMITTEE)
    assert deform(images, None, COMMITTEE).tobytes() == expected.tobytes()
    with pytest.raises(ValueError, match="labels are missing; expected one for each image"):
        deform(images)


def test_presets_are_the_papers():
    assert dataclasses.astuple(TABLE1)[:2] == (5.5, 37)
    assert dataclasses.astuple(TABLE1)[2] == (15, 7.5, 15, 15, 15, 15, 15, 7.5, 15, 15)
    assert dataclasses.astuple(TABLE1)[3:] == (17.5, 17.5, 0.5, -1, 0)
    assert dataclasses.astuple(COMMITTEE) == (6, 36, (12.5,) * 10, 12.5, 12.5, 0, -1, 0)


def test_deform_takes_no_images_lists_and_integers_of_numpy():
    images, labels = make_images(3)
    assert deform(images[:0], []).shape == (0, 29, 29)
    expected = deform(images, labels, MIXED, 5, 3, first=254, threads=2)
    images.flags.writeable = False
    numbers = {"seed": np.int32(5), "epoch": np.uint8(3), "first": np.uint8(254)}
    found = deform(images, labels.tolist(), MIXED, **numbers, threads=np.int8(2))
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": [[0.0]]}, "images is list; expected a NumPy array of uint8 or floats"),
        ({"images": np.zeros((3, 29, 29), int)}, "images is int64; expected a NumPy array of"),
        ({"images": np.zeros((3, 29, 28), np.float32)}, r"images has shape \(3, 29, 28\)"),
        ({"images": np.zeros((3, 0, 0))}, "images has shape"),
        ({"labels": np.zeros(2, int)}, "2 labels for 3 images"),
        ({"labels": np.zeros((3, 1), int)}, "labels are"),
        ({"labels": np.zeros(3)}, "labels are float64"),
        ({"labels": np.array([0, 10, 0])}, "from 0 to 10"),
        ({"labels": np.array([0, -1, 0])}, "from -1 to 0"),
        ({"seed": -1}, "seed is -1; expected an integer from 0 to 18446744073709551615"),
        ({"epoch": 1.5}, "epoch is 1.5"),
        ({"first": 1.5}, "first is 1.5"),
        ({"threads": 1.5}, "threads is 1.5"),
        ({"seed": 2**64}, "seed is"),
        ({"epoch": -1}, "epoch is -1"),
        ({"epoch": 2**32}, "epoch is"),
        ({"first": -1}, "first is -1"),
        ({"first": 2**32 - 2}, "first is 4294967294; expected an integer from 0 to 4294967293"),
        ({"device": "gpu"}, r"device is 'gpu'; expected one of \('cpu', 'cuda'\)"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_deform_of_bad_input_is_refused_on_cpu_and_gpu(change, message):
    good = {"images": np.zeros((3, 29, 29), np.float32), "labels": np.zeros(3, int)}
    with pytest.raises(ValueError, match=message):
        deform(**(good | change))
    if "threads" not in change:
        with on_device(ENGINE_DEVICES[0]), pytest.raises(ValueError, match=message):
            deform(**({"device": "cuda"} | good | change))


def test_a_missing_gpu_is_told(monkeypatch):
    monkeypatch.setattr(gpu, "missing", lambda: "the dog ate it")
    with pytest.raises(gpu.GpuFault, match="the dog ate it"):
        deform(*make_images(1), device="cuda")


def test_out_must_be_memory_of_its_own_and_as_expected():
    images, labels = np.zeros((6, 29, 29), np.float32), np.zeros(3, int)
    read_only = np.zeros((3, 29, 29), np.float32)
    read_only.flags.writeable = False
    for out, message in (
        (images[:3], "overlaps"),
        (images[2:5], "overlaps"),
        (read_only, "read-only"),
        (np.zeros((3, 29, 29)), "out is float64"),
        (np.zeros((4, 29, 29), np.float32), "out has shape"),
        (np.zeros((3, 29, 58), np.float32)[:, :, ::2], "out has shape"),
    ):
        with pytest.raises(ValueError, match=message):
            deform_set(out, images[:3], labels, TABLE1, 0, 0)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sigma", [0, -1, math.inf]),
        ("alpha", [-0.1, math.inf, 1e39]),
        ("beta", [(15,) * 9, (15,) * 11, (15,) * 9 + (90,), (-90,) + (15,) * 9]),
        ("gamma_x", [-1, 100]),
        ("gamma_y", [-1, 100]),
        ("shear_probability", [-0.1, 1.1]),
        ("background", [math.inf, -1e39]),
        ("translation", [-1, 100]),
    ],
)
def test_parameters_out_of_range_are_refused(name, values):
    not_a_number = (math.nan,) * 10 if name == "beta" else math.nan
    for value in [*values, not_a_number]:
        with pytest.raises(ValueError, match=f"^{name} is .* expected"):
            dataclasses.replace(TABLE1, **{name: value})


TINY = np.finfo(np.float32).smallest_subnormal


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


@pytest.mark.parametrize("sigma", [1e-200, 0.1, 5.5, 6.0, 1e4])
def test_gaussian_weights_are_the_normalised_kernel(sigma):
    weights = gaussian_weights(sigma)
    assert weights.dtype == np.float32
    with np.errstate(over="ignore"):  # the reference squares 1e201
        kernel = reference.gaussian_kernel(sigma)
    # Each weight is rounded once, to EPS / 2 of itself or, if it is tiny, to a whole TINY.
    assert (abs(np.outer(weights, weights.astype(float)) - kernel) <= 2 * EPS * kernel + TINY).all()
    assert abs(weights.sum(dtype=np.float64) - 1) <= EPS


# warp.py ------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("function", [offset, offset_formula])
def test_offset_without_translation_has_the_bits_of_the_formula_without_it(function):
    rng = np.random.default_rng(3)
    one = np.float32(1)
    for yy, yx, xy, xx, dy, dx, shift_y, shift_x in np.float32(rng.uniform(-2, 2, (1000, 8))):
        for zero in (np.float32(0), np.float32(-0.0)):
            found = function(yy, yx, zero, xy, xx, zero, dy, dx, shift_y, shift_x)
            assert found[0] == (yy - one) * dy + yx * dx + shift_y
            assert found[1] == xy * dy + (xx - one) * dx + shift_x


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_bilinear_far_away_is_background(bad):
    image, background, near = make_images(1)[0][0], np.float32(-0.7), np.float32(3)
    assert warp.bilinear_formula(image, 3, 4, np.float32(bad), near, background) == background
    assert warp.bilinear_formula(image, 3, 4, near, np.float32(bad), background) == background


@pytest.mark.parametrize("side", [5, 29])
def test_warp_has_the_bits_of_the_formula_at_every_distance(side):
    rng, background = np.random.default_rng(4), np.float32(-0.7)
    images = make_images(12, side)[0]
    matrices = np.zeros((12, 2, 3), np.float32)
    matrices[:, 0, 0] = matrices[:, 1, 1] = 1
    shift = rng.uniform(-side - 2, side + 2, (2, 10 * side, 10 * side)).astype(np.float32)
    shift[:, ::3] /= side  # most stay inside
    shift[:, ::4] = shift[:, ::4].round()
    ends = np.float32([np.nan, np.inf, -np.inf, 1e30, -side, side])
    shift.flat[::7] = rng.choice(ends, len(shift.flat[::7]))
    out = np.empty_like(images)
    warp.warp_batch(out, images, matrices, shift, 5, background)
    for (i, row, column), value in np.ndenumerate(out):
        y, x = (5 + i) // 10 * side + row, (5 + i) % 10 * side + column
        down, right = shift[:, y, x]
        expected = warp.bilinear_formula(images[i], row, column, down, right, background)
        assert value.tobytes() == expected.tobytes()
