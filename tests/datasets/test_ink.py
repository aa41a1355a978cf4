"""Pictures of digits become 28x28 pixels like MNIST's, however they were made."""

import numpy as np
import pytest
from PIL import Image, ImageDraw
from scipy import ndimage

from deepbig_runtime.errors import Problem
from deepbig_runtime.files import FileFault
from experiments.datasets import data, ink

N = 40
BICUBIC = Image.Resampling.BICUBIC
WHITE, BLACK = (255, 255, 255), (0, 0, 0)


def enlarged(digit, times):
    """A digit, enlarged by a factor: float from 0 to 1."""
    side = times * len(digit)
    return np.asarray(Image.fromarray(digit).resize((side, side), BICUBIC), float) / 255


def coloured(amount, ink_colour, paper):
    """Paper of one colour with an amount of ink, 0 to 1, of another."""
    picture = amount[..., None] * np.array(ink_colour) + (1 - amount[..., None]) * np.array(paper)
    return np.round(picture).clip(0, 255).astype(np.uint8)


def as_it_is(digit, rng=None):
    return coloured(digit / 255, WHITE, BLACK)


def inverted(digit, rng=None):
    return coloured(enlarged(digit, 8), BLACK, WHITE)


def moved(digit, rng):
    amount = enlarged(digit, 8)
    sheet = np.zeros((2 * len(amount), 3 * len(amount)))
    y, x = rng.integers(0, np.array(sheet.shape) - len(amount))
    sheet[y : y + len(amount), x : x + len(amount)] = amount
    return coloured(sheet, BLACK, WHITE)


def on_paper(digit, rng):
    """Blue on yellowish paper that is lit from one side, with the noise of a camera."""
    picture = coloured(enlarged(digit, 8), (40, 40, 90), (230, 225, 210))
    lit = picture * np.linspace(0.6, 1, len(picture))[:, None, None]
    return (lit + rng.normal(0, 4, lit.shape)).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def digits():
    """load_digits' test digits with sharp strokes, uint8 (N, 28, 28)."""
    found = []
    for small in data.load_pixels("digits").test_images[:N]:
        large = Image.fromarray(15 * small).resize((80, 80), BICUBIC)
        found.append(ink.centred((np.asarray(large, np.float32) / 120 - 0.8).clip(0, 1)))
    return np.stack(found)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "digit.png"


def read(image, path, **options):
    """The digit in a picture, which is saved first; options: of Pillow."""
    image.save(path, **options)
    return ink.read_digit(path)


@pytest.mark.parametrize("way", [as_it_is, inverted, moved, on_paper])
def test_a_digit_comes_back_centred(way, digits, path):
    """Within a quarter of the ink, noise apart: it was cut out, scaled and centred anew."""
    rng = np.random.default_rng(0)
    off = []
    for digit in digits:
        found = read(Image.fromarray(way(digit, rng)), path)
        assert (found.shape, found.dtype) == ((28, 28), np.uint8)
        off.append(np.abs(found.astype(int) - digit).sum() / digit.sum(dtype=int))
        if way is moved:
            rows, columns = (np.flatnonzero(found.any(axis=axis)) for axis in (1, 0))
            assert 18 <= max(np.ptp(rows), np.ptp(columns)) + 1 <= 20
            assert np.abs(np.array(ndimage.center_of_mass(found)) - 14).max() < 0.6
    assert np.median(off) < (1 / 2 if way is on_paper else 1 / 4)
    assert np.quantile(off, 0.8) < (1 if way is on_paper else 1 / 2)  # the others moved by a pixel


@pytest.mark.parametrize(
    ("side", "width", "n_dark"),
    [(600, 1, 100), (1500, 1, 100), (1500, 4, 100), (600, 150, 150), (1500, 400, 150)],
)
def test_strokes_of_a_ring_become_as_wide_as_mnists(side, width, n_dark, path):
    """Thin lines on a large sheet and thick ones; unchanged they had 40 to 46 or 244 pixels."""
    image = Image.new("L", (side, side), 255)
    box = 0.1 * side, 0.05 * side, 0.9 * side, 0.95 * side
    ImageDraw.Draw(image).ellipse(box, None, 0, width)
    found = read(image, path)
    assert found.max() == 255
    assert np.count_nonzero(found > 127) == pytest.approx(n_dark, abs=15)


def picture(digit, mode="RGB"):
    return Image.fromarray(inverted(digit)).convert(mode)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16", "F"])
def test_modes_of_pillow_are_all_the_same_digit(mode, digits, path):
    expected = read(picture(digits[9]), path)
    if mode == "I;16":
        found = Image.fromarray(np.asarray(picture(digits[9], "L"), np.uint16) * 257)
    else:
        found = picture(digits[9], mode)
    path = path.with_suffix(".tif" if mode in ("F", "CMYK") else ".png")
    off = np.abs(read(found, path).astype(int) - expected)
    assert off.sum() / expected.sum(dtype=int) < (0.15 if mode in ("1", "P", "CMYK") else 0.02)


