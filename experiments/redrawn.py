"""How well pictures of digits are recognised: test digits of MNIST, redrawn in several ways.

Each is drawn large, with broad strokes, with a thin pen, inverted, somewhere on a large sheet, in
colours, and as on paper lit from one side; then cut out and centred as 'make recognise' does, and
shown to the net. Prints how many are wrong, and of how many no digit was found, beside the digits
themselves. All of it goes into redrawn.json. Takes some minutes.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage
from tqdm import tqdm

from deepbig_runtime import files
from experiments.running import cli, data, ink, provenance, store
from experiments.running.messages import tell
from experiments.running.validation import to_json
from experiments.scoring import redrawn_table, trained
from experiments.scoring.records import REDRAWN
from experiments.scoring.redrawn_table import RedrawnRecord, RedrawnRow

SEED = 0
WHITE, BLACK = (255, 255, 255), (0, 0, 0)
BROADER = 9  # pixels at every edge, of strokes of some 30
PEN = 4  # radius of a thin one, pixels

Way = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def enlarged(digit: np.ndarray, times: int) -> np.ndarray:
    """A digit, uint8, so many times as large: float64 from 0 to 1."""
    side = times * len(digit)
    large = Image.fromarray(digit).resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(large, np.float64) / 255


def coloured(amount: np.ndarray, ink_colour: object, paper: object) -> np.ndarray:
    """A picture, uint8 (height, width, 3), of so much ink of one colour on paper of another."""
    amount = amount[..., None]
    picture = amount * np.array(ink_colour) + (1 - amount) * np.array(paper)
    return np.round(picture).clip(0, 255).astype(np.uint8)


def itself(digit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return coloured(digit / 255, WHITE, BLACK)


def large(digit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return coloured(enlarged(digit, 12), WHITE, BLACK)


def inverted(digit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return coloured(enlarged(digit, 8), BLACK, WHITE)


def broad(digit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    sharp = (enlarged(digit, 12) > 0.5).astype(float)
    return coloured(ndimage.grey_dilation(sharp, footprint=ink.disc(BROADER)), BLACK, WHITE)


def thin(digit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Drawn along the middle of each stroke, which is farther from paper than what is beside."""
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
    "as it is": itself,
    "large": large,
    "inverted": inverted,
    "broad strokes": broad,
    "a thin pen": thin,
    "on a large sheet": moved,
    "in colours": in_colour,
    "on paper lit from one side": on_paper,
}


def measure(
    members: list[trained.NetFile], pixels: np.ndarray, labels: np.ndarray, way: Way
) -> tuple[int, int]:
    """How many digits, redrawn in a way, are wrong or not found, and how many are not found."""
    rng, seen, found = np.random.default_rng(SEED), np.zeros_like(pixels), []
    for k, digit in enumerate(tqdm(pixels, leave=False, unit=" digits")):
        try:
            seen[k] = ink.centred(ink.find_ink(way(digit, rng).astype(np.float32)))
            found.append(k)
        except ink.NoDigit:
            pass
    right = trained.recognise(members, seen).argmax(axis=1) == labels
    return len(labels) - int(right[found].sum()), len(labels) - len(found)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with ranges checked."""
    parser = cli.Parser("redrawn", __doc__)
    parser.add_argument(
        "--net",
        type=Path,
        metavar="FILE",
        help=f"{trained.NET_FILE} (default: the best run below $RUNS_DIR, or else runs)",
    )
    parser.add_argument(
        "--n",
        type=cli.integer(1, 10_000),
        default=2000,
        metavar="N",
        help="test digits, the first N (default: %(default)s)",
    )
    cli.add_data_dir_argument(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/redrawn"),
        metavar="DIR",
        help="folder for redrawn.json (default: %(default)s)",
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    path = arguments.net or trained.find_best(store.find_folder())
    member = trained.load(path)
    dataset = data.load_pixels("mnist", arguments.data_dir)
    pixels, labels = dataset.test_images[: arguments.n], dataset.test_labels[: arguments.n]
    source = provenance.collect()
    files.make_folder(arguments.out)
    directly = trained.recognise([member], pixels).argmax(axis=1) != labels
    rows = [RedrawnRow("MNIST's own", int(directly.sum()), 0)]
    for name, way in WAYS.items():
        tell(f"{name} ...")
        rows.append(RedrawnRow(name, *measure([member], pixels, labels, way)))
    net = f"{member.config.title}, after epoch {member.epoch:,} of "
    net += f"{member.config.epochs:,}"
    record = RedrawnRecord(net, len(labels), SEED, rows, source.ended())
    files.replace(arguments.out / REDRAWN, to_json(record))
    print(redrawn_table.table(record))
    tell(f"written to {arguments.out}: {REDRAWN}")


if __name__ == "__main__":
    cli.run(main)
