"""Test digits redrawn as pictures in several ways: how many of them a net recognises.

Each is drawn large, with broad strokes, with a thin pen, inverted, somewhere on a large sheet, in
colours, and as on paper lit from one side; then cut out and centred as any picture, and shown to
the net.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct
from PIL import Image
from tqdm import tqdm

from experiments.datasets import ink
from experiments.results import trained
from experiments.training.formatting import markdown_table
from experiments.training.provenance import Source
from experiments.training.validation import Count, Text

SEED = 0
WHITE, BLACK = (255, 255, 255), (0, 0, 0)
BROADER = 9  # pixels at every edge, of strokes of some 30
PEN = 4  # radius of a thin one, pixels

Way = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def enlarged(digit: np.ndarray, times: int) -> np.ndarray:
    """A digit, uint8, enlarged by a factor `times`: float64 from 0 to 1."""
    side = times * len(digit)
    large = Image.fromarray(digit).resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(large, np.float64) / 255


def coloured(amount: np.ndarray, ink_colour: object, paper: object) -> np.ndarray:
    """A picture, uint8 (height, width, 3): paper of one colour, with an amount of ink of another.

    amount: float (height, width), 0 to 1.
    """
    amount = amount[..., None]
    picture = amount * np.array(ink_colour) + (1 - amount) * np.array(paper)
    return np.round(picture).clip(0, 255).astype(np.uint8)


def broad(digit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    from scipy import ndimage  # takes a while to import

    sharp = (enlarged(digit, 12) > 0.5).astype(float)
    return coloured(ndimage.grey_dilation(sharp, footprint=ink.disc(BROADER)), BLACK, WHITE)


def thin(digit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Drawn along the middle of each stroke, the ridge of the distance from paper."""
    from scipy import ndimage

    sharp = enlarged(digit, 12) > 0.5
    depth = ndimage.distance_transform_edt(sharp)
    middle = (sharp & (depth > ndimage.maximum_filter(depth, 3) - 0.6)).astype(float)
    return coloured(ndimage.grey_dilation(middle, footprint=ink.disc(PEN)), BLACK, WHITE)


def moved(digit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    amount = enlarged(digit, 8)
    sheet = np.zeros((2 * len(amount), 3 * len(amount)))
    y, x = rng.integers(0, np.array(sheet.shape) - len(amount))
    sheet[y : y + len(amount), x : x + len(amount)] = amount
    return coloured(sheet, BLACK, WHITE)


def in_colour(digit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Dark on light; light on dark for every other."""
    colours = rng.integers(0, 100, 3), rng.integers(140, 256, 3)
    return coloured(enlarged(digit, 8), *colours[:: rng.choice((1, -1))])


def on_paper(digit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Blue on yellowish paper that is lit from one side, with the noise of a camera."""
    picture = coloured(enlarged(digit, 8), (40, 40, 90), (230, 225, 210))
    lit = picture * np.linspace(0.6, 1, len(picture))[:, None, None]
    return (lit + rng.normal(0, 4, lit.shape)).clip(0, 255).astype(np.uint8)


WAYS: dict[str, Way] = {
    "as it is": lambda digit, rng: coloured(digit / 255, WHITE, BLACK),
    "large": lambda digit, rng: coloured(enlarged(digit, 12), WHITE, BLACK),
    "inverted": lambda digit, rng: coloured(enlarged(digit, 8), BLACK, WHITE),
    "broad strokes": broad,
    "a thin pen": thin,
    "on a large sheet": moved,
    "in colours": in_colour,
    "on paper lit from one side": on_paper,
}


class RedrawnRow(Struct, forbid_unknown_fields=True):
    """A way of drawing: how many digits are wrong, those included in which none was found."""

    way: Text
    wrong: Count
    not_found: Count


class RedrawnRecord(Struct, forbid_unknown_fields=True):
    """The record of 'recognise --redrawn'. n: number of digits. seed: of the drawings."""

    net: Text
    n: Count
    seed: Count
    rows: Annotated[list[RedrawnRow], Meta(min_length=1)]
    provenance: Source


def measure(
    members: Sequence[trained.NetFile], pixels: np.ndarray, labels: np.ndarray, way: Way
) -> tuple[int, int]:
    """How many digits, redrawn in a way, are wrong or not found, and how many are not found.

    members: of a committee, or one net. pixels: uint8 (n, 28, 28). labels: (n,).
    """
    rng, seen, found = np.random.default_rng(SEED), np.zeros_like(pixels), []
    for k, digit in enumerate(tqdm(pixels, leave=False, unit=" digits")):
        try:
            seen[k] = ink.centred(ink.find_ink(way(digit, rng).astype(np.float32)))
            found.append(k)
        except ink.NoDigit:
            pass
    right = trained.recognise(members, seen).argmax(axis=1) == labels
    return len(labels) - int(right[found].sum()), len(labels) - len(found)


def rows(
    members: Sequence[trained.NetFile], pixels: np.ndarray, labels: np.ndarray
) -> Iterator[RedrawnRow]:
    """The digits themselves, and then redrawn in each way. Takes some minutes for thousands."""
    wrong = trained.recognise(members, pixels).argmax(axis=1) != labels
    yield RedrawnRow("MNIST's own", int(wrong.sum()), 0)
    for name, way in WAYS.items():
        yield RedrawnRow(name, *measure(members, pixels, labels, way))


def table(record: RedrawnRecord) -> str:
    """A record as Markdown, with its source."""
    n, source = record.n, record.provenance
    lines = [
        {
            "digits": row.way,
            "wrong": f"{row.wrong} of {n:,}",
            "%": f"{100 * row.wrong / n:.2f}",
            "of these, no digit found": str(row.not_found),
        }
        for row in record.rows
    ]
    heading = f"{record.net}; {n:,} test digits, drawn with seed {record.seed}; "
    heading += f"{source.device}; {source.start[:10]}; commit {source.commit[:12]}:"
    return f"{heading}\n\n{markdown_table(lines)}"
