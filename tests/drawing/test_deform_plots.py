"""Figures of a digit deformed, and the numbers that they show."""

from dataclasses import replace

import numpy as np
import pytest
import reference_deform
from drawn import assert_readable
from matplotlib.colors import to_hex
from matplotlib.contour import ContourSet
from matplotlib.quiver import Quiver
from scipy import ndimage

from deform_gpu import TABLE1, Deformation, deform
from experiments.drawing import deform_plots
from experiments.drawing.deform_plots import SPACING, STRIPS, deform_one, strip, value_of
from experiments.drawing.figures import BLUE, VERMILION

PICTURES = "field", "strips", "widths"
SEED = 11
CENTRE = 14
# A rotation of up to 30 degrees, and sizes that differ from axis to axis; nothing elastic.
AFFINE = Deformation(
    sigma=5.5, alpha=0, beta=(30,) * 10, gamma_x=40, gamma_y=20, shear_probability=0
)
# As a user may choose it: no value is Table 1's, and one is 0.
CHOSEN = Deformation(sigma=6, alpha=100, beta=(20,) * 10, gamma_x=0, gamma_y=30, translation=10)


@pytest.fixture(scope="module")
def digit(digits):
    return deform_plots.find_digit(digits, 4, 0)


def shown(axes):
    (picture,) = axes.images
    return picture.get_array()


def test_a_digit_is_found_by_its_number(digits):
    places = np.flatnonzero(digits.train_labels == 7)
    for index in (0, len(places) - 1):
        digit = deform_plots.find_digit(digits, 7, index)
        assert (digit.image == digits.train_images[places[index]]).all()
        assert (digit.label, digit.name) == (7, f"load_digits, training image {places[index]}, a 7")


# Fields


@pytest.mark.parametrize("side", [29, 21, 28])
def test_images_are_read_at_the_source_positions(digit, side):
    deformation = replace(TABLE1, translation=20)
    digit = replace(digit, image=digit.image[:side, :side])
    source, target = deform_plots.source_positions(digit, deformation, SEED, 3)
    assert (target == np.indices((side, side))).all()
    image = digit.image.astype(float)
    expected = ndimage.map_coordinates(image, source, order=1, mode="grid-constant", cval=-1)
    assert deform_one(digit, deformation, SEED, 3) == pytest.approx(expected, abs=1e-4)


