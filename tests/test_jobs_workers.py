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
    assert_same_table,
    assert_trained_once,
    kill_a_worker,
    light_jobs,
    make_jobs,
    make_table,
    run_files,
    train_all,
    train_undisturbed,
)
from waiting import join, wait_until

from campaign.run_bits import bits, epochs_on_disk, run_bits, whys
from experiments import table1
from experiments.running import jobs, runs, store
from experiments.running.progress import View
from experiments.running.provenance import REPOSITORY
from experiments.running.workers import EpochSaved, LocalProcesses, Started, Trained
from mlp_gpu import network
from mlp_gpu.network import Network

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs SIGKILL and groups")


@pytest.fixture
def light():
    with light_jobs():
        yield


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return train_undisturbed(tmp_path_factory.mktemp("expected"))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return make_table(tmp_path_factory.mktemp("table"))


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
        label = f"seed {seed}"
        first, *rows = [m for m in heard if m.run == label and not isinstance(m, Trained)]
        assert first == Started(label, 0)
        metrics = found[seed].metrics
        for k, row in enumerate(rows):
            values = (getattr(metrics, name)[k] for name in EpochSaved.__struct_fields__[1:])
            assert row == EpochSaved(label, *values)
        assert len(rows) == EPOCHS
        assert whys(queue[seed].path) == ["finished"]
    said = capsys.readouterr().err
    assert f"seed 0 and 2 like it: epochs x images {EPOCHS} x 100, about 0:0" in said
    assert "in all, on 2 workers\n" in said


@pytest.mark.slow
@linux
def test_a_killed_process_costs_an_epoch_and_no_bit(light, expected, tmp_path, heard, capsys):
    queue = make_jobs(tmp_path)
    with closing(LocalProcesses(2)) as pool:
        killer = kill_a_worker(tmp_path, lambda: [p.process.pid for p in pool._processes.values()])
        found, failures = train_all(queue, pool)
    join(killer)
    assert failures == []
    assert [bits(job.path) for job in queue] == expected
    assert [run_bits(run) for run in found] == [bits[:4] for bits in expected]
    assert_trained_once(heard)
    ends = [whys(job.path) for job in queue]
    assert ["killed", "finished"] in ends
    assert all(own in (["finished"], ["killed", "finished"]) for own in ends)
    assert "a worker process died; another one goes on with seed " in capsys.readouterr().err


def start(folder):
    """The command of `table` with two workers, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.table1", *TABLE, "--workers", "2", "--out", folder],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@linux
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_all_runs_and_the_same_command_goes_on(signum, table, tmp_path, capsys):
    process = start(tmp_path)
    wait_until(lambda: process.poll() is not None or any(map(epochs_on_disk, run_files(tmp_path))))
    if signum == signal.SIGINT:
        os.killpg(process.pid, signum)  # as a terminal does
    else:
        process.send_signal(signum)
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 128 + signum
    assert printed == ""
    assert said.splitlines()[-1] == (
        f"stopped by {signum.name}: all finished epochs of all runs are safe; the same command "
        "goes on from there"
    )
    assert said.count("stopped by") == 1
    assert "Traceback" not in said
    paths = run_files(tmp_path)
    assert signum.name in [whys(path)[-1] for path in paths]
    for path in paths:
        assert (
            network.load(store.weights_path(path), Network)[1]["epoch"]
            == store.read_run(path).epochs
        )
        assert whys(path)[-1] in (signum.name, "finished")
    if signum == signal.SIGINT:
        again = start(tmp_path)
        printed, said = again.communicate(timeout=300)
        assert again.returncode == 0
    else:
        table1.main([*TABLE, "--workers", "1", "--out", str(tmp_path)])
        printed, said = capsys.readouterr()
    assert " epochs done, about " in said
    assert printed == (tmp_path / "table1.md").read_text() + "\n"
    assert_same_table(tmp_path, table)


def test_a_cluster_trains_to_the_same_table(cluster, table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # workers stand elsewhere
    argv = [*TABLE, "--scheduler", cluster.scheduler_address, "--out", "out"]
    assert table1.main(argv) == 0
    assert_same_table(tmp_path / "out", table)
    assert ", 2 workers\n" in capsys.readouterr().err


@linux
def test_a_killed_worker_of_a_cluster_costs_an_epoch_and_no_bit(
    cluster, table, tmp_path, heard, capsys
):
    killer = kill_a_worker(tmp_path, lambda: [nanny.pid for nanny in cluster.workers.values()])
    argv = [*TABLE, "--scheduler", cluster.scheduler_address, "--out", str(tmp_path)]
    assert table1.main(argv) == 0
    join(killer)
    assert_same_table(tmp_path, table)
    assert_trained_once(heard)
    ends = [whys(path) for path in run_files(tmp_path)]
    assert sorted(ends) == [["finished"], ["killed", "finished"]]


@linux
def test_what_a_killed_client_had_trained_is_let_go(cluster, table, tmp_path):
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
