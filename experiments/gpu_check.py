"""Check a GPU, from the first test of a kernel to the last benchmark.

In order: the tests of kernels and engine on the GPU, with 250 repeats of each kernel; NVIDIA's
compute-sanitizer on the small ones, where it is installed; the same images deformed on the CPU and
on the GPU; the same nets trained on the CPU and on the GPU, a perceptron, without windows and with
them, and a convolutional one; a net trained on images that the GPU deforms at the same time; the
benchmarks. A check that fails does not stop the next one. Writes gpu-check.json and bench.csv to
results/<this GPU> and prints a table. The exit status is 1 if a check failed.
"""

import json
import sys
import textwrap
import time
import traceback
from pathlib import Path

from experiments.running import cli, data, provenance
from experiments.running.errors import Problem
from experiments.running.formatting import markdown_table
from experiments.running.messages import tell
from experiments.scoring.records import GPU_CHECK
from experiments.timing import gpu_comparisons, gpu_programs
from experiments.timing.check_result import CheckResult
from mlp_gpu import files, gpu


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
    if reason := gpu.missing():
        raise Problem(f"there is no GPU to check: {reason}")
    folder = arguments.out or provenance.device_folder(gpu.name())
    files.make_folder(folder)
    dataset = data.load(arguments.data, arguments.data_dir)
    source = provenance.collect("cuda")
    checks = {
        "GPU": lambda: CheckResult(True, f"{source['device']}, driver {source['driver']}"),
        "tests on the GPU": gpu_programs.check_tests,
        "memcheck": lambda: gpu_programs.check_sanitizer("memcheck"),
        "racecheck": lambda: gpu_programs.check_sanitizer("racecheck"),
        "deformation, CPU and GPU": lambda: gpu_comparisons.check_deformation(dataset),
        "net 1, CPU and GPU": lambda: gpu_comparisons.check_engines(dataset),
        "net 1 in windows, CPU and GPU": lambda: gpu_comparisons.check_windows(dataset),
        "net 3 of 2011, CPU and GPU": lambda: gpu_comparisons.check_cnn_engines(dataset),
        "net 1, deformed meanwhile": lambda: gpu_comparisons.check_ahead(dataset),
        "benchmarks": lambda: gpu_programs.check_bench(folder),
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
