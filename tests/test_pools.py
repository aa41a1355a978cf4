"""Where jobs run: answers, messages, faults, deaths and stops, the same in all three pools."""

import argparse
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing

import numba
import pytest

from experiments.running import cli, errors, pools, provenance
from experiments.running.errors import Interrupted, Problem
from experiments.running.pools import Here, Local
from mlp_gpu import gpu
from mlp_gpu.gpu import GpuFault

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's /proc")

# What the workers do.


def double(channel, number):
    for k in range(number):
        channel.send({"number": number, "k": k})
    return 2 * number


def fail(channel, what):
    raise ValueError(f"cannot do {what}")


def die(channel):
    os.kill(os.getpid(), signal.SIGKILL)


def name(channel, path):
    return path.name


def tell_threads(channel):
    names = {name: os.environ.get(name) for name in pools.THREADS}
    return names, numba.config.NUMBA_NUM_THREADS, os.getpid()


def wait_for_stop(channel, path):
    """What a training does: it saves, once it hears that it should stop."""
    if channel.stopped():
        raise Interrupted(channel.stopped())
    channel.send({"began": str(path)})
    while not channel.stopped():
        time.sleep(0.01)
    path.write_text(str(channel.stopped()))
    raise Interrupted(channel.stopped())


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


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
    with closing(Local(2)) as pool:
        yield pool


@pytest.fixture
def dask(cluster):
    with closing(pools.Cluster(cluster.scheduler_address)) as pool:
        yield pool


@pytest.fixture(params=["here", "local", pytest.param("dask", marks=pytest.mark.slow)])
def pool(request):
    return Here() if request.param == "here" else request.getfixturevalue(request.param)


def test_answers_and_messages_of_each_job_come_in_order(pool):
    taken = []
    pool.take = taken.append
    futures = {pool.submit(double, number): number for number in (3, 0, 100, 7)}
    found = {}
    for future in pool.as_completed(futures):
        number = futures[future]
        found[number] = future.result()
        # All that a job says is taken before its answer.
        assert [m["k"] for m in taken if m["number"] == number] == list(range(number))
    assert found == {3: 6, 0: 0, 100: 200, 7: 14}
    assert len(taken) == 110


def test_an_exception_comes_back_and_the_others_go_on(pool):
    bad, good = pool.submit(fail, "this"), pool.submit(double, 4)
    assert set(pool.as_completed([bad, good])) == {bad, good}
    assert good.result() == 8
    with pytest.raises(ValueError, match="cannot do this"):
        bad.result()


def test_futures_may_be_dropped_while_they_are_handed_out(pool):
    futures = {pool.submit(double, number): number for number in (1, 2)}
    for future in pool.as_completed(futures):
        futures.pop(future)
    assert not futures


def test_processes_divide_the_cores(monkeypatch):
    monkeypatch.setattr(provenance, "cores", lambda: 7)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    for name in set(pools.THREADS) - {"OMP_NUM_THREADS"}:
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with closing(Local(3)) as pool:
        jobs = [pool.submit(tell_threads) for _ in range(2)]
        assert os.environ == before
        for future in pool.as_completed(jobs):
            names, numba_threads, pid = future.result()
            assert names == dict.fromkeys(pools.THREADS, "2")
            assert numba_threads == 2
            assert pid != os.getpid()
    assert os.environ == before


def test_more_processes_than_cores_have_a_thread_each(monkeypatch):
    asked = []
    monkeypatch.setattr(provenance, "cores", lambda: 1)
    monkeypatch.setattr(pools, "_starting", lambda names: asked.append(names) or closing(Here()))
    with closing(Local(3)) as pool:
        monkeypatch.setattr(pool._executor, "submit", lambda *_: None)
        pool.submit(double, 1)
    assert asked == [dict.fromkeys(pools.THREADS, "1")]


def test_processes_take_the_gpus_in_turn(monkeypatch):
    started = []

    class Executor:
        def __init__(self, workers, mp_context, initializer, initargs):
            started.append([initargs[2].get() for _ in range(workers)])
            assert initargs[2].empty()

        def shutdown(self, **_):
            pass

    monkeypatch.setattr(pools, "ProcessPoolExecutor", Executor)
    with closing(Local(5, gpus=2)) as pool:
        pool.restart()  # the numbers are gone with the processes
    assert started == 2 * [[0, 1, 0, 1, 0]]


