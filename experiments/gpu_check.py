"""Check a GPU, from the first test of a kernel to the last benchmark.

In order: the tests of kernels and engine on the GPU, with 250 repeats of each kernel; NVIDIA's
compute-sanitizer on the small ones, where it is installed; the same images deformed on the CPU and
on the GPU; the same net trained on the CPU and on the GPU; a net trained on images that the GPU
deforms meanwhile; the benchmarks. A check that fails does not stop the next one. Writes
gpu-check.json and bench.csv to results/<this GPU> and prints a table. The exit status is 1 if a
check failed.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

import numpy as np

from deform_gpu import COMMITTEE, TABLE1, deform
from deform_gpu.cuda import Ahead
from experiments.running import cli, data, provenance
from experiments.running.errors import Problem
from experiments.running.formatting import markdown_table
from experiments.running.messages import tell
from experiments.scoring.records import GPU_CHECK
from experiments.timing import peers
from mlp_gpu import files, gpu, training
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.cuda import CudaEngine
from mlp_gpu.engines import Engine
from mlp_gpu.network import NETS, Network

TESTS = tuple(
    f"tests/test_{name}.py" for name in ("kernels", "deform_kernels", "cuda", "compiled", "bench")
)
REPEATS = "repeats_are_bit_equal"  # in the names of the tests that repeat kernels
SMALL = ("-k", "small", "tests/test_kernels.py", "tests/test_deform_kernels.py")
TOOLKITS = Path("/usr/local")
SANITIZER_SECONDS = 120  # that each tool may take
# How a tool ends its report. A line "... errors were not printed" counts some of them again.
SUMMARY = re.compile(r"=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (error|hazard)s?(?: displayed .+)?$")
TAIL = 4000  # characters of a report to keep

N_IMAGES, EPOCHS, ETA, SEED = 5000, 3, 1e-3, 0
# Sums in another order have other bits, and training drives them apart. How far it may was fixed
# beforehand: between the GPU and the CPU engine, this many times as far as between a NumPy loop and
# the CPU engine, and this part of the test images in the number of wrong digits.
TIMES_NUMPY = 3
WRONG_PART = 0.002
# Deformed images in [-1, 1] differ by rounding, and by no more than this.
PIXEL_DIFFERENCE = 1e-5
# Training may wait for images this part of an epoch, and this part of what deforming them takes.
WAIT_PART = 0.01
WAIT_DEFORMATION = 0.5


@dataclass(frozen=True)
class Result:
    """What a check came to: a few words for people, and details for the record."""

    passed: bool
    text: str
    details: dict = field(default_factory=dict)


def run(command: Sequence[str], log: IO | None = None, seconds: float | None = None) -> int | None:
    """The exit status of a command, run in the repository; None if it took more than `seconds`.

    log: the file for all that it prints; without one it prints where we do.
    """
    child = subprocess.Popen(
        command,
        cwd=provenance.REPOSITORY,
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
    options: Sequence[str], under: Sequence[str] = (), **how: Any
) -> tuple[int | None, dict]:
    """Run pytest, under another program or none: its exit status, and what its report says."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [*under, sys.executable, "-m", "pytest", "-q", *options, f"--junitxml={report}"]
        return run(command, **how), read_report(report)


def read_report(path: Path) -> dict[str, list[str]]:
    """Names of tests by what became of them, from pytest's JUnit XML; none if there is no file."""
    found: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    if path.exists():
        for case in ElementTree.parse(path).iter("testcase"):
            tags = {child.tag for child in case}
            failed = tags & {"failure", "error"}
            outcome = "failed" if failed else "skipped" if "skipped" in tags else "passed"
            found[outcome].append(f"{case.get('classname')}::{case.get('name')}")
    return found


def check_tests() -> Result:
    """The tests of kernels and engine."""
    status, found = run_tests(TESTS)
    repeats = sum(REPEATS in name for name in found["passed"])
    text = ", ".join(f"{len(names)} {outcome}" for outcome, names in found.items())
    text += f"; {repeats} of bit-equal repeats"
    if status != 0:
        text += f"; pytest ended with status {status}"
    return Result(status == 0 and repeats > 0, text, found | {"bit_equal_repeats": repeats})


