"""timing/gpu_checks.py, where there is no GPU: CPU engines and scripts stand in for a GPU's."""

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from executed import ENGINE_DEVICES, HAS_GPU, on_device
from gpu_arrays import capture_small_graphs

from cnn_gpu import cuda as cnn_cuda
from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.cuda import ConvCudaEngine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime import gpu
from deepbig_runtime.errors import Interrupted
from deform_gpu import COMMITTEE, TABLE1, deform
from experiments.benchmarks import baseline_nets, connections, gpu_checks
from experiments.benchmarks.gpu_checks import CheckResult
from experiments.datasets import data
from experiments.training.provenance import REPOSITORY
from mlp_gpu import cuda as mlp_cuda
from mlp_gpu import training
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.engine import WINDOW
from mlp_gpu.network import NETS, Network

SIZES = (841, 40, 20, 10)
DESCRIPTION = "6M5s1-8M5s1c50%-7N"


@pytest.fixture(scope="module")
def sample(digits):
    few = {"test_images": digits.test_images[:200], "test_labels": digits.test_labels[:200]}
    return replace(data.limit(digits, 300), **few)


class Faster(CpuEngine):
    """Trains with a learning rate that is too high by a part `more`."""

    def __init__(self, more):
        super().__init__()
        self.more = more

    def train(self, images, labels, order, eta, tick):
        return super().train(images, labels, order, eta * (1 + self.more), tick)


class FasterConv(ConvCpuEngine):
    def train(self, images, labels, order, eta, tick):
        return super().train(images, labels, order, 1.001 * eta, tick)


class Odd(CpuEngine):
    """Differs in a single bit; also writes down what it is trained on, and is slow."""

    def __init__(self, where=""):
        super().__init__()
        self.where, self.trained_on = where, []

    def get_network(self):
        network = super().get_network()
        if self.where == "padding":
            network.weights[1][-1, -1] = -0.0
        elif self.where == "weights":
            network.weights[0][3, 4] = np.nextafter(network.weights[0][3, 4], np.float32(1))
        return network

    def train(self, images, labels, order, eta, tick):
        time.sleep(0.05)
        self.trained_on.append((images.copy(), labels, order, eta))
        loss = super().train(images, labels, order, eta, tick)
        return np.nextafter(loss, 9) if self.where == "loss" else loss

    def predict(self, images):
        outputs = super().predict(images)
        if self.where == "outputs" and len(images) == 200:
            outputs[7, 1] = np.nextafter(outputs[7, 1], np.float32(1))
        return outputs


def compare(sample, one, again):
    """A small net on CPU engines: a perceptron, or a convolutional net."""
    if isinstance(one, CpuEngine):
        network, cpu, make = Network.initial(SIZES, 0), CpuEngine(), baseline_nets.numpy_loop
    else:
        network = ConvNetwork.initial(DESCRIPTION, Maps(1, 29, 29), 10, 0)
        cpu, make = ConvCpuEngine(), connections.loops
    return gpu_checks.compare_engines(sample, network, cpu, one, again, make)


@pytest.mark.parametrize("engine", [Odd, ConvCpuEngine])
def test_same_engine_passes(sample, engine):
    one, again = engine(), engine()
    found = compare(sample, one, again)
    assert found["gpu_distance"] == found["output_difference"] == 0
    assert found["gpu_bit_equal"] is True
    assert 1e-8 < found["baseline_distance"] < 1e-4
    assert found["gpu_errors"] == found["cpu_errors"]
    assert len(found["gpu_errors"]) == len(found["cpu_seconds"]) == 3
    assert (found["data"], found["n_train"], found["n_test"]) == ("load_digits", 300, 200)
    result = gpu_checks.judge_engines(found)
    assert result.passed
    assert result.details is found
    json.dumps(found)
    if engine is ConvCpuEngine:
        return
    assert min(found["gpu_seconds"]) >= 0.05
    # Both were trained on the same deformed images, others in each epoch.
    for epoch, (a, b) in enumerate(zip(one.trained_on, again.trained_on, strict=True), start=1):
        assert (a[0] == b[0]).all()
        assert (a[1] == sample.train_labels).all()
        assert (a[2] == training.image_order(300, 0, epoch)).all()
        assert a[3] == b[3] == 1e-3
        assert (a[0] != sample.train_images).any(axis=(1, 2)).all()
    assert (one.trained_on[0][0] != one.trained_on[1][0]).any()


