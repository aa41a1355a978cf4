"""Checks of the GPU that run other programs: pytest, compute-sanitizer, the benchmarks."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from deepbig_runtime import files
from experiments.running import provenance
from experiments.timing import pytest_outcomes
from experiments.timing.check_result import CheckResult

GPU_TESTS = tuple(
    f"tests/test_{name}.py"
    for name in (
        "kernels",
        "deform",
        "deform_kernels",
        "engines",
        "cuda",
        "window_kernels",
        "window_progress",
        "window_engine",
        "gpu_trial",
        "cnn_kernels",
        "cnn_engines",
        "ladder",
        "bench",
        "peers",
        "timing_gpu",
        "timing_cnn",
        "cnn_comparisons",
        "cnn_peers",
    )
)
# The seconds after which a test is taken to hang: pytest then says where it is, and ends.
HANGING_TESTS = ("-o", "faulthandler_timeout=300", "-o", "faulthandler_exit_on_timeout=true")
SEVERAL_PROCESSES = ("-n", "4", "--dist", "loadfile")
REPEAT_TESTS = "repeats_are_bit_equal"  # in the names of the tests that repeat kernels
SMALL_TESTS = (
    "-k",
    "small",
    *(
        f"tests/test_{name}.py"
        for name in (
            "kernels",
            "window_kernels",
            "window_progress",
            "deform_kernels",
            "cnn_kernels",
        )
    ),
)
OUTCOMES = Path("runs/gpu-check")  # files of the tests that ran, and how they ended
TOOLKITS_FOLDER = Path("/usr/local")
# The last line of a tool's report. A line "... errors were not printed" counts some of them again.
SUMMARY_LINE = re.compile(
    r"=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (error|hazard)s?(?: displayed .+)?$"
)
KEPT_CHARACTERS = 4000  # of the end of a report


def run_command(
    command: Sequence[str],
    log: IO | None = None,
    seconds: float | None = None,
    variables: Mapping[str, str] = {},
) -> int | None:
    """The exit status of a command, run in the repository; None if it took more than `seconds`.

    log: a file for its stdout and stderr; without one it shares ours. variables: of its environment
    beside ours.
    """
    child = subprocess.Popen(
        command,
        cwd=provenance.REPOSITORY,
        env=os.environ | dict(variables),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        process_group=0,
    )
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.poll() is None:  # compute-sanitizer has a child of its own: end that too
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def run_tests(
    name: str,
    options: Sequence[str],
    prefix: Sequence[str] = (),
    log: IO | None = None,
    seconds: float | None = None,
) -> tuple[int | None, dict[str, list[str]]]:
    """Run pytest: its exit status, and the names of the tests by outcome.

    name: of the file in OUTCOMES to which outcomes are written as they come. prefix: the program
    that pytest runs under, with its options. log, seconds: of `run_command`.
    """
    path = OUTCOMES.absolute() / f"{name}.txt"
    files.make_folder(path.parent)
    path.unlink(missing_ok=True)
    plugin = ["-p", pytest_outcomes.__name__]
    command = [*prefix, sys.executable, "-m", "pytest", "-q", *plugin, *options]
    variables = {pytest_outcomes.VARIABLE: str(path)}
    return run_command(command, log, seconds, variables), pytest_outcomes.read(path)


def check_tests(seconds: float) -> CheckResult:
    """The tests of kernels and engine, in several processes where pytest-xdist is installed."""
    several = SEVERAL_PROCESSES if find_spec("xdist") else ()
    status, found = run_tests("tests", (*HANGING_TESTS, *several, *GPU_TESTS), seconds=seconds)
    repeats = sum(REPEAT_TESTS in name for name in found["passed"])
    text = ", ".join(f"{len(names)} {outcome}" for outcome, names in found.items())
    text += f"; {repeats} of bit-equal repeats"
    if status != 0:
        text += f"; pytest ended with status {status}"
    return CheckResult(status == 0 and repeats > 0, text, found | {"bit_equal_repeats": repeats})


def check_sanitizer(tool: str, seconds: float) -> CheckResult:
    """The small tests of kernels under a tool of compute-sanitizer, memcheck or racecheck."""
    installed = sorted(TOOLKITS_FOLDER.glob("cuda*/bin/compute-sanitizer"))
    sanitizer = shutil.which("compute-sanitizer") or (str(installed[0]) if installed else None)
    if sanitizer is None:
        return CheckResult(True, "not installed")
    prefix = [sanitizer, "--tool", tool, "--error-exitcode", "99"]
    # CUDA's Python packages try calls that a driver may lack: those errors are no kernel's fault.
    prefix += ["--report-api-errors", "no"]
    with tempfile.TemporaryFile() as log:
        status, found = run_tests(tool, SMALL_TESTS, prefix, log=log, seconds=seconds)
        log.seek(0)
        output = log.read().decode(errors="replace")
    return judge_sanitizer(status, output, len(found["passed"]))


def judge_sanitizer(status: int | None, output: str, n_passed: int) -> CheckResult:
    """What a tool found. status: None if it took too long. n_passed: tests that passed under it."""
    lines = output.splitlines()
    counts = [count for line in lines if (count := SUMMARY_LINE.search(line.rstrip()))]
    errors = sum(int(count[1]) for count in counts)
    details = {"output": output[-KEPT_CHARACTERS:]}
    if "Device not supported" in output:  # the summary calls this an error too
        return CheckResult(True, "does not support this device", details)
    if status is None:
        text = "timed out"
    elif errors:
        text = f"{errors} {counts[0][2]}{'s' if errors > 1 else ''}"
    elif not counts:
        text = f"no summary, status {status}"
    elif status != 0 or n_passed == 0:
        text = f"no errors, but {n_passed} tests passed, status {status}"
    else:
        return CheckResult(True, f"clean, {n_passed} tests")
    return CheckResult(False, text, details)


def check_bench(folder: Path, device: str, seconds: float) -> CheckResult:
    """The benchmarks of the GPU, which write bench.csv; they must not leave it out as unusable.

    device: the GPU's name. seconds: rows that are not measured by then are left out.
    """
    options = ["--gpu-only", "--out", str(folder.absolute())]
    status = run_command([sys.executable, "-m", "experiments.bench", *options], seconds=seconds)
    path = folder / "bench.csv"
    if not path.exists() or device not in path.read_text():
        return CheckResult(False, f"bench.csv has nothing of this GPU; status {status}")
    ending = {0: "bench.csv", None: "bench.csv, as far as it came in time"}
    return CheckResult(status in ending, ending.get(status, f"ended with status {status}"))