def check_sanitizer(tool: str) -> Result:
    """The small tests of kernels under a tool of compute-sanitizer, memcheck or racecheck."""
    there = sorted(TOOLKITS.glob("cuda*/bin/compute-sanitizer"))
    sanitizer = shutil.which("compute-sanitizer") or (str(there[0]) if there else None)
    if sanitizer is None:
        return Result(True, "not installed")
    under = [sanitizer, "--tool", tool, "--error-exitcode", "99"]
    # CUDA's Python packages try what a driver may not have: those errors are no kernel's fault.
    under += ["--report-api-errors", "no"]
    with tempfile.TemporaryFile() as log:
        status, found = run_tests(SMALL, under, log=log, seconds=SANITIZER_SECONDS)
        log.seek(0)
        said = log.read().decode(errors="replace")
    return judge_sanitizer(status, said, len(found["passed"]))


def judge_sanitizer(status: int | None, said: str, n_tests: int) -> Result:
    """What a tool found, from its exit status (None: too slow), output, and tests that passed."""
    counts = [count for line in said.splitlines() if (count := SUMMARY.search(line.rstrip()))]
    errors = sum(int(count[1]) for count in counts)
    if "Device not supported" in said:  # the summary calls this an error too
        return Result(True, "does not support this device", {"output": said[-TAIL:]})
    if status is None:
        text = f"timed out after {SANITIZER_SECONDS} s"
    elif errors:
        text = f"{errors} {counts[0][2]}{'s' if errors > 1 else ''}"
    elif not counts:
        text = f"no summary, status {status}"
    elif status != 0 or n_tests == 0:
        text = f"no errors, but {n_tests} tests passed, status {status}"
    else:
        return Result(True, f"clean, {n_tests} tests")
    return Result(False, text, {"output": said[-TAIL:]})


Epochs = dict[int, np.ndarray]  # epoch, from 1, and its images, float32 (n, 29, 29)
Trained = tuple[Network, list[training.Epoch]]  # a net after its epochs, and what each came to


def train(
    engine: Engine,
    network: Network,
    dataset: data.Dataset,
    images: Callable[[int], object],
    epochs: int = EPOCHS,
) -> Trained:
    """Train a copy of the network on the images that each epoch gets."""
    tell(f"  training on {engine.name}, schedule {engine.schedule}")
    engine.set_network(network)
    training_set = dataset.train_images, dataset.train_labels
    test_set = dataset.test_images, dataset.test_labels
    schedule = training.Schedule(epochs=epochs, eta=ETA, decay=1.0)
    rows = list(
        training.train(engine, training_set, training_set, test_set, schedule, SEED, images)
    )
    return engine.get_network(), rows


def train_numpy(network: Network, labels: np.ndarray, epochs: Epochs) -> list[np.ndarray]:
    """Weights, (n_in + 1, n_out), after the same steps in plain NumPy."""
    tell("  training by a NumPy loop")
    orders = {epoch: training.image_order(len(labels), SEED, epoch) for epoch in epochs}
    images = np.concatenate([epochs[epoch][order] for epoch, order in orders.items()])
    labels = np.concatenate([labels[order] for order in orders.values()])
    peer = peers.numpy_loop(network, images.reshape(len(images), -1), labels, ETA)
    peer.train()
    return peer.weights()


def distance(some: list[np.ndarray], others: list[np.ndarray]) -> float:
    """The Euclidean distance of the weights of all layers."""
    pairs = zip(some, others, strict=True)
    return float(np.linalg.norm([np.linalg.norm(W.astype(np.float64) - V) for W, V in pairs]))


def bits(trained: Trained) -> list:
    """Weights, padding included, outputs and losses; equal lists are so to the last bit."""
    network, rows = trained
    arrays = [*network.weights, *(row.outputs for row in rows)]
    return [array.tobytes() for array in arrays] + [row.train_loss for row in rows]


def compare(dataset: data.Dataset, sizes: tuple[int, ...], graph: Engine, launch: Engine) -> dict:
    """Train a net on the same images in four ways, and measure how far apart they end.

    graph, launch: the GPU engine with these schedules. The weights' distances from those of the CPU
    engine are parts of how far that one moved them.
    """
    network, labels = Network.initial(sizes, SEED), dataset.train_labels
    clean = dataset.train_images
    epochs = {n: deform(clean, labels, TABLE1, SEED, n) for n in range(1, EPOCHS + 1)}
    on_cpu = train(CpuEngine(), network, dataset, epochs.get)
    on_gpu = train(graph, network, dataset, epochs.get)
    launched = train(launch, network, dataset, epochs.get)
    reference = on_cpu[0].unpadded()
    moved = distance(reference, network.unpadded())
    return {
        "data": dataset.name,
        "n_train": len(labels),
        "n_test": len(dataset.test_labels),
        "schedules_bit_equal": bits(on_gpu) == bits(launched),
        "gpu_distance": distance(on_gpu[0].unpadded(), reference) / moved,
        "numpy_distance": distance(train_numpy(network, labels, epochs), reference) / moved,
        "output_difference": float(abs(on_gpu[1][-1].outputs - on_cpu[1][-1].outputs).max()),
        "gpu_errors": [row.test_errors for row in on_gpu[1]],
        "cpu_errors": [row.test_errors for row in on_cpu[1]],
    }


