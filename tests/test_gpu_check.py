"""`python -m experiments.gpu_check`, where there is no GPU: what it does with what it finds."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deform_gpu import COMMITTEE, TABLE1, deform
from experiments import bench, gpu_check
from experiments.gpu_check import Result
from experiments.running import data
from experiments.running.errors import Interrupted, Problem
from experiments.running.provenance import REPOSITORY
from experiments.timing import peers
from mlp_gpu import gpu, training
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import NETS, Network

SIZES = (841, 40, 20, 10)
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
NOT_STARTED = """========= COMPUTE-SANITIZER
========= Error: Target application terminated before first instrumented API call
"""


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "error: there is no GPU to check: "),
        (
            {"NUMBA_ENABLE_CUDASIM": "1"},
            "error: there is no GPU to check: numba only simulates a GPU, ",
        ),
    ],
)
def test_without_a_gpu_one_sentence_and_status_2(variables, sentence, tmp_path):
    given = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"} | variables
    result = subprocess.run(
        [sys.executable, "-m", "experiments.gpu_check", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=given,
        check=False,
        timeout=120,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(sentence)
    assert not (tmp_path / "out").exists()


def test_run_gives_the_status_and_the_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = "import os, sys; print(os.getcwd()); print('oh', file=sys.stderr); sys.exit(7)"
    with open(tmp_path / "log", "wb") as log:
        assert gpu_check.run([sys.executable, "-c", script], log) == 7
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
def test_run_leaves_no_process_behind(why, tmp_path):
    command = ["sh", "-c", f"sleep 60 & echo $$ $! >{tmp_path}/pids; wait"]
    if why == "too slow":
        assert gpu_check.run(command, seconds=0.5) is None
    else:

        def handle(signum, frame):
            raise Interrupted(signal.SIGTERM)

        before = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            with pytest.raises(Interrupted):
                gpu_check.run(command)
        finally:
            signal.signal(signal.SIGALRM, before)
    shell, child = (tmp_path / "pids").read_text().split()
    deadline = time.monotonic() + 5  # init may take a moment to bury the child
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(shell)
    assert not alive(child)


TESTS = """
import pytest

def test_small(): pass
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


