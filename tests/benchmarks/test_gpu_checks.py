"""experiments/benchmarks/gpu_checks.py without a GPU: CPU engines and scripts replace a GPU's."""

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from executed import ENGINE_DEVICES, HAS_GPU, on_device
from gpu_arrays import capture_small_graphs
from waiting import is_alive, wait_until

from cnn_gpu import cuda as cnn_cuda
from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.cuda import ConvCudaEngine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime import gpu
from deepbig_runtime.errors import Interrupted
from deform_gpu import COMMITTEE, deform
from experiments.benchmarks import gpu_checks
from experiments.benchmarks.baselines import numpy_convolutional, numpy_loop
from experiments.benchmarks.gpu_checks import CheckResult
from experiments.datasets import data
from experiments.training.provenance import REPOSITORY
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


def check(monkeypatch, sample, one, again):
    """`check_engines` of a small net by engines in place of a GPU's, and whether they are equal."""
    if isinstance(one, CpuEngine):
        Odd.labels = sample.test_labels
        case = Network.initial(SIZES, 0), CpuEngine(), one, again, numpy_loop
    else:
        network = ConvNetwork.initial("6M5s1-8M5s1c50%-7N", Maps(1, 29, 29), 10, 0)
        case = network, ConvCpuEngine(), one, again, numpy_convolutional
    monkeypatch.setattr(gpu_checks, "make_case", lambda name: case)
    monkeypatch.setattr(gpu_checks, "MAX_IMAGES", 200)
    return gpu_checks.check_engines(sample, "small")


@pytest.mark.parametrize("engine", [CpuEngine, ConvCpuEngine])
def test_same_engine_passes(sample, engine, monkeypatch):
    result = check(monkeypatch, sample, engine(), engine())
    found = result.details
    assert found["gpu_distance"] == found["output_difference"] == 0
    assert 1e-8 < found["baseline_distance"] < 1e-4
    assert found["gpu_errors"] == found["cpu_errors"]
    assert len(found["gpu_errors"]) == len(found["cpu_seconds"]) == 3
    assert (found["data"], found["n_train"], found["n_test"]) == ("load_digits", 200, 600)
    assert json.loads(json.dumps(found)) == found
    wrong = found["gpu_errors"][-1]
    assert result == CheckResult(
        True,
        "load_digits: weights 0 apart, another CPU program's "
        f"{found['baseline_distance']:.2g}; {wrong} and {wrong} of 600 wrong; two runs on the GPU "
        "bit-equal",
        found,
    )


@pytest.mark.parametrize(
    ("options", "passed"),
    [
        *(({"eta": 1.001}, False), ({"where": "NaN"}, False)),
        *(({"n_wrong": 1}, True), ({"n_wrong": 2}, False)),
    ],
)
def test_other_training_on_both_gpu_runs_fails(sample, options, passed, monkeypatch):
    result = check(monkeypatch, sample, Odd(**options), Odd(**options))
    assert result.passed == passed
    if "eta" in options:
        assert 1e-4 < result.details["gpu_distance"] < 2e-3
    else:
        gap = result.details["gpu_errors"][-1] - result.details["cpu_errors"][-1]
        assert gap == options.get("n_wrong", 0)


@pytest.mark.parametrize("where", ["weights", "padding", "loss", "outputs"])
def test_one_bit_between_two_gpu_trainings_fails(sample, where, monkeypatch):
    result = check(monkeypatch, sample, CpuEngine(), Odd(where))
    assert not result.passed
    assert result.text.endswith("two runs on the GPU NOT bit-equal")


def test_weight_distance_is_over_all_layers():
    some, others = ([np.array([[n, 2]], np.float32), np.array([m])] for n, m in ((1, 3), (4, 7)))
    assert gpu_checks.weight_distance(some, others) == 5


@pytest.mark.parametrize("device", ENGINE_DEVICES)
def test_convolutional_nets_on_the_gpu_pass(device, sample, monkeypatch):
    """Few images where there is no GPU and the kernels are executed; the limits are the same."""
    n = 200 if HAS_GPU else 21
    test = {"test_images": sample.test_images[:n], "test_labels": sample.test_labels[:n]}
    few = replace(data.limit(sample, n), **test)
    for module in (cnn_cuda, mlp_cuda):
        monkeypatch.setattr(module, "PREDICT_BATCH", n)
    capture_small_graphs(monkeypatch)
    monkeypatch.setattr(gpu_checks, "MAX_IMAGES", n)
    with on_device(device):
        result = check(monkeypatch, few, ConvCudaEngine("graph"), ConvCudaEngine("launch"))
    assert result.passed
    assert result.details["gpu_distance"] > 0


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
    assert (result.passed, result.details["repeats_bit_equal"]) == (passed, equal)
    np.testing.assert_equal(result.details["difference"], difference)
    assert set(asked) == {(300, 0, 1, "cpu"), (300, 0, 1, "cuda")}
    text = f"300 images: {difference:.2g} apart at most; repeats {'' if equal else 'NOT '}bit-equal"
    assert result.text == text


