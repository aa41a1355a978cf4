"""experiments/benchmarks/gpu_checks.py without a GPU: scripts and made-up trainings replace it."""

import re
import signal
import subprocess
import sys
import threading
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
from deform_gpu import COMMITTEE
from experiments.benchmarks import gpu_checks
from experiments.benchmarks.baselines import numpy_convolutional, numpy_loop
from experiments.benchmarks.gpu_checks import CheckResult
from experiments.datasets import data
from experiments.training.provenance import REPOSITORY
from experiments.training.store import read_run, table1_path
from mlp_gpu import cuda as mlp_cuda
from mlp_gpu.network import NETS, Network

SIZES = (33, 21, 10)


@pytest.fixture
def sample(digits):
    """300 training images, and 600 test images."""
    test = {"test_images": np.resize(digits.test_images, (600, 29, 29))}
    return replace(data.limit(digits, 300), **test, test_labels=np.resize(digits.test_labels, 600))


def trained(moved=0.0, padding=0.0, loss=0.5, output=0.1, errors=7):
    """A trained net, one of its weights moved, and its last epoch."""
    network = Network.blank(SIZES)
    network.weights[0][3, 4], network.weights[1][-1, -1] = moved, padding
    outputs = np.array([output], np.float32)
    return network, [SimpleNamespace(outputs=outputs, train_loss=loss, test_errors=errors)]


@pytest.mark.parametrize(
    ("on_gpu", "again", "passed", "equal"),
    [
        ({"moved": 2.0598}, {}, True, True),
        ({"moved": 2.0602}, {}, False, True),  # three times as far as the baseline
        ({"moved": np.nan}, {}, False, True),
        ({"errors": 8}, {}, True, True),
        ({"errors": 9}, {}, False, True),
        *(({}, change, False, False) for change in ({"moved": 2 + 2e-7}, {"padding": -0.0})),
        *(({}, change, False, False) for change in ({"loss": 0.6}, {"output": 0.1 + 1e-8})),
    ],
)
def test_two_gpu_trainings_are_compared_with_the_cpu(
    on_gpu, again, passed, equal, sample, monkeypatch
):
    """The CPU engine moves a weight by 2, the baseline by 2.02, and the CPU engine has 7 wrong."""
    on_gpu = {"moved": 2.0} | on_gpu
    engines = (trained(moved=2.0), trained(**on_gpu), trained(**on_gpu | again))
    by_baseline = trained(moved=2.02)[0].unpadded()
    monkeypatch.setattr(
        gpu_checks, "make_case", lambda name: (Network.blank(SIZES), *engines, None)
    )
    monkeypatch.setattr(gpu_checks, "train", lambda engine, *_: engine)
    monkeypatch.setattr(gpu_checks, "train_baseline", lambda *_: by_baseline)
    monkeypatch.setattr(gpu_checks, "deformed_epochs", lambda dataset: {})
    result = gpu_checks.check_engines(sample, "graph")
    assert result.passed == passed
    apart = abs(on_gpu["moved"] / 2 - 1)
    assert result.text == (
        f"load_digits: weights {apart:.2g} apart, another CPU program's 0.01; "
        f"{on_gpu.get('errors', 7)} and 7 of 600 wrong; "
        f"two runs on the GPU {'' if equal else 'NOT '}bit-equal"
    )


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
        case = network, *engines, numpy_convolutional
        monkeypatch.setattr(gpu_checks, "make_case", lambda name: case)
        result = gpu_checks.check_engines(few, "small")
    assert result.passed
    ours, baseline = re.search(r"weights (\S+) apart, .* program's (\S+);", result.text).groups()
    assert float(ours) > 0
    assert 1e-8 < float(baseline) < 1e-4  # the same images, in the same order


