"""Check a GPU, from its driver to a long training.

Items, in the order in which they run:
  gpu          the driver, and a self-test: a small net and images, on the GPU and on the CPU
  epochs       two epochs of net 1 by `window`, by `graph` and on the CPU, one of nets 2 to 5
  comparisons  the same images deformed and the same nets trained on the CPU and on the GPU, and
               several nets trained at once
  tests        all tests that use a GPU, with 250 repeats of each kernel
  sanitizer    NVIDIA's memcheck and racecheck on the small tests, where they are installed
  kernels      the benchmarks: each kernel of each net timed, PyTorch next to them
  training     net 1 for 75 epochs, then net 4 by the paper's schedule for 8 minutes

Each check runs in a separate process, so one that fails, hangs, or leaves the GPU in a bad state
does not stop the next one. After each, gpu-check.json is written to results/<this GPU>; checks that
are not asked for keep their results. Prints a table. The exit status is 1 if a check failed.
"""

import argparse
import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from cuda_on_cpu import missing_toolkit
from deepbig_runtime import compiled_cache, files, gpu
from deepbig_runtime.errors import Problem, tell
from experiments.benchmarks import gpu_checks
from experiments.benchmarks.gpu_checks import CheckResult
from experiments.benchmarks.processes import ConfiguredProcess
from experiments.datasets import data
from experiments.results.record_tables import gpu_check_table
from experiments.results.records import GPU_CHECK, GpuCheckRecord, GpuCheckRow, read_json
from experiments.training import cli, gpu_trial, provenance
from experiments.training.store import table1_path
from experiments.training.validation import to_json
from mlp_gpu.engine import WINDOW
from mlp_gpu.network import NETS

Answer = TypeVar("Answer")
Check = Callable[[float], CheckResult]  # of the seconds that it may take

SECONDS = {  # that an item may take
    "gpu": 240,
    "epochs": 150,
    "comparisons": 300,
    "tests": 600,
    "sanitizer": 240,
    "kernels": 300,
    "training": 1080,
}
# With less than this left an item is not begun: what it took on an H100, rounded up. Guess: the
# comparisons, which have more nets now, 71 s then.
USUAL_SECONDS = {"gpu": 120, "epochs": 90, "comparisons": 200, "tests": 120, "sanitizer": 60}
NET_4_SECONDS = 480  # of the training
STOPPABLE = "kernels", "training"  # items that can be stopped and still tell something
LEAST_SECONDS = 30  # in which one of them tells something


def alone(function: Callable[..., Answer], *arguments: Any, seconds: float) -> Answer:
    """The result of a function in a separate process, which then gives the GPU back.

    Raises Problem if the process dies, or takes longer than `seconds`: it then prints where it is,
    and ends.
    """
    with closing(ConfiguredProcess(dict(os.environ))) as process:
        try:
            return process.call(_call, seconds, function, *arguments)
        except process.WorkerDied as error:
            raise Problem(
                f"its process died or took more than {seconds:.3g} seconds; what it printed last "
                "says where it was, and nvidia-smi whether the GPU still answers"
            ) from error


def _call(seconds: float, function: Callable[..., Answer], *arguments: Any) -> Answer:
    # By a thread of C, which no call that hangs can keep from running.
    faulthandler.dump_traceback_later(seconds, exit=True)
    return function(*arguments)


def describe() -> provenance.Source:
    """Where the numbers of this GPU come from. Raises Problem if there is no GPU to check."""
    if reason := gpu.missing() or missing_toolkit():
        raise Problem(f"there is no GPU to check: {reason}")
    return provenance.collect("cuda")


def self_test(seconds: float) -> CheckResult:
    """As before each training on a GPU."""
    trial = gpu_trial.try_gpu()
    worst = max(trial.differences.values(), default=0.0)
    return CheckResult(
        trial.reason is None, trial.reason or f"differences up to {worst:.2g}", trial.differences
    )