@pytest.fixture
def test_file(tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text(TESTS)
    return path


def test_report_of_pytest(test_file):
    status, found = gpu_check.run_tests([str(test_file), "-p", "no:cacheprovider"])
    assert status == 1
    names = {outcome: {name.split("::")[1] for name in names} for outcome, names in found.items()}
    assert names == {
        "passed": {"test_small", "test_large[1]"},
        "failed": {"test_large[2]", "test_setup", "test_teardown"},
        "skipped": {"test_small_skipped", "test_expected"},
    }
    assert all(len(list_) == len(set(list_)) for list_ in found.values())


def test_pytest_that_leaves_no_report(tmp_path):
    status, found = gpu_check.run_tests(["--no-such-option"])
    assert status == 4
    assert found == {"passed": [], "failed": [], "skipped": []}


@pytest.mark.parametrize(
    ("status", "repeats", "passed"), [(0, 2, True), (0, 0, False), (1, 2, False), (-11, 2, False)]
)
def test_tests_on_the_gpu(status, repeats, passed, monkeypatch):
    found = {
        "passed": ["t::test_other", *["t::test_repeats_are_bit_equal[1]"] * repeats],
        "failed": ["t::test_bad"] if status == 1 else [],
        "skipped": ["t::test_repeats_are_bit_equal[2]"],
    }
    asked = []
    monkeypatch.setattr(gpu_check, "run_tests", lambda *how: asked.append(how) or (status, found))
    result = gpu_check.check_tests()
    assert asked == [(gpu_check.TESTS,)]
    assert result.passed == passed
    assert result.text.startswith(
        f"{1 + repeats} passed, {len(found['failed'])} failed, 1 skipped; {repeats} of bit-equal"
    )
    assert ("status" in result.text) == (status != 0)
    assert result.details == found | {"bit_equal_repeats": repeats}


def test_there_are_small_tests_and_repeats():
    files = [REPOSITORY / name for name in gpu_check.TESTS]
    assert any(f"def test_{gpu_check.REPEATS}" in path.read_text() for path in files)
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", *gpu_check.SMALL],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = [line for line in said.splitlines() if "::" in line]
    assert len(names) >= 10
    assert all("small" in name for name in names)


# Exit status, output and tests that passed; what comes of them.
SAID = {
    "clean": (0, CLEAN, 3, True, "clean, 3 tests"),
    "no race": (0, NO_RACE, 3, True, "clean, 3 tests"),
    "Windows": (0, CLEAN.replace("\n", "\r\n"), 3, True, "clean, 3 tests"),
    "errors": (99, ERRORS, 3, False, "250 errors"),
    "errors, status 0": (0, ERRORS, 3, False, "250 errors"),
    "one error": (99, CLEAN.replace("0 errors", "1 error"), 3, False, "1 error"),
    "races": (99, RACES, 3, False, "12 hazards"),
    "races, status 0": (0, RACES, 3, False, "12 hazards"),
    "two processes": (99, CLEAN + ERRORS, 3, False, "250 errors"),
    "unsupported": (1, UNSUPPORTED, 0, True, "does not support this device"),
    "a test failed": (1, CLEAN, 2, False, "no errors, but 2 tests passed, status 1"),
    "no test passed": (0, CLEAN, 0, False, "no errors, but 0 tests passed, status 0"),
    "no test found": (5, CLEAN, 0, False, "no errors, but 0 tests passed, status 5"),
    "not started": (255, NOT_STARTED, 0, False, "no summary, status 255"),
    "no sanitizer": (0, "3 passed in 1.2s\n", 3, False, "no summary, status 0"),
    "too slow": (None, CLEAN[:40], 0, False, "timed out after 120 s"),
    "errors, too slow": (None, ERRORS, 0, False, "timed out after 120 s"),
}


@pytest.mark.parametrize(("status", "said", "n_tests", "passed", "text"), SAID.values(), ids=SAID)
def test_what_a_sanitizer_says(status, said, n_tests, passed, text):
    result = gpu_check.judge_sanitizer(status, said, n_tests)
    assert (result.passed, result.text) == (passed, text)
    assert result.details == ({} if text.startswith("clean") else {"output": said})


def test_only_the_end_of_a_long_report_is_kept():
    said = "x" * 100_000 + RACES
    kept = gpu_check.judge_sanitizer(99, said, 3).details["output"]
    assert kept == said[-4000:]


@pytest.fixture
def sanitizer(tmp_path, monkeypatch, test_file):
    """What installs a script as compute-sanitizer, which may use the command line after its own."""
    monkeypatch.setattr(gpu_check, "TOOLKITS", tmp_path)
    monkeypatch.setattr(gpu_check, "SMALL", (*gpu_check.SMALL[:-1], str(test_file)))
    (tmp_path / "cuda-12.9" / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def install(script):
        path = tmp_path / "cuda-12.9" / "bin" / "compute-sanitizer"
        path.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/arguments\nshift 6\n{script}\n')
        path.chmod(0o755)
        return path

    return install


def test_the_sanitizer_runs_the_small_tests(sanitizer, tmp_path):
    sanitizer('"$@" && echo "========= ERROR SUMMARY: 0 errors"')
    assert gpu_check.check_sanitizer("memcheck") == Result(True, "clean, 1 tests")
    said = (tmp_path / "arguments").read_text()
    assert said.startswith("--tool memcheck --error-exitcode 99 --report-api-errors no ")
    assert f"{sys.executable} -m pytest -q -k small " in said


def test_errors_of_the_sanitizer(sanitizer):
    sanitizer(
        'echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"; exit 99'
    )
    result = gpu_check.check_sanitizer("racecheck")
    assert (result.passed, result.text) == (False, "1 hazard")
    assert "RACECHECK SUMMARY" in result.details["output"]


def test_a_sanitizer_that_takes_too_long(sanitizer, monkeypatch):
    sanitizer("echo started; sleep 60")
    monkeypatch.setattr(gpu_check, "SANITIZER_SECONDS", 0.5)
    result = gpu_check.check_sanitizer("racecheck")
    assert result == Result(False, "timed out after 0.5 s", {"output": "started\n"})


def test_which_sanitizer(sanitizer, tmp_path, monkeypatch):
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert gpu_check.check_sanitizer("memcheck") == Result(True, "not installed")
    asked = []

    def run_tests(options, under, **how):
        asked.append(under[0])
        return 0, {"passed": []}

    monkeypatch.setattr(gpu_check, "run_tests", run_tests)
    installed = sanitizer("")
    gpu_check.check_sanitizer("memcheck")
    (tmp_path / "path" / "compute-sanitizer").symlink_to(installed)
    gpu_check.check_sanitizer("memcheck")
    assert asked == [str(installed), str(tmp_path / "path" / "compute-sanitizer")]


@pytest.fixture(scope="module")
def digits():
    whole = data.load("digits")
    few = {"test_images": whole.test_images[:200], "test_labels": whole.test_labels[:200]}
    return replace(data.limit(whole, 300), **few)


class Faster(CpuEngine):
    """Trains with a learning rate that is too high by a part `more`."""

    def __init__(self, more):
        self.more = more

    def train(self, images, labels, order, eta, tick):
        return super().train(images, labels, order, eta * (1 + self.more), tick)


class Odd(CpuEngine):
    """Differs in a single bit."""

    def __init__(self, where):
        self.where = where

    def get_network(self):
        network = super().get_network()
        if self.where == "padding":
            network.weights[1][-1, -1] = -0.0
        elif self.where == "weights":
            network.weights[0][3, 4] = np.nextafter(network.weights[0][3, 4], np.float32(1))
        return network

    def train(self, *arguments):
        loss = super().train(*arguments)
        return np.nextafter(loss, 9) if self.where == "loss" else loss

    def predict(self, images):
        outputs = super().predict(images)
        if self.where == "outputs" and len(images) == 200:
            outputs[7, 1] = np.nextafter(outputs[7, 1], np.float32(1))
        return outputs


class Watched(CpuEngine):
    """Writes down what it is trained on."""

    def __init__(self):
        self.heard = []

    def train(self, images, labels, order, eta, tick):
        self.heard.append((images.copy(), labels, order, eta))
        return super().train(images, labels, order, eta, tick)


def test_the_same_engine_passes(digits):
    found = gpu_check.compare(digits, SIZES, CpuEngine(), CpuEngine())
    assert found["gpu_distance"] == found["output_difference"] == 0
    assert found["schedules_bit_equal"] is True
    assert 1e-8 < found["numpy_distance"] < 1e-4
    assert found["gpu_errors"] == found["cpu_errors"]
    assert len(found["gpu_errors"]) == 3
    assert (found["data"], found["n_train"], found["n_test"]) == ("load_digits", 300, 200)
    result = gpu_check.judge_engines(found)
    assert result.passed
    assert result.details is found
    json.dumps(found)


@pytest.mark.parametrize("more", [0.01, 1e-3])
def test_another_learning_rate_fails(digits, more):
    found = gpu_check.compare(digits, SIZES, Faster(more), Faster(more))
    assert found["schedules_bit_equal"] is True
    assert more / 10 < found["gpu_distance"] < 2 * more
    assert found["output_difference"] > 0
    result = gpu_check.judge_engines(found)
    assert not result.passed
    assert f"weights {found['gpu_distance']:.2g} apart" in result.text


def test_errors_are_those_of_the_engines(digits):
    found = gpu_check.compare(digits, SIZES, Faster(30), Faster(30))
    same = gpu_check.compare(digits, SIZES, CpuEngine(), CpuEngine())
    assert found["cpu_errors"] == same["cpu_errors"]
    assert found["gpu_errors"][-1] < 100 < found["cpu_errors"][-1]  # of 200
    assert not gpu_check.judge_engines(found).passed


def test_distances_are_parts_of_the_way(digits, monkeypatch):
    monkeypatch.setattr(gpu_check, "train_numpy", lambda network, *_: peers.matrices(network))
    found = gpu_check.compare(digits, SIZES, CpuEngine(), CpuEngine())
    assert found["numpy_distance"] == 1  # it has not left


@pytest.mark.parametrize("where", ["weights", "padding", "loss", "outputs"])
def test_one_bit_between_the_schedules_fails(digits, where):
    found = gpu_check.compare(digits, SIZES, CpuEngine(), Odd(where))
    assert found["schedules_bit_equal"] is False
    assert found["gpu_distance"] == 0
    result = gpu_check.judge_engines(found)
    assert not result.passed
    assert result.text.endswith("schedules NOT bit-equal")


def test_all_train_on_the_same_deformed_images(digits):
    graph, launch = Watched(), Watched()
    gpu_check.compare(digits, SIZES, graph, launch)
    for epoch, (one, other) in enumerate(zip(graph.heard, launch.heard, strict=True), start=1):
        assert (one[0] == other[0]).all()
        assert (one[1] == digits.train_labels).all()
        assert (one[2] == training.image_order(300, 0, epoch)).all()
        assert one[3] == other[3] == 1e-3
        assert (one[0] != digits.train_images).any(axis=(1, 2)).all()
    assert len(graph.heard) == 3
    assert (graph.heard[0][0] != graph.heard[1][0]).any()


def test_distance():
    some = [np.array([[1, 2]], np.float32), np.array([3], np.float32)]
    others = [np.array([[4, 2]], np.float32), np.array([7], np.float32)]
    assert gpu_check.distance(some, others) == 5


MEASURED = {
    "data": "MNIST",
    "n_test": 10_000,
    "schedules_bit_equal": True,
    "gpu_distance": 2.9e-5,
    "numpy_distance": 1e-5,
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
        ({"schedules_bit_equal": False}, False),
    ],
)
def test_what_is_too_far_apart(change, passed):
    assert gpu_check.judge_engines(MEASURED | change).passed == passed


@pytest.mark.parametrize(("n", "used"), [(5001, 5000), (60, 60)])
def test_net_1_learns_from_5000_images_at_most(n, used, monkeypatch, digits):
    asked = []
    monkeypatch.setattr(gpu_check, "CudaEngine", lambda schedule: schedule)
    monkeypatch.setattr(gpu_check, "compare", lambda *how: asked.append(how) or MEASURED)
    images = np.zeros((n, 29, 29), np.float32)
    many = replace(digits, train_images=images, train_labels=np.zeros(n, np.uint8))
    assert gpu_check.check_engines(many).passed
    ((dataset, *rest),) = asked
    assert len(dataset.train_images) == len(dataset.train_labels) == used
    assert rest == [NETS[1], "graph", "launch"]


def test_the_benchmarks_write_to_the_same_folder(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu, "name", lambda: "Some GPU 9000")
    (tmp_path / "here").mkdir()
    asked, devices, statuses = [], ["Some GPU 9000", "Some CPU"], [0, 0, 1]

    def run(command):
        asked.append(command)
        if devices:
            (tmp_path / "here" / "bench.csv").write_text(f"us,device\n5.0,{devices.pop(0)}\n")
        return statuses.pop(0)

    monkeypatch.setattr(gpu_check, "run", run)
    assert gpu_check.check_bench(Path("here")) == Result(True, "bench.csv")
    assert asked == [[sys.executable, "-m", "experiments.bench", "--out", str(tmp_path / "here")]]
    assert not gpu_check.check_bench(Path("here")).passed
    assert gpu_check.check_bench(Path("here")) == Result(False, "ended with status 1")
    with pytest.raises(SystemExit):
        bench.main(["--help"])
    assert "--out DIR" in capsys.readouterr().out


NAMES = ["GPU", "tests on the GPU", "memcheck", "racecheck", "deformation, CPU and GPU"]
NAMES += ["net 1, CPU and GPU", "net 1, deformed meanwhile", "benchmarks"]


@pytest.fixture
def fakes(monkeypatch):
    """A GPU and checks that pass; the calls of the checks are written down."""
    called = []

    def fake(name, text):
        def check(*arguments):
            called.append((name, *arguments))
            return Result(True, text, {"made by": name})

        monkeypatch.setattr(gpu_check, name, check)

    monkeypatch.setattr(gpu, "SIMULATED", False)
    monkeypatch.setattr(gpu, "missing", lambda: None)
    monkeypatch.setattr(gpu, "name", lambda: "Some GPU 9000")
    monkeypatch.setattr(gpu, "driver_version", lambda: "580.1, CUDA 13.0")
    fake("check_tests", "9 passed")
    fake("check_sanitizer", "clean")
    fake("check_deformation", "equal")
    fake("check_engines", "alike")
    fake("check_ahead", "hidden")
    fake("check_bench", "bench.csv")
    return called


def run_main(folder):
    gpu_check.main(["--data", "digits", "--out", str(folder)])


def read(folder):
    return json.loads((folder / "gpu-check.json").read_text())


def test_record_and_table(fakes, tmp_path, capsys):
    run_main(tmp_path / "new" / "folder")
    found = read(tmp_path / "new" / "folder")
    assert found["passed"] is True
    assert [row["check"] for row in found["checks"]] == NAMES
    assert [row["result"] for row in found["checks"]] == [
        "Some GPU 9000, driver 580.1, CUDA 13.0",
        "9 passed",
        "clean",
        "clean",
        "equal",
        "alike",
        "hidden",
        "bench.csv",
    ]
    assert all(row["passed"] is True and 0 <= row["seconds"] < 60 for row in found["checks"])
    assert found["checks"][1]["details"] == {"made by": "check_tests"}
    source = found["provenance"]
    assert (source["device"], source["driver"]) == ("Some GPU 9000", "580.1, CUDA 13.0")
    assert {"commit", "dirty", "versions", "start", "end"} <= set(source)
    assert "cuda-bindings" in source["versions"]

    assert [call[0] for call in fakes] == [
        "check_tests",
        "check_sanitizer",
        "check_sanitizer",
        "check_deformation",
        "check_engines",
        "check_ahead",
        "check_bench",
    ]
    assert [call[1] for call in fakes[1:3]] == ["memcheck", "racecheck"]
    assert [fakes[i][1].name for i in (3, 4, 5)] == ["load_digits"] * 3
    assert fakes[6][1] == tmp_path / "new" / "folder"

    said = capsys.readouterr()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.out.splitlines()]
    assert lines[0] == ["check", "result", "seconds"]
    assert [line[0] for line in lines[2:]] == NAMES
    assert lines[3] == ["tests on the GPU", "9 passed", "0"]
    assert "FAILED" not in said.out
    assert [f"{name} ..." in said.err for name in NAMES] == [True] * 8