@pytest.mark.parametrize(
    ("engine", "more"),
    [(partial(Faster, 0.01), 0.01), (partial(Faster, 1e-3), 1e-3), (FasterConv, 1e-3)],
)
def test_another_learning_rate_fails(sample, engine, more):
    found = compare(sample, engine(), engine())
    assert found["gpu_bit_equal"] is True
    assert more / 10 < found["gpu_distance"] < 2 * more
    assert found["output_difference"] > 0
    result = gpu_checks.judge_engines(found)
    assert not result.passed
    assert f"weights {found['gpu_distance']:.2g} apart" in result.text


def test_errors_are_those_of_the_engines(sample):
    found = compare(sample, Faster(30), Faster(30))
    assert found["gpu_errors"][-1] < 100 < found["cpu_errors"][-1]  # of 200
    assert not gpu_checks.judge_engines(found).passed


@pytest.mark.parametrize("where", ["weights", "padding", "loss", "outputs"])
def test_one_bit_between_two_gpu_trainings_fails(sample, where):
    found = compare(sample, CpuEngine(), Odd(where))
    assert found["gpu_bit_equal"] is False
    assert found["gpu_distance"] == 0
    result = gpu_checks.judge_engines(found)
    assert not result.passed
    assert result.text.endswith("two runs on the GPU NOT bit-equal")


def test_weight_distance_is_over_all_layers():
    some = [np.array([[1, 2]], np.float32), np.array([3], np.float32)]
    others = [np.array([[4, 2]], np.float32), np.array([7], np.float32)]
    assert gpu_checks.weight_distance(some, others) == 5


@pytest.mark.parametrize("device", ENGINE_DEVICES)
def test_convolutional_nets_on_the_gpu_pass(device, sample, monkeypatch):
    """Few images where there is no GPU and the kernels are executed; the limits are the same."""
    n = 300 if HAS_GPU else 21
    test = {"test_images": sample.test_images[:n], "test_labels": sample.test_labels[:n]}
    few = replace(data.limit(sample, n), **test)
    for module in (cnn_cuda, mlp_cuda):
        monkeypatch.setattr(module, "PREDICT_BATCH", n)
    capture_small_graphs(monkeypatch)
    with on_device(device):
        found = compare(few, ConvCudaEngine("graph"), ConvCudaEngine("launch"))
    assert found["gpu_distance"] > 0
    assert gpu_checks.judge_engines(found).passed


MEASURED = {
    "data": "MNIST",
    "n_test": 10_000,
    "gpu_bit_equal": True,
    "gpu_distance": 2.9e-5,
    "baseline_distance": 1e-5,
    "gpu_errors": [900, 320],
    "cpu_errors": [100, 300],
}


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        ({}, True),
        ({"gpu_distance": 3.1e-5}, False),
        ({"gpu_distance": float("nan")}, False),
        ({"gpu_errors": [900, 280]}, True),
        ({"gpu_errors": [900, 321]}, False),
        ({"gpu_errors": [900, 279]}, False),
        ({"gpu_bit_equal": False}, False),
    ],
)
def test_engines_pass_within_the_limits(change, passed):
    assert gpu_checks.judge_engines(MEASURED | change).passed == passed


