"""The fake driver does as CUDA does, as late as CUDA may, and fails when it is told."""

import subprocess
import sys
import textwrap

import fake_driver
import pytest

from cuda_on_cpu.driver import build

pytestmark = pytest.mark.skipif(build.missing() is not None, reason=str(build.missing()))

START = """
import numpy as np
from driver_calls import *
start()
n = np.zeros(1, np.int32)
ones, twos, threes = (np.full(4, k, np.int32) for k in (1, 2, 3))
found = np.zeros(4, np.int32)
first, second = new_stream(), new_stream()
array, other = call("cuMemAlloc", 16), call("cuMemAlloc", 16)
"""


def run(code, start=START, **environment):
    return fake_driver.run(start + textwrap.dedent(code), **environment)


def printed(code, start=START, **environment):
    """What the code prints."""
    done = run(code, start, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_says_what_it_is():
    done = run('print(call("cuDeviceGetName", 100, 0).decode())')
    assert done.stdout.strip(" \0\n") == "fake GPU on a CPU"
    sentence = "a fake driver runs CUDA kernels on the CPU, with checks: never fast"
    assert done.stderr.strip() == sentence


def test_command_runs_python_on_the_fake_driver():
    command = [sys.executable, "-m", "cuda_on_cpu"]
    code = "import sys; from numba import cuda; print(len(cuda.gpus), sys.argv[1:])"
    done = subprocess.run(
        [*command, "-c", code, "--option"],
        env=fake_driver.environment(CUDA_ON_CPU_GPUS="7.5"),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "1 ['--option']\n"), done.stderr
    usage = subprocess.run([*command, "--help"], capture_output=True, text=True)
    assert usage.returncode == 0
    assert "CUDA_ON_CPU_SEED" in usage.stdout


def test_gpus_are_chosen():
    code = """
    print([[call("cuDeviceGetAttribute", driver.CUdevice_attribute(75 + i), gpu) for i in (0, 1)]
           for gpu in range(call("cuDeviceGetCount"))])
    """
    assert printed(code) == "[[9, 0]]"
    assert printed(code, CUDA_ON_CPU_GPUS="7.5,10.0") == "[[7, 5], [10, 0]]"


def test_new_memory_holds_ones_and_is_counted():
    code = """
    free, total = call("cuMemGetInfo")
    third = call("cuMemAlloc", 1000)
    print(free - call("cuMemGetInfo")[0])
    call("cuMemFree", third)
    print(free - call("cuMemGetInfo")[0])
    copy_out(found, array, first)
    sync(first)
    print(found.tolist())
    """
    assert printed(code).split("\n") == ["1000", "0", "[-1, -1, -1, -1]"]


def test_a_copy_reads_the_host_late():
    code = """
    copy_in(array, ones, first)
    ones[:] = 7
    copy_out(found, array, first)
    print(found.tolist())
    sync(first)
    print(found.tolist())
    """
    assert printed(code).split("\n") == ["[0, 0, 0, 0]", "[7, 7, 7, 7]"]


def test_a_copy_without_a_stream_is_done_on_return():
    code = """
    call("cuMemcpyHtoD", array, ones.ctypes.data, 16)
    ones[:] = 7
    call("cuMemcpyDtoH", found.ctypes.data, array, 16)
    print(found.tolist())
    """
    assert printed(code) == "[1, 1, 1, 1]"


def test_a_copy_without_a_stream_does_not_wait_for_a_stream_of_its_own():
    code = """
    copy_in(array, ones, first)
    call("cuMemcpyDtoH", found.ctypes.data, array, 16)
    print(found.tolist())
    """
    assert printed(code) == "[-1, -1, -1, -1]"
    blocking = 'first = call("cuStreamCreate", 0)\n' + textwrap.dedent(code)
    assert printed(blocking) == "[1, 1, 1, 1]"


def test_the_default_stream_is_waited_for():
    code = """
    blocking = call("cuStreamCreate", 0)
    call("cuMemsetD32", array, 5, 4)
    copy_out(found, array, blocking)
    sync(blocking)
    print(found.tolist())
    """
    assert printed(code) == "[5, 5, 5, 5]"


RACE = """
event = call("cuEventCreate", 0)
for attempt in range(16):
    copy_in(array, ones, first)
    call("cuEventRecord", event, first)
    WAIT
    copy_in(array, twos, second)
    sync(second)
    sync(first)
    call("cuMemcpyDtoH", found.ctypes.data, array, 16)
    print(found[0])
"""


def test_two_streams_overlap_by_chance_unless_one_waits():
    racing = RACE.replace("WAIT", "pass")
    outcomes = [printed(racing, CUDA_ON_CPU_SEED=seed) for seed in ("1", "1", "2")]
    assert set(outcomes[0].split()) == {"1", "2"}
    assert outcomes[0] == outcomes[1] != outcomes[2]
    waiting = RACE.replace("WAIT", 'call("cuStreamWaitEvent", second, event, 0)')
    assert set(printed(waiting, CUDA_ON_CPU_SEED="1").split()) == {"2"}


def test_events_say_what_is_done():
    code = """
    begin, end = call("cuEventCreate", 0), call("cuEventCreate", 0)
    call("cuEventRecord", begin, first)
    copy_in(array, ones, first)
    copy_in(array, ones, first)
    call("cuEventRecord", end, first)
    for attempt in (["cuEventElapsedTime", begin, end], ["cuEventQuery", end]):
        try:
            call(*attempt)
        except Refused as error:
            print(error)
    call("cuEventSynchronize", end)
    call("cuEventQuery", end)
    print(0 < call("cuEventElapsedTime", begin, end) < 1000)
    """
    assert printed(code).split() == ["CUDA_ERROR_NOT_READY"] * 2 + ["True"]


GRAPH = """
call("cuStreamBeginCapture", first, driver.CUstreamCaptureMode(2))
call("cuMemcpyDtoDAsync", other, array, 16, first)
call("cuMemsetD32Async", array, 3, 4, first)
INSIDE
graph = call("cuStreamEndCapture", first)
"""


def test_a_captured_graph_runs_when_it_is_launched_and_as_often():
    code = """
    call("cuMemcpyHtoD", array, ones.ctypes.data, 16)
    instance = call("cuGraphInstantiate", graph, 0)
    call("cuGraphDestroy", graph)
    for i in range(3):
        call("cuMemcpyDtoH", found.ctypes.data, other, 16)
        print(found[0])
        call("cuGraphLaunch", instance, first)
        sync(first)
    """
    assert printed(GRAPH.replace("INSIDE", "") + textwrap.dedent(code)).split() == ["-1", "1", "3"]


def test_a_stream_that_captures_cannot_be_waited_for():
    for inside in ("sync(first)", 'call("cuEventRecord", call("cuEventCreate", 0), first)'):
        attempt = f"try: {inside}\nexcept Refused as error: print(error)"
        done = run(GRAPH.replace("INSIDE", attempt))
        assert done.stdout.strip() == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
        assert "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" in done.stderr


def test_memory_is_freed_after_what_uses_it():
    code = """
    call("cuMemcpyHtoD", array, ones.ctypes.data, 16)
    copy_out(found, array, first)
    call("cuMemFree", array)
    print(found[0])
    """
    assert printed(code) == "1"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ('call("cuMemcpyHtoD", array, ones.ctypes.data, 17)', "INVALID_VALUE"),
        ('call("cuMemcpyDtoH", found.ctypes.data, int(array) - 1, 4)', "INVALID_VALUE"),
        ('call("cuMemsetD32", int(array) + 4, 0, 4)', "INVALID_VALUE"),
        ('call("cuMemFree", array); call("cuMemFree", array)', "INVALID_VALUE"),
        ('call("cuMemAlloc", 1 << 40)', "OUT_OF_MEMORY"),
        ('call("cuStreamDestroy", first); sync(first)', "INVALID_HANDLE"),
        ('call("cuCtxPopCurrent"); call("cuMemAlloc", 4)', "INVALID_CONTEXT"),
        ('import os; os.fork() or print(call("cuMemAlloc", 4)); os.wait()', "NOT_INITIALIZED"),
        ('call("cuArrayDestroy", 0)', "NOT_SUPPORTED"),
    ],
)
def test_what_a_driver_refuses_is_refused(code, error):
    assert f"Refused: CUDA_ERROR_{error}\n" in run(code).stderr


