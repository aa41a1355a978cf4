"""Recognise digits in pictures of your own: photographs of paper, scans, drawings.

Prints for each picture the digit that the net saw, and its guesses. A picture shows one digit,
dark on light or light on dark, in any colours and of any size; it is cut out and centred as MNIST's
digits are. The net is that of --net, or else the best of the runs, or else a pretrained one.
Several nets are a committee, which averages their outputs.

With --redrawn no pictures are given: test digits of MNIST are redrawn as pictures in several ways.
Prints the number of errors and of undetected digits, next to those of the originals, and writes
them into redrawn.json.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage
from tqdm import tqdm

from deepbig import pretrained
from deepbig_runtime import files
from deepbig_runtime.errors import Problem, tell
from experiments.datasets import data, ink
from experiments.results import trained
from experiments.results.record_tables import redrawn_table
from experiments.results.records import REDRAWN, RedrawnRecord, RedrawnRow
from experiments.training import cli, provenance, store
from experiments.training.formatting import csv_text, output_cells, printable
from experiments.training.validation import to_json

SHADES = " .:-=+*#%@"  # of ink, from none to all
N_GUESSES = 3
SEED = 0  # of redrawn digits
WHITE, BLACK = (255, 255, 255), (0, 0, 0)
BROADER = 9  # pixels at every edge, of strokes of some 30
PEN = 4  # radius of a thin one, pixels

Way = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = cli.Parser("recognise", __doc__)
    parser.add_argument("images", nargs="*", type=Path, metavar="IMAGE", help="PNG, JPEG, ...")
    parser.add_argument(
        "--net",
        action="append",
        type=Path,
        metavar="FILE",
        help=f"{trained.NET_FILE}; may be given several times (default: {trained.DEFAULT})",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--csv",
        action="store_true",
        help="print a table instead, for programs: image, guess, and all class probabilities",
    )
    instead.add_argument(
        "--redrawn",
        nargs="?",
        type=cli.integer(1, 10_000),
        const=2000,
        metavar="N",
        help="redraw the first N test digits of MNIST, which takes some minutes (default: "
        "%(const)s)",
    )
    cli.add_data_dir_argument(parser)
    cli.add_out_argument(parser, "folder for redrawn.json", "runs/redrawn")
    arguments = parser.parse_args(argv)
    if arguments.redrawn and arguments.images:
        parser.error(f"--redrawn draws its pictures itself, got {arguments.images[0]}")
    if not (arguments.redrawn or arguments.images):
        parser.error("expected pictures, or --redrawn")
    return arguments


def drawing(pixels: np.ndarray) -> str:
    """A digit, uint8 (28, 28), as text: two rows of pixels a line."""
    shades = pixels.reshape(14, 2, 28).mean(axis=1) * (len(SHADES) - 1) / 255
    lines = ("".join(SHADES[k] for k in row).rstrip() for row in np.round(shades).astype(int))
    return "\n".join(f"  {line}".rstrip() for line in lines).strip("\n")


def guesses(outputs: np.ndarray, classes: Sequence[str]) -> str:
    """The most likely classes in words: '7 (99.8 %), 1 (0.1 %), 9 (0.1 %)'."""
    likely = np.argsort(-outputs, kind="stable")[:N_GUESSES]
    return ", ".join(f"{classes[place]} ({100 * outputs[place]:.1f} %)" for place in likely)


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
    sharp = (enlarged(digit, 12) > 0.5).astype(float)
    return coloured(ndimage.grey_dilation(sharp, footprint=ink.disc(BROADER)), BLACK, WHITE)


def thin(digit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Drawn along the middle of each stroke, the ridge of the distance from paper."""
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
    """Dark on light, or light on dark, at random."""
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


def count_redrawn(members: list[trained.NetFile], arguments: argparse.Namespace) -> None:
    """Print and record how many test digits of MNIST are recognised when they are redrawn."""
    dataset = data.load_pixels("mnist", arguments.data_dir)
    pixels, labels = (
        own[: arguments.redrawn] for own in (dataset.test_images, dataset.test_labels)
    )
    source = provenance.collect()
    files.make_folder(arguments.out)
    wrong = np.count_nonzero(trained.recognise(members, pixels).argmax(axis=1) != labels)
    rows = []
    for name in ("MNIST's own", *WAYS):
        counts = measure(members, pixels, labels, WAYS[name]) if name in WAYS else (int(wrong), 0)
        rows.append(RedrawnRow(name, *counts))
        tell(f"{name}: {counts[0]} of {len(labels):,} wrong")
    nets = " and ".join(
        f"{one.config.title}, after epoch {one.epoch:,} of {one.config.epochs:,}" for one in members
    )
    record = RedrawnRecord(nets, len(labels), SEED, rows, source.ended())
    files.replace(arguments.out / REDRAWN, to_json(record))
    print(redrawn_table(record))
    tell(f"written to {arguments.out}: {REDRAWN}")


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    paths = arguments.net or [trained.find_best(store.find_folder(), pretrained.FILES)]
    members = [trained.load(path) for path in paths]
    for path, member in zip(paths, members, strict=True):
        tell(f"net: {path}, {member.described}")
    config = members[0].config
    for path, member in zip(paths, members, strict=True):
        if member.config.data.sha256 != config.data.sha256:
            raise Problem(f"{path} and {paths[0]} are of nets for different data; name the same")
    if arguments.redrawn:
        count_redrawn(members, arguments)
        return 0
    found: list[tuple[Path, np.ndarray]] = []
    status = 0
    for path in arguments.images:
        try:
            found.append((path, trained.read_picture(path, config)))
        except Problem as problem:  # the other pictures are looked at all the same
            tell(f"error: {problem}")
            status = 2
    if found:
        outputs = trained.recognise(members, np.stack([pixels for _, pixels in found]))
        if arguments.csv:
            rows = [
                {"image": str(path)} | output_cells(row)
                for (path, _), row in zip(found, outputs, strict=True)
            ]
            sys.stdout.write(csv_text(rows))
        else:
            for (path, pixels), row in zip(found, outputs, strict=True):
                print(f"{printable(str(path))}: {guesses(row, config.class_names)}\n")
                if trained.is_for_pictures(config):
                    print(f"{drawing(pixels)}\n")
    return status


if __name__ == "__main__":
    cli.run(main)