@pytest.mark.parametrize(
    ("case", "n", "used", "engines"),
    [
        ("graph", 5001, 5000, ["graph", "launch"]),
        (WINDOW, 60, 60, [WINDOW, WINDOW]),
        ("cnn", 5001, 5000, ["graph", "launch"]),
    ],
)
def test_check_engines_trains_net_on_5000_images_at_most(
    case, n, used, engines, monkeypatch, sample
):
    asked = []
    monkeypatch.setattr(gpu_checks, "make_engine", lambda name, schedule: schedule)
    monkeypatch.setattr(gpu_checks, "ConvCudaEngine", lambda schedule: schedule)
    monkeypatch.setattr(gpu_checks, "compare_engines", lambda *how: asked.append(how) or MEASURED)
    images = np.zeros((n, 29, 29), np.float32)
    many = replace(sample, train_images=images, train_labels=np.zeros(n, np.uint8))
    assert gpu_checks.check_engines(many, case).passed
    ((dataset, network, cpu, *on_gpu, make),) = asked
    assert len(dataset.train_images) == len(dataset.train_labels) == used
    assert on_gpu == engines
    if case == "cnn":
        assert network.description == "20M5s1-60M5s1c50%-100M3c50%-150N"
        assert (type(cpu), make) == (ConvCpuEngine, connections.loops)
    else:
        assert (network.sizes, type(cpu), make) == (NETS[1], CpuEngine, baseline_nets.numpy_loop)


# --- deformation


@pytest.mark.parametrize(
    ("difference", "equal", "passed"),
    [
        *((0, True, True), (1e-5, True, True), (1.1e-5, True, False), (0, False, False)),
        (float("nan"), True, False),
    ],
)
def test_deformations_may_differ_by_rounding(sample, monkeypatch, difference, equal, passed):
    asked = []

    def fake(images, labels, deformation, seed, epoch, device="cpu"):
        asked.append((len(images), seed, epoch, device))
        found = np.zeros(images.shape)
        if device == "cuda" and deformation is COMMITTEE:
            found[299, 28, 28] = -difference
            found[0, 0, 0] = 0.0 if equal or asked[-1] != asked[-2] else -0.0
        return found

    monkeypatch.setattr(gpu_checks, "deform", fake)
    result = gpu_checks.check_deformation(sample)
    assert result.passed == passed
    assert result.details["repeats_bit_equal"] == equal
    np.testing.assert_equal(result.details["difference"], difference)
    assert set(asked) == {(300, 0, 1, "cpu"), (300, 0, 1, "cuda")}
    text = f"300 images: {difference:.2g} apart at most; repeats {'' if equal else 'NOT '}bit-equal"
    assert result.text == text


class Event:
    """CUDA's, by a clock that each record moves on by a millisecond."""

    clock = 0

    def record(self, stream):
        Event.clock += 1
        self.at = Event.clock

    def elapsed_time(self, end):
        return end.at - self.at

    def synchronize(self):
        pass


class Before:
    """Deforms an epoch before it is asked for, on the CPU."""

    def __init__(self, dataset, deformation=TABLE1):
        self.events, self.asked = (Event(), Event()), []
        self.set = dataset.train_images, dataset.train_labels, deformation, 0

    def __call__(self, epoch):
        self.asked.append(epoch)
        for event in self.events:
            event.record(None)
        return deform(*self.set, epoch)


class Streaming(CpuEngine):
    stream = None


@pytest.fixture
def on_cpu(monkeypatch):
    """The CPU stands in for the GPU; returns what is deformed beforehand, and where."""
    asked = []

    def fake(images, labels, deformation, seed, epoch, device):
        asked.append((epoch, device))
        return deform(images, labels, deformation, seed, epoch)

    monkeypatch.setattr(gpu.cuda, "event", Event)
    monkeypatch.setattr(gpu_checks, "deform", fake)
    return asked


def test_training_on_images_deformed_meanwhile_equals_deforming_before(sample, on_cpu):
    ahead = Before(sample)
    found = gpu_checks.compare_ahead(sample, SIZES, Streaming(), CpuEngine(), ahead)
    assert ahead.asked == [1, 2, 3]
    assert on_cpu == [(n, device) for device in ("cuda", "cpu") for n in (1, 2, 3)]
    assert found["bit_equal"] is True
    assert found["cpu_distance"] == 0
    assert found["errors"] == found["cpu_errors"]
    assert len(found["errors"]) == 3
    timeline = {"deformation_begun": -2, "deformation_ended": -1, "trained": 1}
    assert found["timelines_ms"] == [timeline] * 2
    assert all(0 < seconds < 60 for seconds in found["waited_seconds"] + found["train_seconds"])
    json.dumps(found)