def test_the_folder_is_named_after_the_gpu(fakes, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_check.provenance, "REPOSITORY", tmp_path)
    gpu_check.main(["--data", "digits"])
    assert read(tmp_path / "results" / "some-gpu-9000")["passed"]


def test_a_failed_check_gives_status_1(fakes, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "check_sanitizer", lambda tool: Result(tool[0] == "m", "so so"))
    monkeypatch.setattr(gpu_check, "check_bench", lambda folder: Result(False, "status 2"))
    with pytest.raises(SystemExit) as left:
        run_main(tmp_path)
    assert left.value.code == "failed: racecheck, benchmarks"  # which Python prints, for status 1
    assert read(tmp_path)["passed"] is False
    table = capsys.readouterr().out.splitlines()
    assert [("FAILED: " in line) for line in table] == [False] * 5 + [True] + [False] * 3 + [True]
    assert "| FAILED: so so" in table[5]


def test_a_check_that_breaks_off_does_not_stop_the_next(fakes, tmp_path, monkeypatch, capsys):
    def break_off(dataset):
        raise ValueError("no\n good " * 100)

    monkeypatch.setattr(gpu_check, "check_engines", break_off)
    with pytest.raises(SystemExit, match="failed: net 1, CPU and GPU"):
        run_main(tmp_path)
    assert fakes[-1][0] == "check_bench"
    row = read(tmp_path)["checks"][5]
    assert row["passed"] is False
    assert row["result"].startswith("ValueError: no\n good")
    assert "in break_off" in row["details"]["traceback"]
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 10
    assert "| FAILED: ValueError: no good no" in table[7]
    assert max(map(len, table)) < 160


