"""experiments/benchmarks/gpu_checks.py without a GPU: CPU engines and scripts replace a GPU's."""

import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from executed import ENGINE_DEVICES, HAS_GPU, on_device
from gpu_arrays import capture_small_graphs
from waiting import HANG_SECONDS, is_alive, wait_until

from cnn_gpu import cuda as cnn_cuda
from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.cuda import ConvCudaEngine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime.errors import Interrupted
from deform_gpu import COMMITTEE, deform
from experiments.benchmarks import gpu_checks
from experiments.benchmarks.baselines import numpy_convolutional, numpy_loop
from experiments.benchmarks.gpu_checks import CheckResult
from experiments.datasets import data
from experiments.training.provenance import REPOSITORY
from experiments.training.store import read_run, table1_path
from mlp_gpu import cuda as mlp_cuda
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import NETS, Network

SIZES = (841, 40, 20, 10)


@pytest.fixture(scope="module")
def sample(digits):
    images, labels = (
        np.resize(digits.test_images, (600, 29, 29)),
        np.resize(digits.test_labels, 600),
    )
    return replace(data.limit(digits, 300), test_images=images, test_labels=labels)


class Odd(CpuEngine):
    """Differs in one bit of `where`, in eta, or in n_wrong classified images; cuts NaN in."""

    def __init__(self, where="", eta=1.0, n_wrong=0):
        super().__init__()
        self.where, self.eta, self.n_wrong = where, eta, n_wrong

    def get_network(self):
        network = super().get_network()
        if self.where == "padding":
            network.weights[1][-1, -1] = -0.0
        elif self.where == "weights":
            network.weights[0][3, 4] = np.nextafter(network.weights[0][3, 4], np.float32(1))
        elif self.where == "NaN":
            network.weights[0][3, 4] = np.nan
        return network

    def train(self, images, labels, order, eta, tick):
        loss = super().train(images, labels, order, self.eta * eta, tick)
        return np.nextafter(loss, 9) if self.where == "loss" else loss

    def predict(self, images):
        outputs = super().predict(images)
        if len(images) == 600:
            right = np.flatnonzero(outputs.argmax(axis=1) == self.labels)[: self.n_wrong]
            outputs[right] = np.roll(outputs[right], 1, axis=1)
            if self.where == "outputs":
                outputs[7, 1] = np.nextafter(outputs[7, 1], np.float32(1))
        return outputs


@pytest.fixture
def case(sample, monkeypatch):
    """A function that has `check_engines` compare two engines in place of a GPU's."""

    def compare(one, again):
        Odd.labels = sample.test_labels
        found = Network.initial(SIZES, 0), CpuEngine(), one, again, numpy_loop
        monkeypatch.setattr(gpu_checks, "make_case", lambda name: found)
        monkeypatch.setattr(gpu_checks, "MAX_IMAGES", 200)
        return gpu_checks.check_engines(sample, "small")

    return compare


def test_same_engine_passes(case):
    result = case(CpuEngine(), CpuEngine())
    assert result.passed
    said = re.fullmatch(
        r"load_digits: weights 0 apart, another CPU program's (\S+); (\d+) and \2 of 600 wrong; "
        "two runs on the GPU bit-equal",
        result.text,
    )
    assert 1e-8 < float(said[1]) < 1e-4


@pytest.mark.parametrize(
    ("options", "passed"),
    [
        *(({"eta": 1.001}, False), ({"where": "NaN"}, False)),
        *(({"n_wrong": 1}, True), ({"n_wrong": 2}, False)),
    ],
)
def test_other_training_on_both_gpu_runs_fails(case, options, passed):
    result = case(Odd(**options), Odd(**options))
    assert result.passed == passed
    assert "two runs on the GPU bit-equal" in result.text


@pytest.mark.parametrize("where", ["weights", "padding", "loss", "outputs"])
def test_one_bit_between_two_gpu_trainings_fails(case, where):
    result = case(CpuEngine(), Odd(where))
    assert not result.passed
    assert result.text.endswith("two runs on the GPU NOT bit-equal")


@pytest.mark.parametrize("device", ENGINE_DEVICES)
def test_convolutional_nets_on_the_gpu_pass(device, sample, monkeypatch):
    """Few images where there is no GPU and the kernels are executed; the limits are the same."""
    n = 200 if HAS_GPU else 21
    test = {"test_images": sample.test_images[:n], "test_labels": sample.test_labels[:n]}
    few = replace(data.limit(sample, n), **test)
    for module in (cnn_cuda, mlp_cuda):
        monkeypatch.setattr(module, "PREDICT_BATCH", n)
    capture_small_graphs(monkeypatch)
    network = ConvNetwork.initial("6M5s1-8M5s1c50%-7N", Maps(1, 29, 29), 10, 0)
    with on_device(device):
        engines = ConvCpuEngine(), ConvCudaEngine("graph"), ConvCudaEngine("launch")
        monkeypatch.setattr(
            gpu_checks, "make_case", lambda name: (network, *engines, numpy_convolutional)
        )
        result = gpu_checks.check_engines(few, "small")
    assert result.passed
    assert "weights 0 apart" not in result.text


