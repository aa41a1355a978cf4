"""Check a GPU, from its driver to a long training.

Items, in the order in which they run:
  gpu          the driver, and a self-test: a small net and images, on the GPU and on the CPU
  epochs       two epochs of net 1 by `window`, by `graph` and on the CPU, one of nets 2 to 5
  comparisons  the same images deformed and the same nets trained on the CPU and on the GPU
  kernels      the benchmarks: each kernel of each net timed, PyTorch next to them
  tests        all tests that use a GPU, with 250 repeats of each kernel
  sanitizer    NVIDIA's memcheck and racecheck on the small tests, where they are installed
  training     net 1 for 75 epochs, then net 4 by the paper's schedule for --minutes

Each check has a process of its own, so one that fails, hangs, or leaves the GPU in a bad state does
not stop the next one. After each, gpu-check.json is written to results/<this GPU>; checks that are
not asked for keep their results. Prints a table. The exit status is 1 if a check failed.
"""

import argparse
import faulthandler
import sys
import textwrap
import time
import traceback
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cuda_on_cpu import missing_toolkit
from deepbig_runtime import files, gpu
from deepbig_runtime.errors import Problem
from experiments.benchmarks import gpu_checks
from experiments.benchmarks.gpu_checks import CheckResult
from experiments.datasets import data
from experiments.results.records import GPU_CHECK, GpuCheckRecord, GpuCheckRow, read_json
from experiments.training import cli, gpu_trial, provenance
from experiments.training.formatting import markdown_table
from experiments.training.messages import tell
from experiments.training.store import read_run, table1_path
from experiments.training.validation import to_json
from experiments.training.workers import Channel, LocalProcesses, run_until
from mlp_gpu.engine import WINDOW

Answer = TypeVar("Answer")
Check = Callable[[float], CheckResult]  # of the seconds that it may take

SECONDS = {  # that an item may take; of the last, net 1's training
    "gpu": 240,
    "epochs": 150,
    "comparisons": 300,
    "kernels": 300,
    "tests": 600,
    "sanitizer": 240,
    "training": 600,
}


def alone(function: Callable[..., Answer], *arguments: Any, seconds: float) -> Answer:
    """The result of a function in a process of its own, which then gives the GPU back.

    Raises Problem if the process dies, or takes longer than `seconds`: it then prints where it is,
    and ends.
    """
    started = time.monotonic()
    with closing(LocalProcesses(1)) as pool:
        (future,) = pool.as_completed([pool.submit(_call, seconds, function, *arguments)])
        try:
            return future.result()
        except pool.WorkerDied as error:
            is_late = time.monotonic() - started >= seconds
            what = f"took more than {seconds:.3g} seconds" if is_late else "died"
            raise Problem(
                f"its process {what}; what it printed last says where it was, and nvidia-smi "
                "whether the GPU still answers"
            ) from error


def _call(
    _channel: Channel, seconds: float, function: Callable[..., Answer], *arguments: Any
) -> Answer:
    # By a thread of C, which no call that hangs can keep from running.
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        return function(*arguments)
    finally:
        faulthandler.cancel_dump_traceback_later()


def describe() -> provenance.Source:
    """Where the numbers of this GPU come from. Raises Problem if there is no GPU to check."""
    if reason := gpu.missing() or missing_toolkit():
        raise Problem(f"there is no GPU to check: {reason}")
    return provenance.collect("cuda")