def test_a_missing_function_is_named():
    assert (
        "the driver's function cuArrayDestroy is missing"
        in run("driver.cuArrayDestroy(driver.CUarray())").stderr
    )


def test_the_chosen_call_fails_and_no_other():
    code = """
    for i in range(4):
        try:
            call("cuMemAlloc", 4)
        except Refused as error:
            print(i, error)
    """
    # The two arrays that are always made are the first calls.
    assert printed(code, CUDA_ON_CPU_FAIL="cuMemAlloc:4:2") == "1 CUDA_ERROR_OUT_OF_MEMORY"


def test_a_gpu_that_is_lost_stays_lost():
    code = """
    for attempt in (lambda: sync(first), lambda: sync(second), lambda: call("cuMemAlloc", 4)):
        try:
            print(attempt())
        except Refused as error:
            print(error)
    """
    failed = printed(code, CUDA_ON_CPU_FAIL="cuStreamSynchronize:1:719").split()
    assert failed == ["CUDA_ERROR_LAUNCH_FAILED"] * 3
    recovered = printed(code, CUDA_ON_CPU_FAIL="cuStreamSynchronize:1:999").split()
    assert recovered[:2] == ["CUDA_ERROR_UNKNOWN", "None"]


def test_calls_are_counted(tmp_path):
    run("sync(first); sync(first); sync(second)", CUDA_ON_CPU_CALLS=str(tmp_path / "calls"))
    lines = (tmp_path / "calls").read_text().splitlines()
    calls = {name: int(n) for _, name, n in map(str.split, lines)}
    assert calls["cuStreamSynchronize"] == 3
    assert calls["cuMemAlloc"] == 2
    assert "cuMemFree" not in calls