@pytest.mark.parametrize("stale", [1, 3])
def test_one_epoch_of_other_images_is_not_bit_equal(sample, on_cpu, stale):
    class Stale(Before):
        def __call__(self, epoch):
            return super().__call__(9 if epoch == stale else epoch)

    found = gpu_checks.compare_ahead(sample, SIZES, Streaming(), CpuEngine(), Stale(sample))
    assert found["bit_equal"] is False
    assert found["cpu_distance"] > 0


@pytest.mark.parametrize("n", [100, 1000])
def test_few_images_are_repeated_until_they_are_many(sample, n, monkeypatch):
    asked = []
    monkeypatch.setattr(gpu_checks, "N_IMAGES", n)
    monkeypatch.setattr(gpu_checks, "DeformedAhead", lambda *given, **more: given)
    monkeypatch.setattr(gpu_checks, "WindowCudaEngine", lambda: None)
    monkeypatch.setattr(gpu_checks, "compare_ahead", lambda *given: asked.append(given))
    monkeypatch.setattr(gpu_checks, "judge_ahead", lambda found: None)
    gpu_checks.check_ahead(sample)
    ((dataset, _, _, _, (images, labels, *_)),) = asked
    assert images is dataset.train_images
    assert labels is dataset.train_labels
    places = np.arange(max(n, 300)) % 300
    assert (labels == sample.train_labels[places]).all()
    assert (images == sample.train_images[places]).all()


AHEAD = {
    "timelines_ms": [
        {"deformation_begun": -0.1, "deformation_ended": 2.0, "trained": 600.0},
        {"deformation_begun": 0.5, "deformation_ended": 2.5, "trained": 610.0},
    ],
    "waited_seconds": [0.9, 0.0001, 0.0009],
    "train_seconds": [0.6, 0.61, 0.62],
    "bit_equal": True,
    "errors": [500, 320],
    "cpu_errors": [600, 300],
    "n_test": 10_000,
}

SLOW = {"deformation_begun": 0.0, "deformation_ended": 500.0, "trained": 600.0}


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        ({}, True),
        ({"waited_seconds": [0.0, 0.0, 0.0011]}, False),  # more than half of 2 ms
        ({"timelines_ms": [SLOW] * 2, "waited_seconds": [0.0, 0.0, 0.006]}, True),
        ({"timelines_ms": [SLOW] * 2, "waited_seconds": [0.0, 0.0061, 0.0]}, False),
        ({"bit_equal": False}, False),
        ({"errors": [600, 321]}, False),
        ({"errors": [600, 279]}, False),
        ({"timelines_ms": [SLOW | {"deformation_ended": 600.1}] * 2}, False),
    ],
)
def test_deformation_that_training_waits_for_fails(change, passed):
    result = gpu_checks.judge_ahead(AHEAD | change)
    assert result.passed == passed
    if not change:
        assert result.text == (
            "deformed from 0.50 to 2.50 ms of 610 ms of training, which waited 0.90 ms; bit-equal "
            "to deforming before; 320 wrong, deformed on the CPU 300"
        )


# --- other programs


CLEAN = "========= COMPUTE-SANITIZER\n...\n3 passed in 1.2s\n========= ERROR SUMMARY: 0 errors\n"

NO_RACE = CLEAN.replace(
    "ERROR SUMMARY: 0 errors",
    "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
)