def test_a_signal_keeps_what_is_measured(fakes, tmp_path, monkeypatch):
    def interrupt(dataset):
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(gpu_check, "check_engines", interrupt)
    with pytest.raises(Interrupted):
        run_main(tmp_path)
    found = read(tmp_path)
    assert found["passed"] is False
    assert [row["check"] for row in found["checks"]] == NAMES[:5]


def test_bad_input_is_told_before_any_check(fakes, tmp_path):
    with pytest.raises(Problem, match="no such folder"):
        gpu_check.main(["--data-dir", str(tmp_path / "nowhere"), "--out", str(tmp_path)])
    assert fakes == []


def test_train_numpy_makes_the_steps_of_the_engine(digits):
    network = Network.initial(SIZES, 0)
    epochs = {1: digits.train_images, 2: digits.train_images[:, ::-1].copy()}
    trained, rows = gpu_check.train(CpuEngine(), network, digits, epochs.get, 2)
    weights = gpu_check.train_numpy(network, digits.train_labels, epochs)
    after = peers.matrices(trained)
    before = peers.matrices(network)
    assert gpu_check.distance(weights, after) < 1e-4 * gpu_check.distance(before, after)
    assert [row.eta for row in rows] == [1e-3, 1e-3]


@pytest.mark.parametrize(("difference", "passed"), [(0, True), (1e-5, True), (1.1e-5, False)])
def test_deformed_images_may_differ_by_rounding(digits, monkeypatch, difference, passed):
    asked = []

    def fake(images, labels, deformation, seed, epoch, device="cpu"):
        asked.append((len(images), seed, epoch, device))
        found = np.zeros(images.shape)
        if device == "cuda" and deformation is COMMITTEE:
            found[299, 28, 28] = -difference
        return found

    monkeypatch.setattr(gpu_check, "deform", fake)
    result = gpu_check.check_deformation(digits)
    assert result.passed == passed
    assert result.details == {"difference": difference, "repeats_bit_equal": True}
    assert set(asked) == {(300, 0, 1, "cpu"), (300, 0, 1, "cuda")}


