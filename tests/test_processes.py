"""The pool of processes: its cores and GPUs, deaths, signals, and the end of its parent."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, nullcontext, suppress

import numpy as np
import pytest
from pool_jobs import (
    die,
    die_when_stopped,
    double,
    look_at_nothing,
    multiply_compiled,
    tell_threads,
    wait_for_stop,
)
from run_bits import epochs_on_disk
from waiting import join, wait_until

from experiments.running import processes, provenance, runs
from experiments.running.errors import Interrupted, signals
from experiments.running.processes import LocalProcesses, run_until

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's /proc")


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pids(pool):
    return list(pool._executor._processes)


@pytest.fixture(scope="module")
def local():
    with closing(LocalProcesses(2)) as pool:
        yield pool


def test_processes_divide_the_cores(monkeypatch):
    monkeypatch.setattr(provenance, "cores", lambda: 7)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    for name in set(processes.THREAD_VARIABLES) - {"OMP_NUM_THREADS"}:
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with closing(LocalProcesses(3)) as pool:
        jobs = [pool.submit(tell_threads) for _ in range(2)]
        assert os.environ == before
        for future in pool.as_completed(jobs):
            names, numba_threads, pid = future.result()
            assert names == dict.fromkeys(processes.THREAD_VARIABLES, "2")
            assert numba_threads == 2
            assert pid != os.getpid()
    assert os.environ == before


def test_more_processes_than_cores_have_a_thread_each(monkeypatch):
    asked = []
    monkeypatch.setattr(provenance, "cores", lambda: 1)

    def start(variables):
        asked.append(variables)
        return nullcontext()

    monkeypatch.setattr(processes, "_new_processes_have", start)
    with closing(LocalProcesses(3)) as pool:
        monkeypatch.setattr(pool._executor, "submit", lambda *_: None)
        pool.submit(double, 1)
    assert asked == [dict.fromkeys(processes.THREAD_VARIABLES, "1")]


def test_processes_take_the_gpus_in_turn(monkeypatch):
    started = []

    class Executor:
        def __init__(self, workers, mp_context, initializer, initargs):
            started.append([initargs[2].get() for _ in range(workers)])
            assert initargs[2].empty()

        def shutdown(self, **_):
            pass

    monkeypatch.setattr(processes, "ProcessPoolExecutor", Executor)
    with closing(LocalProcesses(5, n_gpus=2)) as pool:
        pool.restart()  # the numbers are gone with the processes
    assert started == 2 * [[0, 1, 0, 1, 0]]


def test_a_process_imports_blas_only_when_it_is_used():
    """It is in scipy.linalg, which takes longer to import than all of our modules."""
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    with closing(LocalProcesses(1)) as pool:
        product, before = pool.submit(multiply_compiled, a, b).result()
    assert "numba.np.arraymath" in before
    assert "scipy.linalg" not in before
    np.testing.assert_array_equal(product, a @ b)


@linux
def test_a_killed_process_is_told_and_replaced():
    with closing(LocalProcesses(2)) as pool:
        taken = []
        pool.on_message = taken.append
        futures = [pool.submit(die), pool.submit(double, 300), pool.submit(double, 1)]
        for future in pool.as_completed(futures):
            assert future.exception() is None or isinstance(future.exception(), pool.WorkerDied)
        with pytest.raises(pool.WorkerDied):
            futures[0].result()
        pool.restart()
        taken.clear()
        again = pool.submit(double, 5)
        assert list(pool.as_completed([again])) == [again]
        assert again.result() == 10
        assert len(taken) == 5

        # The next job tells of a worker that died when it had no job.
        for pid in pids(pool):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pool._executor._broken)
        late = pool.submit(double, 1)
        assert list(pool.as_completed([late])) == [late]
        with pytest.raises(pool.WorkerDied):
            late.result()
        pool.restart()
        assert pool.submit(double, 6).result() == 12


@linux
def test_a_process_that_dies_is_told_while_another_is_busy(tmp_path):
    """An executor notices the death of the process that it started last at its next event."""
    with closing(LocalProcesses(2)) as pool:
        first = pool.submit(double, 0)
        list(pool.as_completed([first]))
        busy = pool.submit(wait_for_stop, tmp_path / "busy")  # by the first process
        began = []
        pool.on_message = began.append
        told = []

        def work():
            for future in pool.as_completed([busy, pool.submit(die)]):
                told.append(future)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        wait_until(lambda: told)
        join(thread)
    assert len(told) == 2
    assert all(isinstance(future.exception(), pool.WorkerDied) for future in told)
    assert not (tmp_path / "busy").exists()


@linux
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_stopping_ends_though_workers_die_meanwhile():
    began = []

    def take(message):
        began.append(message)
        if len(began) == 2:
            raise Interrupted(signal.SIGTERM)

    with closing(LocalProcesses(2)) as pool:
        pool.on_message = take
        jobs = [pool.submit(die_when_stopped) for _ in range(2)]
        jobs += [pool.submit(double, 0) for _ in range(20)]
        with pytest.raises(Interrupted):
            list(pool.as_completed(jobs))
        pool.stop(signal.SIGTERM, jobs)
    assert all(job.done() for job in jobs)


def test_closing_stops_what_an_error_left_running(tmp_path):
    with closing(LocalProcesses(2)) as pool:
        jobs = [pool.submit(wait_for_stop, tmp_path / str(k)) for k in range(2)]
        others = [pool.submit(double, 0) for _ in range(10)]
        began = []
        pool.on_message = began.append
        waiting = pool.as_completed([*jobs, *others])

        def wait():
            with suppress(RuntimeError):  # the pool is closed beside it
                next(waiting)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        wait_until(lambda: len(began) == 2)
    assert [path.read_text() for path in tmp_path.iterdir()] == 2 * [str(int(signal.SIGTERM))]
    assert others[-1].cancelled()
    join(thread)


@pytest.mark.parametrize("where", ["submit", "recv_bytes", "wait"])
def test_a_signal_cuts_nothing_in_two(where, local, signals_raise, monkeypatch):
    """Half a process started, half a message read, a lock kept: each would end the pool."""
    owners = {"submit": local._executor, "recv_bytes": local._reader, "wait": processes.futures}
    owner = owners[where]
    real, whole = getattr(owner, where), []

    def interrupted(*arguments, **options):
        if not whole:
            os.kill(os.getpid(), signal.SIGINT)
        whole.append(where)
        return real(*arguments, **options)

    def work():
        job = local.submit(double, 3)
        list(local.as_completed([job]))

    with monkeypatch.context() as patch:
        patch.setattr(owner, where, interrupted)
        with pytest.raises(Interrupted):
            work()
    assert whole
    again = local.submit(double, 4)
    assert list(local.as_completed([again])) == [again]
    assert again.result() == 8


PARENT = """
import json, os, signal, sys
from pathlib import Path
import pool_jobs
from experiments.running.processes import LocalProcesses

