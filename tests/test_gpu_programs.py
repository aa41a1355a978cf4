"""timing/gpu_programs.py: what other programs say of a GPU, where there is none."""

import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from executed import DEVICES

from experiments.running.errors import Interrupted
from experiments.running.provenance import REPOSITORY
from experiments.timing import gpu_programs
from experiments.timing.check_result import CheckResult

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


def test_run_gives_the_status_and_the_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = "import os, sys; print(os.getcwd()); print('oh', file=sys.stderr); sys.exit(7)"
    with open(tmp_path / "log", "wb") as log:
        assert gpu_programs.run_command([sys.executable, "-c", script], log) == 7
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
        assert gpu_programs.run_command(command, seconds=0.5) is None
    else:

        def handle(signum, frame):
            raise Interrupted(signal.SIGTERM)

        before = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            with pytest.raises(Interrupted):
                gpu_programs.run_command(command)
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


@pytest.fixture(autouse=True)
def outcomes(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_programs, "OUTCOMES", tmp_path / "outcomes")


@pytest.fixture
def test_file(tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text(TESTS)
    return path


def test_report_of_pytest(test_file):
    status, found = gpu_programs.run_tests("it", [str(test_file), "-p", "no:cacheprovider"])
    assert status == 1
    names = {outcome: {name.split("::")[1] for name in names} for outcome, names in found.items()}
    assert names == {
        "passed": {"test_small", "test_large[1]"},
        "failed": {"test_large[2]", "test_setup", "test_teardown"},
        "skipped": {"test_small_skipped", "test_expected"},
    }
    assert all(len(list_) == len(set(list_)) for list_ in found.values())


def test_what_came_before_the_end_is_known(tmp_path):
    """Tests in several processes, one of which hangs."""
    path = tmp_path / "test_it.py"
    path.write_text("import time\n\ndef test_a(): pass\n\ndef test_b():\n    time.sleep(600)\n")
    options = ["-n", "1", str(path), "-p", "no:cacheprovider"]
    status, found = gpu_programs.run_tests("it", options, seconds=15)
    assert status is None
    assert [name.split("::")[1] for name in found["passed"]] == ["test_a"]


def test_a_test_that_hangs_is_ended(tmp_path, capfd):
    path = tmp_path / "test_it.py"
    path.write_text("import time\n\ndef test_hangs():\n    time.sleep(600)\n")
    options = [option.replace("=300", "=0.5") for option in gpu_programs.HANGING_TESTS]
    status, found = gpu_programs.run_tests("it", [*options, str(path), "-p", "no:cacheprovider"])
    assert status == 1
    assert found == {"passed": [], "failed": [], "skipped": []}
    assert " in test_hangs\n" in capfd.readouterr().err


def test_pytest_that_leaves_no_report(tmp_path):
    status, found = gpu_programs.run_tests("it", ["--no-such-option"])
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
    monkeypatch.setattr(
        gpu_programs, "run_tests", lambda *how, seconds: asked.append(how) or (status, found)
    )
    result = gpu_programs.check_tests(60)
    name, options = asked[0]
    assert name == "tests"
    assert options[: len(gpu_programs.HANGING_TESTS)] == gpu_programs.HANGING_TESTS
    assert options[-len(gpu_programs.GPU_TESTS) :] == gpu_programs.GPU_TESTS
    assert "-n" in options
    assert result.passed == passed
    assert result.text.startswith(
        f"{1 + repeats} passed, {len(found['failed'])} failed, 1 skipped; {repeats} of bit-equal"
    )
    assert ("status" in result.text) == (status != 0)
    assert result.details == found | {"bit_equal_repeats": repeats}


def test_all_tests_that_need_a_gpu_are_run():
    tests = [path.relative_to(REPOSITORY) for path in REPOSITORY.glob("tests/test_*.py")]
    need_a_gpu = {
        path.as_posix()
        for path in tests
        if re.search(
            r"^from executed import .*\b(on_)?device$",
            (REPOSITORY / path).read_text(),
            re.MULTILINE,
        )
    }
    assert {"tests/test_ladder.py", "tests/test_engines.py", "tests/test_cuda.py"} <= need_a_gpu
    assert need_a_gpu <= set(gpu_programs.GPU_TESTS)


def test_there_are_small_tests_and_repeats():
    files = [REPOSITORY / name for name in gpu_programs.GPU_TESTS]
    assert any(f"def test_{gpu_programs.REPEAT_TESTS}" in path.read_text() for path in files)
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", *gpu_programs.SMALL_TESTS],
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
    "too slow": (None, CLEAN[:40], 0, False, "timed out"),
    "errors, too slow": (None, ERRORS, 0, False, "timed out"),
}


