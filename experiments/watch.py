"""How trainings are getting on: a table in the terminal, from their run files alone.

Shows one line a run: epochs done, errors of the last epoch in percent, the best TEfBV so far,
training images a second, the time left, and whether it trains, has finished or was stopped. A run
is called silent if its process has not said that it stopped, and no epoch came for long. A run
without an epoch, and one that goes on without a new one, cannot be told from its file.

On a terminal the table is drawn again and again, until Ctrl-C. It only reads, so it disturbs no
training.
"""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from experiments.running import cli, store
from experiments.running.configs import count_validation
from experiments.running.errors import Interrupted, Problem, signals
from experiments.running.formatting import duration, plural
from experiments.running.store import Run
from mlp_gpu.files import FileFault

HEAD = ["run", "epoch", "valid", "test", "TEfBV", "rate", "left", "state"]
LEAST_NAME, LEAST_STATE = 8, 16  # columns a name always keeps, and a state while names give way
LEAST_SILENCE, SILENT_EPOCHS = 60, 3  # seconds, and mean epochs, without a new epoch
HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass
class Look:
    """What was found in a run file.

    stamp: what changes when the file does; None: read it again. written: when it was, seconds
    since 1970. run: without its outputs; None if the file cannot be read, and `fault` says why.
    """

    stamp: tuple[int, int, int] | None
    written: float
    run: Run | None
    fault: str = ""


class Watcher:
    """Looks at run files, again and again, and reads those that changed."""

    def __init__(self, paths: list[Path]):
        """paths: run files, and folders that are searched anew at every look.

        Raises Problem if a path is not there.
        """
        for path in paths:
            if not os.path.exists(path):  # Path.exists raises where a folder is closed
                raise Problem(
                    f"there is no {path}: name run files or folders of them, or train one with "
                    "'make table1'"
                )
        self._folders = [path for path in paths if path.is_dir()]
        self._root = paths[0] if paths == self._folders and len(paths) == 1 else None
        files = [path for path in paths if path not in self._folders]
        self._looks: dict[Path, Look | None] = dict.fromkeys(files)

    def look(self) -> dict[str, Look]:
        """All run files as they are now, by their names: those seen before that are gone, too.

        A name is the path without .h5; in the folder, if only one folder is watched.
        """
        for folder in self._folders:
            with contextlib.suppress(OSError):  # a folder in it was deleted just now
                self._looks = dict.fromkeys(store.run_files(folder)) | self._looks
        looks = {path: _read(path, look) for path, look in self._looks.items()}
        self._looks |= looks
        return {self._name(path): look for path, look in looks.items()}

    def _name(self, path: Path) -> str:
        if self._root:
            path = path.relative_to(self._root)
        return str(path).removesuffix(".h5")


def _read(path: Path, before: Look | None) -> Look:
    """The file as it is now, or `before` if that is still so."""
    try:
        found = path.stat()
        # Taken before the reading: what is written in between shows at the next look.
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
        if before and before.stamp == stamp:
            return before
        run = store.read_run(path)
    except OSError as error:
        return Look(None, 0.0, None, f"cannot read it: {error.strerror}")
    except FileFault as fault:
        if isinstance(fault.__cause__, OSError):  # what fails once may work later
            return Look(None, 0.0, None, f"cannot read it: {fault.__cause__.strerror}")
        return Look(stamp, 0.0, None, "damaged, or no run file")
    run.outputs = run.labels = np.empty(0)  # large, and not shown
    return Look(stamp, found.st_mtime, run)


def mean_epoch(run: Run, written: float) -> float:
    """The mean time, in seconds, of the epochs that the latest process of a run has done.

    written: when the run file was, seconds since 1970. The process has done as many epochs as fit
    between its start and then.
    """
    room = written - datetime.fromisoformat(run.provenance[-1]["start"]).timestamp()
    epochs = np.array(run.epoch_seconds[::-1])  # the last one first
    n = max(1, np.count_nonzero(np.cumsum(epochs) <= room))
    return float(epochs[:n].mean())


