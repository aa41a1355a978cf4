"""Many trainings in processes and on a cluster: the same bits after any kill or stop."""

import subprocess
import sys
from contextlib import closing

import pytest
from light_jobs import (
    TABLE,
    assert_trained_once,
    kill_a_worker,
    light_jobs,
    make_jobs,
    run_files,
    train_all,
    train_undisturbed,
)
from run_bits import bits, run_bits, whys
from waiting import join, wait_until

from experiments.training import jobs, runs
from experiments.training.progress import View
from experiments.training.provenance import REPOSITORY
from experiments.training.workers import EpochSaved, LocalProcesses, Started, Trained

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
    metrics, names = found[0].metrics, EpochSaved.__struct_fields__[1:]
    rows = zip(*(getattr(metrics, name) for name in names), strict=True)
    assert [m for m in heard if m.run == "seed 0" and not isinstance(m, Trained)] == [
        Started("seed 0", 0),
        *(EpochSaved("seed 0", *row) for row in rows),
    ]
    assert "in all, on 2 workers\n" in capsys.readouterr().err


@pytest.mark.slow
@linux
def test_a_killed_process_costs_an_epoch_and_no_bit(light, expected, tmp_path, heard, capsys):
    queue = make_jobs(tmp_path)
    with closing(LocalProcesses(2)) as pool:
        killer = kill_a_worker(tmp_path, lambda: [p.process.pid for p in pool._processes.values()])
        train_all(queue, pool)
    join(killer)
    assert [bits(job.path) for job in queue] == expected
    assert_trained_once(heard)
    ends = [whys(job.path) for job in queue]
    assert ["killed", "finished"] in ends
    assert all(own in (["finished"], ["killed", "finished"]) for own in ends)
    assert "a worker process died; another one goes on with seed " in capsys.readouterr().err


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
