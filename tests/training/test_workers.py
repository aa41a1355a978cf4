"""Pools of workers: what all do alike, processes of this machine, and the choice of a pool."""

import _ctypes
import argparse
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import closing, suppress
from functools import partial
from types import SimpleNamespace

import pytest
from pool_jobs import (
    double,
    end_worker,
    fail,
    fail_oddly,
    sleep,
    wait_for_stop,
)
from waiting import HANG_SECONDS, is_alive, join, wait_until

from deepbig_runtime import driver, gpu
from deepbig_runtime.errors import Interrupted, Problem
from deepbig_runtime.faults import GpuFault
from experiments.training import cli, gpu_trial, jobs, provenance, workers
from experiments.training.workers import (
    Channel,
    InProcess,
    LocalProcesses,
    RemotePool,
    Threads,
    Trained,
    run_job,
)
from mlp_gpu.engines import choose_engine

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's /proc")
LIBRARY = _ctypes.__file__  # some library that can be loaded
dask = pytest.param("Dask", marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def local():
    with closing(LocalProcesses(2)) as pool:
        yield pool


@pytest.fixture
def open_pool(request):
    """A function that opens a pool of its own with two workers."""

    def open_pool(kind):
        if kind != "Dask":
            return LocalProcesses(2) if kind == "local" else Threads(2)
        from experiments.training.cluster import Cluster  # needs distributed

        return Cluster(request.getfixturevalue("cluster").scheduler_address)

    return open_pool


@pytest.fixture(params=["in process", "threads", "local", dask])
def pool(request, open_pool):
    if request.param in ("threads", "Dask"):
        with closing(open_pool(request.param)) as pool:
            yield pool
    else:
        yield InProcess() if request.param == "in process" else request.getfixturevalue("local")


def result(pool, function, *arguments):
    """Of a job that the pool runs alone."""
    (future,) = pool.as_completed([pool.submit(function, *arguments)])
    return future.result()


# What all pools do alike


def test_as_completed_handles_all_messages_of_a_job_before_its_result(pool):
    messages, results = [], {}
    pool.on_message = messages.append
    futures = {pool.submit(double, number): number for number in (3, 0, 100, 7)}
    for future in pool.as_completed(futures):
        number = futures[future]
        results[number] = future.result()
        assert [m.images for m in messages if m.run == str(number)] == list(range(number))
    assert results == {3: 6, 0: 0, 100: 200, 7: 14}
    assert len(messages) == 110


def test_as_completed_handles_messages_that_come_together_with_a_result():
    class Batch(RemotePool):
        submit = stop = close = None

        def _receive(self, waiting):
            return set(waiting), [Trained("a", 1)]

    pool, steps = Batch(), []
    pool.on_message = steps.append
    steps.extend(pool.as_completed([future := Future()]))
    assert steps == [Trained("a", 1), future]


def test_exception_of_a_job_comes_back_with_its_place(pool):
    bad, good = pool.submit(fail, "this"), pool.submit(double, 4)
    assert set(pool.as_completed([bad, good])) == {bad, good}
    assert good.result() == 8
    with pytest.raises(ValueError, match="cannot do this") as caught:
        bad.result()
    if isinstance(pool, LocalProcesses):
        assert "in fail\n" in "".join(caught.value.__notes__)
        odd, good = pool.submit(fail_oddly), pool.submit(double, 2)  # it cannot be unpickled
        assert set(pool.as_completed([odd, good])) == {odd, good}
        assert isinstance(odd.exception(), TypeError)


def test_run_job_begins_nothing_after_the_stop_signal():
    assert run_job(Channel(print, lambda: signal.SIGINT), fail, "this") is None


def leave(pool, error, function, *arguments):
    """Submit ten jobs, and let an error come when two have begun. Returns the futures."""
    messages = []

    def take(message):
        messages.append(message)
        if len(messages) == 2:
            raise error

    pool.on_message = take
    futures = [pool.submit(function, *arguments) for _ in range(10)]
    with pytest.raises(type(error)):
        list(pool.as_completed(futures))
    return futures


@pytest.mark.parametrize("kind", ["threads", "local", dask])
def test_stop_lets_begun_jobs_save_and_begins_no_others(kind, open_pool, tmp_path):
    with closing(open_pool(kind)) as pool:
        futures = leave(pool, Interrupted(signal.SIGINT), wait_for_stop, tmp_path)
        pool.stop(signal.SIGINT, futures)
        assert all(future.done() for future in futures)
    assert [path.read_text() for path in tmp_path.iterdir()] == 2 * [str(int(signal.SIGINT))]


@pytest.mark.parametrize("kind", ["threads", "local"])
def test_close_stops_jobs_that_an_error_left_running(kind, open_pool, tmp_path):
    with closing(open_pool(kind)) as pool:
        *_, last = leave(pool, ZeroDivisionError(), wait_for_stop, tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == 2 * [str(int(signal.SIGTERM))]
    assert last.cancelled()


@linux
@pytest.mark.parametrize(
    ("pool", "end"),
    [
        ("local", "SIGTERM"),
        pytest.param("Dask", "SIGKILL", marks=pytest.mark.slow),
    ],
    indirect=["pool"],
)
def test_worker_that_ends_fails_its_job_alone_and_is_replaced(pool, end):
    bad, *good = [pool.submit(end_worker, end), *(pool.submit(double, n) for n in (300, 1))]
    assert set(pool.as_completed([bad, *good])) == {bad, *good}
    assert isinstance(bad.exception(), pool.WorkerDied)
    if isinstance(pool, LocalProcesses):  # Dask may run a neighbour again
        assert [future.result() for future in good] == [600, 2]
    again = [pool.submit(double, n) for n in (5, 6, 7)]
    assert len(list(pool.as_completed(again))) == 3
    assert [future.result() for future in again] == [10, 12, 14]


# Processes of this machine


def pids(pool):
    return [process.process.pid for process in pool._processes.values()]


@pytest.fixture
def started(monkeypatch):
    """The GPU and the environment of each worker that pools start, which is no process here."""
    started = []

    def process(target, args, daemon):
        start = lambda: started.append((args[1], dict(os.environ)))  # noqa: E731
        return SimpleNamespace(start=start, join=lambda *_: None, kill=lambda: None)

    context = SimpleNamespace(Pipe=workers.multiprocessing.Pipe, Process=process)
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda method: context)
    return started


@pytest.mark.parametrize(("cores", "n_workers", "expected"), [(7, 2, 3), (1, 2, 1)])
def test_processes_divide_the_cores_and_take_no_more_threads_than_asked_for(
    cores, n_workers, expected, started, monkeypatch
):
    monkeypatch.setattr(provenance, "cores", lambda: cores)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    before = dict(os.environ)
    with closing(LocalProcesses(n_workers)):
        threads = dict.fromkeys(workers.THREAD_VARIABLES, str(expected))
        threads["NUMBA_NUM_THREADS"] = "1"
        assert started == n_workers * [(None, before | threads)]
    assert os.environ == before


@linux
def test_idle_worker_that_is_killed_is_replaced():
    with closing(LocalProcesses(1)) as pool:
        assert result(pool, double, 1) == 2
        os.kill(*pids(pool), signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, pids(pool))))
        with suppress(pool.WorkerDied):  # whose job it was given
            result(pool, double, 2)
        assert result(pool, double, 3) == 6