ERRORS = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at update_weights+0x1f0
=========     by thread (97,0,0) in block (0,0,0)
=========     Address 0x7f6c2a000c04 is out of bounds
========= ERROR SUMMARY: 250 errors
========= ERROR SUMMARY: 150 errors were not printed. Use --print-limit option to adjust the number
"""

RACES = """========= Error: Race reported between Write access at delta_partial+0x2a0
=========     and Read access at delta_partial+0x350 [96 hazards]
=========
========= RACECHECK SUMMARY: 12 hazards displayed (8 errors, 4 warnings)
"""

UNSUPPORTED = """========= COMPUTE-SANITIZER
========= Error: Device not supported. Please refer to the "Supported Devices" section of the \
sanitizer documentation
E   CudaAPIError: [999] Call to cuMemAlloc results in CUDA_ERROR_UNKNOWN
========= ERROR SUMMARY: 2 errors
"""


def test_run_command_returns_status_and_logs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = "import os, sys; print(os.getcwd()); print('oh', file=sys.stderr); sys.exit(7)"
    with open(tmp_path / "log", "wb") as log:
        assert gpu_checks.run_command([sys.executable, "-c", script], log) == 7
    assert (tmp_path / "log").read_text().split() in (
        [str(REPOSITORY), "oh"],
        ["oh", str(REPOSITORY)],
    )


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("why", ["too slow", "interrupted"])
def test_run_command_leaves_no_process_behind(why, tmp_path):
    command = ["sh", "-c", f"sleep 60 & echo $$ $! >{tmp_path}/pids; wait"]
    if why == "too slow":
        assert gpu_checks.run_command(command, seconds=0.5) is None
    else:

        def handle(signum, frame):
            raise Interrupted(signal.SIGTERM)

        before = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            with pytest.raises(Interrupted):
                gpu_checks.run_command(command)
        finally:
            signal.signal(signal.SIGALRM, before)
    shell, child = (tmp_path / "pids").read_text().split()
    deadline = time.monotonic() + 5  # init may take a moment to bury the child
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(shell)
    assert not alive(child)


HERE = ("-p", "no:cacheprovider")
TESTS = """
import pytest

@pytest.mark.small
def test_small(): pass
@pytest.mark.repeats
@pytest.mark.parametrize("n", [1, 2])
def test_large(n): assert n == 1
@pytest.mark.skip(reason="so")
def test_small_skipped(): pass
@pytest.mark.xfail
def test_expected(): assert False
@pytest.fixture
def broken(): raise OSError
def test_setup(broken): pass
@pytest.fixture
def leaving():
    yield
    raise OSError