@linux
def test_a_killed_process_is_told_and_replaced():
    with closing(Local(2)) as pool:
        taken = []
        pool.take = taken.append
        futures = [pool.submit(die), pool.submit(double, 300), pool.submit(double, 1)]
        for future in pool.as_completed(futures):
            assert future.exception() is None or isinstance(future.exception(), pool.died)
        with pytest.raises(pool.died):
            futures[0].result()
        pool.restart()
        taken.clear()
        again = pool.submit(double, 5)
        assert list(pool.as_completed([again])) == [again]
        assert again.result() == 10
        assert len(taken) == 5

        # One that dies while nothing is asked of it is told with the next job.
        for pid in pids(pool):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pool._executor._broken)
        late = pool.submit(double, 1)
        assert list(pool.as_completed([late])) == [late]
        with pytest.raises(pool.died):
            late.result()
        pool.restart()
        assert pool.submit(double, 6).result() == 12


@linux
def test_a_process_that_dies_is_told_while_another_is_busy(tmp_path):
    """An executor notices the death of the process that it started last at its next event."""
    with closing(Local(2)) as pool:
        first = pool.submit(double, 0)
        list(pool.as_completed([first]))
        busy = pool.submit(wait_for_stop, tmp_path / "busy")  # by the first process
        began = []
        pool.take = began.append
        told = []

        def work():
            for future in pool.as_completed([busy, pool.submit(die)]):
                told.append(future)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        wait_until(lambda: told)
        thread.join()
    assert len(told) == 2
    assert all(isinstance(future.exception(), pool.died) for future in told)
    assert not (tmp_path / "busy").exists()


@pytest.mark.parametrize("kind", ["local", pytest.param("dask", marks=pytest.mark.slow)])
def test_stopping_lets_begun_jobs_save_and_begins_no_others(kind, request, tmp_path):
    taken = []

    def take(message):
        taken.append(message)
        if len(taken) == 2:
            raise Interrupted(signal.SIGINT)

    def stop(pool):
        pool.take = take
        jobs = [pool.submit(wait_for_stop, tmp_path / str(k)) for k in range(10)]
        with pytest.raises(Interrupted):
            list(pool.as_completed(jobs))
        pool.stop(signal.SIGINT, jobs)
        assert all(job.done() for job in jobs)
        assert {m["began"] for m in taken} == {str(path) for path in tmp_path.iterdir()}

    if kind == "dask":
        stop(request.getfixturevalue("dask"))
    else:
        with closing(Local(2)) as pool:
            stop(pool)
    assert [path.read_text() for path in tmp_path.iterdir()] == 2 * [str(int(signal.SIGINT))]


def test_closing_stops_what_an_error_left_running(tmp_path):
    with closing(Local(2)) as pool:
        jobs = [pool.submit(wait_for_stop, tmp_path / str(k)) for k in range(2)]
        others = [pool.submit(double, 0) for _ in range(10)]
        began = []
        pool.take = began.append
        waiting = pool.as_completed([*jobs, *others])
        thread = threading.Thread(target=lambda: next(waiting), daemon=True)
        thread.start()
        wait_until(lambda: len(began) == 2)
    assert [path.read_text() for path in tmp_path.iterdir()] == 2 * [str(int(signal.SIGTERM))]
    assert others[-1].cancelled()
    thread.join()