def test_field_shows_where_pixels_are_read(digit):
    original, *others = deform_plots.plot_field(digit, AFFINE, SEED).axes
    assert (shown(original) == digit.image).all()
    for epoch in range(deform_plots.N_FIELDS):
        arrows, lines, result = others[3 * epoch : 3 * epoch + 3]
        source, target = deform_plots.source_positions(digit, AFFINE, SEED, epoch)

        # Arrows end on pixels, a step apart, and begin where these are read.
        (quiver,) = (item for item in arrows.collections if isinstance(item, Quiver))
        assert (quiver.angles, quiver.scale_units, quiver.scale) == ("xy", "xy", 1)
        at = slice(SPACING // 2, None, SPACING)
        tails, heads = (yx[::-1, at, at].reshape(2, -1).T for yx in (source, target))
        np.testing.assert_allclose(quiver.XY, tails, atol=1e-4)
        np.testing.assert_allclose(quiver.XY + np.stack((quiver.U, quiver.V), 1), heads, atol=1e-4)

        # The pixels on a line of the grid are read on a line of the original, at a whole step.
        for axis, contours in enumerate(c for c in lines.collections if isinstance(c, ContourSet)):
            assert (np.diff(contours.levels) == SPACING).all()
            assert CENTRE in contours.levels
            for level, path in zip(contours.levels, contours.get_paths(), strict=True):
                at = path.vertices[:, ::-1].T
                read = ndimage.map_coordinates(source[axis], at, order=1, mode="nearest")
                assert read == pytest.approx(level, abs=1e-4)
        assert axis == 1

        # To the scale of the image, and drawn like it.
        for axes in (arrows, lines):
            for get in ("get_xlim", "get_ylim", "get_aspect"):
                assert getattr(axes, get)() == getattr(result, get)()
        assert (shown(result) == deform_one(digit, AFFINE, SEED, epoch)).all()


# Strips


@pytest.mark.parametrize("kind", STRIPS)
@pytest.mark.parametrize("deformation", [TABLE1, CHOSEN])
def test_a_strip_goes_from_none_to_strong(kind, deformation, digit):
    epoch, values, steps = strip(kind, 4, deformation, SEED)
    assert len(values) == len(steps) >= 8
    assert values == [0, *sorted(values[1:], reverse=kind == "sigma")]
    assert {value_of(kind, 4, TABLE1), value_of(kind, 4, deformation)} <= set(values)

    # Nothing is on but what the row is about, and that is what is written under the image.
    for value, step in list(zip(values, steps, strict=True))[1:]:
        assert value_of(kind, 4, step) == value
        assert step.sigma == (value if kind == "sigma" else deformation.sigma)
        assert step.alpha == {"alpha": value, "sigma": deformation.alpha}.get(kind, 0)
        assert step.beta == ((value if kind in ("rotation", "shear") else 0),) * 10
        sizes = [value if kind == name else 0 for name in ("gamma_x", "gamma_y")]
        assert [step.gamma_x, step.gamma_y] == sizes
        assert step.shear_probability == (kind == "shear")

    def strength(step):
        source, target = deform_plots.source_positions(digit, step, SEED, epoch)
        return np.square(source - target).mean()

    images = [deform_one(digit, step, SEED, epoch) for step in steps]
    assert (images[0] == digit.image).all()
    assert (np.diff([strength(step) for step in steps]) > 0).all()


@pytest.mark.parametrize("kind", ["rotation", "shear", "gamma_x", "gamma_y"])
def test_a_strip_takes_the_first_epoch_with_a_strong_number(kind):
    _, number, _ = STRIPS[kind]
    for seed in (0, SEED, 2**64 - 1):
        epoch, _, _ = strip(kind, 4, TABLE1, seed)
        numbers = [reference_deform.affine_numbers(seed, e, 0)[number] for e in range(epoch + 1)]
        assert [abs(u) > 0.8 for u in numbers] == [False] * epoch + [True]
        assert deform_plots.random_factor(number, seed, epoch) == numbers[-1]


def test_strips_are_labelled_and_marked(digit):
    rows = {}
    for axes in deform_plots.plot_strips(digit, CHOSEN, SEED).axes:
        rows.setdefault(axes.get_subplotspec().rowspan.start, []).append(axes)
    for (kind, (text, number, _)), row in zip(STRIPS.items(), rows.values(), strict=True):
        epoch, values, steps = strip(kind, 4, CHOSEN, SEED)
        if number is not None:
            text += f"\nfactor {deform_plots.random_factor(number, SEED, epoch):.2f}"
        assert row[0].get_ylabel() == text
        assert [axes.get_xlabel() for axes in row] == ["none", *(f"{v:g}" for v in values[1:])]
        for axes, value, step in zip(row, values, steps, strict=True):
            assert (shown(axes) == deform_one(digit, step, SEED, epoch)).all()
            colours = {value_of(kind, 4, CHOSEN): VERMILION, value_of(kind, 4, TABLE1): BLUE}
            colour = to_hex(axes.spines["left"].get_edgecolor()).upper()
            assert colour == colours.get(value, "#000000")


# Widths


@pytest.mark.parametrize(("label", "narrow"), [(1, True), (4, False), (8, False)])
def test_widths_are_as_labelled(label, narrow, digits):
    digit = deform_plots.find_digit(digits, label, 0)
    if narrow:
        image = np.full_like(digit.image, -1)
        image[2:22, 5:9] = 0.5
        digit = replace(digit, image=image)
    figure = deform_plots.plot_widths(digit, TABLE1, SEED)
    assert ("not normalised" in figure._supxlabel.get_text()) == narrow
    titles = ["original", "WN10", "WN12", "WN14", "WN16", "WN18", "WN20"]
    for title, above, below in zip(titles, figure.axes[:7], figure.axes[7:], strict=True):
        image = np.asarray(shown(above))
        columns, rows = (np.flatnonzero((image > -1).any(axis)) for axis in (0, 1))
        width, height = np.ptp(columns) + 1, np.ptp(rows) + 1
        assert (above.get_title(), above.get_xlabel()) == (title, str(width))
        (box,) = above.patches
        assert box.get_bbox().bounds == (columns[0] - 0.5, rows[0] - 0.5, width, height)
        if narrow or title == "original":
            assert (image == digit.image).all()
        else:
            assert width == int(title[2:])
        expected = deform(image[None], np.array([label]), TABLE1, SEED, 0)[0]
        assert (shown(below) == expected).all()


@pytest.mark.parametrize("name", PICTURES)
def test_captions_have_parameters_and_labels_do_not_overlap(name, digit):
    draw = getattr(deform_plots, f"plot_{name}")
    assert draw(digit, CHOSEN, SEED)._suptitle.get_text() == (
        "load_digits, training image 9, a 4, seed 11\n"
        "σ = 6 pixels, α = 100 pixels, β = 20°, γx = 0 %, γy = 30 %"
    )
    one = replace(digit, label=1, name="load_digits, training image 59999, a 1")
    long = Deformation(5.123, 36.789, (12.345,) * 10, 12.345, 12.345)
    assert_readable(draw(one, long, 2**64 - 1))