def judge_engines(found: dict) -> Result:
    """Whether what `compare` measured is as it should be."""
    wrong, expected = found["gpu_errors"][-1], found["cpu_errors"][-1]
    passed = (
        found["schedules_bit_equal"]
        and found["gpu_distance"] <= TIMES_NUMPY * found["numpy_distance"]
        and abs(wrong - expected) <= WRONG_PART * found["n_test"]
    )
    text = f"{found['data']}: weights {found['gpu_distance']:.2g} apart, NumPy's "
    text += f"{found['numpy_distance']:.2g}; {wrong} and {expected} of {found['n_test']:,} wrong; "
    text += f"schedules {'' if found['schedules_bit_equal'] else 'NOT '}bit-equal"
    return Result(passed, text, found)


def check_engines(dataset: data.Dataset) -> Result:
    """Net 1, trained on the CPU and on the GPU."""
    some = data.limit(dataset, min(N_IMAGES, len(dataset.train_labels)))
    return judge_engines(compare(some, NETS[1], CudaEngine("graph"), CudaEngine("launch")))


def check_deformation(dataset: data.Dataset) -> Result:
    """All images, deformed on the CPU and twice on the GPU."""
    images, labels = dataset.train_images, dataset.train_labels
    differences, equal = [], True
    for deformation in (TABLE1, COMMITTEE):
        on_cpu = deform(images, labels, deformation, SEED, epoch=1)
        on_gpu = deform(images, labels, deformation, SEED, epoch=1, device="cuda")
        again = deform(images, labels, deformation, SEED, epoch=1, device="cuda")
        differences.append(float(abs(on_cpu - on_gpu).max()))
        equal = equal and on_gpu.tobytes() == again.tobytes()
    return judge_deformation(len(images), max(differences), equal)


def judge_deformation(n: int, difference: float, equal: bool) -> Result:
    """Whether n images deformed on CPU and GPU are alike enough, and the GPU's repeats equal."""
    text = (
        f"{n:,} images: {difference:.2g} apart at most; repeats {'' if equal else 'NOT '}bit-equal"
    )
    passed = difference <= PIXEL_DIFFERENCE and equal
    return Result(passed, text, {"difference": difference, "repeats_bit_equal": equal})


def train_ahead(
    dataset: data.Dataset, network: Network, engine: CudaEngine, ahead: Ahead
) -> tuple[Trained, list[dict]]:
    """Train a copy of the network on images that the GPU deforms meanwhile.

    Returns what `train` does, and a timeline of each epoch but the last: the milliseconds, from
    the beginning of its training, at which that ended and the deformation of the next epoch began
    and ended. engine: the GPU's. ahead: deforms for EPOCHS epochs.
    """
    origin, begun, ended = (gpu.cuda.event() for _ in range(3))
    origin.record(engine.stream)
    timelines = []
    real_train = engine.train

    def timed_train(*arguments: Any) -> float:
        begun.record(engine.stream)
        loss = real_train(*arguments)
        ended.record(engine.stream)
        events = {"trained": ended}
        events["deformation_begun"], events["deformation_ended"] = ahead.events
        for event in events.values():
            event.synchronize()
        start = origin.elapsed_time(begun)
        timelines.append({name: origin.elapsed_time(at) - start for name, at in events.items()})
        return loss

    engine.train = timed_train  # type: ignore[method-assign, assignment]
    return train(engine, network, dataset, ahead), timelines[:-1]


def compare_ahead(
    dataset: data.Dataset, sizes: tuple[int, ...], engine: CudaEngine, other: Engine, ahead: Ahead
) -> dict:
    """Train a net on images that the GPU deforms meanwhile, and on images deformed beforehand.

    engine, other: two of the GPU. ahead: deforms for EPOCHS epochs, with TABLE1 and SEED.
    """
    network, labels = Network.initial(sizes, SEED), dataset.train_labels
    (trained, rows), timelines = train_ahead(dataset, network, engine, ahead)
    before = {}
    for device in ("cuda", "cpu"):
        tell(f"  deforming beforehand, on {device}")
        epochs = {
            n: deform(dataset.train_images, labels, TABLE1, SEED, n, device=device)
            for n in range(1, EPOCHS + 1)
        }
        before[device] = train(other, network, dataset, epochs.get)
    on_cpu, rows_on_cpu = before["cpu"]
    moved = distance(on_cpu.unpadded(), network.unpadded())
    return {
        "timelines_ms": timelines,
        "waited_seconds": [row.deform_seconds for row in rows],
        "train_seconds": [row.train_seconds for row in rows],
        "bit_equal": bits((trained, rows)) == bits(before["cuda"]),
        "cpu_distance": distance(trained.unpadded(), on_cpu.unpadded()) / moved,
        "errors": [row.test_errors for row in rows],
        "cpu_errors": [row.test_errors for row in rows_on_cpu],
        "n_test": len(dataset.test_labels),
    }


