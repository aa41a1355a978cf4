"""The fake driver does as CUDA does, as late as CUDA may, and fails when it is told."""

import json
import textwrap
from functools import partial
from pathlib import Path

import programs
import pytest

from cuda_on_cpu.driver import build

pytestmark = programs.needs_driver

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
    return programs.run_on_driver("-c", start + textwrap.dedent(code), **environment)


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
    command = partial(programs.run, "-m", "cuda_on_cpu")
    code = "import sys; from numba import cuda; print(len(cuda.gpus), sys.argv[1:])"
    done = command("-c", code, "--option", CUDA_ON_CPU_GPUS="7.5")
    assert (done.returncode, done.stdout) == (0, "1 ['--option']\n"), done.stderr
    done = command("x.py", NUMBA_ENABLE_CUDASIM="1")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no fake driver: numba simulates the GPU")
    usage = command("--help")
    assert usage.returncode == 0
    assert "CUDA_ON_CPU_SEED" in usage.stdout


def test_kernels_are_kept_in_a_private_folder_unless_the_environment_names_another(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("CUDA_ON_CPU_CACHE")
    build.library()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    found = Path(build.environment()["CUDA_ON_CPU_CACHE"])
    assert found == tmp_path / "new" / "cuda_on_cpu" / "kernels"
    assert [path.stat().st_mode & 0o777 for path in (found.parent, found)] == [0o700] * 2
    monkeypatch.setenv("CUDA_ON_CPU_CACHE", "")
    assert build.environment()["CUDA_ON_CPU_CACHE"] == ""


TICKETS = """
import numpy as np
from numba import cuda

@cuda.jit("void(int32[::1], int32[::1])")
def take(tickets, taken):
    tickets[cuda.blockIdx.x] = cuda.atomic.add(taken, 0, 1)

for launch in range(2):
    tickets, taken = (cuda.to_device(np.zeros(n, np.int32)) for n in (64, 1))
    take[64, 1](tickets, taken)
    print(tickets.copy_to_host().tolist())
"""


def test_each_launch_runs_its_blocks_in_another_order():
    done = programs.run_on_driver("-c", TICKETS, CUDA_ON_CPU_SEED="1")
    one, other = map(json.loads, done.stdout.splitlines())
    assert sorted(one) == sorted(other) == list(range(64))
    assert one != other


GRID = """
import numpy as np
from numba import cuda

@cuda.jit
def kernel(out, x):
    i, grid = cuda.grid(1), cuda.cg.this_grid()
    x[i] = cuda.fp16.hfma(x[i], x[i], x[i])
    grid.sync()
    out[i] = x[31 - i]
    if i == 0:
        print("first", i)

x = np.arange(32, dtype=np.float16)
out = np.zeros_like(x)
kernel[4, 8](out, x.copy())
print((out == (x * x + x)[::-1]).all())
"""


def test_a_cooperative_kernel_is_linked_with_libraries_waits_for_the_grid_and_prints():
    assert printed("", GRID) == "first 0\nTrue"


DYNAMIC = """
import numpy as np
from cuda.bindings import driver
from numba import cuda

@cuda.jit("void(int32[::1])")
def fill(out):
    row = cuda.shared.array(0, np.int32)
    row[cuda.threadIdx.x] = cuda.threadIdx.x
    cuda.syncthreads()
    out[cuda.threadIdx.x] = row[31 - cuda.threadIdx.x] + row.size

def launch(n):
    out = cuda.device_array(32, np.int32)
    try:
        fill[1, 32, 0, 4 * n](out)
        print(out.copy_to_host()[0])
    except Exception as error:
        print(str(error).split("CUDA_ERROR_")[1].split(":")[0])

function = fill.overloads[fill.signatures[0]]._codelibrary.get_cufunc().handle
attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
for n in (12288, 12289):
    launch(n)
for n_bytes in (232449, 232448):
    print(driver.cuFuncSetAttribute(function, attribute, n_bytes)[0].value)
for n in (58112, 58113, 31):
    launch(n)
"""


def test_a_launch_has_more_shared_memory_than_usual_only_where_the_program_asked_for_it():
    done = programs.run_on_driver("-c", DYNAMIC)
    expected = "12319 INVALID_VALUE 1 0 58143 INVALID_VALUE LAUNCH_FAILED"
    assert done.stdout.split() == expected.split(), done.stderr
    assert "outside of every array" in done.stderr


FREED = """
import gc
import numpy as np
from numba import cuda
from cuda_on_cpu.driver import memory

@cuda.jit
def increase(x):
    x[0] += 1

def collect_and_launch(*arguments, launch=memory.launch):
    gc.collect()
    launch(*arguments)

gc.disable()
memory.launch = collect_and_launch
x, info = cuda.to_device(np.zeros(1)), cuda.current_context().get_memory_info
garbage = [cuda.device_array(125, np.float64)]
garbage.append(garbage)
del garbage
free = info().free
increase[1, 1](x)
print(x.copy_to_host(), info().free - free)
"""


def test_a_launch_that_collects_garbage_frees_its_memory():
    done = programs.run_on_driver("-c", FREED, NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT="0")
    assert done.stdout.split() == ["[1.]", "1000"], done.stderr


GRAPH = """
call("cuStreamBeginCapture", first, driver.CUstreamCaptureMode(2))
call("cuMemcpyDtoDAsync", other, array, 16, first)
call("cuMemsetD32Async", array, 3, 4, first)
INSIDE
graph = call("cuStreamEndCapture", first)
"""
PROGRAMS = {
    "copies of more than 64 KiB read the host late, smaller ones at the call": (
        """
        for n in 2**14, 2**14 + 1:
            many, back = np.ones(n, np.int32), np.zeros(n, np.int32)
            memory = call("cuMemAlloc", 4 * n)
            call("cuMemcpyHtoDAsync", memory, many.ctypes.data, 4 * n, first)
            many[:] = 7
            call("cuMemcpyDtoHAsync", back.ctypes.data, memory, 4 * n, first)
            print(back[:2].tolist())
            sync(first)
            print(back[:2].tolist())
        """,
        "[0, 0]\n[1, 1]\n[0, 0]\n[7, 7]",
    ),
    "an event waits as its stream does": (
        """
        blocking, event = call("cuStreamCreate", 0), call("cuEventCreate", 0)
        call("cuMemsetD32Async", array, 5, 4, blocking)
        copy_out(found, array, blocking)
        call("cuEventRecord", event, 0)
        call("cuEventSynchronize", event)
        print(found.tolist())
        """,
        "[5, 5, 5, 5]",
    ),
    "memory of the host that is registered is the GPU's, too": (
        """
        call("cuMemHostRegister", ones.ctypes.data, 16, 0)
        call("cuMemsetD32", ones.ctypes.data, 6, 4)
        address = call("cuMemHostGetDevicePointer", ones.ctypes.data, 0)
        sync(0)
        print(ones.tolist(), int(address) == ones.ctypes.data)
        call("cuMemHostUnregister", ones.ctypes.data)
        managed = call("cuMemAllocManaged", 16, 1)
        call("cuMemcpyDtoH", found.ctypes.data, managed, 16)
        print(found.tolist())
        """,
        "[6, 6, 6, 6] True\n[-1, -1, -1, -1]",
    ),
    "a copy without a stream is done on return": (
        """
        call("cuMemcpyHtoD", array, ones.ctypes.data, 16)
        ones[:] = 7
        call("cuMemcpyDtoH", found.ctypes.data, array, 16)
        print(found.tolist())
        """,
        "[1, 1, 1, 1]",
    ),
    "it does not wait for a stream of its own, but for others": (
        """
        for stream in first, call("cuStreamCreate", 0):
            copy_in(array, ones, stream)
            call("cuMemcpyDtoH", found.ctypes.data, array, 16)
            print(found.tolist())
        """,
        "[-1, -1, -1, -1]\n[1, 1, 1, 1]",
    ),
    "the default stream is waited for": (
        """
        blocking = call("cuStreamCreate", 0)
        call("cuMemsetD32", array, 5, 4)
        copy_out(found, array, blocking)
        sync(blocking)
        print(found.tolist())
        """,
        "[5, 5, 5, 5]",
    ),
    "new memory holds ones, is counted, and is freed after its use": (
        """
        free, total = call("cuMemGetInfo")
        third = call("cuMemAlloc", 1000)
        print(free - call("cuMemGetInfo")[0])
        call("cuMemFree", third)
        copy_out(found, array, first)
        call("cuMemFree", array)
        print(found.tolist(), free - call("cuMemGetInfo")[0])
        """,
        "1000\n[-1, -1, -1, -1] -16",
    ),
    "events say what is done": (
        """
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
        """,
        "CUDA_ERROR_NOT_READY\nCUDA_ERROR_NOT_READY\nTrue",
    ),
    "a captured graph runs when it is launched, and as often": (
        GRAPH.replace("INSIDE", "")
        + """
call("cuMemcpyHtoD", array, ones.ctypes.data, 16)
instance = call("cuGraphInstantiate", graph, 0)
call("cuGraphDestroy", graph)
for i in range(3):
    call("cuMemcpyDtoH", found.ctypes.data, other, 16)
    print(found[0])
    call("cuGraphLaunch", instance, first)
    sync(first)
""",
        "-1\n1\n3",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_prints_what_it_would_on_a_gpu(name):
    code, expected = PROGRAMS[name]
    assert printed(code) == expected


def test_gpus_are_chosen():
    code = """
    print([[call("cuDeviceGetAttribute", driver.CUdevice_attribute(75 + i), gpu) for i in (0, 1)]
           for gpu in range(call("cuDeviceGetCount"))])
    """
    assert printed(code) == "[[9, 0]]"
    assert printed(code, CUDA_ON_CPU_GPUS="7.5,10.0") == "[[7, 5], [10, 0]]"


# The two arrays that are always made are the first calls of cuMemAlloc.
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("cuMemAlloc:4:2", "None None True CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuStreamSynchronize:1:719", " ".join(["CUDA_ERROR_LAUNCH_FAILED"] * 4)),
        ("cuStreamSynchronize:1:999", "CUDA_ERROR_UNKNOWN None True True"),
    ],
    ids=["memory", "lost", "other"],
)
def test_the_chosen_call_fails_and_later_ones_only_if_the_gpu_is_lost(fault, expected):
    code = """
    alloc = lambda: call("cuMemAlloc", 4) is not None
    for attempt in (lambda: sync(first), lambda: sync(second), alloc, alloc):
        try:
            print(attempt())
        except Refused as error:
            print(error)
    """
    assert printed(code, CUDA_ON_CPU_FAIL=fault).split() == expected.split()


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


def test_a_stream_that_captures_cannot_be_waited_for():
    for inside in ("sync(first)", 'call("cuEventRecord", call("cuEventCreate", 0), first)'):
        attempt = f"try: {inside}\nexcept Refused as error: print(error)"
        done = run(GRAPH.replace("INSIDE", attempt))
        assert done.stdout.strip() == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
        assert "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" in done.stderr


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
    said = run(code).stderr
    assert f"Refused: CUDA_ERROR_{error}\n" in said
    missing = "the driver's function cuArrayDestroy is missing"
    assert (missing in said) == (error == "NOT_SUPPORTED")


def test_calls_are_counted(tmp_path):
    run("sync(first); sync(first); sync(second)", CUDA_ON_CPU_CALLS=str(tmp_path / "calls"))
    lines = (tmp_path / "calls").read_text().splitlines()
    calls = {name: int(n) for _, name, n in map(str.split, lines)}
    assert calls["cuStreamSynchronize"] == 3
    assert calls["cuMemAlloc"] == 2
    assert "cuMemFree" not in calls