@pytest.mark.parametrize("device", ENGINE_DEVICES)
def test_cases_compare_launch_modes_on_the_papers_nets(device):
    with on_device(device):
        cases = {case: gpu_checks.make_case(case) for case in ("graph", "window", "cnn")}
    modes = {case: tuple(engine.schedule for engine in found[2:4]) for case, found in cases.items()}
    assert modes == {
        "graph": ("graph", "launch"),
        "window": ("window", "window"),
        "cnn": ("graph", "launch"),
    }
    assert cases["graph"][0].sizes == cases["window"][0].sizes == NETS[1]
    assert cases["cnn"][0].description == "20M5s1-60M5s1c50%-100M3c50%-150N"
    assert [found[-1] for found in cases.values()] == [numpy_loop, numpy_loop, numpy_convolutional]


@pytest.mark.parametrize(
    ("n", "wrong", "passed"),
    [(60_000, 2000, True), (60_000, 2001, False), (59_999, 2001, True)],
)
def test_whole_epochs_leave_few_digits_wrong(n, wrong, passed, monkeypatch):
    rows = [SimpleNamespace(train_seconds=1.0, test_errors=wrong)]
    monkeypatch.setattr(gpu_checks, "train", lambda *_: (None, rows))
    monkeypatch.setattr(gpu_checks, "deformer", lambda *_: None)
    sizes = {"train_labels": n, "test_labels": 10_000, "train_images": 0}
    dataset = SimpleNamespace(**{name: np.zeros(size) for name, size in sizes.items()})
    assert gpu_checks.check_epochs(dataset, 1, "cpu", "graph", 1).passed == passed