class Event:
    """CUDA's, by a clock that each record advances by a second."""

    clock = 0

    def record(self, stream):
        Event.clock += 1
        self.at = Event.clock

    def elapsed_time(self, end):
        return 1e3 * (end.at - self.at)

    def synchronize(self):
        pass


class Ahead:
    """Has deformed all epochs on the CPU before the first one is asked for."""

    stale, late, wait = 0, False, 0

    def __init__(self, images, labels, deformation, seed, last_epoch):
        assert last_epoch == 3
        self.events, self.labels = (Event(), Event()), labels
        self.epochs = {n: deform(images, labels, deformation, seed, n) for n in (1, 2, 3, 9)}

    def __call__(self, epoch):
        for event in self.events:
            event.record(None)
        if self.late:
            self.events[1].at += 5
        time.sleep(self.wait * (epoch == 3))
        return self.epochs[9 if epoch == self.stale else epoch]


class Streaming(CpuEngine):
    stream = None

    def train(self, *arguments, **options):
        time.sleep(0.2)
        return super().train(*arguments, **options)


@pytest.fixture
def on_cpu(monkeypatch, sample):
    """The CPU replaces the GPU; returns which epochs are deformed beforehand, and where."""
    asked = []

    def fake(images, labels, deformation, seed, epoch, device):
        asked.append((epoch, device, len(images)))
        return deform(images, labels, deformation, seed, epoch)

    monkeypatch.setattr(gpu.cuda, "event", Event)
    monkeypatch.setattr(gpu_checks, "deform", fake)
    monkeypatch.setattr(gpu_checks, "DeformedAhead", Ahead)
    monkeypatch.setattr(gpu_checks, "WindowCudaEngine", Streaming)
    monkeypatch.setattr(gpu_checks, "NETS", {1: SIZES})
    monkeypatch.setattr(gpu_checks, "N_IMAGES", 400)
    # A wait is of this machine, whose other processes may take it: as long as the events' clock.
    monkeypatch.setattr(gpu_checks, "MAX_WAIT_FRACTION", 0.9)
    return asked


def test_training_on_images_deformed_meanwhile_passes(sample, on_cpu):
    """Few images are repeated until they are many."""
    result = gpu_checks.check_ahead(sample)
    found = result.details
    assert on_cpu == [(n, device, 400) for device in ("cuda", "cpu") for n in (1, 2, 3)]
    assert (found["bit_equal"], found["cpu_distance"], found["n_test"]) == (True, 0, 600)
    assert found["errors"] == found["cpu_errors"]
    timeline = {"deformation_begun": -2e3, "deformation_ended": -1e3, "trained": 1e3}
    assert found["timelines_ms"] == [timeline] * 2
    assert len(found["waited_seconds"]) == len(found["train_seconds"]) == 3
    assert json.loads(json.dumps(found)) == found
    assert result.passed
    wrong = found["errors"][-1]
    assert re.fullmatch(
        r"deformed from -2000\.00 to -1000\.00 ms of 1000 ms of training, which waited \d+\.\d\d "
        rf"ms; bit-equal to deforming before; {wrong} wrong, deformed on the CPU {wrong}",
        result.text,
    )


@pytest.mark.parametrize(
    "change",
    [
        *({"stale": 1}, {"stale": 3}),  # images of another epoch
        {"late": True},  # deformed after training has ended
        {"wait": 0.6, "max_wait": 1e6},  # more than half of the deformation
        {"wait": 0.15, "max_wait": 0.1},  # more than a part of training
    ],
    ids=str,
)
def test_deformation_that_training_waits_for_fails(change, sample, on_cpu, monkeypatch):
    change = dict(change)
    if max_wait := change.pop("max_wait", None):
        monkeypatch.setattr(gpu_checks, "MAX_WAIT_FRACTION", max_wait)
    for name, value in change.items():
        monkeypatch.setattr(Ahead, name, value)
    result = gpu_checks.check_ahead(sample)
    assert not result.passed
    assert result.details["bit_equal"] == ("stale" not in change)


# --- other programs


CLEAN = "========= COMPUTE-SANITIZER\n3 passed in 1.2s\n========= ERROR SUMMARY: 0 errors\n"
NO_RACE = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
ERRORS = """=========     Address 0x7f6c2a000c04 is out of bounds
========= ERROR SUMMARY: 250 errors
========= ERROR SUMMARY: 150 errors were not printed. Use --print-limit option to adjust the number
"""
RACES = """=========     and Read access at delta_partial+0x350 [96 hazards]
========= RACECHECK SUMMARY: 12 hazards displayed (8 errors, 4 warnings)
"""
UNSUPPORTED = """========= Error: Device not supported. Please refer to the documentation
========= ERROR SUMMARY: 2 errors
"""


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
    wait_until(lambda: not is_alive(child))  # init may take a moment to bury it
    assert not is_alive(shell)


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


NOTHING = {"passed": [], "failed": [], "skipped": []}


