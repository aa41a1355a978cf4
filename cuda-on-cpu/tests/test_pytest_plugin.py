"""pytest -p cuda_on_cpu runs a project's GPU tests, and a launch that fails fails its test."""

import re
from importlib.util import find_spec

import pytest
from programs import needs_driver, needs_toolkit, run

pytestmark = [needs_toolkit, needs_driver]

SWALLOWS = """
    try:
        cuda.synchronize()
    except Exception:
        pass
"""
TESTS = f"""
import numpy as np
import pytest
from numba import cuda

@cuda.jit
def shift(step, out, x):
    out[cuda.grid(1)] = x[cuda.grid(1) + step]

kept = []  # freeing memory waits for the launch

def launch():
    kept[:] = cuda.device_array(32, np.float32), cuda.to_device(np.ones(32, np.float32))
    shift[1, 32](1, *kept)

@pytest.fixture
def launched():
    launch()

def test_good():
    stream, end = cuda.stream(), cuda.event()
    x = cuda.to_device(np.arange(32, dtype=np.float32))
    out = cuda.device_array(31, np.float32)
    shift[1, 31, stream](1, out, x)
    end.record(stream)
    end.synchronize()
    assert cuda.is_available() and (out.copy_to_host() == np.arange(1, 32)).all()

def test_late():
    launch()

def test_swallowed():
    launch()
    {SWALLOWS.strip()}

def test_raises():
    launch()
    cuda.synchronize()

def test_fixture(launched):
    pass

@pytest.fixture(scope="module")
def shared():
    launch()

def test_first(shared):
    pass

def test_next(shared):
    pass

test_good_again = test_good
"""


@pytest.mark.parametrize("is_parallel", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_tests_fail_with_the_finding_of_their_own_launch(tmp_path, is_parallel):
    path = tmp_path / "test_shift.py"
    path.write_text(TESTS)
    command = ["-m", "pytest", "-p", "no:cacheprovider", "-rfE", f"--rootdir={tmp_path}"]
    if not is_parallel:
        command += ["-p", "cuda_on_cpu"]
    elif find_spec("xdist"):
        command += ["-n2"]
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p cuda_on_cpu\n" * is_parallel)
    done = run(*command, path, CI="1")  # whose summary has whole lines
    report, _, summary = done.stdout.partition("short test summary info")
    line = TESTS[: TESTS.index("    out[")].count("\n") + 1
    finding = rf"shift \(test_shift.py:{line}\): .* outside of every array: .*: x\[32\]"
    assert set(re.findall(rf"(\w+) \S+::test_(\w+) - Failed: {finding}", summary)) == {
        ("FAILED", "late"),
        ("FAILED", "swallowed"),
        ("FAILED", "raises"),
        ("ERROR", "fixture"),
        ("ERROR", "first"),
        ("ERROR", "next"),
    }
    assert len(re.findall(finding, report)) == 6
    assert "3 failed, 2 passed" in summary


def test_a_missing_compiler_ends_pytest_with_a_sentence(tmp_path):
    done = run("-m", "pytest", "-p", "cuda_on_cpu", tmp_path, PATH="")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: there is no fake driver: there is no C compiler\n"