def test_pictures_of_16_bits_may_use_fewer(digits, path):
    grey = np.asarray(picture(digits[0], "L"), np.float64)
    found = read(Image.fromarray(np.rint(grey * (2**10 - 1) / 255).astype(np.uint16)), path)
    expected = read(picture(digits[0]), path)
    assert np.abs(found.astype(int) - expected).mean() < 0.5


def on_glass(colour):
    """Ink of one colour on transparent paper."""

    def change(digit):
        amount = enlarged(digit, 8)
        pixels = np.zeros((*amount.shape, 4), np.uint8)
        pixels[..., :3], pixels[..., 3] = colour, np.round(255 * amount.clip(0, 1))
        return Image.fromarray(pixels)

    return change


def with_margin(digit):
    """A sheet of paper, transparent beyond its edges."""
    sheet = picture(digit)
    image = Image.new("RGBA", (sheet.width + 40, sheet.height + 60))
    image.paste(sheet, (20, 40))
    return image


def spotted(digit):
    image = picture(digit)
    for place in ((3, 3), (215, 8), (8, 210)):
        image.paste((0, 0, 0), (*place, place[0] + 3, place[1] + 3))
    return image


@pytest.mark.parametrize(
    ("change", "most"),
    [(on_glass(WHITE), 2), (on_glass(BLACK), 2), (with_margin, 2), (spotted, 2)],
)
def test_a_changed_picture_is_the_same_digit(change, most, digits, path):
    expected = read(picture(digits[0]), path)
    assert np.abs(read(change(digits[0]), path).astype(int) - expected).mean() < most


def test_a_photograph_is_turned_as_its_camera_says(digits, path):
    # The camera was turned: a quarter turn clockwise is needed. The resolution is no number.
    tags = b"\x12\x01\3\0\1\0\0\0\6\0\0\0" + b"\x1a\x01\2\0\2\0\0\0?\0\0\0"
    exif = b"Exif\0\0II*\0\x08\0\0\0\2\0" + tags + bytes(4)
    expected = read(picture(digits[0]), path)
    turned = picture(digits[0]).transpose(Image.Transpose.ROTATE_90)
    found = read(turned, path.with_suffix(".jpg"), quality=95, exif=exif)
    assert np.abs(found.astype(int) - expected).mean() < 3


def landscape():
    """A dark half, a light half, and things."""
    image = Image.new("RGB", (300, 200), (90, 140, 220))
    image.paste((40, 110, 30), (0, 90, 300, 200))
    image.paste((200, 30, 30), (100, 60, 180, 150))
    return image


def several():
    sheet = np.zeros((160, 320))
    for k in range(2):
        sheet[30:130, 160 * k + 70 : 160 * k + 90] = 1
        sheet[30:50, 160 * k + 40 : 160 * k + 90] = 1
    return Image.fromarray(coloured(sheet, BLACK, WHITE))


def specks():
    image = Image.new("RGB", (400, 400), "white")
    for y, x in np.random.default_rng(0).integers(5, 395, (600, 2)):
        image.putpixel((int(x), int(y)), (0, 0, 0))
    return image


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (specks(), "it shows only small spots"),
        (several().transpose(Image.Transpose.ROTATE_90), "it shows 2 digits one above the other"),
        (Image.new("RGB", (200, 100), "white"), "it shows no ink"),
        (Image.fromarray(np.indices((8, 8)).sum(0).astype(np.uint8) % 2 * 255), "it shows no ink"),
        (landscape(), "it has no plain background"),
        (several(), "it shows 2 digits side by side; expected one"),
    ],
)
def test_a_picture_without_a_single_digit_is_refused(image, reason, path):
    with pytest.raises(Problem, match=f"^{path}: ({reason})"):
        read(image, path)


def test_a_digit_of_two_strokes_is_one(path):
    """As many write a five: the bar above does not touch."""
    sheet = np.zeros((200, 200))
    sheet[40:55, 90:150] = 1
    sheet[60:100, 70:85] = 1
    sheet[100:160, 110:130] = sheet[90:105, 70:130] = sheet[150:165, 70:130] = 1
    found = read(Image.fromarray(coloured(sheet, BLACK, WHITE)), path)
    assert found[4:8, 14:20].any()


def test_an_unreadable_picture_is_refused(digits, path, monkeypatch):
    with pytest.raises(FileFault, match=rf"cannot read {path}: No such file or directory"):
        ink.read_digit(path)
    picture(digits[0]).save(path)
    whole = path.read_bytes()
    damaged = [b"no picture at all", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n"]
    for content in (*damaged, *(whole[:n] for n in (len(whole) // 2, 60, 10))):
        path.write_bytes(content)
        # For PostScript Pillow would run a program.
        with pytest.raises(Problem, match="it is damaged, or no picture; expected one of PNG, JP"):
            ink.read_digit(path)
    path.write_bytes(whole)
    monkeypatch.setattr(ink.reading, "MAX_PIXELS", 50_000)  # it has a few more
    for limit in (100_000, 40_000, 10_000):  # of the last two Pillow warns, and refuses
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(Problem, match=r"is too large: expected at most 0\.05 million"):
            ink.read_digit(path)