@pytest.fixture
def signals():
    """As the scripts take them, for a test."""
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    errors.signals.install()
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.parametrize("where", ["submit", "recv_bytes", "wait"])
def test_a_signal_cuts_nothing_in_two(where, local, signals, monkeypatch):
    """Half a process started, half a message read, a lock kept: the pool were of no more use."""
    owner = {"submit": local._executor, "recv_bytes": local._reader, "wait": pools.futures}[where]
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
import test_pools
from experiments.running.pools import Local

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: None)
    print("ready", flush=True)
    pool = Local(2)
    jobs = [pool.submit(getattr(test_pools, sys.argv[1]), Path(name)) for name in sys.argv[2:]]
    began = []
    pool.take = lambda message: began.append(message) or len(began) == 2 and print(
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
def test_ctrl_c_while_the_workers_start_is_for_the_parent_alone(tmp_path):
    parent = start_parent(tmp_path, "name", "a", "b")
    answers = []
    reader = threading.Thread(target=lambda: answers.extend(parent.stdout), daemon=True)
    reader.start()
    while len(answers) < 2 and parent.poll() is None:
        os.killpg(parent.pid, signal.SIGINT)
        time.sleep(0.005)
    parent.wait()
    reader.join()
    assert (tmp_path / "stderr").read_text() == ""
    assert sorted(answers) == ["a\n", "b\n"]
    assert parent.returncode == 0


def parse(*arguments):
    parser = argparse.ArgumentParser()
    cli.add_engine_arguments(parser)
    cli.add_worker_arguments(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("arguments", "n_jobs", "workers"),
    [
        ([], 10, 6),
        ([], 4, 4),
        ([], 1, 1),
        (["--workers", "3"], 10, 3),
        (["--workers", "30"], 10, 10),
        (["--workers", "1"], 10, 1),
    ],
)
def test_as_many_processes_as_cores_as_jobs_or_as_asked_for(
    arguments, n_jobs, workers, monkeypatch
):
    monkeypatch.setattr(provenance, "cores", lambda: 6)
    with pools.opened(parse(*arguments, "--engine", "cpu"), n_jobs, 0) as (pool, engine, device):
        assert isinstance(pool, Local if workers > 1 else Here)
        assert (pool.workers, engine) == (workers, "cpu")
        assert device == provenance.device()


@pytest.mark.parametrize(
    ("arguments", "n_jobs", "workers"),
    [([], 10, 2), ([], 1, 1), (["--workers", "5"], 10, 5), (["--engine", "cuda"], 10, 2)],
)
def test_a_process_a_gpu_if_not_asked_for_more(arguments, n_jobs, workers, monkeypatch):
    monkeypatch.setattr(gpu, "missing", lambda n_bytes: f"{n_bytes} bytes" if n_bytes > 7 else None)
    monkeypatch.setattr(provenance, "cores", lambda: 7)
    monkeypatch.setattr(gpu, "count", lambda: 2)
    monkeypatch.setattr(gpu, "name", lambda: "Some GPU")
    with pools.opened(parse(*arguments), n_jobs, 7) as (pool, engine, device):
        assert isinstance(pool, Local if workers > 1 else Here)
        assert (pool.workers, engine, device) == (workers, "cuda", "Some GPU")
        assert workers == 1 or pool._gpus == 2


def test_without_numba_cuda_the_gpu_cannot_be_had(monkeypatch, capsys):
    monkeypatch.delattr(gpu.cuda, "implementation")
    reason = "the package numba-cuda is not installed: pip install 'numba-cuda[cu12]'"
    with pytest.raises(GpuFault) as fault, pools.opened(parse("--engine", "cuda"), 1, 0):
        pass
    assert str(fault.value) == f"{reason}; or take --engine cpu"
    with pools.opened(parse(), 1, 0) as (_, engine, _):
        assert engine == "cpu"
    assert capsys.readouterr().err == f"no GPU is used: {reason}\n"


def test_the_cluster_says_what_it_computes_on(cluster, capsys):
    arguments = parse("--scheduler", cluster.scheduler_address)
    with pools.opened(arguments, 1, 0) as (pool, engine, device):
        assert isinstance(pool, pools.Cluster)
        assert (pool.workers, engine) == (2, "cpu")
        assert device == provenance.device()  # once, for they are the same
    assert capsys.readouterr().err.startswith("no GPU is used: ")
    with (
        pytest.raises(GpuFault),
        pools.opened(parse("--scheduler", cluster.scheduler_address, "--engine", "cuda"), 1, 0),
    ):
        pass


def test_a_cluster_has_results_only_as_long_as_somebody_holds_them(cluster, dask):
    """Those of a worker that dies would be computed again, for nobody."""
    futures = {dask.submit(double, 0): 0, dask.submit(double, 1): 1}
    for future in dask.as_completed(futures):
        futures.pop(future)
    del future
    wait_until(lambda: not cluster.scheduler.tasks)


def test_a_job_that_kills_workers_of_a_cluster_is_told(dask):
    job = dask.submit(die)
    assert list(dask.as_completed([job])) == [job]
    with pytest.raises(dask.died):
        job.result()
    dask.restart()
    again = dask.submit(double, 3)
    assert list(dask.as_completed([again])) == [again]
    assert again.result() == 6


def their_commit():
    """As provenance.commit, where another one can be said to be checked out."""
    return {"commit": os.environ.get("TEST_COMMIT", "a" * 40), "dirty": False}


def test_a_cluster_of_another_source_tree_is_refused(cluster, monkeypatch):
    monkeypatch.setattr(provenance, "commit", their_commit)
    monkeypatch.setenv("TEST_COMMIT", "b" * 40)  # after the workers started
    with pytest.raises(Problem, match=f"expected commit {'b' * 40}, found {'a' * 40}; install"):
        pools.Cluster(cluster.scheduler_address)


@pytest.mark.parametrize(
    ("workers", "complaint"), [(0, "no workers"), (1, "workers of several threads")]
)
def test_a_cluster_of_no_use_is_refused(workers, complaint):
    distributed = pytest.importorskip("distributed", exc_type=ImportError)
    options = {"threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=workers, **options) as useless:
        address = useless.scheduler_address
        with pytest.raises(Problem, match=f"^--scheduler {address} has {complaint}; start some"):
            pools.Cluster(address)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nonsense", "missing port number in address 'nonsense'"),
        ("", "missing port number in address ''"),
        ("localhost:port", "invalid literal for int"),
        ("http://localhost:8787/status", "unknown address scheme 'http'"),
        ("tls://localhost:8786", "TLS expects"),
        ("tcp://localhost:99999", "Time"),
        ("SILENT", "TimeoutError"),
        ("WORKER", "this is a worker's"),
    ],
)
def test_where_no_scheduler_is_one_sentence_says_why(address, reason, cluster, monkeypatch, capfd):
    monkeypatch.setattr(pools, "PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:  # one who never says a word
        address = address.replace("SILENT", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        address = address.replace("WORKER", next(iter(cluster.scheduler.workers)))
        with pytest.raises(Problem) as problem:
            pools.Cluster(address)
    said = str(problem.value)
    assert said.startswith(f"--scheduler {address}: expected the address of a Dask scheduler, ")
    assert f"found none that answers within 0.5 s ({reason}" in said
    gc.collect()  # nothing half made has something to say at its end
    assert capfd.readouterr().err == ""


def test_dask_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(Problem, match="--scheduler needs Dask, which is not installed; install"):
        pools.Cluster("tcp://127.0.0.1:8786")


@pytest.mark.slow
@linux
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_scheduler_that_dies_is_one_sentence(signum, tmp_path, monkeypatch, capfd, caplog):
    distributed = pytest.importorskip("distributed", exc_type=ImportError)
    monkeypatch.setattr(pools, "PATIENCE", 2)
    file, log = tmp_path / "scheduler.json", (tmp_path / "log").open("w")

    def start(kind, *options):
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "dask",
                kind,
                "--scheduler-file",
                file,
                "--no-dashboard",
                *options,
            ],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=log,
            stderr=log,
        )

    def work(address):
        with closing(pools.Cluster(address)) as pool:
            pool.take = lambda message: scheduler.send_signal(signum)
            list(pool.as_completed([pool.submit(wait_for_stop, tmp_path / "a")]))

    scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0")
    worker = start("worker", "--nthreads", "1")
    try:
        wait_until(file.exists)
        address = json.loads(file.read_text())["address"]
        with distributed.Client(address) as client:
            client.wait_for_workers(1)
        capfd.readouterr()
        with pytest.raises(Problem) as problem:
            work(address)
        assert str(problem.value).startswith("the scheduler is lost (")
        assert capfd.readouterr().err == ""
        assert "distributed.client" not in [record.name for record in caplog.records]
        worker.wait(60)  # it does not train for nobody
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
