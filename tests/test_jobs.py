"""Many trainings, wherever they run: the same bits, whoever dies on the way."""

import csv
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import BrokenExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from run_bits import bits, epochs_on_disk, run_bits, whys

from experiments import table1
from experiments.running import data, jobs, pools, runs, store
from experiments.running.configs import make_config
from experiments.running.errors import Interrupted, Problem
from experiments.running.jobs import Job
from experiments.running.pools import Here, Local
from experiments.running.progress import View
from experiments.running.provenance import REPOSITORY
from mlp_gpu import network
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.files import FileFault
from mlp_gpu.training import Schedule

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs SIGKILL and groups")

EPOCHS = 20  # of some hundredths of a second
TABLE = ["--data", "digits", "--nets", "1", "--seeds", "0,1", "--epochs", "8", "--limit", "150"]


class LightEngine(CpuEngine):
    """As the CPU's for a net of one layer, without anything to be compiled."""

    def train(self, images, labels, order, eta, tick=lambda n, loss: None):
        W = self._weights[0][:842, :10]
        losses = []
        with np.errstate(all="ignore"):
            for k in order:
                x = np.append(np.float32(1), images[k])[:, None]
                activations = (x * W).sum(axis=0)
                delta = np.exp(activations - activations.max())
                delta /= delta.sum()
                losses.append(1 - delta[labels[k]])
                delta[labels[k]] -= 1
                W -= np.float32(eta) * x * delta
        tick(len(order), np.mean(losses))
        return float(np.mean(losses))