@pytest.mark.parametrize("was_stopped", [False, True])
def test_close_of_threads_waits_a_moment_and_keeps_the_first_signal(was_stopped, monkeypatch):
    monkeypatch.setattr(workers, "CLOSE_SECONDS", 0.1)
    begun, end, pool = threading.Event(), threading.Event(), Threads(1)

    def poll_late(channel):
        begun.set()
        end.wait(HANG_SECONDS)
        return channel.stop_signal()

    job = pool.submit(poll_late)
    begun.wait(HANG_SECONDS)
    if was_stopped:
        pool.stop(signal.SIGINT, ())
    pool.close()
    assert not job.done()
    end.set()
    assert job.result(HANG_SECONDS) == (signal.SIGINT if was_stopped else signal.SIGTERM)


def test_threads_hand_out_a_message_that_comes_with_a_result(monkeypatch):
    future = Future()

    def wait(waiting, *_):
        pool._messages.put(Trained("a", 1))
        future.set_result(2)

    with closing(Threads(1)) as pool, monkeypatch.context() as patch:
        patch.setattr(workers.futures, "wait", wait)
        assert pool._receive({future}) == ({future}, [Trained("a", 1)])


@linux
def test_close_kills_a_job_that_polls_no_stop_signal(monkeypatch):
    """Ctrl-C while workers compile must not wait for the compiler."""
    monkeypatch.setattr(workers, "CLOSE_SECONDS", 0.1)
    pool, messages = LocalProcesses(2), []
    pool.on_message = messages.append
    pool.submit(sleep)
    while not messages:
        assert result(pool, double, 0) == 0
    pool.close()
    assert not is_alive(messages[0].images)