def test_teardown(leaving): pass
"""


@pytest.fixture(autouse=True)
def outcomes(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_checks, "OUTCOMES", tmp_path / "outcomes")


@pytest.fixture
def test_file(tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text(TESTS)
    return path


def test_outcomes_of_pytest_are_read(test_file):
    status, found = gpu_checks.run_tests("it", [str(test_file), *HERE])
    assert status == 1
    names = {outcome: {name.split("::")[1] for name in own} for outcome, own in found.tests.items()}
    assert names == {
        "passed": {"test_small", "test_large[1]"},
        "failed": {"test_large[2]", "test_setup", "test_teardown"},
        "skipped": {"test_small_skipped", "test_expected"},
    }
    assert all(len(own) == len(set(own)) for own in found.tests.values())
    assert found.repeats == 1  # of two that are marked


def test_outcomes_before_the_end_of_pytest_are_read(tmp_path):
    """Tests in several processes, one of which hangs."""
    path = tmp_path / "test_it.py"
    path.write_text("import time\n\ndef test_a(): pass\n\ndef test_b():\n    time.sleep(600)\n")
    status, found = gpu_checks.run_tests("it", ["-n", "1", str(path), *HERE], seconds=15)
    assert status is None
    assert [name.split("::")[1] for name in found.tests["passed"]] == ["test_a"]


NOTHING = {"passed": [], "failed": [], "skipped": []}


def test_test_that_hangs_is_ended(tmp_path, capfd):
    path = tmp_path / "test_it.py"
    path.write_text("import time\n\ndef test_hangs():\n    time.sleep(600)\n")
    options = [option.replace("=300", "=0.5") for option in gpu_checks.HANGING_TESTS]
    status, found = gpu_checks.run_tests("it", [*options, str(path), *HERE])
    assert (status, found) == (1, (NOTHING, 0))
    assert " in test_hangs\n" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("status", "repeats", "passed"), [(0, 2, True), (0, 0, False), (1, 2, False), (-11, 2, False)]
)
def test_tests_pass_if_pytest_and_repeats_do(status, repeats, passed, monkeypatch):
    found = NOTHING | {"passed": ["t::test_a", "t::test_b"], "skipped": ["t::test_c"]}
    asked = []
    result = gpu_checks.pytest_outcomes.Outcomes(found, repeats)
    monkeypatch.setattr(
        gpu_checks, "run_tests", lambda *how, seconds: asked.append(how) or (status, result)
    )
    result = gpu_checks.check_tests(60)
    ((name, options),) = asked
    assert name == "tests"
    assert options[: len(gpu_checks.HANGING_TESTS)] == gpu_checks.HANGING_TESTS
    assert options[-2:] == ("-m", "gpu")
    assert "-n" in options
    assert result.passed == passed
    assert result.text.startswith(f"2 passed, 0 failed, 1 skipped; {repeats} of bit-equal repeats")
    assert ("status" in result.text) == (status != 0)
    assert result.details == found | {"bit_equal_repeats": repeats}


COLLECT = """
import sys, pytest
class Plugin:
    def pytest_collection_finish(self, session):
        for item in session.items:
            print("found", item.nodeid, *(marker.name for marker in item.iter_markers()))