def test_outcomes_of_pytest_are_read(test_file):
    status, found = gpu_checks.run_tests("it", ["-n", "1", str(test_file), *HERE])
    assert status == 1
    names = {outcome: {name.split("::")[1] for name in own} for outcome, own in found.tests.items()}
    assert names == {
        "passed": {"test_small", "test_large[1]"},
        "failed": {"test_large[2]", "test_setup", "test_teardown"},
        "skipped": {"test_small_skipped", "test_expected"},
    }
    assert all(len(own) == len(set(own)) for own in found.tests.values())
    assert found.repeats == 1  # of two that are marked


@pytest.mark.parametrize("several", [(), gpu_checks.SEVERAL_PROCESSES], ids=["one", "several"])
def test_test_that_hangs_is_ended_and_earlier_outcomes_are_read(several, tmp_path, capfd):
    if several:
        pytest.importorskip("xdist")
    path = tmp_path / "test_it.py"
    path.write_text("import time\n\ndef test_a(): pass\n\ndef test_b():\n    time.sleep(9999)\n")
    options = [option.replace("=300", "=0.5") for option in gpu_checks.HANGING_TESTS]
    status, found = gpu_checks.run_tests("it", [*options, str(path), *HERE, *several])
    assert status == 1
    (passed,) = found.tests["passed"]
    assert passed.endswith("::test_a")
    assert capfd.readouterr().err.count(" in test_b\n") == 1  # it is not tried again


@pytest.mark.parametrize(
    ("status", "repeats", "passed"), [(0, 2, True), (0, 0, False), (1, 2, False), (-11, 2, False)]
)
def test_tests_pass_if_pytest_and_repeats_do(status, repeats, passed, monkeypatch):
    found = NOTHING | {"passed": ["t::test_a", "t::test_b"], "skipped": ["t::test_c"]}
    asked = []
    outcomes = gpu_checks.pytest_outcomes.Outcomes(found, repeats)
    monkeypatch.setattr(
        gpu_checks, "run_tests", lambda *how, seconds: asked.append(how) or (status, outcomes)
    )
    result = gpu_checks.check_tests(60)
    several = gpu_checks.SEVERAL_PROCESSES
    assert asked == [("tests", (*gpu_checks.HANGING_TESTS, *several, "-m", "gpu"))]
    text = f"2 passed, 0 failed, 1 skipped; {repeats} of bit-equal repeats"
    text += f"; pytest ended with status {status}" * (status != 0)
    assert result == CheckResult(passed, text, found | {"bit_equal_repeats": repeats})


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
    marked = {path.stem: set() for path in files}  # markers of the tests of a file
    n = n_small = 0
    for line in done.stdout.splitlines():
        if line.startswith("found "):
            _, name, *markers = line.split()
            marked[Path(name.partition("::")[0]).stem].update(markers)
            n, n_small = n + 1, n_small + ("small" in markers)
    assert all(marked.values())
    assert {name for name, own in marked.items() if "small" in own} == {
        *("test_kernels", "test_cnn_kernels", "test_deform_kernels", "test_window_kernels")
    }
    assert {name for name, own in marked.items() if "repeats" in own} == {
        *("test_kernels", "test_deform_kernels", "test_ladder", "test_window_engine")
    }
    assert 40 < n_small < n


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
        (
            *(f"printf %09999d 0; pwd >&2; echo '{RACES.splitlines()[-1]}'; exit 99", 120),
            *("12 hazards", f"0{REPOSITORY}\n{RACES.splitlines()[-1]}\n"),
        ),
        ("echo started; sleep 60", 0.5, "timed out", "started\n"),
    ],
)
def test_sanitizer_that_fails(sanitizer, script, seconds, text, output):
    """The end of its output is recorded."""
    sanitizer(script)
    result = gpu_checks.check_sanitizer("racecheck", seconds)
    assert (result.passed, result.text) == (False, text)
    assert result.details == {"output": output.rjust(4000, "0") if seconds > 1 else output}


def test_sanitizer_in_path_is_preferred(sanitizer, tmp_path, monkeypatch):
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    assert gpu_checks.check_sanitizer("memcheck", 120) == CheckResult(True, "not installed")
    sanitizer("echo installed")
    assert "installed" in gpu_checks.check_sanitizer("memcheck", 120).details["output"]
    preferred = tmp_path / "path" / "compute-sanitizer"
    preferred.write_text("#!/bin/sh\necho preferred\n")
    preferred.chmod(0o755)
    assert "preferred" in gpu_checks.check_sanitizer("memcheck", 120).details["output"]


def test_benchmarks_write_to_the_same_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path, asked = tmp_path / "here" / "bench.csv", []
    path.parent.mkdir()

    def check(status, device="Some GPU 9000"):
        def run(command, seconds):
            asked.append((command, seconds))
            path.write_text(f"us,device\n5.0,{device}\n")
            return status

        monkeypatch.setattr(gpu_checks, "run_command", run)
        return gpu_checks.check_bench(Path("here"), "Some GPU 9000", 60)

    assert check(0) == CheckResult(True, "bench.csv")
    command = [sys.executable, "-m", "experiments.bench", "--gpu-only", "--out"]
    assert asked == [([*command, str(tmp_path / "here")], 60)]
    assert check(None) == CheckResult(True, "bench.csv, as far as it came in time")
    assert check(1) == CheckResult(False, "ended with status 1")
    assert not check(0, "Some CPU").passed
