"""The checks of `make gpu-check`: comparisons with the CPU, and other programs that are run.

Engines are compared on the same deformed images, deformations on the same images, and training on
images that the GPU deforms meanwhile with training on images deformed beforehand. The programs are
pytest, compute-sanitizer, the benchmarks and trainings.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

import numpy as np
from msgspec import Struct

from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.cuda import ConvCudaEngine
from deepbig_runtime.errors import signals, tell
from deform_gpu import COMMITTEE, TABLE1, deform
from deform_gpu.cuda import DeformedAhead
from deform_gpu.epochs import deformer
from experiments.benchmarks import cnn_times
from experiments.benchmarks.baselines import Trainer, numpy_convolutional, numpy_loop
from experiments.benchmarks.deform_times import N_IMAGES
from experiments.benchmarks.window import weight_distance
from experiments.datasets import data
from experiments.results.trained import N_TRAIN
from experiments.training import provenance
from experiments.training.nets import AnyNetwork
from experiments.training.store import read_run
from mlp_gpu import training
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.engine import Engine
from mlp_gpu.engines import make_engine
from mlp_gpu.network import NETS, Network
from mlp_gpu.window.engine import WindowCudaEngine

MAX_IMAGES, EPOCHS, ETA, SEED = 5000, 3, 1e-3, 0  # of the trainings on CPU and GPU
AT_ONCE, AT_ONCE_IMAGES = (1, 2, 4), 20_000  # numbers of nets that are trained at once; images

# The limits, which were fixed before anything was measured. Sums in another order have other bits,
# and training drives them apart: the weights of the GPU engine may differ from the CPU engine's
# by at most this factor times a CPU baseline's difference: of a NumPy loop.
MAX_DRIFT_VS_BASELINE = 3
MAX_WRONG = 1 / 5  # of the test digits, after whole epochs; records have 3.6 to 5.3 %
MAX_ERROR_GAP = 0.002  # between the numbers of wrong digits, relative to the test images
MAX_PIXEL_DIFFERENCE = 1e-5  # between deformed images in [-1, 1], by rounding
MAX_WAIT_FRACTION = 0.01  # of the training of an epoch, for the images of the next one
MAX_EXPOSED_FRACTION = 0.5  # of the deformation of an epoch, which training may wait for

# A test that takes more than 300 s ends its process, and pytest says where it was.
HANGING_TESTS = ("-o", "faulthandler_timeout=300", "-o", "faulthandler_exit_on_timeout=true")
# The first process that dies ends the run: pytest-xdist may wait for ever for its tests.
SEVERAL_PROCESSES = ("-n", "4", "--dist", "loadfile", "--max-worker-restart", "0")
GPU_TESTS, SMALL_TESTS = ("-m", "gpu"), ("-m", "gpu and small")
REPEATS = "test_repeats_are_bit_equal"  # the name of all tests that repeat kernels
OUT = Path("runs/gpu-check")  # of trainings, and reports of pytest
TOOLKITS_FOLDER = Path("/usr/local")
SECONDS_OF_ALL_NETS = 300  # that the benchmarks of all nets take on a GPU
GRACE_SECONDS = 30  # of a command that is stopped, to save its results; pytest-xdist may take 10
REPORT_CHARACTERS = 4000  # of the end of a sanitizer's output, which are recorded

Trained = tuple[AnyNetwork, list[training.Epoch]]  # a trained net, and the results of its epochs


class CheckResult(Struct):
    """The result of a check. text: for people. details: for the record, only what JSON can hold."""

    passed: bool
    text: str
    details: dict = {}


# --- engines


def train(
    engine: Engine,
    network: AnyNetwork,
    dataset: data.Dataset,
    images: Callable[[int], object],
    epochs: int = EPOCHS,
) -> Trained:
    """Train a copy of the network. images: those of an epoch, by its number."""
    tell(f"  training on {engine.name}, schedule {engine.schedule}")
    engine.set_network(network)
    training_set = dataset.train_images, dataset.train_labels
    test_set = dataset.test_images, dataset.test_labels
    schedule = training.Schedule(epochs=epochs, eta=ETA, decay=1.0)
    epochs_of = training.train(engine, training_set, training_set, test_set, schedule, SEED, images)
    rows = list(epochs_of)  # trains
    return engine.get_network(), rows


def train_baseline(
    make: Callable[..., Trainer],
    network: AnyNetwork,
    labels: np.ndarray,
    epochs: Mapping[int, np.ndarray],
) -> list[np.ndarray]:
    """Weights of each layer after the same steps by a baseline on the CPU.

    make: makes the trainer. epochs: images of each epoch, from 1 on, float32 (n, 29, 29).
    """
    tell("  training by a baseline on the CPU")
    orders = {epoch: training.image_order(len(labels), SEED, epoch) for epoch in epochs}
    images = np.concatenate([epochs[epoch][order] for epoch, order in orders.items()])
    labels = np.concatenate([labels[order] for order in orders.values()])
    trainer = make(network, images.reshape(len(images), -1), labels, ETA)
    trainer.train()
    return trainer.weights()


def matrices(network: AnyNetwork) -> list[np.ndarray]:
    """Weights of each layer that has any, without padding."""
    if isinstance(network, Network):
        return network.unpadded()
    return [W for W in network.weights if W is not None]


def all_bits(trained: Trained) -> list:
    """Weights with their padding, outputs and losses; equal lists are equal in every bit."""
    network, rows = trained
    weights = [W for W in network.weights if W is not None]
    arrays = [*weights, *(row.outputs for row in rows)]
    return [array.tobytes() for array in arrays] + [row.train_loss for row in rows]


def deformed_epochs(dataset: data.Dataset, device: str = "cpu") -> dict[int, np.ndarray]:
    """The training images of each epoch, from 1 on."""
    images, labels = dataset.train_images, dataset.train_labels
    numbers = range(1, EPOCHS + 1)
    return {n: deform(images, labels, TABLE1, SEED, n, device=device) for n in numbers}


def make_case(
    case: str,
) -> tuple[AnyNetwork, Engine, Engine, Engine, Callable[..., Trainer]]:
    """A net, the engine on the CPU, two on the GPU that should give the same bits, and the maker of
    the baseline. case: "graph" or "window", of net 1; "cnn", net 3 of 2011, the paper's own proof.
    """
    if case == "cnn":
        engines = ConvCpuEngine(), ConvCudaEngine("graph"), ConvCudaEngine("launch")
        return cnn_times.initial(3), *engines, numpy_convolutional
    again = "launch" if case == "graph" else case
    on_gpu = make_engine("cuda", case), make_engine("cuda", again)
    return Network.initial(NETS[1], SEED), CpuEngine(), *on_gpu, numpy_loop


def check_engines(dataset: data.Dataset, case: str) -> CheckResult:
    """A net, trained on the same images on the CPU, twice on the GPU, and by a baseline.

    case: of `make_case`. Distances of weights from those of the CPU engine are relative to how far
    the CPU engine moved them.
    """
    dataset = data.limit(dataset, min(MAX_IMAGES, len(dataset.train_labels)))
    network, *engines, make = make_case(case)
    epochs = deformed_epochs(dataset)
    on_cpu, on_gpu, again = (train(engine, network, dataset, epochs.get) for engine in engines)
    by_baseline = train_baseline(make, network, dataset.train_labels, epochs)
    reference = matrices(on_cpu[0])
    moved = weight_distance(reference, matrices(network))
    distance = weight_distance(matrices(on_gpu[0]), reference) / moved
    baseline_distance = weight_distance(by_baseline, reference) / moved
    wrong, expected = on_gpu[1][-1].test_errors, on_cpu[1][-1].test_errors
    n_test, equal = len(dataset.test_labels), all_bits(on_gpu) == all_bits(again)
    passed = (
        equal
        and distance <= MAX_DRIFT_VS_BASELINE * baseline_distance
        and abs(wrong - expected) <= MAX_ERROR_GAP * n_test
    )
    text = f"{dataset.name}: weights {distance:.2g} apart, another CPU program's "
    text += f"{baseline_distance:.2g}; {wrong} and {expected} of {n_test:,} wrong; "
    text += f"two runs on the GPU {'' if equal else 'NOT '}bit-equal"
    return CheckResult(passed, text)


def check_epochs(
    dataset: data.Dataset, net: int, engine: str, schedule: str, epochs: int
) -> CheckResult:
    """Whole epochs of a net of Table 1, deformed as in a training: time and wrong digits.

    At most MAX_WRONG may be wrong, unless there are fewer images than MNIST has.
    """
    training_set = dataset.train_images, dataset.train_labels
    images = deformer(*training_set, TABLE1, SEED, epochs, engine)
    network = Network.initial(NETS[net], SEED)
    _, rows = train(make_engine(engine, schedule), network, dataset, images, epochs)
    n, n_test = len(dataset.train_labels), len(dataset.test_labels)
    us, errors = [1e6 * row.train_seconds / n for row in rows], [row.test_errors for row in rows]
    text = f"{us[-1]:.1f} us an image; {errors[-1]} of {n_test:,} wrong "
    text += f"after {epochs} x {n:,} images"
    passed = errors[-1] <= n_test * MAX_WRONG or n < N_TRAIN
    text += "" if passed else f", expected at most {MAX_WRONG:.0%}"
    return CheckResult(passed, text, {"us": us, "test_errors": errors})


def check_at_once(dataset: data.Dataset, sizes: tuple[int, ...]) -> CheckResult:
    """Nets trained one after another, and several at once in threads as by `--workers`."""
    dataset = data.limit(dataset, min(AT_ONCE_IMAGES, len(dataset.train_labels)))

    def train_net(seed: int) -> Trained:
        training_set = dataset.train_images, dataset.train_labels
        images = DeformedAhead(*training_set, TABLE1, seed, EPOCHS)
        return train(WindowCudaEngine(), Network.initial(sizes, seed), dataset, images)

    train_net(SEED)  # compiles
    us, all_nets = [], []
    for n in AT_ONCE:
        with ThreadPoolExecutor(n) as threads:
            nets = list(threads.map(train_net, range(max(AT_ONCE))))
        rows = [row for _, rows in nets for row in rows]
        seconds = [row.deform_seconds + row.train_seconds + row.evaluate_seconds for row in rows]
        us.append(1e6 * float(np.median(seconds)) / (n * len(dataset.train_labels)))
        all_nets.append([all_bits(trained) for trained in nets])
    equal = all(nets == all_nets[0] for nets in all_nets)
    times = zip(AT_ONCE, us, strict=True)
    text = ", ".join(f"{time:.1f} us an image with {n}" for n, time in times)
    text += f" at once; {'' if equal else 'NOT '}bit-equal to one after another"
    return CheckResult(equal, text, {"us": us})


# --- deformation


def check_deformation(dataset: data.Dataset) -> CheckResult:
    """All images, deformed on the CPU and twice on the GPU."""
    images, labels = dataset.train_images, dataset.train_labels
    differences, equal = [], True
    for deformation in (TABLE1, COMMITTEE):
        on_cpu, on_gpu, again = (
            deform(images, labels, deformation, SEED, epoch=1, device=device)
            for device in ("cpu", "cuda", "cuda")
        )
        differences.append(float(abs(on_cpu - on_gpu).max()))
        equal = equal and on_gpu.tobytes() == again.tobytes()
    difference = float(np.max(differences))  # NaN if one is
    text = f"{len(images):,} images: {difference:.2g} apart at most; "
    text += f"repeats {'' if equal else 'NOT '}bit-equal"
    return CheckResult(difference <= MAX_PIXEL_DIFFERENCE and equal, text)


def check_ahead(dataset: data.Dataset) -> CheckResult:
    """Net 1, trained on images that the GPU deforms meanwhile, and on images deformed before."""
    # With few images, the two launches of a deformation take as long as the rest of it. So a small
    # data set is repeated in its order.
    n = max(N_IMAGES, len(dataset.train_labels))
    images = np.resize(dataset.train_images, (n, *dataset.train_images.shape[1:]))
    labels = np.resize(dataset.train_labels, n)
    dataset = replace(dataset, train_images=images, train_labels=labels)
    ahead = DeformedAhead(images, labels, TABLE1, SEED, last_epoch=EPOCHS)
    network = Network.initial(NETS[1], SEED)
    # By windows, the launch mode that leaves the least time to deform in.
    meanwhile = train(WindowCudaEngine(), network, dataset, ahead)
    begun, ended = ahead.events  # of the last epoch's deformation
    deform_ms = begun.elapsed_time(ended)
    tell("  deforming beforehand")
    before = train(WindowCudaEngine(), network, dataset, deformed_epochs(dataset, "cuda").get)
    equal = all_bits(meanwhile) == all_bits(before)
    waits = [1e3 * row.deform_seconds for row in meanwhile[1]]
    wait_ms, train_ms = max(waits[1:]), 1e3 * min(row.train_seconds for row in meanwhile[1])
    passed = equal and wait_ms <= min(
        MAX_EXPOSED_FRACTION * deform_ms, MAX_WAIT_FRACTION * train_ms
    )
    text = f"deformed in {deform_ms:.2f} ms of {train_ms:.0f} ms of training, which waited "
    text += f"{wait_ms:.2f} ms; {'' if equal else 'NOT '}bit-equal to deforming before"
    return CheckResult(passed, text, {"waited_ms": waits})


# --- other programs


def run_command(command: Sequence[str], seconds: float, log: IO | None = None) -> int | None:
    """The exit status of a command, run in the repository; None if it took more than `seconds`.

    log: a file for its stdout and stderr; without one it shares ours. A command that takes too
    long, or is interrupted with us, gets SIGINT, and all its processes SIGKILL after GRACE_SECONDS.
    """
    child = None
    try:
        with signals.held():
            child = subprocess.Popen(
                command,
                cwd=provenance.REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child:
            end_group(child)


def end_group(leader: subprocess.Popen) -> None:
    """End a process and its children, as compute-sanitizer has one."""
    if leader.poll() is None:
        try:
            os.killpg(leader.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                leader.wait(GRACE_SECONDS)
        finally:
            with suppress(ProcessLookupError):  # all have ended
                os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()


def ending(status: int | None, seconds: float) -> str:
    """How a command ended. status: of `run_command` with this limit of seconds."""
    return f"took more than {seconds:.0f} s" if status is None else f"status {status}"


def run_tests(
    name: str,
    options: Sequence[str],
    seconds: float,
    prefix: Sequence[str] = (),
    log: IO | None = None,
) -> tuple[int | None, dict[str, list[str]]]:
    """Run pytest: its exit status, and the names of the tests that passed, failed, were skipped.

    name: of pytest's report in OUT; if pytest took too long, it has the tests that had ended.
    prefix: the program that pytest runs under, with its options. seconds, log: of `run_command`.
    """
    path = OUT.absolute() / f"{name}.xml"
    path.unlink(missing_ok=True)
    command = [*prefix, sys.executable, "-m", "pytest", "-q", f"--junit-xml={path}", *options]
    status = run_command(command, seconds, log)
    tests: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    for case in ElementTree.parse(path).iter("testcase") if path.exists() else ():
        if case.get("name") is None:  # it has not ended
            continue
        ways = {"failure": "failed", "error": "failed", "skipped": "skipped"}
        outcome = next((ways[part.tag] for part in case if part.tag in ways), "passed")
        tests[outcome].append(f"{case.get('classname')}.{case.get('name')}")
    return status, tests


def check_tests(seconds: float) -> CheckResult:
    """The tests marked `gpu`, in several processes where pytest-xdist is installed."""
    several = SEVERAL_PROCESSES if find_spec("xdist") else ()
    options = (*GPU_TESTS, *HANGING_TESTS, *several)
    status, tests = run_tests("tests", options, seconds)
    repeats = sum(f".{REPEATS}" in name for name in tests["passed"])
    text = ", ".join(f"{len(names)} {outcome}" for outcome, names in tests.items())
    text += f"; {repeats} of bit-equal repeats"
    text += f"; pytest: {ending(status, seconds)}" if status != 0 else ""
    return CheckResult(status == 0 and repeats > 0, text, tests)


def check_sanitizer(tool: str, seconds: float) -> CheckResult:
    """The small tests of kernels under a tool of compute-sanitizer, memcheck or racecheck."""
    installed = sorted(map(str, TOOLKITS_FOLDER.glob("cuda*/bin/compute-sanitizer")))
    sanitizer = shutil.which("compute-sanitizer") or next(iter(installed), None)
    if sanitizer is None:
        return CheckResult(True, "not installed")
    prefix = [sanitizer, "--tool", tool, "--error-exitcode", "99"]
    # CUDA's Python packages try calls that a driver may lack: those errors are no kernel's fault.
    prefix += ["--report-api-errors", "no"]
    with tempfile.TemporaryFile() as log:
        status, tests = run_tests(tool, SMALL_TESTS, seconds, prefix, log)
        log.seek(0)
        output = log.read().decode(errors="replace")
    details = {"output": output[-REPORT_CHARACTERS:]}
    if "Device not supported" in output:  # which the summary calls an error
        return CheckResult(True, "does not support this device", details)
    n, summaries = len(tests["passed"]), re.findall(r"SUMMARY: (\d+ \w+)", output)
    if status == 0 and n > 0 and summaries and all(text.startswith("0 ") for text in summaries):
        return CheckResult(True, f"clean, {n} tests")
    text = f"{', '.join(summaries) or 'no summary'}, {n} tests passed, "
    text += ending(status, seconds)
    return CheckResult(False, text, details)


def check_bench(folder: Path, device: str, seconds: float) -> CheckResult:
    """The benchmarks of the GPU, which write bench.csv; they must not leave it out as unusable.

    device: the GPU's name. seconds: rows that are not measured by then are left out.
    """
    options = ["--gpu-only", "--out", str(folder.absolute())]
    if seconds < SECONDS_OF_ALL_NETS:
        options = ["--nets", "1,4", *options]  # whose kernels the pages show
    path = folder / "bench.csv"
    before = path.read_text() if path.exists() else ""
    status = run_command([sys.executable, "-m", "experiments.bench", *options], seconds)
    if not path.exists() or path.read_text() == before or device not in path.read_text():
        return CheckResult(
            False, f"bench.csv has no new row of this GPU; {ending(status, seconds)}"
        )
    text = "bench.csv"
    text += f", as far as it came; {ending(status, seconds)}" if status != 0 else ""
    return CheckResult(status in (0, None), text)


def check_training(run: Path, options: Sequence[str], seconds: float) -> CheckResult:
    """A training of `make table1` until the time is up; the next call resumes it.

    run: its run file. options: of the command, all but --out.
    """
    command = [sys.executable, "-m", "experiments.table1", *options]
    command += ["--out", str(run.parent.absolute())]
    before = read_run(run).epochs if run.exists() else 0
    status = run_command(command, seconds)
    found = read_run(run) if run.exists() else None
    if found is None or (status is None and found.epochs == before):
        return CheckResult(False, f"no epoch; {ending(status, seconds)}")
    n, us = len(found.labels), 1e6 * found.metrics.train_seconds[-1]
    text = f"{found.epochs:,} of {found.config.epochs:,} epochs, "
    text += f"{us / found.config.data.n_train:.1f} us an image, "
    text += f"{found.chosen_errors} of {n:,} wrong, in {run}"
    return CheckResult(status in (0, None), text, {"test_errors": found.metrics.test_errors})
