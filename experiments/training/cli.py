"""Command-line conventions shared by all commands: exit statuses and common options."""

import argparse
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deepbig_runtime.errors import Interrupted, explained, signals, tell
from experiments.datasets.dataset import KINDS, LARGEST, SMALLEST
from experiments.training.messages import open_streams
from mlp_gpu.engine import ENGINE_NAMES, SCHEDULES, WINDOW

JOB_THREAD = "job"  # the beginning of the names of workers.Threads


def run(main: Callable[[], int | None]) -> None:
    """Run a script's `main` and end the process with the exit status that main returns.

    0 or None: done. 1: a check or a training failed, and the others went on. 2: bad input, no GPU,
    a GPU that failed, a failed read or write; one sentence on stderr says which. 129, 130 and 143:
    SIGHUP, SIGINT and SIGTERM.

    A stdout that cannot be written is a failed write. That nobody reads stderr is none.
    """
    open_streams()
    signals.install()
    status: int | str | None
    try:
        try:
            status = main()
        except SystemExit as ending:  # argparse has printed its help or a complaint
            status = ending.code
        sys.stdout.flush()
    except Exception as error:
        if not (sentence := explained(error)):
            raise
        tell(f"error: {sentence}")
        status = 2
    except Interrupted as interrupted:
        tell(str(interrupted))
        status = 128 + interrupted.signum
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except OSError:
            setattr(sys, name, None)  # else Python tries again, complains, and ends with 120
    if any(thread.name.startswith(JOB_THREAD) for thread in threading.enumerate()):
        # Python would wait for the end of a job that was given up.
        os._exit(status if isinstance(status, int) else bool(status))
    sys.exit(status)


class Parser(argparse.ArgumentParser):
    """The parser of a command line. It refuses empty values, which argparse takes for none.

    command: name of the module in experiments/. description: what --help says first; epilog: last.
    """

    def __init__(self, command: str, description: str | None, epilog: str | None = None):
        super().__init__(
            prog=f"python -m experiments.{command}",
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = sys.argv[1:] if args is None else list(args)
        for argument in given:
            if not argument or re.fullmatch("--[^=]+=(--)?", argument):
                self.error(f"expected a value, got {argument!r}")
        return super().parse_known_args(given, namespace)


SCHEDULE_HELP = {
    WINDOW: "for many images at once, exactly on-line, but rounded otherwise",
    "graph": "as CUDA graphs of several images",
    "launch": "one after another as in the papers, slower, with the results of graph",
}


def add_engine_arguments(
    parser: argparse._ActionsContainer, schedules: Sequence[str] = SCHEDULES
) -> None:
    """The options that choose the engine, the same in every script that trains.

    schedules: those that the script's nets can have, the usual one first.
    """
    parser.add_argument(
        "--engine",
        choices=("auto", *ENGINE_NAMES),
        default="auto",
        help="the engine; auto: the GPU where there is one, else the CPU (default: %(default)s)",
    )
    parser.add_argument(
        "--schedule",
        choices=schedules,
        help="how the GPU's kernels are launched; "
        + "; ".join(f"{name}: {SCHEDULE_HELP[name]}" for name in schedules)
        + " (default: graph"
        + ", on GPUs of compute capability 8.0 and later window" * (WINDOW in schedules)
        + ")",
    )
    parser.set_defaults(windows=False)  # set by jobs.opened: whether `window` is the default


def schedule(arguments: argparse.Namespace) -> str:
    """The launch mode of the command line, or else `graph`; jobs.make_job may take `window`."""
    return arguments.schedule or SCHEDULES[0]


def add_worker_arguments(parser: argparse.ArgumentParser, cores: int = 1) -> None:
    """The options that say how many trainings run at once, and where.

    cores: number of cores for a training without a GPU, unless there are fewer. With several
    cores each, the first of different nets is done early.
    """
    parser.set_defaults(cores_of_worker=cores)
    without_gpu = f"one per {cores} cores, at least one" if cores > 1 else "one per core"
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--workers",
        type=integer(1, 4096),
        metavar="N",
        help="trainings that run at once on this machine: on one GPU in threads of this process, "
        "so that kernels overlap; else in processes of some 1 GB each (default: one per GPU, or "
        f"without a GPU {without_gpu})",
    )
    where.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="a Dask cluster's scheduler, tcp://host:port, whose workers train; each needs "
        "deepbig, the data and one thread; if they share the folder --out, a run resumes where "
        "a worker that died left it",
    )


def add_seeds_argument(parser: argparse.ArgumentParser) -> None:
    """Add --seeds."""
    parser.add_argument(
        "--seeds",
        type=integers(0, 2**64 - 1),
        default=[0],
        metavar="N,N",
        help="seeds; each net is trained once with each (default: 0)",
    )