def light_work(channel, job):
    """As jobs.work, in a worker that is ready at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "make_engine", lambda *_: LightEngine())
        return WORK(channel, job)


def light_estimate(channel, job):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "make_engine", lambda *_: LightEngine())
        return ESTIMATE(channel, job)


WORK, ESTIMATE = jobs.work, jobs.estimate


@contextmanager
def light_jobs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "work", light_work)
        patch.setattr(jobs, "estimate", light_estimate)
        yield


@pytest.fixture
def light():
    with light_jobs():
        yield


def make_job(folder, seed, epochs=EPOCHS, eta=0.001):
    dataset = data.limit(data.load("digits"), 100)
    config = make_config(dataset, (841, 10), Schedule(epochs, eta, 0.95), seed, None, "cpu")
    return Job(folder / f"seed{seed}.h5", f"seed {seed}", config)


def make_jobs(folder, n=3):
    return [make_job(folder, seed) for seed in range(n)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The bits of each of three jobs, trained one after another without any trouble."""
    queue = make_jobs(tmp_path_factory.mktemp("expected"))
    with light_jobs():
        jobs.train_all(queue, Here())
    return [bits(job.path) for job in queue]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The folder of a table that was made in one process and in one go."""
    folder = tmp_path_factory.mktemp("table")
    assert table1.main([*TABLE, "--workers", "1", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def heard(monkeypatch):
    """All messages that arrive at a view."""
    heard = []

    class Listening(View):
        def take(self, message):
            heard.append(message)
            super().take(message)

    monkeypatch.setattr(jobs, "View", Listening)
    return heard


def run_files(folder):
    return sorted(path for path in folder.glob("*.h5") if ".weights" not in path.name)


def table_rows(folder):
    """The table without times."""
    with (folder / "table1.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k not in ("seconds", "date")} for row in rows]


def assert_same_table(folder, expected):
    paths, others = run_files(folder), run_files(expected)
    assert [path.name for path in paths] == [path.name for path in others]
    for path, other in zip(paths, others, strict=True):
        assert bits(path) == bits(other)
    assert table_rows(folder) == table_rows(expected)


def assert_trained_once(heard):
    """No epoch that was saved, and so told, was trained again."""
    epochs = [(m["run"], m["epoch"]) for m in heard if m["event"] == "epoch"]
    assert len(set(epochs)) == len(epochs)


def has_open(pid, path):
    """Whether the process has opened that file."""
    try:
        return any(os.path.realpath(fd) == str(path) for fd in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # it has ended, or opens and closes files
        return False


def kill_a_worker(folder, pids):
    """Start to wait for two epochs of a run on disk, then kill the process that trains that run.

    pids: a function that gives those of the workers. Returns the thread.
    """

    def kill_one():
        for path in run_files(folder):
            for pid in list(pids()):
                if epochs_on_disk(path) > 1 and has_open(pid, path.with_suffix(".lock").resolve()):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def work():
        while not kill_one():
            time.sleep(0.005)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_processes_train_to_the_same_bits(light, expected, tmp_path, heard, capsys):
    queue = make_jobs(tmp_path)
    with closing(Local(2)) as pool:
        found, failures = jobs.train_all(queue, pool)
    assert failures == []
    assert [bits(job.path) for job in queue] == expected
    assert [run_bits(run) for run in found] == [bits[:4] for bits in expected]
    for seed in range(3):
        own = [m for m in heard if m["run"] == f"seed {seed}" and m["event"] != "tick"]
        assert own.pop(0) == {"run": f"seed {seed}", "event": "begin"}
        assert own[0] == {"run": f"seed {seed}", "event": "start", "done": 0}
        assert [m["epoch"] for m in own[1:-1]] == list(range(1, EPOCHS + 1))
        assert own[-1]["event"] == "end"
        assert own[5]["test_errors"] == found[seed].metrics["test_errors"][4]
        assert whys(queue[seed].path) == ["finished"]
    said = capsys.readouterr().err
    assert f"seed 0 and 2 like it: epochs x images {EPOCHS} x 100, about 0:0" in said
    assert "in all, on 2 workers\n" in said


@pytest.mark.slow
@linux
def test_a_killed_process_costs_an_epoch_and_no_bit(light, expected, tmp_path, heard, capsys):
    queue = make_jobs(tmp_path)
    with closing(Local(2)) as pool:
        killer = kill_a_worker(tmp_path, lambda: pool._executor._processes)
        found, failures = jobs.train_all(queue, pool)
    killer.join()
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
    jobs.train_all([done], Here())
    with pytest.raises(Interrupted):
        stop_after(2, [begun], Here())
    deadly = Deadly(deadly.path, deadly.label, deadly.config)
    monkeypatch.setattr(jobs, "_estimate", lambda left, pool: {jobs.kind(begun): 1.0})
    with closing(Local(2)) as pool:
        found, failures = jobs.train_all([done, deadly, begun], pool)
    assert found[1] is None
    assert [run_bits(found[k]) for k in (0, 2)] == [bits[:4] for bits in expected[:2]]
    assert [bits(job.path) for job in (done, begun)] == expected[:2]
    reason = "the worker process that trained it died, again and again"
    assert failures == [f"seed 2: {reason}"]
    said = capsys.readouterr().err
    assert f"failed: seed 2: {reason}\n" in said
    assert said.endswith("1 of 3 runs failed, see above\n")
    assert not deadly.path.exists()


def stop_after(epoch, queue, pool, signum=signal.SIGTERM):
    """Train until an epoch of that number is told, and stop there as a signal would."""

    class Stopping(View):
        stopped = False

        def take(self, message):
            if message.get("epoch") == epoch and not self.stopped:
                self.stopped = True
                raise Interrupted(signum)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "View", Stopping)
        jobs.train_all(queue, pool)


def die_in_its_place(channel):
    raise BrokenExecutor


class Mortal(Here):
    """Dies in each training after an epoch, or before it if `barren`; trials are spared."""

    def __init__(self, barren=False):
        super().__init__()
        self._barren, self._dead, self.restarts = barren, False, 0

    def send(self, message):
        if self._dead:
            return
        super().send(message)
        self._dead = message["event"] == ("start" if self._barren else "epoch")
        if self._dead:
            raise BrokenExecutor

    def as_completed(self, waiting):
        for future in list(waiting):
            if self._dead:  # as an executor whose process died
                future.set_exception(BrokenExecutor())
                yield future
            else:
                yield from super().as_completed([future])

    def restart(self):
        self._dead = False
        self.restarts += 1


def test_deaths_are_no_matter_as_long_as_epochs_get_done_between(light, tmp_path):
    job = make_job(tmp_path, 0, epochs=jobs.DEATHS + 3)
    pool = Mortal()
    (run,), failures = jobs.train_all([job], pool)
    assert failures == []
    assert run.epochs == jobs.DEATHS + 3
    # The last epoch was saved before the last death.
    assert whys(job.path) == (jobs.DEATHS + 2) * ["killed"] + ["finished"]
    assert pool.restarts == jobs.DEATHS + 3


def test_deaths_without_an_epoch_between_come_to_an_end(light, tmp_path):
    queue = make_jobs(tmp_path, 2)
    pool = Mortal(barren=True)
    found, failures = jobs.train_all(queue, pool)
    assert found == [None, None]
    assert len(failures) == 2
    # Each is tried alone once, after DEATHS in a row, and nobody is left after the last.
    assert pool.restarts == 2 * (jobs.DEATHS + 1) - 1
    assert all(failure.endswith("died, again and again") for failure in failures)


def test_a_process_that_dies_over_the_estimate_ends_the_command(light, tmp_path):
    class Dying(Here):
        def submit(self, function, *arguments):
            return super().submit(die_in_its_place)

    with pytest.raises(Problem, match="a worker process died while it tried out a training; if"):
        jobs.train_all(make_jobs(tmp_path, 1), Dying())


def test_how_long_it_takes_is_said_beforehand(light, tmp_path, capsys):
    asked = []

    class Slow(Here):
        workers = 2

        def submit(self, function, job):
            if function is jobs.work:
                return super().submit(function, job)
            asked.append(job.label)
            seconds = 100.0 if job.config["data"]["n_train"] == 60 else 10.0
            return super().submit(lambda channel: seconds)

    queue = [make_job(tmp_path, seed, epochs=4) for seed in range(5)]
    queue[3].config["data"]["n_train"] = 60
    jobs.train_all(queue[:1], Here())
    with pytest.raises(Interrupted):
        stop_after(1, queue[4:], Here())
    capsys.readouterr()
    jobs.train_all(queue, Slow())
    assert sorted(asked) == ["seed 1", "seed 3"]  # one of each kind
    assert capsys.readouterr().err.splitlines()[:5] == [
        f"seed 0: finished, in {queue[0].path}",
        "seed 1 and 1 like it: epochs x images 4 x 100, about 0:00:40 each",
        "seed 3: epochs x images 4 x 60, about 0:06:40",
        "seed 4: epochs x images 4 x 100, 1 epochs done, about 0:00:30",
        "about 0:06:40 in all, on 2 workers",  # no run takes two
    ]


def test_results_are_let_go_as_they_come(light, tmp_path):
    """A cluster computes those again that are held and that it loses."""
    held = []

    class Watching(Here):
        def as_completed(self, waiting):
            waiting = list(waiting)
            while waiting:
                held.append(weakref.ref(waiting[-1]))
                yield from super().as_completed([waiting.pop()])
                assert not any(future() for future in held[:-1])

    jobs.train_all([make_job(tmp_path, seed, epochs=1) for seed in range(4)], Watching())
    assert len(held) == 1 + 4


def test_failed_runs_are_named_and_the_others_go_on(light, expected, tmp_path, capsys):
    queue = [make_job(tmp_path, 7, eta=np.inf), *make_jobs(tmp_path)]
    with FileLock(queue[2].path.with_suffix(".lock")):
        found, failures = jobs.train_all(queue, Here())
    assert found[0] is None
    assert found[2] is None
    assert [bits(queue[k].path) for k in (1, 3)] == expected[::2]
    assert [run_bits(found[k]) for k in (1, 3)] == [bits[:4] for bits in expected[::2]]
    diverged, locked = failures
    assert diverged.startswith("seed 7: it cannot go on: the loss is not a finite number")
    assert locked.startswith(f"seed 1: another process is training {queue[2].path} ")
    said = capsys.readouterr().err
    assert said.index(f"failed: {diverged}\n") < said.index("seed 0: epoch 1/")  # at once
    assert said.index(f"failed: {locked}\n") < said.index("seed 2: epoch 1/")
    assert said.endswith("2 of 4 runs failed, see above\n")
    assert "Traceback" not in said


def test_a_fault_of_ours_fails_one_run_and_shows_its_place(
    light, expected, tmp_path, monkeypatch, capsys
):
    queue = make_jobs(tmp_path, 2)
    train_run = jobs.runs.train_run

    def fail(path, *arguments):
        if path == queue[0].path:
            raise ZeroDivisionError("so it is")
        return train_run(path, *arguments)

    monkeypatch.setattr(jobs.runs, "train_run", fail)
    found, failures = jobs.train_all(queue, Here())
    assert failures == ["seed 0: ZeroDivisionError: so it is"]
    assert found[0] is None
    assert bits(queue[1].path) == expected[1]
    assert "in fail\n" in capsys.readouterr().err


def test_table_of_the_runs_that_did_not_fail(table, tmp_path, capsys):
    argv = [*TABLE, "--workers", "1", "--out", str(tmp_path)]
    with FileLock(tmp_path / "net1-seed0-load_digits.lock"):
        assert table1.main(argv) == 1
    printed = capsys.readouterr()
    assert "failed: net 1, seed 0: another process is training " in printed.err
    assert printed.out == (tmp_path / "table1.md").read_text() + "\n"
    assert table_rows(tmp_path) == table_rows(table)[1:]
    assert table1.main(argv) == 0  # now that it can be had
    assert_same_table(tmp_path, table)


def test_no_table_if_every_run_failed(tmp_path, capsys):
    with (
        FileLock(tmp_path / "net1-seed0-load_digits.lock"),
        FileLock(tmp_path / "net1-seed1-load_digits.lock"),
    ):
        assert table1.main([*TABLE, "--workers", "1", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("failed: net 1, seed ") == 2
    assert not list(tmp_path.glob("table1.*"))
    assert run_files(tmp_path) == []


def test_a_damaged_run_file_is_refused_before_anything_is_trained(table, tmp_path):
    path = tmp_path / "net1-seed1-load_digits.h5"
    content = bytearray((table / path.name).read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileFault, match=f"{path.name} is damaged"):
        table1.main([*TABLE, "--workers", "2", "--out", str(tmp_path)])
    assert run_files(tmp_path) == [path]
    assert path.read_bytes() == content


class Elsewhere(Here):
    """A pool whose workers do not share the folder of the command."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def submit(self, function, job):
        return super().submit(function, replace(job, path=self.folder / job.path.name))