if __name__ == "__main__":
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda *_: None)
    print("ready", flush=True)
    pool = LocalProcesses(2)
    jobs = [pool.submit(getattr(pool_jobs, sys.argv[1]), Path(name)) for name in sys.argv[2:]]
    began = []
    pool.on_message = lambda message: began.append(message) or len(began) == 2 and print(
        json.dumps(list(pool._executor._processes)), flush=True
    )
    for job in pool.as_completed(jobs):
        print(job.result(), flush=True)
    pool.close()
"""


def start_parent(folder, job, *arguments):
    """A script with two workers, in a process group of its own; its stderr is in `folder`."""
    (folder / "parent.py").write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, folder / "parent.py", job, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=(folder / "stderr").open("w"),
        text=True,
        start_new_session=True,
    )
    assert parent.stdout.readline() == "ready\n"
    return parent


@linux
def test_workers_end_when_their_parent_is_killed(tmp_path):
    parent = start_parent(tmp_path, "wait_for_stop", tmp_path / "a", tmp_path / "b")
    workers = json.loads(parent.stdout.readline())
    assert len(workers) == 2
    assert all(is_alive(pid) for pid in workers)
    parent.kill()
    try:
        wait_until(lambda: not any(is_alive(pid) for pid in workers))
    finally:
        for pid in filter(is_alive, workers):
            os.kill(pid, signal.SIGKILL)
    parent.communicate()


@linux
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
def test_a_terminals_signal_while_workers_start_is_for_the_parent_alone(tmp_path, signum):
    parent = start_parent(tmp_path, "name", "a", "b")
    answers = []
    reader = threading.Thread(target=lambda: answers.extend(parent.stdout), daemon=True)
    reader.start()

    def interrupt():
        os.killpg(parent.pid, signum)
        return len(answers) == 2 or parent.poll() is not None

    wait_until(interrupt)
    parent.wait(60)
    join(reader)
    assert (tmp_path / "stderr").read_text() == ""
    assert sorted(answers) == ["a\n", "b\n"]
    assert parent.returncode == 0


def test_a_job_that_does_not_look_is_ended_with_the_pool(monkeypatch):
    """Ctrl-C while workers compile must not wait for the compiler."""
    monkeypatch.setattr(processes, "CLOSE_SECONDS", 0.1)
    pool, told = LocalProcesses(2), []
    pool.on_message = told.append
    pool.submit(look_at_nothing)
    quick = pool.submit(double, 1)
    for _ in pool.as_completed([quick]):
        pass
    wait_until(lambda: pool._reader.poll() or told)
    closer = threading.Thread(target=pool.close, daemon=True)
    workers = pids(pool)
    closer.start()
    join(closer, 60)
    assert not any(map(is_alive, workers))


# Commands that are run until some time

# As our commands do, it hears of SIGINT also where a shell began the tests in the background.
LISTEN = "import signal, time; signal.signal(signal.SIGINT, signal.default_int_handler); "
LISTEN += "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})"
SLEEPING = ["timeit", "-n1", "-r1", f"{LISTEN}; time.sleep(60)"]


def test_a_command_has_a_time_to_end():
    before = time.monotonic()
    assert run_until(SLEEPING, before + 2) is None
    assert 2 <= time.monotonic() - before < 50
    assert run_until(["calendar", "2026"], math.inf) == 0


def test_a_command_that_was_killed_did_not_succeed():
    command = ["timeit", "-n1", "-r1", "import os; os.kill(os.getpid(), 9)"]
    assert run_until(command, math.inf) == 128 + 9


@pytest.mark.slow
@pytest.mark.parametrize("to_all", [True, False], ids=["Ctrl-C", "kill"])
def test_a_signal_stops_the_command_that_is_run_too(to_all, tmp_path):
    """A terminal's Ctrl-C reaches both, a kill the caller alone."""
    options = ["--data", "digits", "--nets", "1", "--profile", "paper", "--out", str(tmp_path)]
    code = "from experiments.running import cli, processes; import math; cli.run(lambda: "
    code += f"processes.run_until(['experiments.table1', *{options}], math.inf))"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        cwd=provenance.REPOSITORY,
        start_new_session=True,
    )
    path = tmp_path / "net1-seed0-load_digits.h5"
    try:
        wait_until(lambda: process.poll() is not None or epochs_on_disk(path) > 1, 120, "epochs")
        if to_all:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 128 + (signal.SIGINT if to_all else signal.SIGTERM)
    assert "Traceback" not in said
    assert said.count("stopped by") == 1
    assert "the same command goes on from there" in said
    with runs.lock(path):  # nobody trains any more
        assert epochs_on_disk(path) < 2300


def test_a_command_that_was_just_started_ends_in_a_sentence_too():
    """Ctrl-C reaches its Python while that is starting, where only Python could answer."""
    with signals.blocked():
        process = subprocess.Popen(
            [sys.executable, "-m", "experiments.table1", "--help"],
            stderr=subprocess.PIPE,
            text=True,
            cwd=provenance.REPOSITORY,
        )
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + signal.SIGINT, "stopped by SIGINT\n")