@dataclass(frozen=True)
class Machine:
    """The machine and the options of the checks. source: provenance. folder: of the record."""

    source: provenance.Source
    folder: Path
    arguments: argparse.Namespace
    dataset: data.Dataset

    def checks(self) -> dict[str, dict[str, Check]]:
        """The checks of each item, by their names."""

        def compare(function: Callable[..., CheckResult], *more: Any) -> Check:
            return lambda seconds: alone(function, self.dataset, *more, seconds=seconds)

        text = f"{self.source.device}, driver {self.source.driver}"
        ways = {"window": ("cuda", WINDOW), "graph": ("cuda", "graph"), "CPU": ("cpu", "graph")}
        epochs = [(1, way, 2) for way in ways]
        epochs += [(net, way, 1) for net in (2, 3, 4, 5) for way in ("window", "graph")]
        return {
            "gpu": {"GPU": lambda seconds: CheckResult(True, text), "self-test": self_test},
            "epochs": {
                f"net {net}, {way}": compare(gpu_checks.check_epochs, net, *ways[way], n)
                for net, way, n in epochs
            },
            "comparisons": {
                "deformation, CPU and GPU": compare(gpu_checks.check_deformation),
                "net 1, CPU and GPU": compare(gpu_checks.check_engines, "graph"),
                "net 1 in windows, CPU and GPU": compare(gpu_checks.check_engines, WINDOW),
                "net 3 of 2011, CPU and GPU": compare(gpu_checks.check_engines, "cnn"),
                "net 1, deformed meanwhile": compare(gpu_checks.check_ahead),
            },
            "kernels": {
                "benchmarks": partial(gpu_checks.check_bench, self.folder, self.source.device)
            },
            "tests": {"tests on the GPU": gpu_checks.check_tests},
            "sanitizer": {
                tool: partial(gpu_checks.check_sanitizer, tool)
                for tool in ("memcheck", "racecheck")
            },
            "training": {
                "net 1, 75 epochs": lambda seconds: self.train(1, "short", seconds),
                "net 4, the paper's schedule": lambda seconds: self.train(
                    4, "paper", 60 * self.arguments.minutes
                ),
            },
        }

    def train(self, net: int, profile: str, seconds: float) -> CheckResult:
        """A net of Table 1, trained by a profile until the last epoch that ends in time.

        The same call resumes the training.
        """
        arguments, name = self.arguments, self.dataset.name
        run = table1_path(Path("runs/gpu-check") / profile, f"net{net}", 0, name)
        command = ["experiments.table1", "--nets", str(net), "--profile", profile]
        command += ["--engine", "cuda", "--data", self.dataset.kind.choice]
        command += ["--data-dir", str(arguments.data_dir)] if arguments.data_dir else []
        command += ["--limit", str(arguments.limit)] if arguments.limit else []
        command += ["--out", str(run.parent)]
        status = run_until(command, time.monotonic() + seconds)
        if not run.exists():
            return CheckResult(False, f"no epoch in {seconds:.0f} s; status {status}")
        found = read_run(run)
        n, us = len(found.labels), 1e6 * found.metrics.train_seconds[-1]
        text = f"{found.epochs:,} of {found.config.epochs:,} epochs, "
        text += f"{us / found.config.data.n_train:.1f} us an image, "
        text += f"{found.chosen_errors} of {n:,} wrong, in {run}"
        return CheckResult(status in (0, None), text, {"test_errors": found.metrics.test_errors})


def self_test(seconds: float) -> CheckResult:
    """As before each training on a GPU."""
    trial = gpu_trial.try_gpu()
    worst = max(trial.differences.values(), default=0.0)
    return CheckResult(
        trial.reason is None, trial.reason or f"differences up to {worst:.2g}", asdict(trial)
    )


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
        default=8,
        metavar="N",
        help="time for net 4's training, which the same command resumes (default: %(default)s)",
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


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    source = alone(describe, seconds=SECONDS["gpu"])
    folder = arguments.out or provenance.device_folder(source.device)
    files.make_folder(folder)
    dataset = data.limit(data.load(arguments.data, arguments.data_dir), arguments.limit)
    checks = Machine(source, folder, arguments, dataset).checks()
    names = [name for own in checks.values() for name in own]
    rows: dict[str, GpuCheckRow] = {}
    if (folder / GPU_CHECK).exists():
        with suppress(files.FileFault):
            before = read_json(folder / GPU_CHECK, GpuCheckRecord)
            rows = {row.check: row for row in before.checks}
    asked = {name for item in arguments.only for name in checks[item]}
    rows = {name: rows[name] for name in names if name in rows and name not in asked}
    for item in arguments.only:
        end = time.monotonic() + SECONDS[item]
        for name, check in checks[item].items():
            tell(f"{name} ...")
            rows[name] = run_check(name, partial(check, max(1.0, end - time.monotonic())), source)
            found = [rows[name] for name in names if name in rows]
            passed = len(found) == len(names) and all(row.passed for row in found)
            # After each check, so that nothing is lost if the next one is stopped.
            record = GpuCheckRecord(passed, found, source.ended())
            files.replace(folder / GPU_CHECK, to_json(record))
    lines = [
        {
            "check": row.check,
            "result": textwrap.shorten("FAILED: " * (not row.passed) + row.result, 110),
            "seconds": f"{row.seconds:.0f}",
        }
        for row in found
    ]
    print(markdown_table(lines), flush=True)
    tell(f"written to {folder / GPU_CHECK}")
    if failed := [name for name in names if name in asked and not rows[name].passed]:
        sys.exit(f"failed: {', '.join(failed)}")


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


if __name__ == "__main__":
    cli.run(main)