def test_deformation_must_repeat_itself():
    assert gpu_check.judge_deformation(3, 0.0, True).passed
    result = gpu_check.judge_deformation(3, 0.0, False)
    assert not result.passed
    assert result.text == "3 images: 0 apart at most; repeats NOT bit-equal"
    assert not gpu_check.judge_deformation(3, float("nan"), True).passed


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
    monkeypatch.setattr(gpu_check, "deform", fake)
    return asked


def test_training_on_images_deformed_meanwhile_is_compared(digits, on_cpu):
    ahead = Before(digits)
    found = gpu_check.compare_ahead(digits, SIZES, Streaming(), CpuEngine(), ahead)
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


@pytest.mark.parametrize("stale", [1, 2, 3])
def test_one_epoch_of_other_images_is_seen(digits, on_cpu, stale):
    class Stale(Before):
        def __call__(self, epoch):
            return super().__call__(9 if epoch == stale else epoch)

    found = gpu_check.compare_ahead(digits, SIZES, Streaming(), CpuEngine(), Stale(digits))
    assert found["bit_equal"] is False
    assert found["cpu_distance"] > 0


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
def test_a_deformation_that_training_waits_for_fails(change, passed):
    result = gpu_check.judge_ahead(AHEAD | change)
    assert result.passed == passed
    if not change:
        assert result.text == (
            "deformed from 0.50 to 2.50 ms of 610 ms of training, which waited 0.90 ms; bit-equal "
            "to deforming before; 320 wrong, deformed on the CPU 300"
        )
