"""Pictures of digits become what MNIST's digits are, however they were made."""

import numpy as np
import pytest
from PIL import Image, ImageDraw
from scipy import ndimage

from experiments.running import data, ink
from experiments.running.errors import Problem
from experiments.scoring.redrawn import (
    BLACK,
    WAYS,
    WHITE,
    coloured,
    enlarged,
    in_colour,
    moved,
    on_paper,
)

N = 40


@pytest.fixture(scope="module")
def digits():
    """Test digits, uint8 (N, 28, 28): of MNIST if it is there, else load_digits' in its place."""
    found = data.load_pixels("auto").test_images[:N]
    if found.shape[1:] == (28, 28):
        return found
    large = [Image.fromarray((15 * x).astype(np.uint8)).resize((20, 20)) for x in found]
    return np.stack([ink.centred(np.asarray(x, np.float32) / 255) for x in large])


@pytest.mark.parametrize(
    "way", [WAYS["as it is"], WAYS["large"], WAYS["inverted"], moved, in_colour, on_paper]
)
def test_a_digit_comes_back_as_it_was(way, digits, tmp_path):
    """Within a quarter of the ink, noise apart: it was cut out, scaled and centred anew."""
    rng = np.random.default_rng(0)
    path = tmp_path / "digit.png"
    off = []
    for digit in digits:
        Image.fromarray(way(digit, rng)).save(path)
        found = ink.read_digit(path)
        assert (found.shape, found.dtype) == ((28, 28), np.uint8)
        off.append(np.abs(found.astype(int) - digit).sum() / digit.sum(dtype=int))
    assert np.median(off) < (1 / 2 if way is on_paper else 1 / 4)
    assert np.quantile(off, 0.8) < (1 if way is on_paper else 1 / 2)  # the others moved by a pixel


def test_a_digit_is_20_pixels_long_and_its_centre_of_mass_in_the_middle(digits, tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "digit.png"
    for digit in digits:
        Image.fromarray(moved(digit, rng)).save(path)
        found = ink.read_digit(path)
        rows, columns = (np.flatnonzero(found.any(axis=axis)) for axis in (1, 0))
        assert 18 <= max(np.ptp(rows), np.ptp(columns)) + 1 <= 20
        assert np.abs(np.array(ndimage.center_of_mass(found)) - 14).max() < 0.6


def strokes(pixels):
    depth = ndimage.distance_transform_edt(
        np.asarray(Image.fromarray(pixels).resize((280, 280))) > 127
    )
    return 4 * depth[depth > 0].mean() / 10


@pytest.mark.parametrize(("change", "radius"), [("grey_dilation", 16), ("grey_erosion", 7)])
def test_strokes_become_as_wide_as_mnists(change, radius, digits, tmp_path):
    path = tmp_path / "digit.png"
    before, after = [], []
    for digit in digits[:20]:
        amount = (enlarged(digit, 12) > 0.5).astype(float)
        amount = getattr(ndimage, change)(amount, footprint=ink.disc(radius))
        if amount.max() == 0:
            continue  # nothing is left of it
        picture = coloured(np.pad(amount, 30), BLACK, WHITE)
        Image.fromarray(picture).save(path)
        whole = Image.fromarray((255 * amount).astype(np.uint8)).resize(
            (28, 28), Image.Resampling.BOX
        )
        before.append(strokes(np.asarray(whole)))
        after.append(strokes(ink.read_digit(path)))
    if change == "grey_dilation":
        assert np.median(after) < np.median(before) - 0.5
    else:
        assert np.median(after) > np.median(before) + 0.2
    assert ink.STROKES[0] - 0.5 < np.median(after) < ink.STROKES[1] + 0.7


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("side", [600, 1500])
def test_a_line_of_a_pixel_on_a_large_sheet_is_a_digit(width, side, tmp_path):
    image = Image.new("L", (side, side), 255)
    ImageDraw.Draw(image).ellipse(
        (0.1 * side, 0.05 * side, 0.9 * side, 0.95 * side), None, 0, width
    )
    found = ink.read_digit(_saved(image, tmp_path / "a.png"))
    assert found.max() == 255
    assert 40 < np.count_nonzero(found > 127) < 200


def test_nine_in_ten_of_mnists_strokes_are_usual():
    found = data.load_pixels("auto")
    if found.name != "MNIST":
        pytest.skip("MNIST is not here")
    widths = []
    for digit in found.train_images[:1000]:
        large = ink._resized(ink._cropped(digit / np.float32(255)), ink.FINE * ink.DIGIT_SIDE)
        widths.append(ink.stroke_width(np.pad(large, 2 * ink.FINE)))
    low, high = ink.STROKES
    usual = np.mean([low <= width <= high for width in widths])
    assert usual == pytest.approx(0.9, abs=0.05)
    assert np.median(widths) == pytest.approx(ink.USUAL_STROKE, abs=0.1)


def picture(digit, mode="RGB"):
    return Image.fromarray(WAYS["inverted"](digit, None)).convert(mode)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16", "F"])
def test_modes_of_pillow_are_all_the_same_digit(mode, digits, tmp_path):
    expected = ink.read_digit(_saved(picture(digits[0]), tmp_path / "a.png"))
    if mode == "I;16":
        found = Image.fromarray(np.asarray(picture(digits[0], "L"), np.uint16) * 257)
    else:
        found = picture(digits[0], mode)
    path = _saved(found, tmp_path / ("b.tif" if mode in ("F", "CMYK") else "b.png"))
    off = np.abs(ink.read_digit(path).astype(int) - expected)
    assert off.sum() / expected.sum(dtype=int) < (0.15 if mode in ("1", "P", "CMYK") else 0.02)


def _saved(image, path, **options):
    image.save(path, **options)
    return path


@pytest.mark.parametrize("colour", [WHITE, BLACK])
def test_transparent_paper_is_paper_under_light_ink_and_dark(colour, digits, tmp_path):
    amount = enlarged(digits[0], 8)
    pixels = np.zeros((*amount.shape, 4), np.uint8)
    pixels[..., :3], pixels[..., 3] = colour, np.round(255 * amount.clip(0, 1))
    found = ink.read_digit(_saved(Image.fromarray(pixels), tmp_path / "a.png"))
    expected = ink.read_digit(_saved(picture(digits[0]), tmp_path / "b.png"))
    assert np.abs(found.astype(int) - expected).mean() < 2


def test_a_photograph_is_turned_as_its_camera_says(digits, tmp_path):
    upright = picture(digits[0])
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: a quarter turn clockwise is needed
    turned = upright.transpose(Image.Transpose.ROTATE_90)
    path = _saved(turned, tmp_path / "a.jpg", quality=95, exif=exif)
    expected = ink.read_digit(_saved(upright, tmp_path / "b.png"))
    assert np.abs(ink.read_digit(path).astype(int) - expected).mean() < 3


def test_small_blots_are_left_out(digits, tmp_path):
    expected = ink.read_digit(_saved(picture(digits[0]), tmp_path / "a.png"))
    spotted = picture(digits[0])
    for place in ((3, 3), (215, 8), (8, 210)):
        spotted.paste((0, 0, 0), (*place, place[0] + 3, place[1] + 3))
    found = ink.read_digit(_saved(spotted, tmp_path / "b.png"))
    assert np.abs(found.astype(int) - expected).mean() < 2


def test_a_blot_of_light_ink_on_the_border_is_not_the_paper(digits, tmp_path):
    """What the border mostly shows is paper."""
    expected = ink.read_digit(_saved(picture(digits[0]), tmp_path / "a.png"))
    marked = picture(digits[0])
    marked.paste((120, 120, 120), (0, 100, 4, 130))
    found = ink.read_digit(_saved(marked, tmp_path / "b.png"))
    assert np.abs(found.astype(int) - expected).mean() < 4


def empty():
    return Image.new("RGB", (200, 100), "white")


def noisy():
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(0, 256, (200, 300, 3)).astype(np.uint8))