def test_runs_that_were_trained_in_another_folder_are_brought_home(
    light, expected, tmp_path, capsys
):
    queue = make_jobs(tmp_path / "here")
    with pytest.raises(Interrupted):
        stop_after(4, queue[:1], Here())  # begun here: its weights are of no use any more
    found, failures = jobs.train_all(queue, Elsewhere(tmp_path / "there"))
    assert failures == []
    assert [run_bits(run) for run in found] == [bits[:4] for bits in expected]
    assert [run_bits(store.read_run(job.path)) for job in queue] == [b[:4] for b in expected]
    assert "4 epochs done" in capsys.readouterr().err
    # And a later command finds them so, wherever it works.
    jobs.train_all(queue, Elsewhere(tmp_path / "nowhere"))
    assert "seed 0 and 2 like it: finished, in" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_runs_are_brought_home_as_they_come(light, tmp_path):
    class Fault(Exception):
        pass

    class Failing(Elsewhere):
        def as_completed(self, waiting):
            for k, future in enumerate(super().as_completed(waiting)):
                if k == 1 and function_of[future] is jobs.work:
                    raise Fault
                yield future

        def submit(self, function, job):
            future = super().submit(function, job)
            function_of[future] = function
            return future

    function_of = {}
    queue = [make_job(tmp_path / "here", seed, epochs=2) for seed in range(2)]
    with pytest.raises(Fault):
        jobs.train_all(queue, Failing(tmp_path / "there"))
    assert store.read_run(queue[0].path).finished
    assert not queue[1].path.exists()