@pytest.mark.parametrize("step", ["start", "send", "recv", "wait"])
def test_signal_interrupts_no_step_of_the_pool(step, local, signals_raise, monkeypatch):
    """Half a process started or half a message read would end the pool."""
    owners = {"start": workers.BaseProcess, "wait": workers.connection}
    owner = owners.get(step, workers.connection.Connection)
    function, calls = getattr(owner, step), []

    def interrupted(*arguments, **options):
        if not calls:
            os.kill(os.getpid(), signal.SIGINT)
        answer = function(*arguments, **options)
        calls.append(step)
        return answer

    if step == "start":  # of a worker in the place of one that died
        local._processes.pop(0).process.kill()
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, interrupted)
        with pytest.raises(Interrupted):
            result(local, double, 3)
    assert calls
    assert result(local, double, 4) == 8


PARENT = """
import os, signal, sys
import pool_jobs
from experiments.training.workers import LocalProcesses

if __name__ == "__main__":
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda *_: None)
    print("ready", flush=True)
    pool = LocalProcesses(2)
    jobs = [pool.submit(getattr(pool_jobs, sys.argv[1]), *map(int, sys.argv[2:])) for _ in "ab"]
    pool.on_message = lambda message: print(message.images, flush=True)
    for job in pool.as_completed(jobs):
        print(job.result(), flush=True)
    pool.close()
    os._exit(0)  # a signal may come while Python ends, without handlers
"""


def start_parent(folder, *job):
    """A script with two workers, in a process group of its own; its stderr is in `folder`."""
    (folder / "parent.py").write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, folder / "parent.py", *job],
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
    """At once, though their jobs poll nothing."""
    parent = start_parent(tmp_path, "sleep")
    pids = [int(parent.stdout.readline()) for _ in range(2)]
    assert all(map(is_alive, pids))
    parent.kill()
    try:
        wait_until(lambda: not any(map(is_alive, pids)))
    finally:
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)
    parent.communicate()
    assert (tmp_path / "stderr").read_text() == ""


@linux
def test_signals_of_a_terminal_while_workers_start_are_for_the_parent_alone(tmp_path):
    parent = start_parent(tmp_path, "double", "0")
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(parent.stdout), daemon=True)
    reader.start()

    def interrupt():
        for signum in (signal.SIGINT, signal.SIGHUP):
            os.killpg(parent.pid, signum)
        return len(lines) == 2 or parent.poll() is not None

    wait_until(interrupt)
    parent.wait(HANG_SECONDS)
    join(reader)
    assert (tmp_path / "stderr").read_text() == ""
    assert lines == ["0\n", "0\n"]
    assert parent.returncode == 0


# The pool that a command line gets


@pytest.fixture(autouse=True)
def _gpu_is_tried_here(monkeypatch):
    """The self-test of the GPU finds what this process is told to find."""
    monkeypatch.setattr(gpu_trial, "try_gpu", lambda: gpu_trial.Trial(gpu.missing()))


def parse(*arguments, cores=1):
    parser = argparse.ArgumentParser()
    cli.add_engine_arguments(parser)
    cli.add_worker_arguments(parser, cores)
    return parser.parse_args(arguments)


def never():
    raise AssertionError("asked for the memory that is needed of a GPU, but there is none")


@pytest.mark.parametrize(
    ("arguments", "cores_of_machine", "cores_of_worker", "n_jobs", "expected"),
    [
        ([], 6, 1, 10, 6),
        ([], 6, 1, 4, 4),  # no more than jobs
        (["--workers", "30"], 6, 1, 10, 10),
        ([], 2, 4, 10, 1),
        ([], 9, 4, 10, 2),
    ],
)
def test_opened_without_a_gpu_has_workers_by_cores_jobs_and_options(
    arguments, cores_of_machine, cores_of_worker, n_jobs, expected, started, monkeypatch
):
    monkeypatch.setattr(provenance, "cores", lambda: cores_of_machine)
    parsed = parse(*arguments, "--engine", "cpu", cores=cores_of_worker)
    with jobs.opened(parsed, n_jobs, never) as (pool, engine, device):
        assert isinstance(pool, LocalProcesses if expected > 1 else InProcess)
        assert (pool.workers, engine, device) == (expected, "cpu", provenance.device())
    assert len(started) == (expected > 1) * expected


