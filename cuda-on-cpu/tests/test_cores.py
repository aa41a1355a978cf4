"""Blocks on several cores have the results, the counts and the faults of blocks in turn."""

import gc
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numba import cuda
from programs import needs_toolkit

from cuda_on_cpu import Executor, KernelFault, device_array, run, to_device

pytestmark = needs_toolkit
BLOCKS, THREADS = 9, 64
N = BLOCKS * THREADS
EXECUTOR = Executor((9, 0), "forward")


@cuda.jit
def sum_up(out, x, flag, writer, reader):
    i, block = cuda.grid(1), cuda.blockIdx.x
    total = np.float32(0)
    for k in range(1000):
        total += x[(i + k) % x.size]
    if block == writer:
        flag[0] = block
    if block == reader:
        total += flag[0]
    out[i] = total


def launch(n_cores, writer, reader, monkeypatch):
    """What a launch leaves: counts or the fault, memory, warnings; and how it was run.

    That is the threads of each pool, and how many launches were made in turn.
    """
    out, x, flag = device_array(N, np.float32), device_array(N, np.float32), to_device(np.ones(1))
    x.copy_to_device(np.arange(N, dtype=np.float32))
    pools, in_turn, run_in_turn = [], [], run.Executable._run_in_turn
    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as warned:
        patch.setattr(run, "N_CORES", n_cores)
        patch.setattr(run, "ThreadPoolExecutor", lambda n: pools.append(n) or ThreadPoolExecutor(n))
        patch.setattr(
            run.Executable, "_run_in_turn", lambda *a: in_turn.append(a) or run_in_turn(*a)
        )
        try:
            launched = EXECUTOR.launch(sum_up, BLOCKS, THREADS, (out, x, flag, writer, reader))
            outcome = launched.executed.tolist()
            EXECUTOR.launch(sum_up, 1, THREADS, (x, out, flag, -1, -1))  # what was written is known
        except KernelFault as fault:
            outcome = str(fault).partition(", address")[0]
    memory = [array.content.tobytes() for array in (out, x, flag)]
    return (outcome, memory, [str(one.message) for one in warned]), (pools, len(in_turn))


@pytest.mark.parametrize(
    ("writer", "reader", "fault"),
    [
        (-1, -1, ""),
        (3, -1, ""),
        (3, 3, "another thread"),
        (0, 8, "another block"),
        (8, 0, "another block"),
    ],
)
def test_blocks_on_cores_leave_what_blocks_in_turn_leave(writer, reader, fault, monkeypatch):
    expected, _ = launch(1, writer, reader, monkeypatch)
    assert fault in str(expected[0])
    for n_cores in (2, 4):
        EXECUTOR._programs.clear()
        launch(1, -1, -1, monkeypatch)
        found, how = launch(n_cores, writer, reader, monkeypatch)
        assert found == expected
        assert how == ([n_cores], 1)  # the small launch, or one that has a fault, is made in turn


def test_no_garbage_is_collected_on_other_cores(monkeypatch):
    """Its finalizers may free memory of the fake driver, which waits for the launch to end."""
    EXECUTOR._programs.clear()
    launch(1, -1, -1, monkeypatch)
    found, run_blocks = [], run.Executable._run
    monkeypatch.setattr(
        run.Executable, "_run", lambda *given: found.append(gc.isenabled()) or run_blocks(*given)
    )
    launch(2, -1, -1, monkeypatch)
    assert found == [False, False, True]  # the last launch is made in turn
    assert gc.isenabled()


def test_blocks_run_in_turn_when_python_ends_and_makes_no_threads(monkeypatch):
    EXECUTOR._programs.clear()
    expected, _ = launch(1, -1, -1, monkeypatch)

    def refuse(*arguments):
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    assert launch(2, -1, -1, monkeypatch) == (expected, ([2], 2))
    assert launch(2, -1, -1, monkeypatch) == (expected, ([], 2))  # it is not tried again