def describe(name: str, look: Look, now: float) -> list[str]:
    """The cells of a run under HEAD. now: seconds since 1970."""
    # A file's name may hold what would garble the terminal.
    name = "".join(letter if letter.isprintable() else "?" for letter in name)
    run = look.run
    if run is None:
        return [name, *["-"] * 6, look.fault]
    config, metrics, last = run.config, run.metrics, run.provenance[-1]
    n_test = config["data"]["n_test"]
    mean, age = mean_epoch(run, look.written), max(now - look.written, 0.0)
    left = "-"
    if run.finished:
        state = "finished"
    elif last["end"]:
        state = f"stopped: {last['why']}"
    elif age > max(LEAST_SILENCE, SILENT_EPOCHS * mean):
        state = f"silent {_short(age)}"
    else:
        state = "training"
        left = _short(max((config["epochs"] - run.epochs) * mean - age, 0.0))
    return [
        name,
        f"{run.epochs}/{config['epochs']}",
        f"{100 * metrics['validation_errors'][-1] / count_validation(config):.2f}",
        f"{100 * metrics['test_errors'][-1] / n_test:.2f}",
        f"{100 * run.chosen_errors / n_test:.2f}",
        f"{config['data']['n_train'] / metrics['train_seconds'][-1]:.0f}",
        left,
        state,
    ]


def _short(seconds: float) -> str:
    return duration(seconds).replace(" days, ", "d ").replace(" day, ", "d ")


def describe_all(looks: dict[str, Look], now: float) -> list[list[str]]:
    """The cells of all runs: the newest first, then those that cannot be read, then the finished.

    now: seconds since 1970.
    """

    def start(name: str) -> str:
        run = looks[name].run
        return run.provenance[-1]["start"] if run else ""

    def is_finished(name: str) -> bool:
        run = looks[name].run
        return run is not None and run.finished

    names = sorted(sorted(looks), key=start, reverse=True)
    names.sort(key=is_finished)
    return [describe(name, looks[name], now) for name in names]


def table(rows: list[list[str]], width: int, height: int | None = None) -> list[str]:
    """The lines of the table, none wider than `width` columns, and at most `height` if given.

    Where there is no room, names lose their folder, then their middle, and states their end. Where
    lines are missing, the last one says how many runs are not shown.
    """
    training = sum(row[-1] == "training" for row in rows)
    lines = [
        f"{training} of {plural(len(rows), 'run')} training; errors in %, rate in images/s",
        *_align([HEAD, *rows], width),
    ]
    if height is not None and len(lines) > height:
        hidden = len(rows) - max(height - 3, 0)
        lines = [*lines[: height - 1], f"and {hidden} more"]
    return [line if len(line) <= width else line[: width - 1] + "~" for line in lines]


def _align(cells: list[list[str]], width: int) -> list[str]:
    names, *numbers, states = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = width - sum(numbers) - len(numbers) - 1 - min(states, LEAST_STATE)
    names = min(names, max(room, LEAST_NAME))
    lines = []
    for name, *values, state in cells:
        if len(name) > names:
            name = name.rpartition("/")[2]
        if len(name) > names:
            name = f"{name[: names // 2]}~{name[len(name) - (names - 1) // 2 :]}"
        aligned = [value.rjust(wide) for value, wide in zip(values, numbers, strict=True)]
        lines.append(" ".join([name.ljust(names), *aligned, state]))
    return lines


def draw(rows: list[list[str]]) -> str:
    """The table as what a terminal must get, to show it in the place of the one before."""
    size = shutil.get_terminal_size()
    lines = table(rows, size.columns, max(size.lines - 1, 1))  # the last is for the cursor
    return HOME + "".join(f"{ERASE_LINE}{line}\n" for line in lines) + ERASE_BELOW


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.watch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        default=[Path("runs")],
        metavar="PATH",
        help="run files, and folders to search for them (default: runs)",
    )
    parser.add_argument(
        "--interval",
        type=cli.number(0.1, 3600),
        default=2,
        metavar="SECONDS",
        help="time from one look to the next (default: %(default)s)",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="print the table once, as it is done where the output is no terminal",
    )
    arguments = parser.parse_args(argv)
    watcher = Watcher(arguments.paths)
    looks = watcher.look()
    if not looks:
        raise Problem(
            f"there is no run in {', '.join(map(str, arguments.paths))}: train one with "
            "'make table1', or name another folder"
        )
    if arguments.once or not sys.stdout.isatty():
        width = shutil.get_terminal_size(fallback=(1000, 0)).columns  # a file takes long lines
        print("\n".join(table(describe_all(looks, time.time()), width)))
        return
    try:
        while True:
            with signals.held():  # a signal waits until the table is whole
                print(draw(describe_all(watcher.look(), time.time())), end="", flush=True)
            time.sleep(arguments.interval)
    except Interrupted as interrupted:
        if interrupted.signum != signal.SIGINT:
            raise
        print()


if __name__ == "__main__":
    cli.run(main)