def all_checks(
    source: provenance.Source, folder: Path, arguments: argparse.Namespace, dataset: data.Dataset
) -> dict[str, dict[str, Check]]:
    """The checks of each item, by their names. source: of this GPU. folder: of the record."""

    def compare(function: Callable[..., CheckResult], *more: Any) -> Check:
        return lambda seconds: alone(function, dataset, *more, seconds=seconds)

    def epochs(net: int, way: str, n: int) -> tuple[str, Check]:
        engine, schedule = ("cpu", "graph") if way == "CPU" else ("cuda", way)
        return f"net {net}, {way}", compare(gpu_checks.check_epochs, net, engine, schedule, n)

    def train(net: int, profile: str) -> Check:
        run = table1_path(gpu_checks.OUT / profile, f"net{net}", 0, dataset.name)
        options = ["--nets", str(net), "--profile", profile, "--engine", "cuda"]
        options += ["--data", dataset.kind.choice]
        if arguments.data_dir:
            options += ["--data-dir", str(arguments.data_dir.absolute())]
        if arguments.limit:
            options += ["--limit", str(arguments.limit)]
        return partial(gpu_checks.check_training, run, options)

    text = f"{source.device}, driver {source.driver}"
    ways, net1, net4 = (WINDOW, "graph"), train(1, "short"), train(4, "paper")
    return {
        "gpu": {"GPU": lambda seconds: CheckResult(True, text), "self-test": self_test},
        "epochs": dict(
            [epochs(1, way, 2) for way in (*ways, "CPU")]
            + [epochs(net, way, 1) for net in (2, 3, 4, 5) for way in ways]
        ),
        "comparisons": {
            "deformation, CPU and GPU": compare(gpu_checks.check_deformation),
            "net 1, CPU and GPU": compare(gpu_checks.check_engines, "graph"),
            "net 1 in windows, CPU and GPU": compare(gpu_checks.check_engines, WINDOW),
            "net 3 of 2011, CPU and GPU": compare(gpu_checks.check_engines, "cnn"),
            "net 1, deformed meanwhile": compare(gpu_checks.check_ahead),
            "841-800-10, several at once": compare(gpu_checks.check_at_once, (841, 800, 10)),
            "net 4, several at once": compare(gpu_checks.check_at_once, NETS[4]),
        },
        "tests": {"tests on the GPU": gpu_checks.check_tests},
        "sanitizer": {
            tool: partial(gpu_checks.check_sanitizer, tool) for tool in ("memcheck", "racecheck")
        },
        "kernels": {"benchmarks": partial(gpu_checks.check_bench, folder, source.device)},
        "training": {
            "net 1, 75 epochs": lambda seconds: net1(seconds - min(NET_4_SECONDS, seconds / 2)),
            "net 4, the paper's schedule": lambda seconds: net4(min(NET_4_SECONDS, seconds)),
        },
    }


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = cli.Parser("gpu_check", __doc__)
    parser.add_argument(
        "--only",
        type=cli.words(SECONDS),
        default=list(SECONDS),
        metavar="ITEM,ITEM",
        help="items to check (default: all)",
    )
    parser.add_argument(
        "--minutes",
        type=cli.number(0.01, 10_000),
        metavar="N",
        help="time for all items together (default: no limit). Kernels and training are cut short "
        "to fit, other items that usually take longer than the time left are not begun; the same "
        "command resumes the training",
    )
    parser.add_argument(
        "--limit",
        type=cli.integer(1),
        metavar="N",
        help="training images used, the first N (default: all)",
    )
    cli.add_data_arguments(parser)
    cli.add_out_argument(
        parser, "folder for gpu-check.json and bench.csv (default: results/<this GPU>)"
    )
    return parser.parse_args(argv)


def seconds_for(item: str, left: float) -> float:
    """The seconds that an item may take of the seconds left; 0 if it has to be left out."""
    if item not in STOPPABLE:
        return min(SECONDS[item], left) if left >= USUAL_SECONDS[item] else 0
    return min(SECONDS[item], left) if left >= LEAST_SECONDS else 0


def run_check(
    name: str, check: Callable[[], CheckResult], source: provenance.Source
) -> GpuCheckRow:
    """A check as a row of the record. source: provenance of the command."""
    started = time.perf_counter()
    try:
        result = check()
    except Exception as error:
        details = {"traceback": traceback.format_exc()}
        result = CheckResult(False, f"{type(error).__name__}: {error}", details)
    seconds = time.perf_counter() - started
    ended = source.ended().columns()
    return GpuCheckRow(
        name, result.passed, result.text, seconds, result.details, ended.date, ended.commit
    )


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    if "tests" in arguments.only and find_spec("pytest") is None:
        raise Problem("the tests of a GPU need pytest; install it, or leave 'tests' out of --only")
    if reason := compiled_cache.NOT_KEPT:
        tell(f"compiled code is not kept, so each check compiles anew: {reason}")
    stop = time.monotonic() + 60 * (arguments.minutes or float("inf"))
    source = alone(describe, seconds=SECONDS["gpu"])
    folder = arguments.out or provenance.device_folder(source.device)
    files.make_folder(folder)
    dataset = data.limit(data.load(arguments.data, arguments.data_dir), arguments.limit)
    checks = all_checks(source, folder, arguments, dataset)
    names = [name for of_item in checks.values() for name in of_item]
    rows: dict[str, GpuCheckRow] = {}
    if (folder / GPU_CHECK).exists():
        rows = {row.check: row for row in read_json(folder / GPU_CHECK, GpuCheckRecord).checks}
    record, failed = None, []
    for item in arguments.only:
        left = stop - time.monotonic()
        if item == "kernels" and "training" in arguments.only:  # which follows
            left /= 2
        if not (seconds := seconds_for(item, left)):
            usual = USUAL_SECONDS.get(item, LEAST_SECONDS)
            tell(f"{item} is left out: it takes some {usual} s, and {left:.0f} s are left")
            continue
        end = time.monotonic() + seconds
        rows = {name: row for name, row in rows.items() if name not in checks[item]}
        for name, check in checks[item].items():
            tell(f"{name} ...")
            rows[name] = run_check(name, partial(check, max(1.0, end - time.monotonic())), source)
            failed += [] if rows[name].passed else [name]
            made = [rows[name] for name in names if name in rows]
            passed = len(made) == len(names) and all(row.passed for row in made)
            record = GpuCheckRecord(passed, made, source.ended())
            # After each check, so that nothing is lost if the next one is stopped.
            files.replace(folder / GPU_CHECK, to_json(record))
    if record is None:
        raise Problem(f"none of the items fits into {arguments.minutes:g} minutes: give more")
    print(gpu_check_table(record), flush=True)
    tell(f"written to {folder / GPU_CHECK}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    cli.run(main)