@pytest.mark.parametrize("device", ENGINE_DEVICES)
def test_cases_compare_launch_modes_on_the_papers_nets(device):
    with on_device(device):
        cases = {case: gpu_checks.make_case(case) for case in ("graph", "window", "cnn")}
    conv = cases.pop("cnn")
    assert {
        case: (one.schedule, again.schedule) for case, (*_, one, again, _) in cases.items()
    } == {"graph": ("graph", "launch"), "window": ("window", "window")}
    assert all(network.sizes == NETS[1] for network, *_ in cases.values())
    assert conv[0].description == "20M5s1-60M5s1c50%-100M3c50%-150N"
    assert [engine.schedule for engine in conv[2:4]] == ["graph", "launch"]


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
    assert set(asked) == {(300, 0, 1, "cpu"), (300, 0, 1, "cuda")}
    text = f"300 images: {difference:.2g} apart at most; repeats {'' if equal else 'NOT '}bit-equal"
    assert result.text == text


class Ahead:
    """Has deformed all epochs on the CPU before the first one is asked for."""

    stale, wait = 0, 0.0
    events = 2 * (SimpleNamespace(elapsed_time=lambda end: 1000.0),)

    def __init__(self, images, labels, deformation, seed, last_epoch):
        assert (last_epoch, len(images)) == (3, 400)
        self.epochs = {n: deform(images, labels, deformation, seed, n) for n in (1, 2, 3, 9)}

    def __call__(self, epoch):
        time.sleep(self.wait * (epoch == 3))
        return self.epochs[9 if epoch == self.stale else epoch]


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        ({}, True),
        *(({"stale": 1}, False), ({"stale": 3}, False)),  # images of another epoch
        ({"wait": 0.6, "MAX_WAIT_FRACTION": 1e6}, False),  # more than half of the deformation
        ({"wait": 0.15, "MAX_WAIT_FRACTION": 0.1}, False),  # more than a part of training
    ],
    ids=str,
)
def test_training_on_images_deformed_meanwhile(change, passed, sample, monkeypatch):
    """On few images, repeated until they are many, with engines of the CPU."""

    class Slow(CpuEngine):
        def train(self, *arguments, **options):
            time.sleep(0.2)
            return super().train(*arguments, **options)

    def deform_on_cpu(*arguments, device):
        assert device == "cuda"
        return deform(*arguments)

    monkeypatch.setattr(gpu_checks, "deform", deform_on_cpu)
    monkeypatch.setattr(gpu_checks, "DeformedAhead", Ahead)
    monkeypatch.setattr(gpu_checks, "WindowCudaEngine", Slow)
    monkeypatch.setattr(gpu_checks, "NETS", {1: SIZES})
    monkeypatch.setattr(gpu_checks, "N_IMAGES", 400)
    # A wait is of this machine, whose other processes may take it.
    monkeypatch.setattr(gpu_checks, "MAX_WAIT_FRACTION", 0.9)
    for name, value in change.items():
        monkeypatch.setattr(Ahead if hasattr(Ahead, name) else gpu_checks, name, value)
    result = gpu_checks.check_ahead(sample)
    assert result.passed == passed
    assert re.fullmatch(
        r"deformed in 1000\.00 ms of \d+ ms of training, which waited \d+\.\d\d ms; "
        f"{'NOT ' * ('stale' in change)}bit-equal to deforming before",
        result.text,
    )