@pytest.fixture
def gpus(monkeypatch):
    """Two GPUs of 7 bytes."""
    monkeypatch.setattr(driver, "is_missing", lambda: False)
    monkeypatch.setattr(gpu, "missing", lambda n=0: f"{n} bytes" if n > 7 else None)
    monkeypatch.setattr(gpu, "count", lambda: 2)
    monkeypatch.setattr(gpu, "name", lambda: "Some GPU")
    monkeypatch.setattr(gpu, "compute_capability", lambda: (9, 0))
    # From then on the GPUs are the workers'.
    give_up = partial(monkeypatch.setattr, gpu, "compute_capability", never)
    monkeypatch.setattr(gpu, "release", give_up)


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("arguments", "n_jobs", "expected"),
    [([], 10, 2), ([], 1, 1), (["--workers", "5"], 10, 5), (["--engine", "cuda"], 10, 2)],
)
def test_opened_with_gpus_has_a_worker_for_each(arguments, n_jobs, expected, started, monkeypatch):
    monkeypatch.setattr(provenance, "cores", lambda: 7)
    parsed = parse(*arguments)
    with jobs.opened(parsed, n_jobs, lambda: 7) as (pool, engine, device):
        assert isinstance(pool, LocalProcesses if expected > 1 else InProcess)
        assert (pool.workers, engine, device) == (expected, "cuda", "Some GPU")
    assert [gpu_number for gpu_number, _ in started] == [0, 1, 0, 1, 0][: (expected > 1) * expected]


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(("n_bytes", "pool"), [(3, Threads), (4, None)])
def test_opened_with_one_gpu_shares_it_among_threads_if_its_memory_allows(
    n_bytes, pool, started, monkeypatch
):
    monkeypatch.setattr(gpu, "count", lambda: 1)
    monkeypatch.setattr(gpu, "release", never)
    opened = jobs.opened(parse("--workers", "2"), 10, lambda: n_bytes)
    if pool is None:
        with pytest.raises(Problem, match=r"^8 bytes, or take fewer --workers"), opened:
            pass
        return
    with opened as (found, engine, device):
        assert (type(found), found.workers, engine, device) == (Threads, 2, "cuda", "Some GPU")
    assert started == []


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(("cc", "expected"), [((7, 5), False), ((8, 0), True), ((10, 0), True)])
def test_opened_takes_windows_on_gpus_with_fast_tensor_cores(cc, expected, monkeypatch):
    monkeypatch.setattr(gpu, "compute_capability", lambda: cc)
    parsed = parse()
    assert not parsed.windows
    with jobs.opened(parsed, 1, lambda: 7):
        assert parsed.windows == expected


@pytest.mark.parametrize(
    ("vendor", "kind", "found"),
    [("0x10de", "0x030200", True), ("0x10de", "0x0c0330", False), ("0x1002", "0x030000", False)],
)
def test_driver_finds_gpus_of_nvidia_alone(vendor, kind, found, monkeypatch, tmp_path):
    device = tmp_path / "0000:00:1f.0"
    device.mkdir()
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    monkeypatch.setattr(driver, "PCI", tmp_path)
    assert driver.finds_gpu() == found
    told = []
    assert choose_engine("auto", lambda: driver.MISSING, told.append) == "cpu"
    assert len(told) == found


@pytest.mark.usefixtures("gpus")
def test_opened_uses_no_gpu_that_fails_its_self_test(monkeypatch, capsys):
    monkeypatch.setattr(gpu_trial, "try_gpu", lambda: gpu_trial.Trial("it is hot"))
    monkeypatch.setattr(gpu, "missing", never)
    with (
        pytest.raises(GpuFault, match="it is hot; engine cpu needs no GPU"),
        jobs.opened(parse("--engine", "cuda"), 1, never),
    ):
        pass
    with jobs.opened(parse(), 1, never) as (_, engine, _):
        assert engine == "cpu"
    assert capsys.readouterr().err == "no GPU is used: it is hot\n"


@pytest.mark.parametrize(
    ("libraries", "missing"), [(["none.so"], True), (["none.so", LIBRARY, "none.so"], False)]
)
def test_driver_is_missing_unless_a_library_can_be_loaded(libraries, missing, monkeypatch):
    monkeypatch.setattr(driver, "LIBRARIES", libraries)
    assert driver.is_missing() == missing


def test_opened_without_dask_is_a_user_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "experiments.training.cluster", raising=False)
    opened = jobs.opened(parse("--scheduler", "tcp://127.0.0.1:8786"), 1, never)
    with (
        pytest.raises(Problem, match="--scheduler needs Dask, which is not installed; inst"),
        opened,
    ):
        pass


def test_opened_names_the_devices_of_a_cluster(cluster, capsys):
    scheduler = ("--scheduler", cluster.scheduler_address)
    with jobs.opened(parse(*scheduler), 1, never) as (pool, engine, device):
        assert type(pool).__name__ == "Cluster"
        assert (pool.workers, engine) == (2, "cpu")
        assert device == provenance.device()  # once, for they are the same
    assert capsys.readouterr().err == ""
    with pytest.raises(GpuFault), jobs.opened(parse(*scheduler, "--engine", "cuda"), 1, never):
        pass
