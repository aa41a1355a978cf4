"""The papers' numbers: long trainings one after another, which take several nights on two cores.

Trains what is not finished of this list, in its order and at low priority. With --hours it stops
in time. Ctrl-C stops it too; the same command goes on after the last whole epoch, to the same bits.
'python -m experiments.watch runs/nightly' shows how far each training is and when it will be done.
"""

import argparse
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

from experiments.running import cli, store
from experiments.running.errors import Problem
from experiments.running.messages import tell
from experiments.running.processes import run_until

LOW_PRIORITY = 19  # of 19


@dataclass(frozen=True)
class Step:
    """A command of the project: its module in experiments/, options, and folder below --out."""

    title: str
    command: str
    options: str
    folder: str


# Guesses, where the papers have no such training: the epochs, and learning rates that end at 1e-4,
# where a net hardly changes any more.
STEPS = (
    Step("net 1, the paper's 2,300 epochs", "table1", "--nets 1 --profile paper", "paper"),
    Step("20M-60M-100M-150N, the paper's 500 epochs", "cnn", "--nets 3 --profile paper", "paper"),
    Step(
        "the same with two more seeds, 34 epochs",
        "cnn",
        "--nets 3 --seeds 1,2 --epochs 34 --eta 2e-3 --eta-decay 0.91",
        "cnn34",
    ),
    Step("seven convolutional layers, 17 epochs", "cnn", "--nets 4 --epochs 17", "cnn17"),
    Step(
        "experiments 6 and 3, 100 epochs",
        "committee",
        "--experiment 6,3 --epochs 100 --eta 3e-3 --eta-decay 0.966",
        "committee100",
    ),
    Step(
        "net 4, 100 epochs",
        "table1",
        "--nets 4 --epochs 100 --eta 2e-3 --eta-decay 0.97",
        "net4",
    ),
    Step(
        "nets 1 and 2 without distortion, 60 epochs",
        "table1",
        "--nets 1,2 --epochs 60 --eta-decay 0.96 --no-distortion",
        "undeformed",
    ),
    Step(
        "experiments 1 to 6, 100 epochs",
        "committee",
        "--epochs 100 --eta 3e-3 --eta-decay 0.966",
        "committee100",
    ),
    Step("seven convolutional layers, 500 epochs", "cnn", "--nets 4 --profile paper", "deep"),
)
MIXED = "a mixed committee, which has no row in the papers"
# Its members; of the committees' nets those of the widths, deformed.
MIXED_OF = "paper/*", "cnn34/*", "cnn17/*", "deep/*", "net4/*", "committee100/WN??-seed*"


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with ranges checked."""
    listed = "\n".join(f"  {number}. {step.title}" for number, step in enumerate(STEPS, start=1))
    parser = cli.Parser("nightly", __doc__, f"the list:\n{listed}\n  and {MIXED}")
    parser.add_argument(
        "--hours",
        type=cli.number(0.01, 10_000),
        metavar="H",
        help="stop after so long (default: when all is done)",
    )
    parser.add_argument(
        "--free-core", action="store_true", help="leave one core of this machine to other programs"
    )
    cli.add_data_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/nightly"),
        metavar="DIR",
        help="folder for run files and tables, in folders of their own (default: %(default)s)",
    )
    return parser.parse_args(argv)


def leave_a_core() -> None:
    """Compute on all cores but one from now on, child processes too. Raises Problem."""
    if not hasattr(os, "sched_setaffinity"):
        raise Problem("--free-core needs Linux, where a process can be kept off a core")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise Problem("--free-core needs two cores at least, and this process may use only one")
    os.sched_setaffinity(0, cores[1:])


def mixed_members(folder: Path) -> list[Path]:
    """The run files below a folder that the mixed committee is made of.

    All are trained to their end, and tested on the same data as the first of them.
    """
    paths = [path for path in store.run_files(folder) if any(map(path.match, MIXED_OF))]
    runs = {path: store.read_run(path) for path in paths}
    finished = {path: run.config.data.sha256 for path, run in runs.items() if run.finished}
    first = next(iter(finished.values()), None)
    return [path for path, sha256 in finished.items() if sha256 == first]


def command_line(arguments: argparse.Namespace, step: Step) -> list[str]:
    """The command of a step, as it is typed behind 'python -m'."""
    options = [*step.options.split(), "--data", arguments.data]
    return [f"experiments.{step.command}", *options, *places(arguments, step.folder)]


def places(arguments: argparse.Namespace, folder: str) -> list[str]:
    """The options that say where a command finds the data, and where it writes."""
    data_dir = ["--data-dir", str(arguments.data_dir)] if arguments.data_dir else []
    return [*data_dir, "--out", str(arguments.out / folder)]


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    end = time.monotonic() + 3600 * (arguments.hours or math.inf)
    if arguments.free_core:
        leave_a_core()
    os.nice(LOW_PRIORITY)
    worst = 0
    for number, step in enumerate(STEPS, start=1):
        tell(f"--- {number} of {len(STEPS)}: {step.title}")
        status = run_until(command_line(arguments, step), end)
        if status is None:
            tell(f"stopped after {arguments.hours:g} hours; the same command goes on from there")
            return worst
        if status >= 128:  # somebody wants it to end, or the machine has too little memory
            return status
        worst = max(worst, status)
    tell(f"--- {MIXED}")
    members = mixed_members(arguments.out)
    if len(members) < 2:
        tell(f"it needs two nets at least, and {len(members)} of them was trained to its end")
        return max(worst, 1)
    command = ["experiments.committee", *map(str, members), *places(arguments, "mixed")]
    return max(worst, run_until(command, end) or 0)


if __name__ == "__main__":
    cli.run(main)