@pytest.mark.parametrize("spoilt", [False, True])
def test_nets_trained_at_once_must_have_the_bits_of_each_alone(spoilt, sample, monkeypatch):
    """Four nets each time; with n at once an epoch takes n + 2 seconds and evaluating a quarter."""
    running, seeds, first_weights = [], [], set()
    starting = {n: threading.Barrier(n, timeout=HANG_SECONDS) for n in (1, 2, 4)}
    pools = iter((1, 1, 2, 4))  # one that compiles comes first

    class Pool(gpu_checks.ThreadPoolExecutor):
        def __init__(self, n):
            super().__init__(n)
            assert n == next(pools)
            running.append(n)

    def train(engine, network, dataset, images):
        n = running[-1] if running else next(pools)
        starting[n].wait()
        first_weights.add(network.weights[0].tobytes())
        seconds = {"deform_seconds": 1.0, "train_seconds": n + 1.0, "evaluate_seconds": 0.25}
        net, (row,) = trained(moved=network.weights[0][3, 4] + spoilt * (n == 4))
        return net, [SimpleNamespace(**vars(row), **seconds)]

    def ahead(images, labels, deformation, seed, last_epoch):
        assert len(images) == len(labels) == 250
        seeds.append(seed)

    monkeypatch.setattr(gpu_checks, "AT_ONCE_IMAGES", 250)
    monkeypatch.setattr(gpu_checks, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(gpu_checks, "DeformedAhead", ahead)
    monkeypatch.setattr(gpu_checks, "WindowCudaEngine", lambda: None)
    monkeypatch.setattr(gpu_checks, "train", train)
    result = gpu_checks.check_at_once(sample, SIZES)
    assert result.passed == (not spoilt)
    assert sorted(seeds) == sorted([0, *3 * [0, 1, 2, 3]])
    assert len(first_weights) == 4
    us = [1e6 * (n + 2.25) / n / 250 for n in (1, 2, 4)]
    assert result.details["us"] == pytest.approx(us)
    assert result.text == (
        f"{us[0]:.1f} us an image with 1, {us[1]:.1f} us an image with 2, {us[2]:.1f} us an image "
        f"with 4 at once; {'NOT ' * spoilt}bit-equal to one after another"
    )


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


@pytest.mark.parametrize(
    ("stale", "deform_ms", "wait_ms", "passed"),
    [
        *((0, 1000, 20, True), (1, 1000, 20, False), (3, 1000, 20, False)),
        *((0, 41, 20, True), (0, 39, 20, False)),  # half of the deformation
        *((0, 1000, 21, False), (0, 1000, float("nan"), False)),  # a hundredth of training
    ],
)
def test_training_on_images_deformed_meanwhile(
    stale, deform_ms, wait_ms, passed, sample, monkeypatch
):
    """On few images, repeated until they are many. stale: an epoch that gets images of another."""

    class Ahead:
        events = 2 * (SimpleNamespace(elapsed_time=lambda end: deform_ms),)

        def __init__(self, images, labels, deformation, seed, last_epoch):
            assert (len(images), len(labels), last_epoch) == (400, 400, 3)

        def __call__(self, epoch):
            return np.full(1, 9 if epoch == stale else epoch)

    def train(engine, network, dataset, images):
        seconds = (9.0, 2.2), (1e-3 * wait_ms, 2.0), (0.0, 2.1)  # the first wait is not hidden
        rows = [
            SimpleNamespace(
                outputs=images(n), train_loss=0.0, deform_seconds=waited, train_seconds=busy
            )
            for n, (waited, busy) in enumerate(seconds, start=1)
        ]
        return network, rows

    monkeypatch.setattr(gpu_checks, "DeformedAhead", Ahead)
    monkeypatch.setattr(gpu_checks, "WindowCudaEngine", lambda: None)
    monkeypatch.setattr(gpu_checks, "train", train)
    monkeypatch.setattr(gpu_checks, "deform", lambda *given, device: np.full(1, given[4]))
    monkeypatch.setattr(gpu_checks, "N_IMAGES", 400)
    result = gpu_checks.check_ahead(sample)
    assert result.passed == passed
    assert result.text == (
        f"deformed in {deform_ms:.2f} ms of 2000 ms of training, which waited {wait_ms:.2f} ms; "
        f"{'NOT ' * bool(stale)}bit-equal to deforming before"
    )


# --- other programs


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("trap", ["", "trap '' INT"], ids=["ends", "ignores SIGINT"])
def test_run_command_leaves_no_process_behind(interrupted, trap, tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    command = ["sh", "-c", f"{trap}\nsleep 9999 & echo $$ $! >{pids}; wait; wait"]
    error = Interrupted(signal.SIGINT) if interrupted else subprocess.TimeoutExpired(command, 1)

    class Popen(subprocess.Popen):
        def wait(self, timeout=None):
            if timeout == HANG_SECONDS:
                wait_until(lambda: pids.exists() and pids.read_text())
                raise error
            return super().wait(timeout)

    monkeypatch.setattr(gpu_checks.subprocess, "Popen", Popen)
    monkeypatch.setattr(gpu_checks, "GRACE_SECONDS", 0.5)
    with pytest.raises(Interrupted) if interrupted else nullcontext():
        assert gpu_checks.run_command(command, HANG_SECONDS) is None
    shell, child = pids.read_text().split()
    wait_until(lambda: not is_alive(child))  # init may take a moment to bury it
    assert not is_alive(shell)


HERE = ("-p", "no:cacheprovider")
TESTS = """
import pytest

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
    return path


def test_outcomes_of_pytest_are_counted(test_file, monkeypatch):
    options = [str(test_file), *HERE]
    monkeypatch.setattr(gpu_checks, "GPU_TESTS", options)
    text = "2 passed, 2 failed, 1 skipped; 1 of bit-equal repeats"
    result = gpu_checks.check_tests(HANG_SECONDS)
    assert (result.passed, result.text) == (False, f"{text}; pytest: status 1")
    names = "test_it.test_small", "test_it.test_repeats_are_bit_equal[1]"
    assert result.details["passed"] == [*names]
    monkeypatch.setattr(gpu_checks, "GPU_TESTS", [*options, "-k", "small"])
    # As in a Python without pytest-xdist, whose options pytest would not take.
    monkeypatch.setattr(gpu_checks, "SEVERAL_PROCESSES", ["--no-such-option"])
    monkeypatch.setattr(gpu_checks, "find_spec", lambda name: name != "xdist" or None)
    result = gpu_checks.check_tests(HANG_SECONDS)
    assert not result.passed  # no kernel was repeated
    assert result.text == "1 passed, 0 failed, 0 skipped; 0 of bit-equal repeats"


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
def test_markers_select_tests_of_gpus():
    """`gpu` all of a file whose tests run on `device`, and `small` those of kernels."""
    paths = (REPOSITORY / "tests").rglob("test_*.py")
    files = [path for path in paths if "from executed import" in path.read_text()]
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


@pytest.mark.parametrize(
    ("output", "status", "n_passed", "passed", "text"),
    [
        ("========= ERROR SUMMARY: 0 errors\r\n", 0, 1, True, "clean, 1 tests"),
        ("SUMMARY: 0 errors SUMMARY: 250 errors", 0, 2, False, "0 errors, 250 errors, 2 tests"),
        ("RACECHECK SUMMARY: 12 hazards displayed (8 errors)", 0, 1, False, "12 hazards, 1 tests"),
        ("ERROR SUMMARY: 0 errors", 1, 1, False, "0 errors, 1 tests"),
        ("ERROR SUMMARY: 0 errors", 0, 0, False, "0 errors, 0 tests"),
        ("Device not supported. SUMMARY: 2 errors", 1, 1, True, "does not support this device"),
    ],
)
def test_report_of_a_sanitizer_is_judged(output, status, n_passed, passed, text, monkeypatch):
    def run_tests(name, options, seconds, prefix, log):
        options = ["--tool", "memcheck", "--error-exitcode", "99", "--report-api-errors", "no"]
        assert prefix == ["a sanitizer", *options]
        log.write(output.encode())
        return status, {"passed": ["a test"] * n_passed}

    monkeypatch.setattr(gpu_checks.shutil, "which", lambda name: "a sanitizer")
    monkeypatch.setattr(gpu_checks, "run_tests", run_tests)
    result = gpu_checks.check_sanitizer("memcheck", 9)
    text += "" if passed else f" passed, status {status}"
    assert (result.passed, result.text) == (passed, text)


def test_sanitizer_that_is_installed_is_found_and_its_last_output_recorded(tmp_path, monkeypatch):
    def install(path, script):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    monkeypatch.setattr(gpu_checks, "OUT", tmp_path)
    monkeypatch.setattr(gpu_checks, "TOOLKITS_FOLDER", tmp_path)
    monkeypatch.setattr(gpu_checks, "GRACE_SECONDS", 0.5)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert gpu_checks.check_sanitizer("memcheck", 120) == CheckResult(True, "not installed")
    path = tmp_path / "cuda-12.9" / "bin" / "compute-sanitizer"
    install(path, "printf %09999d 0; pwd >&2; sleep 60")
    result = gpu_checks.check_sanitizer("racecheck", 0.5)
    assert (result.passed, result.text) == (False, "no summary, 0 tests passed, took more than 0 s")
    assert result.details == {"output": f"{REPOSITORY}\n".rjust(4000, "0")}
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    install(tmp_path / "compute-sanitizer", "echo preferred")
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
        *_, nets, is_gpu_only, option, folder = command
        assert (is_gpu_only, option) == ("--gpu-only", "--out")
        assert nets == {60: "1,4", 300: "experiments.bench"}[seconds]
        (Path(folder) / "bench.csv").write_text(f"us,device\n5.0,{device}\n")
        return status

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_checks, "run_command", run)
    assert gpu_checks.check_bench(Path(), "Some GPU 9000", 60).passed == passed
    assert (tmp_path / "bench.csv").exists()
    assert not gpu_checks.check_bench(Path(), "Some GPU 9000", 300).passed  # it has no new row


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
    result = gpu_checks.check_training(run, options, 0.1)
    assert (result.passed, result.text) == (False, "no epoch; took more than 0 s")