pytest.main(["-q", "--collect-only", *sys.argv[1:]], plugins=[Plugin()])
"""


def test_markers_select_tests_of_gpus():
    files = [
        path
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        if re.search(r"^from executed import .*\b(on_)?device$", path.read_text(), re.MULTILINE)
    ]
    command = [sys.executable, "-c", COLLECT, "-m", "gpu", *files]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    found = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("found")]
    names = {path.stem: {"gpu"} for path in files}  # the markers in a file
    for name, *markers in found:
        names[Path(name.partition("::")[0]).stem].update(markers)
    kernels = {f"test_{kind}kernels" for kind in ("", "cnn_", "deform_", "window_")}
    assert {name for name, own in names.items() if "small" in own} == kernels
    assert {name for name, own in names.items() if "repeats" in own} == {
        *("test_kernels", "test_deform_kernels", "test_ladder", "test_window_engine")
    }
    assert len({name.partition("::")[0] for name, *_ in found}) == len(files)
    assert 40 < sum("small" in markers for _, *markers in found) < len(found) / 2


# Exit status, output and tests that passed; what comes of them.
SAID = {
    "clean": (0, CLEAN.replace("\n", "\r\n"), 3, True, "clean, 3 tests"),
    "no race": (0, NO_RACE, 3, True, "clean, 3 tests"),
    "errors": (99, ERRORS, 3, False, "250 errors"),
    "one error": (99, CLEAN.replace("0 errors", "1 error"), 3, False, "1 error"),
    "races": (99, RACES, 3, False, "12 hazards"),
    "two processes": (99, CLEAN + ERRORS, 3, False, "250 errors"),
    "unsupported": (1, UNSUPPORTED, 0, True, "does not support this device"),
    "a test failed": (1, CLEAN, 2, False, "no errors, but 2 tests passed, status 1"),
    "no test passed": (0, CLEAN, 0, False, "no errors, but 0 tests passed, status 0"),
    "no sanitizer": (0, "3 passed in 1.2s\n", 3, False, "no summary, status 0"),
    "too slow": (None, CLEAN[:40], 0, False, "timed out"),
}


@pytest.mark.parametrize(("status", "said", "n_tests", "passed", "text"), SAID.values(), ids=SAID)
def test_report_of_a_sanitizer_is_judged(status, said, n_tests, passed, text):
    result = gpu_checks.judge_sanitizer(status, said, n_tests)
    assert (result.passed, result.text) == (passed, text)
    assert result.details == ({} if text.startswith("clean") else {"output": said})


def test_end_of_a_long_report_is_recorded():
    said = "x" * 100_000 + RACES
    kept = gpu_checks.judge_sanitizer(99, said, 3).details["output"]
    assert kept == said[-4000:]


@pytest.fixture
def sanitizer(tmp_path, monkeypatch, test_file):
    """What installs a script as compute-sanitizer, which may use the command line after its own."""
    monkeypatch.setattr(gpu_checks, "TOOLKITS_FOLDER", tmp_path)
    monkeypatch.setattr(gpu_checks, "SMALL_TESTS", ("-m", "small", str(test_file), *HERE))
    (tmp_path / "cuda-12.9" / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def install(script):
        path = tmp_path / "cuda-12.9" / "bin" / "compute-sanitizer"
        path.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/arguments\nshift 6\n{script}\n')
        path.chmod(0o755)
        return path

    return install


def test_sanitizer_runs_the_small_tests(sanitizer, tmp_path):
    sanitizer('"$@" && echo "========= ERROR SUMMARY: 0 errors"')
    assert gpu_checks.check_sanitizer("memcheck", 120) == CheckResult(True, "clean, 1 tests")
    said = (tmp_path / "arguments").read_text()
    assert said.startswith("--tool memcheck --error-exitcode 99 --report-api-errors no ")
    assert (
        f"{sys.executable} -m pytest -q -p experiments.benchmarks.pytest_outcomes -m small" in said
    )


@pytest.mark.parametrize(
    ("script", "seconds", "text", "output"),
    [
        (f"echo '{RACES.splitlines()[-1]}'; exit 99", 120, "12 hazards", "SUMMARY: 12 hazards"),
        ("echo started; sleep 60", 0.5, "timed out", "started\n"),
    ],
)
def test_sanitizer_that_fails(sanitizer, script, seconds, text, output):
    sanitizer(script)
    result = gpu_checks.check_sanitizer("racecheck", seconds)
    assert (result.passed, result.text) == (False, text)
    assert output in result.details["output"]


def test_sanitizer_in_path_is_preferred(sanitizer, tmp_path, monkeypatch):
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert gpu_checks.check_sanitizer("memcheck", 120) == CheckResult(True, "not installed")
    asked = []

    def run_tests(name, options, prefix, log, seconds):
        asked.append(prefix[0])
        return 0, gpu_checks.pytest_outcomes.Outcomes({"passed": []}, 0)

    monkeypatch.setattr(gpu_checks, "run_tests", run_tests)
    installed = sanitizer("")
    gpu_checks.check_sanitizer("memcheck", 120)
    (tmp_path / "path" / "compute-sanitizer").symlink_to(installed)
    gpu_checks.check_sanitizer("memcheck", 120)
    assert asked == [str(installed), str(tmp_path / "path" / "compute-sanitizer")]


def test_benchmarks_write_to_the_same_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    asked, devices, statuses = [], ["Some GPU 9000", "Some CPU"], [0, 0]

    def run(command, seconds):
        asked.append((command, seconds))
        if devices:
            (tmp_path / "here" / "bench.csv").write_text(f"us,device\n5.0,{devices.pop(0)}\n")
        return statuses.pop(0)

    monkeypatch.setattr(gpu_checks, "run_command", run)
    check = partial(gpu_checks.check_bench, Path("here"), "Some GPU 9000", 60)
    assert check() == CheckResult(True, "bench.csv")
    command = [sys.executable, "-m", "experiments.bench", "--gpu-only", "--out"]
    assert asked == [([*command, str(tmp_path / "here")], 60)]
    assert not check().passed
    (tmp_path / "here" / "bench.csv").write_text("Some GPU 9000")
    statuses += [None, 1]
    assert check() == CheckResult(True, "bench.csv, as far as it came in time")
    assert check() == CheckResult(False, "ended with status 1")