def landscape():
    """A dark half, a light half, and things."""
    image = Image.new("RGB", (300, 200), (90, 140, 220))
    image.paste((40, 110, 30), (0, 90, 300, 200))
    image.paste((200, 30, 30), (100, 60, 180, 150))
    return image


def two_digits(n=2):
    sheet = np.zeros((160, 160 * n))
    for k in range(n):
        sheet[30:130, 160 * k + 70 : 160 * k + 90] = 1
        sheet[30:50, 160 * k + 40 : 160 * k + 90] = 1
    return Image.fromarray(coloured(sheet, BLACK, WHITE))


def specks():
    rng = np.random.default_rng(0)
    image = Image.new("RGB", (400, 400), "white")
    for y, x in rng.integers(5, 395, (600, 2)):
        image.putpixel((int(x), int(y)), (0, 0, 0))
    return image


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (specks(), "it shows only small spots"),
        (
            two_digits().transpose(Image.Transpose.ROTATE_90),
            "it shows 2 digits one above the other",
        ),
        (empty(), "it shows no ink"),
        (noisy(), "it has no plain background|it shows"),
        (landscape(), "it has no plain background"),
        (two_digits(), "it shows 2 digits side by side; expected one"),
        (two_digits(3), "it shows 3 digits side by side; expected one"),
    ],
)
def test_what_shows_no_single_digit_is_refused(image, reason, tmp_path):
    path = _saved(image, tmp_path / "a.png")
    with pytest.raises(Problem, match=reason) as raised:
        ink.read_digit(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_a_digit_of_two_strokes_is_one(tmp_path):
    """As many write a five: the bar above does not touch."""
    sheet = np.zeros((200, 200))
    sheet[40:55, 90:150] = 1
    sheet[60:100, 70:85] = 1
    sheet[100:160, 110:130] = sheet[90:105, 70:130] = sheet[150:165, 70:130] = 1
    found = ink.read_digit(
        _saved(Image.fromarray(coloured(sheet, BLACK, WHITE)), tmp_path / "a.png")
    )
    assert found[4:8, 14:20].any()


def test_what_cannot_be_read_is_told_in_a_sentence(digits, tmp_path, monkeypatch):
    missing = tmp_path / "missing.png"
    with pytest.raises(Problem, match=r"cannot read .*missing.png: No such file or directory"):
        ink.read_digit(missing)
    with pytest.raises(Problem, match=r"cannot read .*: Is a directory|it is not a regular file"):
        ink.read_digit(tmp_path)
    text = tmp_path / "text.png"
    text.write_text("no picture at all")
    with pytest.raises(Problem, match="it is damaged, or no picture; expected one of PNG, JPEG"):
        ink.read_digit(text)
    text.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")
    with pytest.raises(Problem, match="it is damaged, or no picture"):  # Pillow would run a program
        ink.read_digit(text)
    whole = _saved(picture(digits[0]), tmp_path / "a.png").read_bytes()
    for n in (len(whole) // 2, 60, 10):
        text.write_bytes(whole[:n])
        with pytest.raises(Problem, match="it is damaged, or no picture"):
            ink.read_digit(text)
    monkeypatch.setattr(ink, "MAX_PIXELS", 50_000)  # it has a few more
    for limit in (100_000, 40_000, 10_000):  # of the last two Pillow warns, and refuses
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(Problem, match=r"it is too large: expected at most 0\.05 million"):
            ink.read_digit(tmp_path / "a.png")