# --- other programs


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("trap", ["", "trap '' INT"], ids=["ends", "ignores SIGINT"])
def test_run_command_leaves_no_process_behind(interrupted, trap, tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    command = ["sh", "-c", f"{trap}\nsleep 9999 & echo $$ $! >{pids}; wait; wait"]
    error = Interrupted(signal.SIGINT) if interrupted else subprocess.TimeoutExpired(command, 1)
    ends_waiting(monkeypatch, error, lambda: pids.exists() and pids.read_text())
    monkeypatch.setattr(gpu_checks, "GRACE_SECONDS", 0.5)
    with pytest.raises(Interrupted) if interrupted else nullcontext():
        assert gpu_checks.run_command(command, HANG_SECONDS) is None
    shell, child = pids.read_text().split()
    wait_until(lambda: not is_alive(child))  # init may take a moment to bury it
    assert not is_alive(shell)


def ends_waiting(monkeypatch, error, is_reached):
    """A command that may take HANG_SECONDS is waited for until something is reached: an error."""

    class Popen(subprocess.Popen):
        def wait(self, timeout=None):
            if timeout == HANG_SECONDS:
                wait_until(is_reached)
                raise error
            return super().wait(timeout)

    monkeypatch.setattr(gpu_checks.subprocess, "Popen", Popen)


HERE = ("-p", "no:cacheprovider")
TESTS = """
import pytest

@pytest.mark.small
def test_small(): pass
@pytest.mark.parametrize("n", [1, 2])
def test_repeats_are_bit_equal(n): assert n == 1
@pytest.mark.xfail
def test_expected(): assert False
@pytest.fixture
def leaving():
    yield
    raise OSError
def test_teardown(leaving): pass
"""


@pytest.fixture
def test_file(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_checks, "OUT", tmp_path / "out")
    path = tmp_path / "test_it.py"
    path.write_text(TESTS)
    monkeypatch.setattr(gpu_checks, "SMALL_TESTS", ("-m", "small", str(path), *HERE))
    return path


def test_outcomes_of_pytest_are_counted(test_file, monkeypatch):
    options = [str(test_file), *HERE]
    monkeypatch.setattr(gpu_checks, "GPU_TESTS", options)
    text = "2 passed, 2 failed, 1 skipped; 1 of bit-equal repeats"
    result = gpu_checks.check_tests(HANG_SECONDS)
    assert (result.passed, result.text) == (False, f"{text}; pytest: status 1")
    assert result.details["passed"] == [
        "test_it.test_small",
        "test_it.test_repeats_are_bit_equal[1]",
    ]
    monkeypatch.setattr(gpu_checks, "GPU_TESTS", [*options, "-k", "small"])
    # As in a Python without pytest-xdist, whose options pytest would not take.
    monkeypatch.setattr(gpu_checks, "SEVERAL_PROCESSES", ["--no-such-option"])
    monkeypatch.setattr(gpu_checks, "find_spec", lambda name: name != "xdist" or None)
    result = gpu_checks.check_tests(HANG_SECONDS)
    # No kernel was repeated.
    assert (result.passed, result.text) == (
        False,
        "1 passed, 0 failed, 0 skipped; 0 of bit-equal repeats",
    )


@pytest.mark.slow
def test_test_that_hangs_is_ended_and_earlier_outcomes_are_counted(test_file, monkeypatch, capfd):
    test_file.write_text(
        "import time\n\ndef test_a(): pass\n\ndef test_b():\n    time.sleep(9999)\n"
    )
    options = [option.replace("=300", "=0.5") for option in gpu_checks.HANGING_TESTS]
    options += gpu_checks.SEVERAL_PROCESSES
    status, tests = gpu_checks.run_tests("it", [*options, str(test_file), *HERE], HANG_SECONDS)
    assert status == 1
    assert tests["passed"] == ["test_it.test_a"]
    assert capfd.readouterr().err.count(" in test_b\n") == 1  # it is not tried again


@pytest.mark.slow
@pytest.mark.usefixtures("signals_raise")  # else pytest ignores SIGINT where this process does
def test_run_of_the_tests_that_takes_too_long_keeps_earlier_outcomes(
    test_file, tmp_path, monkeypatch
):
    begun = tmp_path / "begun"
    test_file.write_text(
        f"import time\n\ndef test_a(): pass\n\ndef test_b():\n    time.sleep(2)\n"
        f"    open({str(begun)!r}, 'w').close()\n    time.sleep(9999)\n"
    )
    monkeypatch.setattr(gpu_checks, "GPU_TESTS", [str(test_file), *HERE])
    ends_waiting(monkeypatch, subprocess.TimeoutExpired("pytest", HANG_SECONDS), begun.exists)
    result = gpu_checks.check_tests(HANG_SECONDS)
    assert result.text.endswith(f"; pytest: took more than {HANG_SECONDS} s")
    assert result.details["passed"] == ["test_it.test_a"]


@pytest.mark.slow
def test_markers_select_tests_of_gpus():
    """`gpu` all of a file whose tests run on `device`, and `small` those of kernels."""
    files = [
        path
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        if "from executed import" in path.read_text()
    ]
    # By -k, which looks at names of markers too.
    options = ["--collect-only", "-q", "-m", "gpu", "-k", f"small or {gpu_checks.REPEATS}"]
    command = [sys.executable, "-m", "pytest", *options, *files]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    repeated, small = set(), set()
    for line in done.stdout.splitlines():
        path, found, name = line.partition("::")
        if found:
            (repeated if gpu_checks.REPEATS in name else small).add(Path(path).stem)
    assert repeated == {"test_launches", "test_window_engine"}
    kernels = {"test_kernels", "test_deform_kernels"}
    assert small == kernels | {"test_cnn_kernels", "test_window_kernels"}


@pytest.fixture
def sanitizer(tmp_path, monkeypatch, test_file):
    """Installs a script as compute-sanitizer, which may use the command line after its own."""
    monkeypatch.setattr(gpu_checks, "TOOLKITS_FOLDER", tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def install(script):
        path = tmp_path / "cuda-12.9" / "bin" / "compute-sanitizer"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/arguments\nshift 6\n{script}\n')
        path.chmod(0o755)

    return install


RAN = '"$@" && printf "========= %s\\r\\n" '


@pytest.mark.parametrize(
    ("script", "passed", "text"),
    [
        (f'{RAN} "ERROR SUMMARY: 0 errors"', True, "clean, 1 tests"),
        (
            f'{RAN} "ERROR SUMMARY: 0 errors" "ERROR SUMMARY: 250 errors"; exit 99',
            False,
            "0 errors, 250 errors, 1 tests passed, status 99",
        ),
        (
            f'{RAN} "RACECHECK SUMMARY: 12 hazards displayed (8 errors, 4 warnings)"',
            False,
            "12 hazards, 1 tests passed, status 0",
        ),
        (f'{RAN} "ERROR SUMMARY: 0 errors"; exit 1', False, "0 errors, 1 tests passed, status 1"),
        ('echo "ERROR SUMMARY: 0 errors"', False, "0 errors, 0 tests passed, status 0"),
        (
            'echo "Error: Device not supported. ERROR SUMMARY: 2 errors"; exit 1',
            True,
            "does not support this device",
        ),
    ],
)
def test_report_of_a_sanitizer_is_judged(sanitizer, script, passed, text, tmp_path):
    sanitizer(script)
    result = gpu_checks.check_sanitizer("memcheck", HANG_SECONDS)
    assert (result.passed, result.text) == (passed, text)
    arguments = (tmp_path / "arguments").read_text()
    assert arguments.startswith("--tool memcheck --error-exitcode 99 --report-api-errors no ")


def test_sanitizer_that_is_installed_is_found_and_its_last_output_recorded(
    sanitizer, tmp_path, monkeypatch
):
    assert gpu_checks.check_sanitizer("memcheck", 120) == CheckResult(True, "not installed")
    sanitizer("printf %09999d 0; pwd >&2; sleep 60")
    result = gpu_checks.check_sanitizer("racecheck", 0.5)
    assert (result.passed, result.text) == (False, "no summary, 0 tests passed, took more than 0 s")
    assert result.details == {"output": f"{REPOSITORY}\n".rjust(4000, "0")}
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "compute-sanitizer").write_text("#!/bin/sh\necho preferred\n")
    (tmp_path / "compute-sanitizer").chmod(0o755)
    assert "preferred" in gpu_checks.check_sanitizer("memcheck", 120).details["output"]


@pytest.mark.parametrize(
    ("status", "device", "passed"),
    [
        *((0, "Some GPU 9000", True), (None, "Some GPU 9000", True)),
        *((1, "Some GPU 9000", False), (0, "Some CPU", False)),
    ],
)
def test_benchmarks_write_to_the_same_folder(status, device, passed, monkeypatch, tmp_path):
    def run(command, seconds):
        *_, is_gpu_only, option, folder = command
        assert (is_gpu_only, option, seconds) == ("--gpu-only", "--out", 60)
        (Path(folder) / "bench.csv").write_text(f"us,device\n5.0,{device}\n")
        return status

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_checks, "run_command", run)
    assert gpu_checks.check_bench(Path(), "Some GPU 9000", 60).passed == passed
    assert (tmp_path / "bench.csv").exists()


@pytest.fixture
def _sigint_ends():
    """A command's first SIGINT ends it, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("_sigint_ends")
def test_training_is_stopped_in_time_and_resumes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = table1_path(Path("out"), "net1", 0, "load_digits")
    options = ["--nets", "1", "--profile", "paper", "--data", "digits", "--engine", "cpu"]
    result = gpu_checks.check_training(run, options, 0.1)
    assert (result.passed, result.text) == (False, "no epoch; took more than 0 s")
    result = gpu_checks.check_training(run, options, 20)
    assert result.passed
    done = len(result.details["test_errors"])
    assert re.fullmatch(
        rf"{done} of 2,300 epochs, \S+ us an image, \d+ of \d+ wrong, in {run}", result.text
    )
    assert read_run(run).provenance[-1].why == "SIGINT"  # it ended by itself
