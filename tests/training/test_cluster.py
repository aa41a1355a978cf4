"""The pool of Dask's workers: what is refused, and what happens when workers or schedulers die."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing

import pytest
from pool_jobs import wait_for_stop
from waiting import HANG_SECONDS, wait_until

from deepbig_runtime.errors import Problem
from experiments.training import provenance

distributed = pytest.importorskip("distributed", exc_type=ImportError)
cluster_module = pytest.importorskip("experiments.training.cluster", exc_type=ImportError)
Cluster = cluster_module.Cluster

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's /proc")


@pytest.mark.slow
@linux
def test_stop_waits_for_no_job_of_a_cluster_that_lost_its_workers(tmp_path):
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=1, **options) as shrinking,
        closing(Cluster(shrinking.scheduler_address)) as pool,
    ):

        def lose(message):
            shrinking.scale(0)
            raise ZeroDivisionError

        pool.on_message = lose
        job = pool.submit(wait_for_stop, tmp_path)
        with pytest.raises(ZeroDivisionError):
            list(pool.as_completed([job]))
        wait_until(lambda: not shrinking.scheduler.workers)
        pool.stop(signal.SIGINT, [job])
        assert not job.done()  # nor does closing the pool wait for it: it would for ever


def their_commit():
    """As provenance.commit, where another one can be said to be checked out."""
    return {"commit": os.environ.get("TEST_COMMIT", "a" * 40), "dirty": False}


def test_cluster_of_another_source_tree_is_refused(cluster, monkeypatch):
    monkeypatch.setattr(provenance, "commit", their_commit)
    monkeypatch.setenv("TEST_COMMIT", "b" * 40)  # after the workers started
    with pytest.raises(Problem, match=f"expected commit {'b' * 40}, found {'a' * 40}; install"):
        Cluster(cluster.scheduler_address)


@pytest.mark.parametrize(
    ("workers", "complaint"), [(0, "no workers"), (1, "workers of several threads")]
)
def test_cluster_without_workers_of_one_thread_is_refused(workers, complaint):
    options = {"threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=workers, **options) as useless:
        address = useless.scheduler_address
        with pytest.raises(Problem, match=f"^--scheduler {address} has {complaint}; start some"):
            Cluster(address)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nonsense", "missing port number in address 'nonsense'"),
        ("tls://localhost:8786", "TLS expects"),
        ("tcp://localhost:99999", "Time"),
        ("SILENT", "TimeoutError"),
        ("WORKER", "this is a worker's"),
    ],
)
def test_address_without_a_scheduler_is_one_sentence(address, reason, cluster, monkeypatch, capfd):
    timeout = HANG_SECONDS if address == "WORKER" else 0.5
    monkeypatch.setattr(cluster_module, "CONNECT_TIMEOUT", timeout)
    with socket.create_server(("127.0.0.1", 0)) as server:  # one who never says a word
        address = address.replace("SILENT", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        address = address.replace("WORKER", next(iter(cluster.scheduler.workers)))
        with pytest.raises(Problem) as problem:
            Cluster(address)
    said = str(problem.value)
    assert said.startswith(f"--scheduler {address}: expected the address of a Dask scheduler, ")
    assert f"found none that answers within {timeout} s ({reason}" in said
    gc.collect()  # nothing half made has something to say at its end
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@linux
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_scheduler_that_dies_is_one_sentence(signum, tmp_path, capfd, caplog):
    file, log = tmp_path / "scheduler.json", (tmp_path / "log").open("w")

    def start(kind, *options):
        return subprocess.Popen(
            [*(sys.executable, "-m", "dask", kind, "--scheduler-file"), file, *options],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=log,
            stderr=log,
        )

    def work(address):
        with closing(Cluster(address)) as pool:
            pool.on_message = lambda message: scheduler.send_signal(signum)
            list(pool.as_completed([pool.submit(wait_for_stop, tmp_path)]))

    scheduler = start("scheduler", "--no-dashboard", "--host", "127.0.0.1", "--port", "0")
    worker = start("worker", "--no-dashboard", "--nthreads", "1")
    try:
        wait_until(lambda: file.exists() and file.read_text())
        address = json.loads(file.read_text())["address"]
        with distributed.Client(address) as client:
            client.wait_for_workers(1, timeout=HANG_SECONDS)
        capfd.readouterr()
        with pytest.raises(Problem) as problem:
            work(address)
        assert str(problem.value).startswith("the scheduler is lost (")
        assert capfd.readouterr().err == ""
        assert "distributed.client" not in [record.name for record in caplog.records]
        worker.wait(HANG_SECONDS)  # it does not train for nobody
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