def judge_ahead(found: dict) -> Result:
    """Whether what `compare_ahead` measured is as it should be."""
    waits = found["waited_seconds"][1:]  # for the first epoch it must
    hidden = all(
        one["deformation_ended"] < one["trained"]
        and 1e3 * wait < WAIT_DEFORMATION * (one["deformation_ended"] - one["deformation_begun"])
        for one, wait in zip(found["timelines_ms"], waits, strict=True)
    )
    wrong, expected = found["errors"][-1], found["cpu_errors"][-1]
    passed = (
        hidden
        and max(waits) <= WAIT_PART * min(found["train_seconds"])
        and found["bit_equal"]
        and abs(wrong - expected) <= WRONG_PART * found["n_test"]
    )
    last = found["timelines_ms"][-1]
    text = (
        f"deformed from {last['deformation_begun']:.2f} to {last['deformation_ended']:.2f} ms of "
    )
    text += f"{last['trained']:.0f} ms of training, which waited {1e3 * max(waits):.2f} ms; "
    text += f"{'' if found['bit_equal'] else 'NOT '}bit-equal to deforming before; {wrong} wrong, "
    text += f"deformed on the CPU {expected}"
    return Result(passed, text, found)


def check_ahead(dataset: data.Dataset) -> Result:
    """Net 1, trained on images that the GPU deforms meanwhile."""
    images, labels = dataset.train_images, dataset.train_labels
    ahead = Ahead(images, labels, TABLE1, SEED, last_epoch=EPOCHS)
    return judge_ahead(compare_ahead(dataset, NETS[1], CudaEngine(), CudaEngine(), ahead))


def check_bench(folder: Path) -> Result:
    """The benchmarks, which write bench.csv; of the CPU alone, if they find the GPU not usable."""
    status = run([sys.executable, "-m", "experiments.bench", "--out", str(folder.absolute())])
    if status == 0 and gpu.name() not in (folder / "bench.csv").read_text():
        return Result(False, "bench.csv has nothing of this GPU")
    return Result(status == 0, "bench.csv" if status == 0 else f"ended with status {status}")


def line(row: dict) -> dict[str, str]:
    """A check of the record as a line of the table for people."""
    result = row["result"] if row["passed"] else f"FAILED: {row['result']}"
    short = textwrap.shorten(result, 110)
    return {"check": row["check"], "result": short, "seconds": f"{row['seconds']:.0f}"}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.gpu_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
        "GPU": lambda: Result(True, f"{source['device']}, driver {source['driver']}"),
        "tests on the GPU": check_tests,
        "memcheck": lambda: check_sanitizer("memcheck"),
        "racecheck": lambda: check_sanitizer("racecheck"),
        "deformation, CPU and GPU": lambda: check_deformation(dataset),
        "net 1, CPU and GPU": lambda: check_engines(dataset),
        "net 1, deformed meanwhile": lambda: check_ahead(dataset),
        "benchmarks": lambda: check_bench(folder),
    }
    rows: list[dict] = []
    for name, check in checks.items():
        tell(f"{name} ...")
        started = time.perf_counter()
        try:
            result = check()
        except Exception as error:
            details = {"traceback": traceback.format_exc()}
            result = Result(False, f"{type(error).__name__}: {error}", details)
        row = {"check": name, "passed": result.passed, "result": result.text}
        row |= {"seconds": time.perf_counter() - started, "details": result.details}
        rows.append(row)
        failed = [row["check"] for row in rows if not row["passed"]]
        record = {"passed": len(rows) == len(checks) and not failed, "checks": rows}
        record["provenance"] = source | {"end": provenance.now()}
        # After each check, so that what stops the next one loses nothing.
        files.replace(folder / GPU_CHECK, (json.dumps(record, indent=1) + "\n").encode())

    print(markdown_table([line(row) for row in rows]), flush=True)
    tell(f"written to {folder / GPU_CHECK}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    cli.run(main)
