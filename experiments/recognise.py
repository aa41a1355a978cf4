"""Recognise digits in pictures of your own: photographs of paper, scans, drawings.

Prints for each picture the digit that the net saw, and its guesses. A picture shows one digit,
dark on light or light on dark, in any colours and of any size; it is cut out and centred as MNIST's
digits are. The net is that of --net, or else a pretrained one, or a run that is better.
Several nets are a committee, which averages their outputs.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deepbig import pretrained
from deepbig_runtime.errors import Problem, tell
from deepbig_runtime.faults import Fault
from experiments.results import trained
from experiments.training import cli, store
from experiments.training.formatting import csv_text, output_cells, printable

SHADES = " .:-=+*#%@"  # of ink, from none to all
N_GUESSES = 3


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = cli.Parser("recognise", __doc__)
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE", help="PNG, JPEG, ...")
    parser.add_argument(
        "--net",
        action="append",
        type=Path,
        metavar="FILE",
        help=f"{trained.NET_FILE}; may be given several times (default: {trained.DEFAULT})",
    )
    parser.add_argument(
        "--csv",
        action="store_true",
        help="print a table instead, for programs: image, guess, and all class probabilities",
    )
    return parser.parse_args(argv)


def drawing(pixels: np.ndarray) -> str:
    """A digit, uint8 (28, 28), as text: two rows of pixels a line."""
    shades = pixels.reshape(14, 2, 28).mean(axis=1) * (len(SHADES) - 1) / 255
    lines = ("".join(SHADES[k] for k in row).rstrip() for row in np.round(shades).astype(int))
    return "\n".join(f"  {line}".rstrip() for line in lines).strip("\n")


def guesses(outputs: np.ndarray, classes: Sequence[str]) -> str:
    """The most likely classes in words: '7 (99.8 %), 1 (0.1 %), 9 (0.1 %)'."""
    likely = np.argsort(-outputs, kind="stable")[:N_GUESSES]
    return ", ".join(f"{classes[place]} ({100 * outputs[place]:.1f} %)" for place in likely)


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
    found: list[tuple[Path, np.ndarray]] = []
    status = 0
    for path in arguments.images:
        try:
            found.append((path, trained.read_picture(path, config)))
        except Fault as fault:  # the other pictures are looked at all the same
            tell(f"error: {fault}")
            status = 2
    if found:
        outputs = trained.recognise(members, np.stack([pixels for _, pixels in found]))
        if arguments.csv:
            rows = [
                {"image": str(path)} | output_cells(row, config.class_names)
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