def test_a_run_trained_here_keeps_its_weights(table):
    for path in run_files(table):
        assert network.load(store.weights_path(path))[1]["epoch"] == 8


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
    while process.poll() is None and not any(map(epochs_on_disk, run_files(tmp_path))):
        time.sleep(0.01)
    if signum == signal.SIGINT:
        os.killpg(process.pid, signum)  # as a terminal does
    else:
        process.send_signal(signum)
    printed, said = process.communicate()
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
        assert network.load(store.weights_path(path))[1]["epoch"] == store.read_run(path).epochs
        assert whys(path)[-1] in (signum.name, "finished")
    if signum == signal.SIGINT:
        again = start(tmp_path)
        printed, said = again.communicate()
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
    killer.join()
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
    while process.poll() is None and len(run_files(tmp_path)) < 2:
        time.sleep(0.01)
    process.kill()
    process.wait()
    for path in run_files(tmp_path):
        with runs.lock(path, patience=60):
            assert whys(path) == ["SIGTERM"]


def test_stopping_a_cluster_saves_all_runs(light, cluster, expected, tmp_path):
    queue = make_jobs(tmp_path)
    sentence = "stopped by SIGINT: all finished epochs of all runs are safe; the same command"
    with (
        closing(pools.Cluster(cluster.scheduler_address)) as pool,
        pytest.raises(Interrupted, match=sentence),
    ):
        stop_after(2, queue, pool, signal.SIGINT)
    ends = [whys(job.path) for job in queue if job.path.exists()]
    assert ["SIGINT"] in ends
    assert all(own in (["SIGINT"], ["finished"]) for own in ends)
    with closing(pools.Cluster(cluster.scheduler_address)) as pool:
        _, failures = jobs.train_all(queue, pool)
    assert failures == []
    assert [bits(job.path) for job in queue] == expected