@pytest.mark.parametrize(("status", "said", "n_tests", "passed", "text"), SAID.values(), ids=SAID)
def test_what_a_sanitizer_says(status, said, n_tests, passed, text):
    result = gpu_programs.judge_sanitizer(status, said, n_tests)
    assert (result.passed, result.text) == (passed, text)
    assert result.details == ({} if text.startswith("clean") else {"output": said})


def test_only_the_end_of_a_long_report_is_kept():
    said = "x" * 100_000 + RACES
    kept = gpu_programs.judge_sanitizer(99, said, 3).details["output"]
    assert kept == said[-4000:]


@pytest.fixture
def sanitizer(tmp_path, monkeypatch, test_file):
    """What installs a script as compute-sanitizer, which may use the command line after its own."""
    monkeypatch.setattr(gpu_programs, "TOOLKITS_FOLDER", tmp_path)
    monkeypatch.setattr(
        gpu_programs, "SMALL_TESTS", (*gpu_programs.SMALL_TESTS[:-1], str(test_file))
    )
    (tmp_path / "cuda-12.9" / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def install(script):
        path = tmp_path / "cuda-12.9" / "bin" / "compute-sanitizer"
        path.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/arguments\nshift 6\n{script}\n')
        path.chmod(0o755)
        return path

    return install


def test_the_sanitizer_runs_the_small_tests(sanitizer, tmp_path, monkeypatch):
    assert gpu_programs.SMALL_TESTS[:2] == ("-k", "small")
    monkeypatch.setattr(
        gpu_programs, "SMALL_TESTS", ("-k", "small and pick", "tests/test_kernels.py")
    )
    sanitizer('"$@" && echo "========= ERROR SUMMARY: 0 errors"')
    n = 3 * len(DEVICES)  # three sizes
    assert gpu_programs.check_sanitizer("memcheck", 120) == CheckResult(True, f"clean, {n} tests")
    said = (tmp_path / "arguments").read_text()
    assert said.startswith("--tool memcheck --error-exitcode 99 --report-api-errors no ")
    assert f"{sys.executable} -m pytest -q -p experiments.timing.pytest_outcomes -k small " in said


def test_errors_of_the_sanitizer(sanitizer):
    sanitizer(
        'echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"; exit 99'
    )
    result = gpu_programs.check_sanitizer("racecheck", 120)
    assert (result.passed, result.text) == (False, "1 hazard")
    assert "RACECHECK SUMMARY" in result.details["output"]


def test_a_sanitizer_that_takes_too_long(sanitizer):
    sanitizer("echo started; sleep 60")
    result = gpu_programs.check_sanitizer("racecheck", 0.5)
    assert result == CheckResult(False, "timed out", {"output": "started\n"})


def test_which_sanitizer(sanitizer, tmp_path, monkeypatch):
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert gpu_programs.check_sanitizer("memcheck", 120) == CheckResult(True, "not installed")
    asked = []

    def run_tests(name, options, prefix, log, seconds):
        asked.append(prefix[0])
        return 0, {"passed": []}

    monkeypatch.setattr(gpu_programs, "run_tests", run_tests)
    installed = sanitizer("")
    gpu_programs.check_sanitizer("memcheck", 120)
    (tmp_path / "path" / "compute-sanitizer").symlink_to(installed)
    gpu_programs.check_sanitizer("memcheck", 120)
    assert asked == [str(installed), str(tmp_path / "path" / "compute-sanitizer")]


def test_the_benchmarks_write_to_the_same_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    asked, devices, statuses = [], ["Some GPU 9000", "Some CPU"], [0, 0]

    def run(command, seconds):
        asked.append((command, seconds))
        if devices:
            (tmp_path / "here" / "bench.csv").write_text(f"us,device\n5.0,{devices.pop(0)}\n")
        return statuses.pop(0)

    monkeypatch.setattr(gpu_programs, "run_command", run)
    check = partial(gpu_programs.check_bench, Path("here"), "Some GPU 9000", 60)
    assert check() == CheckResult(True, "bench.csv")
    command = [sys.executable, "-m", "experiments.bench", "--gpu-only", "--out"]
    assert asked == [([*command, str(tmp_path / "here")], 60)]
    assert not check().passed
    (tmp_path / "here" / "bench.csv").write_text("Some GPU 9000")
    statuses += [None, 1]
    assert check() == CheckResult(True, "bench.csv, as far as it came in time")
    assert check() == CheckResult(False, "ended with status 1")