def is_folder(choice: str) -> bool:
    """Whether --data names a folder of your own. The name of a data set never does."""
    names = {"auto", *(kind.choice for kind in KINDS.values())}
    return choice not in names and (os.sep in choice or Path(choice).is_dir())


def _named_or_folder(names: Sequence[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names and not is_folder(text):
            expected = f"expected {', '.join(names)}, or a folder of your own"
            raise argparse.ArgumentTypeError(f"{expected}, got {text!r}")
        return text

    return parse


def add_data_arguments(
    parser: argparse._ActionsContainer, others: Mapping[str, str] = {}, own: bool = False
) -> None:
    """The options that say which images to use, the same in every script.

    others: data that not every script can use, each with what it is. own: whether the script can
    use folders of your own.
    """
    also = "".join(f"; {choice}: {what}" for choice, what in others.items())
    names = "auto", "mnist", "digits", *others
    folder = "; or a folder with four IDX files, or with pictures in train/CLASS/ and test/CLASS/"
    folder = folder if own else ""
    parser.add_argument(
        "--data",
        **({"type": _named_or_folder(names), "metavar": "NAME|DIR"} if own else {"choices": names}),
        default="auto",
        help="images: MNIST; scikit-learn's 1,797 load_digits, which need no network; or auto: "
        f"MNIST where it is or can be had, else load_digits (default: %(default)s){also}{folder}",
    )
    if own:
        parser.add_argument(
            "--size",
            type=integer(SMALLEST, LARGEST),
            metavar="N",
            help=f"scale the pictures of a folder to NxN pixels, from {SMALLEST} to {LARGEST}, as "
            "a whole and centred; the rest gets the median of their border (default: as they are)",
        )
    add_data_dir_argument(parser)


def add_out_argument(
    parser: argparse.ArgumentParser, what: str, default: str | None = None, metavar: str = "DIR"
) -> None:
    """Add --out.

    what: the folder or file and its use, as --help shows it; with its default if that depends on
    other things.
    """
    usual = "" if default is None else " (default: %(default)s)"
    parser.add_argument("--out", type=Path, default=default, metavar=metavar, help=what + usual)


def add_data_dir_argument(parser: argparse._ActionsContainer) -> None:
    """The option for where the files of the data are."""
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="folder with the data's files, of MNIST the four IDX files, plain or gzip-ed "
        "(default: $MNIST_DIR, ./data/mnist or the cache folder, into which they are downloaded if "
        "need be; of other data: see docs/options.md)",
    )


def add_picture(draw: Callable[[], object]) -> None:
    """Call a function that plots and saves a picture of results that are already saved.

    If it fails for any reason, a sentence reports it and the command continues.
    """
    try:
        draw()
    except Exception as error:
        reason = explained(error) or f"{type(error).__name__}: {error}"
        tell(f"a picture is missing: {reason}")


def number(low: float, high: float, kind: type = float) -> Callable[[str], Any]:
    """An argparse type: a number from low to high, both included. kind: float or int."""
    name, shown = ("an integer", str) if kind is int else ("a number", "{:g}".format)
    limits = f"from {shown(low)} to {shown(high)}" if high < math.inf else f"of at least {low}"

    def parse(text: str) -> Any:
        try:
            value = kind(text) if kind is float or text.strip().isdecimal() else math.nan
        except ValueError:  # also more digits than Python takes
            value = math.nan
        if not low <= value <= high:  # false for NaN too
            raise argparse.ArgumentTypeError(f"expected {name} {limits}, got {text!r}")
        return value

    return parse


def integer(low: int, high: float = math.inf) -> Callable[[str], int]:
    """An argparse type: an integer from low to high, both included."""
    return number(low, high, int)


def several(
    parse_one: Callable[[str], Any], counts: Sequence[int] = (), is_distinct: bool = False
) -> Callable[[str], list[Any]]:
    """An argparse type: values separated by commas. counts: how many there may be."""

    def parse(text: str) -> list[Any]:
        values = [parse_one(part) for part in text.split(",")]
        if counts and len(values) not in counts:
            expected = f"{counts[0]} or {counts[-1]}" if len(counts) == 2 else f"up to {counts[-1]}"
            given = f"got {len(values)}"
            raise argparse.ArgumentTypeError(f"expected {expected} values with commas, {given}")
        if is_distinct and len(set(values)) < len(values):
            raise argparse.ArgumentTypeError(f"expected different values, got {text!r}")
        return values

    return parse


def integers(low: int, high: int) -> Callable[[str], list[int]]:
    """An argparse type: different integers from low to high, separated by commas."""
    return several(integer(low, high), is_distinct=True)


def words(known: Iterable[str]) -> Callable[[str], list[str]]:
    """An argparse type: some of the known words, separated by commas."""

    def parse(word: str) -> str:
        if word not in known:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}, got {word!r}")
        return word

    return several(parse)
