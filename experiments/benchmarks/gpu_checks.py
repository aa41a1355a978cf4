"""The checks of `make gpu-check`: comparisons with the CPU, and other programs that are run.

Engines are compared on the same deformed images, deformations on the same images, and training on
images that the GPU deforms meanwhile with training on images deformed beforehand. The programs are
pytest, compute-sanitizer and the benchmarks.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np

from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.cuda import ConvCudaEngine
from cnn_gpu.network import ConvNetwork
from deepbig_runtime import files, gpu
from deform_gpu import COMMITTEE, TABLE1, deform
from deform_gpu.cuda import DeformedAhead
from experiments.benchmarks import cnn_times, pytest_outcomes
from experiments.benchmarks.baselines import Trainer, numpy_convolutional, numpy_loop
from experiments.benchmarks.deform_times import N_IMAGES
from experiments.benchmarks.window import weight_distance
from experiments.datasets import data
from experiments.training import configs, provenance
from experiments.training.messages import tell
from experiments.training.nets import AnyNetwork
from mlp_gpu import training
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.cuda import CudaEngine
from mlp_gpu.engine import Engine
from mlp_gpu.engines import make_engine
from mlp_gpu.network import NETS, Network
from mlp_gpu.window.engine import WindowCudaEngine

MAX_IMAGES, EPOCHS, ETA, SEED = 5000, 3, 1e-3, 0  # of the trainings on CPU and GPU

# The limits, which were fixed before anything was measured. Sums in another order have other bits,
# and training drives them apart: the weights of the GPU engine may differ from the CPU engine's
# by at most this factor times a CPU baseline's difference: of a NumPy loop.
MAX_DRIFT_VS_BASELINE = 3
MAX_ERROR_GAP = 0.002  # between the numbers of wrong digits, relative to the test images
MAX_PIXEL_DIFFERENCE = 1e-5  # between deformed images in [-1, 1], by rounding
MAX_WAIT_FRACTION = 0.01  # of the training of an epoch, for the images of the next one
MAX_EXPOSED_FRACTION = 0.5  # of the deformation of an epoch, which training may wait for

# The seconds after which a test is taken to hang: pytest then says where it is, and ends.
HANGING_TESTS = ("-o", "faulthandler_timeout=300", "-o", "faulthandler_exit_on_timeout=true")
# The first process that dies ends the run: pytest-xdist may wait for ever for its tests.
SEVERAL_PROCESSES = ("-n", "4", "--dist", "loadfile", "--max-worker-restart", "0")
GPU_TESTS, SMALL_TESTS = ("-m", "gpu"), ("-m", "gpu and small")  # markers of pyproject.toml
OUTCOMES = Path("runs/gpu-check")  # files of the tests that ran, and how they ended
TOOLKITS_FOLDER = Path("/usr/local")
# The last line of a tool's report. A line "... errors were not printed" counts some of them again.
SUMMARY_LINE = re.compile(
    r"=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (error|hazard)s?(?: displayed .+)?$"
)
REPORT_CHARACTERS = 4000  # of the end of a report, which are recorded

Trained = tuple[AnyNetwork, list[training.Epoch]]  # a trained net, and the results of its epochs


@dataclass(frozen=True)
class CheckResult:
    """The result of a check. text: for people. details: for the record, only what JSON can hold."""

    passed: bool
    text: str
    details: dict = field(default_factory=dict)


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
    if isinstance(network, ConvNetwork):
        return [W for W in network.weights if W is not None]
    return network.unpadded()


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
    on_cpu, one, again = (train(engine, network, dataset, epochs.get) for engine in engines)
    by_baseline = train_baseline(make, network, dataset.train_labels, epochs)
    reference = matrices(on_cpu[0])
    moved = weight_distance(reference, matrices(network))
    distance = weight_distance(matrices(one[0]), reference) / moved
    baseline_distance = weight_distance(by_baseline, reference) / moved
    wrong, expected = one[1][-1].test_errors, on_cpu[1][-1].test_errors
    n_test, equal = len(dataset.test_labels), all_bits(one) == all_bits(again)
    passed = (
        equal
        and distance <= MAX_DRIFT_VS_BASELINE * baseline_distance
        and abs(wrong - expected) <= MAX_ERROR_GAP * n_test
    )
    text = f"{dataset.name}: weights {distance:.2g} apart, another CPU program's "
    text += f"{baseline_distance:.2g}; {wrong} and {expected} of {n_test:,} wrong; "
    text += f"two runs on the GPU {'' if equal else 'NOT '}bit-equal"
    details = {
        "data": dataset.name,
        "n_train": len(dataset.train_labels),
        "n_test": n_test,
        "gpu_bit_equal": equal,
        "gpu_distance": distance,
        "baseline_distance": baseline_distance,
        "output_difference": float(abs(one[1][-1].outputs - on_cpu[1][-1].outputs).max()),
        "gpu_errors": [row.test_errors for row in one[1]],
        "cpu_errors": [row.test_errors for row in on_cpu[1]],
        "gpu_seconds": [row.train_seconds for row in one[1]],
        "cpu_seconds": [row.train_seconds for row in on_cpu[1]],
    }
    return CheckResult(passed, text, details)


def check_epochs(
    dataset: data.Dataset, net: int, engine: str, schedule: str, epochs: int
) -> CheckResult:
    """Whole epochs of a net of Table 1, deformed as in a training: time and wrong digits."""
    rates = training.Schedule(epochs, ETA, 1.0)
    config = configs.make_config(dataset, NETS[net], rates, SEED, TABLE1, engine)
    images = configs.deformer(config, dataset)
    network = Network.initial(NETS[net], SEED)
    _, rows = train(make_engine(engine, schedule), network, dataset, images, epochs)
    n, n_test = len(dataset.train_labels), len(dataset.test_labels)
    us, errors = [1e6 * row.train_seconds / n for row in rows], [row.test_errors for row in rows]
    text = f"{us[-1]:.1f} us an image; {errors[-1]} of {n_test:,} wrong "
    text += f"after {epochs} x {n:,} images"
    return CheckResult(True, text, {"us": us, "test_errors": errors})


# --- deformation


def check_deformation(dataset: data.Dataset) -> CheckResult:
    """All images, deformed on the CPU and twice on the GPU."""
    images, labels = dataset.train_images, dataset.train_labels
    differences, equal = [], True
    for deformation in (TABLE1, COMMITTEE):
        on_cpu = deform(images, labels, deformation, SEED, epoch=1)
        on_gpu = deform(images, labels, deformation, SEED, epoch=1, device="cuda")
        again = deform(images, labels, deformation, SEED, epoch=1, device="cuda")
        differences.append(float(abs(on_cpu - on_gpu).max()))
        equal = equal and on_gpu.tobytes() == again.tobytes()
    difference, n = float(np.max(differences)), len(images)  # NaN if one is
    text = f"{n:,} images: {difference:.2g} apart at most; "
    text += f"repeats {'' if equal else 'NOT '}bit-equal"
    details = {"difference": difference, "repeats_bit_equal": equal}
    return CheckResult(difference <= MAX_PIXEL_DIFFERENCE and equal, text, details)


def train_ahead(
    dataset: data.Dataset, network: Network, engine: CudaEngine, ahead: DeformedAhead
) -> tuple[Trained, list[dict[str, float]]]:
    """Train a copy of the network on images that the GPU deforms meanwhile.

    ahead: deforms for EPOCHS epochs. Returns what `train` does, and a timeline of each epoch but
    the last: when its training ended, and when the deformation of the next epoch began and ended,
    in milliseconds since its training began. Modifies the engine.
    """
    origin, begun, ended = (gpu.cuda.event() for _ in range(3))
    origin.record(engine.stream)
    timelines: list[dict[str, float]] = []
    real_train = engine.train

    def timed_train(*arguments: Any, **options: Any) -> float:
        begun.record(engine.stream)
        loss = real_train(*arguments, **options)
        ended.record(engine.stream)
        events = {"trained": ended}
        events["deformation_begun"], events["deformation_ended"] = ahead.events
        for event in events.values():
            event.synchronize()
        start = origin.elapsed_time(begun)
        timelines.append({name: origin.elapsed_time(at) - start for name, at in events.items()})
        return loss

    engine.train = timed_train  # type: ignore[method-assign]  # of this one engine
    return train(engine, network, dataset, ahead), timelines[:-1]


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
    trained, timelines = train_ahead(dataset, network, WindowCudaEngine(), ahead)
    before: dict[str, Trained] = {}
    other_engine = WindowCudaEngine()
    for device in ("cuda", "cpu"):
        tell(f"  deforming beforehand, on {device}")
        epochs = deformed_epochs(dataset, device)
        before[device] = train(other_engine, network, dataset, epochs.get)
    on_cpu, rows_on_cpu = before["cpu"]
    moved = weight_distance(matrices(on_cpu), matrices(network))
    equal, n_test = all_bits(trained) == all_bits(before["cuda"]), len(dataset.test_labels)
    wrong, expected = trained[1][-1].test_errors, rows_on_cpu[-1].test_errors
    waits = [row.deform_seconds for row in trained[1][1:]]  # training must wait for epoch 1
    hidden = all(
        at["deformation_ended"] < at["trained"]
        and 1e3 * wait < MAX_EXPOSED_FRACTION * (at["deformation_ended"] - at["deformation_begun"])
        for at, wait in zip(timelines, waits, strict=True)
    )
    passed = (
        hidden
        and max(waits) <= MAX_WAIT_FRACTION * min(row.train_seconds for row in trained[1])
        and equal
        and abs(wrong - expected) <= MAX_ERROR_GAP * n_test
    )
    last = timelines[-1]
    text = (
        f"deformed from {last['deformation_begun']:.2f} to {last['deformation_ended']:.2f} ms of "
        f"{last['trained']:.0f} ms of training, which waited {1e3 * max(waits):.2f} ms; "
        f"{'' if equal else 'NOT '}bit-equal to deforming before; {wrong} wrong, "
        f"deformed on the CPU {expected}"
    )
    details = {
        "timelines_ms": timelines,
        "waited_seconds": [row.deform_seconds for row in trained[1]],
        "train_seconds": [row.train_seconds for row in trained[1]],
        "bit_equal": equal,
        "cpu_distance": weight_distance(matrices(trained[0]), matrices(on_cpu)) / moved,
        "errors": [row.test_errors for row in trained[1]],
        "cpu_errors": [row.test_errors for row in rows_on_cpu],
        "n_test": n_test,
    }
    return CheckResult(passed, text, details)


# --- other programs


def run_command(
    command: Sequence[str],
    log: IO | None = None,
    seconds: float | None = None,
    variables: Mapping[str, str] = {},
) -> int | None:
    """The exit status of a command, run in the repository; None if it took more than `seconds`.

    log: a file for its stdout and stderr; without one it shares ours. variables: of its
    environment, in addition to ours.
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
) -> tuple[int | None, pytest_outcomes.Outcomes]:
    """Run pytest: its exit status, and the outcomes of the tests.

    name: of the file in OUTCOMES to which each outcome is written as its test ends. prefix: the
    program that pytest runs under, with its options. log, seconds: of `run_command`.
    """
    path = OUTCOMES.absolute() / f"{name}.txt"
    files.make_folder(path.parent)
    path.unlink(missing_ok=True)
    plugin = ["-p", pytest_outcomes.__name__]
    command = [*prefix, sys.executable, "-m", "pytest", "-q", *plugin, *options]
    variables = {pytest_outcomes.VARIABLE: str(path)}
    return run_command(command, log, seconds, variables), pytest_outcomes.read(path)


def check_tests(seconds: float) -> CheckResult:
    """The tests marked `gpu`, in several processes where pytest-xdist is installed."""
    several = SEVERAL_PROCESSES if find_spec("xdist") else ()
    status, found = run_tests("tests", (*HANGING_TESTS, *several, *GPU_TESTS), seconds=seconds)
    text = ", ".join(f"{len(names)} {outcome}" for outcome, names in found.tests.items())
    text += f"; {found.repeats} of bit-equal repeats"
    if status != 0:
        text += f"; pytest ended with status {status}"
    details = found.tests | {"bit_equal_repeats": found.repeats}
    return CheckResult(status == 0 and found.repeats > 0, text, details)


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
    return judge_sanitizer(status, output, len(found.tests["passed"]))


def judge_sanitizer(status: int | None, output: str, n_passed: int) -> CheckResult:
    """The verdict of a tool. status: None if it took too long. n_passed: tests that passed."""
    lines = output.splitlines()
    counts = [count for line in lines if (count := SUMMARY_LINE.search(line.rstrip()))]
    errors = sum(int(count[1]) for count in counts)
    details = {"output": output[-REPORT_CHARACTERS:]}
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
