"""The progress of trainings: a table in the terminal, from their run files alone.

Shows one line per run: epochs done, errors of the last epoch in percent, TEfBV (the test error of
the epoch with the lowest validation error), training images per second, the time left, and whether
it trains, has finished or was stopped. A run is called silent if no new epoch was saved for long,
though no end was written either. A run appears when its first epoch is saved, and one that was
resumed when its next epoch is. A run on a GPU is saved at the end of an epoch, at most every 5
seconds.

On a terminal the table is drawn again and again, until Ctrl-C. Files are only read, so no training
is disturbed.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from deepbig_runtime.errors import Interrupted, Problem
from deepbig_runtime.files import FileFault
from experiments.training import cli, store
from experiments.training.formatting import duration, plural
from experiments.training.store import Run

HEADINGS = ["run", "epoch", "valid", "test", "TEfBV", "rate", "left", "state"]
MIN_NAME_WIDTH = 8  # columns
MIN_STATE_WIDTH = 16  # columns; names are cut before states become narrower
SECONDS = 2  # between two drawings
RECENT = 9  # epochs, of whose times the median counts
MIN_SILENT_SECONDS, MIN_SILENT_EPOCHS = 60, 3  # without a new epoch
HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass
class Snapshot:
    """What was found in a run file.

    stamp: time of change and size; None if the file is to be read again in any case.
    written: when the file was written, seconds since 1970. run: without its outputs; None if the
    file cannot be read. fault: why it cannot be read.
    """

    stamp: tuple[int, int] | None
    written: float
    run: Run | None
    fault: str = ""


def scan(paths: list[Path], before: Mapping[Path, Snapshot]) -> dict[Path, Snapshot]:
    """The run files of `paths` and in folders among these; those that have changed are read.

    before: what the last scan found, also files that are gone by now.
    """
    found: dict[Path, None] = dict.fromkeys(before)
    for path in paths:
        found |= dict.fromkeys(store.run_files(path) if path.is_dir() else [path])
    return {path: _read(path, before.get(path)) for path in found}


def _read(path: Path, before: Snapshot | None) -> Snapshot:
    """The file as it is now, or `before` if the file has not changed."""
    try:
        found = path.stat()
        # Before the file is read: what is written in between is found by the next scan.
        stamp = found.st_mtime_ns, found.st_size
        if before and before.stamp == stamp:
            return before
        run = store.read_run(path)
    except (OSError, FileFault) as fault:
        refusal = fault.__cause__ or fault
        if isinstance(refusal, OSError):  # what fails once may work later
            return Snapshot(None, 0.0, None, f"cannot read it: {refusal.strerror}")
        return Snapshot(stamp, 0.0, None, str(fault).removeprefix(f"{path} "))
    run.outputs = run.labels = np.empty(0)  # large, and not shown
    return Snapshot(stamp, found.st_mtime, run)


def describe(path: Path, snapshot: Snapshot, now: float) -> list[str]:
    """A row of the table: the cells of a run under HEADINGS. now: seconds since 1970."""
    name, run = _printable(str(path).removesuffix(".h5")), snapshot.run
    if run is None:
        return [name, *["-"] * 6, _printable(snapshot.fault)]
    config, metrics, last = run.config, run.metrics, run.provenance[-1]
    n_test = config.data.n_test
    epoch, age = median(run.epoch_seconds[-RECENT:]), max(now - snapshot.written, 0.0)
    left = "-"
    if run.finished:
        state = "finished"
    elif last.end:
        state = f"stopped: {last.why}"
    elif age > max(MIN_SILENT_SECONDS, MIN_SILENT_EPOCHS * epoch):
        state = f"silent {duration(age)}"
    else:
        state = "training"
        left = duration(max((config.epochs - run.epochs) * epoch - age, 0.0))
    return [
        name,
        f"{run.epochs}/{config.epochs}",
        f"{100 * metrics.validation_errors[-1] / config.n_validation:.2f}",
        f"{100 * metrics.test_errors[-1] / n_test:.2f}",
        f"{100 * run.chosen_errors / n_test:.2f}",
        f"{config.data.n_train / metrics.train_seconds[-1]:.0f}",
        left,
        state,
    ]


def _printable(text: str) -> str:
    """A text without control characters, which the name of a file may hold."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def describe_all(snapshots: Mapping[Path, Snapshot], now: float) -> list[list[str]]:
    """The rows of all runs: the newest first, then those that cannot be read, then the finished.

    now: seconds since 1970.
    """

    def order(path: Path) -> tuple[bool, str]:
        run = snapshots[path].run
        return run is None or not run.finished, run.provenance[-1].start if run else ""

    paths = sorted(sorted(snapshots), key=order, reverse=True)
    return [describe(path, snapshots[path], now) for path in paths]


def table(rows: list[list[str]], width: int, height: int | None = None) -> list[str]:
    """The lines of the table, none wider than `width` columns, and at most `height` if given.

    Names that do not fit lose their begin, states their end. If there are too few lines, the last
    line says how many runs are not shown.
    """
    training = sum(row[-1] == "training" for row in rows)
    longest_name, *widths, longest_state = [
        max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)
    ]
    others = sum(widths) + len(widths) + 1 + min(longest_state, MIN_STATE_WIDTH)
    name_width = min(longest_name, max(width - others, MIN_NAME_WIDTH))
    lines = [f"{training} of {plural(len(rows), 'run')} training; errors in %, rate in images/s"]
    for name, *values, state in (HEADINGS, *rows):
        name = name if len(name) <= name_width else f"~{name[1 - name_width :]}"
        aligned = [value.rjust(wide) for value, wide in zip(values, widths, strict=True)]
        lines.append(" ".join([name.ljust(name_width), *aligned, state]))
    if height is not None and len(lines) > height:
        hidden = len(rows) - max(height - 3, 0)
        lines = [*lines[: height - 1], f"and {hidden} more"]
    return [line if len(line) <= width else line[: width - 1] + "~" for line in lines]


def draw(rows: list[list[str]]) -> str:
    """The table with the control sequences that draw it over the one before."""
    size = shutil.get_terminal_size()
    lines = table(rows, size.columns, max(size.lines - 1, 1))  # the last is for the cursor
    return HOME + "".join(f"{ERASE_LINE}{line}\n" for line in lines) + ERASE_BELOW


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("watch", __doc__)
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        default=[store.find_folder()],
        metavar="PATH",
        help="run files, and folders to search for them (default: $RUNS_DIR, or else runs)",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="print the table once, also on a terminal",
    )
    arguments = parser.parse_args(argv)
    paths = store.without_weights(arguments.paths)
    for path in paths:
        if not os.path.exists(path):  # Path.exists raises where a folder is closed
            raise Problem(
                f"there is no {path}: name run files or folders of them, or train one with "
                "'make table1'"
            )
    if not (snapshots := scan(paths, {})):
        raise Problem(
            f"there is no run in {', '.join(map(str, arguments.paths))}: train one with "
            "'make table1', or name another folder"
        )
    if arguments.once or not sys.stdout.isatty():
        width = shutil.get_terminal_size(fallback=(1000, 0)).columns  # a file takes long lines
        print("\n".join(table(describe_all(snapshots, time.time()), width)))
        return
    try:
        while True:
            snapshots = scan(paths, snapshots)
            print(draw(describe_all(snapshots, time.time())), end="", flush=True)
            time.sleep(SECONDS)
    except Interrupted as interrupted:
        if interrupted.signum != signal.SIGINT:
            raise
        print()


if __name__ == "__main__":
    cli.run(main)
