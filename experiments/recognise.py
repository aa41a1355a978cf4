"""Recognise digits in pictures of your own: photographs of paper, scans, drawings.

Prints for each picture the digit that the net saw, and its guesses. A picture shows one digit,
dark on light or light on dark, in any colours and of any size; it is cut out and centred as MNIST's
digits are.
The net is the best of the runs there are, or that of --net; several are a committee, which averages
their outputs. 'make table1' trains some.

With --redrawn no pictures are given: test digits of MNIST are redrawn as pictures in several ways.
Prints the number of errors and of undetected digits, next to those of the originals, and writes
them into redrawn.json.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from deepbig_runtime import files
from deepbig_runtime.errors import Problem
from experiments.datasets import data, ink
from experiments.results import redrawn, trained
from experiments.results.records import REDRAWN
from experiments.training import cli, provenance, store
from experiments.training.formatting import csv_text, printable
from experiments.training.messages import tell
from experiments.training.validation import to_json

SHADES = " .:-=+*#%@"  # of ink, from none to all
N_GUESSES = 3


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = cli.Parser("recognise", __doc__)
    parser.add_argument("images", nargs="*", type=Path, metavar="IMAGE", help="PNG, JPEG, ...")
    parser.add_argument(
        "--net",
        action="append",
        type=Path,
        metavar="FILE",
        help=f"{trained.NET_FILE}; may be given several times (default: the best run below "
        "$RUNS_DIR, or else runs)",
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


def guesses(outputs: np.ndarray) -> str:
    """The most likely classes in words: '7 (99.8 %), 1 (0.1 %), 9 (0.1 %)'."""
    likely = np.argsort(-outputs, kind="stable")[:N_GUESSES]
    return ", ".join(f"{digit} ({100 * outputs[digit]:.1f} %)" for digit in likely)


def count_redrawn(members: list[trained.NetFile], arguments: argparse.Namespace) -> None:
    """Print and record how many test digits of MNIST are recognised when they are redrawn."""
    dataset = data.load_pixels("mnist", arguments.data_dir)
    pixels, labels = (
        own[: arguments.redrawn] for own in (dataset.test_images, dataset.test_labels)
    )
    source = provenance.collect()
    files.make_folder(arguments.out)
    rows = []
    for row in redrawn.rows(members, pixels, labels):
        tell(f"{row.way}: {row.wrong} of {len(labels):,} wrong")
        rows.append(row)
    nets = " and ".join(
        f"{one.config.title}, after epoch {one.epoch:,} of {one.config.epochs:,}" for one in members
    )
    record = redrawn.RedrawnRecord(nets, len(labels), redrawn.SEED, rows, source.ended())
    files.replace(arguments.out / REDRAWN, to_json(record))
    print(redrawn.table(record))
    tell(f"written to {arguments.out}: {REDRAWN}")


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    paths = arguments.net or [trained.find_best(store.find_folder())]
    members = [trained.load(path) for path in paths]
    for path, member in zip(paths, members, strict=True):
        tell(f"net: {path}, {member.config.title}")
    if arguments.redrawn:
        count_redrawn(members, arguments)
        return 0
    found: list[tuple[Path, np.ndarray]] = []
    status = 0
    for path in arguments.images:
        try:
            found.append((path, ink.read_digit(path)))
        except Problem as problem:  # the other pictures are looked at all the same
            tell(f"error: {problem}")
            status = 2
    if found:
        outputs = trained.recognise(members, np.stack([pixels for _, pixels in found]))
        if arguments.csv:
            rows = [
                {"image": str(path), "guess": int(row.argmax())}
                | {f"p{digit}": float(value) for digit, value in enumerate(row)}
                for (path, _), row in zip(found, outputs, strict=True)
            ]
            sys.stdout.write(csv_text(rows))
        else:
            for (path, pixels), row in zip(found, outputs, strict=True):
                print(f"{printable(str(path))}: {guesses(row)}\n\n{drawing(pixels)}\n")
    return status


if __name__ == "__main__":
    cli.run(main)
