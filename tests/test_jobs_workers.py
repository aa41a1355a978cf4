"""Many trainings in processes and on a cluster: the same bits, whatever is killed or stopped."""

import os
import signal
import subprocess
import sys
from contextlib import closing

import pytest
from light_jobs import (
    EPOCHS,
    TABLE,
    assert_trained_once,
    kill_a_worker,
    light_jobs,
    make_jobs,
    run_files,
    stop_after,
    train_all,
    train_undisturbed,
)
from run_bits import bits, run_bits, whys
from waiting import join, wait_until

from experiments.running import jobs, runs
from experiments.running.errors import Interrupted
from experiments.running.jobs import Job
from experiments.running.pools import InProcess
from experiments.running.processes import LocalProcesses
from experiments.running.progress import View
from experiments.running.provenance import REPOSITORY

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs SIGKILL and groups")


@pytest.fixture
def light():
    with light_jobs():
        yield


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return train_undisturbed(tmp_path_factory.mktemp("expected"))


@pytest.fixture
def heard(monkeypatch):
    """All messages that arrive at a view."""
    heard = []

    class Listening(View):
        def show(self, message):
            heard.append(message)
            super().show(message)

    monkeypatch.setattr(jobs, "View", Listening)
    return heard


def test_processes_train_to_the_same_bits(light, expected, tmp_path, heard, capsys):
    queue = make_jobs(tmp_path)
    with closing(LocalProcesses(2)) as pool:
        found, failures = train_all(queue, pool)
    assert failures == []
    assert [bits(job.path) for job in queue] == expected
    assert [run_bits(run) for run in found] == [bits[:4] for bits in expected]
    for seed in range(3):
        own = [m for m in heard if m["run"] == f"seed {seed}" and m["event"] != "tick"]
        assert own.pop(0) == {"run": f"seed {seed}", "event": "begin"}
        assert own[0] == {"run": f"seed {seed}", "event": "start", "epochs_done": 0}
        assert [m["epoch"] for m in own[1:-1]] == list(range(1, EPOCHS + 1))
        assert own[-1]["event"] == "end"
        assert own[5]["test_errors"] == found[seed].metrics.test_errors[4]
        assert whys(queue[seed].path) == ["finished"]
    said = capsys.readouterr().err
    assert f"seed 0 and 2 like it: epochs x images {EPOCHS} x 100, about 0:0" in said
    assert "in all, on 2 workers\n" in said


@pytest.mark.slow
@linux
def test_a_killed_process_costs_an_epoch_and_no_bit(light, expected, tmp_path, heard, capsys):
    queue = make_jobs(tmp_path)
    with closing(LocalProcesses(2)) as pool:
        killer = kill_a_worker(tmp_path, lambda: pool._executor._processes)
        found, failures = train_all(queue, pool)
    join(killer)
    assert failures == []
    assert [bits(job.path) for job in queue] == expected
    assert [run_bits(run) for run in found] == [bits[:4] for bits in expected]
    assert_trained_once(heard)
    ends = [whys(job.path) for job in queue]
    assert ["killed", "finished"] in ends
    assert all(own in (["finished"], ["killed", "finished"]) for own in ends)
    assert "a worker process died; new ones go on with " in capsys.readouterr().err


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(Job):
    """Kills each worker that takes it."""

    def __reduce__(self):
        return die, ()


@pytest.mark.slow
@linux
def test_a_job_that_kills_every_worker_ends_and_costs_the_others_nothing(
    light, expected, tmp_path, monkeypatch, capsys
):
    done, begun, deadly = make_jobs(tmp_path)
    jobs.train_all([done], InProcess())
    with pytest.raises(Interrupted):
        stop_after(2, [begun], InProcess())
    deadly = Deadly(deadly.path, deadly.label, deadly.config)
    monkeypatch.setattr(jobs, "_estimate_all", lambda left, pool: {jobs.workload(begun): 1.0})
    with closing(LocalProcesses(2)) as pool:
        found, failures = train_all([done, deadly, begun], pool)
    assert found[1] is None
    assert [run_bits(found[k]) for k in (0, 2)] == [bits[:4] for bits in expected[:2]]
    assert [bits(job.path) for job in (done, begun)] == expected[:2]
    reason = "the worker process that trained it died, again and again"
    assert failures == [reason]
    said = capsys.readouterr().err
    assert f"failed: seed 2: {reason}\n" in said
    assert said.endswith("1 of 3 runs failed, see above\n")
    assert not deadly.path.exists()


@linux
def test_what_a_killed_client_had_trained_is_let_go(cluster, tmp_path):
    """The workers must notice; else they would go on and keep the next command from the runs."""
    long = [*TABLE[:-4], "--epochs", "100000", *TABLE[-2:], "--out", str(tmp_path)]
    long += ["--scheduler", cluster.scheduler_address]
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.table1", *long],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: process.poll() is not None or len(run_files(tmp_path)) == 2)
    process.kill()
    process.wait()
    for path in run_files(tmp_path):
        with runs.lock(path, timeout=60):
            assert whys(path) == ["SIGTERM"]


def make_pool(cluster):
    from experiments.running.cluster import Cluster  # needs distributed

    return Cluster(cluster.scheduler_address)


def test_stopping_a_cluster_saves_all_runs(light, cluster, expected, tmp_path):
    queue = make_jobs(tmp_path)
    sentence = "stopped by SIGINT: all finished epochs of all runs are safe; the same command"
    with (
        closing(make_pool(cluster)) as pool,
        pytest.raises(Interrupted, match=sentence),
    ):
        stop_after(2, queue, pool, signal.SIGINT)
    ends = [whys(job.path) for job in queue if job.path.exists()]
    assert ["SIGINT"] in ends
    assert all(own in (["SIGINT"], ["finished"]) for own in ends)
    with closing(make_pool(cluster)) as pool:
        _, failures = train_all(queue, pool)
    assert failures == []
    assert [bits(job.path) for job in queue] == expected
