"""Check a GPU, from the first test of a kernel to the last benchmark.

In order: the tests of kernels and engine on the GPU, with 250 repeats of each kernel; NVIDIA's
compute-sanitizer on the small ones, where it is installed; the same images deformed on the CPU and
on the GPU; the same nets trained on the CPU and on the GPU, a perceptron, without windows and with
them, and a convolutional one; a net trained on images that the GPU deforms at the same time; the
benchmarks. Each check has a process of its own, so one that fails, or leaves the GPU in a bad
state, does not stop the next one. Writes gpu-check.json and bench.csv to results/<this GPU> and
prints a table. The exit status is 1 if a check failed.
"""

import faulthandler
import json
import sys
import textwrap
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from experiments.running import cli, data, provenance
from experiments.running.errors import Problem
from experiments.running.formatting import markdown_table
from experiments.running.messages import tell
from experiments.running.pools import Channel
from experiments.running.processes import LocalProcesses
from experiments.scoring.records import GPU_CHECK
from experiments.timing import compiled, gpu_comparisons, gpu_programs
from experiments.timing.check_result import CheckResult
from mlp_gpu import files, gpu

Answer = TypeVar("Answer")
LIMIT_SECONDS = 300  # for what needs a GPU, which may hang


def alone(function: Callable[..., Answer], *arguments: Any) -> Answer:
    """What a function returns in a process of its own, which then gives the GPU back.

    Raises Problem if the process dies, or takes longer than LIMIT_SECONDS: it then prints where it
    is, and ends.
    """
    started = time.monotonic()
    with closing(LocalProcesses(1)) as pool:
        (future,) = pool.as_completed([pool.submit(_call, LIMIT_SECONDS, function, *arguments)])
        try:
            return future.result()
        except pool.WorkerDied as error:
            is_late = time.monotonic() - started >= LIMIT_SECONDS
            what = f"took more than {LIMIT_SECONDS} seconds" if is_late else "died"
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


def describe() -> tuple[str | None, dict]:
    """Why there is no GPU to check, or None; and where its numbers come from."""
    reason = gpu.missing() or compiled.missing_toolkit()
    return reason, {} if reason else provenance.collect("cuda")


def table_line(row: dict) -> dict[str, str]:
    """A check of the record as a line of the table."""
    result = row["result"] if row["passed"] else f"FAILED: {row['result']}"
    short = textwrap.shorten(result, 110)
    return {"check": row["check"], "result": short, "seconds": f"{row['seconds']:.0f}"}


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("gpu_check", __doc__)
    cli.add_data_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for gpu-check.json and bench.csv (default: results/<this GPU>)",
    )
    arguments = parser.parse_args(argv)
    reason, source = alone(describe)
    if reason:
        raise Problem(f"there is no GPU to check: {reason}")
    folder = arguments.out or provenance.device_folder(source["device"])
    files.make_folder(folder)
    dataset = data.load(arguments.data, arguments.data_dir)
    comparisons = {
        "deformation, CPU and GPU": gpu_comparisons.check_deformation,
        "net 1, CPU and GPU": gpu_comparisons.check_engines,
        "net 1 in windows, CPU and GPU": gpu_comparisons.check_windows,
        "net 3 of 2011, CPU and GPU": gpu_comparisons.check_cnn_engines,
        "net 1, deformed meanwhile": gpu_comparisons.check_ahead,
    }
    checks: dict[str, Callable[[], CheckResult]] = {
        "GPU": lambda: CheckResult(True, f"{source['device']}, driver {source['driver']}"),
        "tests on the GPU": gpu_programs.check_tests,
        "memcheck": lambda: gpu_programs.check_sanitizer("memcheck"),
        "racecheck": lambda: gpu_programs.check_sanitizer("racecheck"),
        **{name: partial(alone, check, dataset) for name, check in comparisons.items()},
        "benchmarks": lambda: gpu_programs.check_bench(folder, source["device"]),
    }
    rows: list[dict] = []
    for name, check in checks.items():
        tell(f"{name} ...")
        started = time.perf_counter()
        try:
            result = check()
        except Exception as error:
            details = {"traceback": traceback.format_exc()}
            result = CheckResult(False, f"{type(error).__name__}: {error}", details)
        row = {"check": name, "passed": result.passed, "result": result.text}
        row |= {"seconds": time.perf_counter() - started, "details": result.details}
        rows.append(row)
        failed = [row["check"] for row in rows if not row["passed"]]
        record = {"passed": len(rows) == len(checks) and not failed, "checks": rows}
        record["provenance"] = source | {"end": provenance.now()}
        # After each check, so that nothing is lost if the next one is stopped.
        files.replace(folder / GPU_CHECK, (json.dumps(record, indent=1) + "\n").encode())

    print(markdown_table([table_line(row) for row in rows]), flush=True)
    tell(f"written to {folder / GPU_CHECK}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    cli.run(main)
