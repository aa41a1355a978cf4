"""Many trainings: estimates, failures, deaths of workers, other folders; the same bits."""

import csv
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from factories import changed
from filelock import FileLock
from run_bits import bits, run_bits, whys
from waiting import HANG_SECONDS, wait_until

from deepbig_runtime.errors import Interrupted, Problem
from experiments import table1
from experiments.datasets import data
from experiments.training import jobs, runs, store
from experiments.training.configs import make_config
from experiments.training.jobs import Job
from experiments.training.progress import Track, View
from experiments.training.provenance import REPOSITORY
from experiments.training.workers import (
    Channel,
    EpochSaved,
    InProcess,
    LocalProcesses,
    Started,
    Trained,
    WorkerDied,
)
from mlp_gpu.training import Schedule

EPOCHS = 12
TABLE = ["--data", "digits", "--hidden", "9", "--seeds", "0,1", "--epochs", "8", "--limit", "150"]


def make_job(folder, seed, epochs=EPOCHS):
    dataset = data.limit(data.load("digits"), 100)
    config = make_config(dataset, (841, 10), Schedule(epochs, 0.001, 0.95), seed, None, "cpu")
    return Job(folder / f"seed{seed}.h5", f"seed {seed}", config)


def train_all(queue, pool):
    """As jobs.train_all: the runs, None for those that failed, and why those failed."""
    outcomes = jobs.train_all(queue, pool)
    return [o.run for o in outcomes], [o.failure for o in outcomes if o.failure]


def stop_after(epoch, job):
    """Train until an epoch of that number is saved, and stop there as a signal would."""

    def send(message):
        if isinstance(message, EpochSaved) and message.epoch == epoch:
            raise Interrupted(signal.SIGTERM)

    with pytest.raises(Interrupted):
        jobs.train_job(Channel(send), job)


def make_jobs(folder, n=3):
    return [make_job(folder, seed) for seed in range(n)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The bits of each of three jobs, trained one after another without any trouble."""
    queue = make_jobs(tmp_path_factory.mktemp("expected"))
    jobs.train_all(queue, InProcess())
    return [bits(job.path) for job in queue]


class Mortal(InProcess):
    """Its worker dies at each message of a kind."""

    def __init__(self, deadly):
        super().__init__()
        self._deadly, self.deaths = deadly, 0

    def submit(self, function, *arguments):
        def mortal(channel, *arguments):
            return function(Channel(lambda message: self._send(channel, message)), *arguments)

        return super().submit(mortal, *arguments)

    def _send(self, channel, message):
        channel.send(message)
        if isinstance(message, self._deadly):
            self.deaths += 1
            raise WorkerDied


def test_deaths_do_not_count_after_an_epoch(tmp_path):
    job = make_job(tmp_path, 0, epochs=jobs.MAX_WORKER_DEATHS + 3)
    pool = Mortal(EpochSaved)
    (run,), _ = train_all([job], pool)
    assert run.epochs == pool.deaths == jobs.MAX_WORKER_DEATHS + 3
    # The last epoch was saved before the last death.
    assert whys(job.path) == (jobs.MAX_WORKER_DEATHS + 2) * ["killed"] + ["finished"]


def test_deaths_without_an_epoch_fail_the_job(tmp_path, capsys):
    pool = Mortal(Started)
    found, failures = train_all(make_jobs(tmp_path, 2), pool)
    assert found == [None, None]
    assert failures == 2 * ["the worker process that trained it died, again and again"]
    assert pool.deaths == 2 * jobs.MAX_WORKER_DEATHS
    said = capsys.readouterr().err
    assert said.count("a worker process died; another one goes on with seed 1\n") == 2


def test_death_in_the_estimate_ends_the_command(tmp_path):
    def die(channel):
        raise WorkerDied

    class Dying(InProcess):
        def submit(self, function, *arguments):
            return super().submit(die)

    with pytest.raises(Problem, match="a worker process died while it tried out a training; if"):
        jobs.train_all(make_jobs(tmp_path, 1), Dying())


def test_time_is_announced_for_each_group_of_equal_jobs(tmp_path, capsys):
    asked = []

    class Slow(InProcess):
        workers = 2

        def submit(self, function, job):
            if function is jobs.train_job:
                return super().submit(function, job)
            asked.append(job.label)
            seconds = 100.0 if job.config.data.n_train == 60 else 10.0 / asked.count(job.label)
            return super().submit(lambda channel: seconds)

    queue = [make_job(tmp_path, seed, epochs=4) for seed in range(5)]
    queue[3] = replace(queue[3], config=changed(queue[3].config, data={"n_train": 60}))
    jobs.train_all(queue[:1], InProcess())
    stop_after(1, queue[4])
    done = store.read_run(queue[4].path).epochs  # the next one may be trained meanwhile
    capsys.readouterr()
    jobs.train_all(queue, Slow())
    assert sorted(asked) == ["seed 1", "seed 1", "seed 3"]  # two at once; the slower one counts
    assert capsys.readouterr().err.splitlines()[:5] == [
        f"seed 0: finished, in {queue[0].path}",
        "seed 1 and 1 like it: epochs x images 4 x 100, about 0:00:40 each",
        "seed 3: epochs x images 4 x 60, about 0:06:40",
        f"seed 4: epochs x images 4 x 100, {done} epochs done, about 0:00:{10 * (4 - done)}",
        "about 0:06:40 in all, on 2 workers",  # no run takes two
    ]


def test_futures_are_let_go_as_they_come(tmp_path):
    """A cluster computes results again that it loses, as long as a future of them exists."""
    held = []

    class Holding(InProcess):
        def as_completed(self, waiting):
            assert not any(future() for future in held)
            for future in super().as_completed([list(waiting)[-1]]):
                held.append(weakref.ref(future))
                yield future
                del future

    queue = [make_job(tmp_path, seed, epochs=1) for seed in range(4)]
    jobs._train_unfinished(queue, Holding(), View([Track(j.label, j.config, 1) for j in queue]))
    assert len(held) == 4


def test_trainings_stop_with_their_minutes_and_go_on_later(expected, tmp_path, monkeypatch, capsys):
    def is_up(reporter, seconds):
        raise runs.TimeIsUp  # at the end of the first epoch

    queue = make_jobs(tmp_path)
    late = replace(queue[0], deadline=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(jobs.Reporter, "epoch_ended", is_up)
        outcomes = jobs.train_all([late, *queue[1:]], InProcess())
    assert [outcome.status for outcome in outcomes] == [0, 0, 0]
    first, second, _ = (outcome.stopped for outcome in outcomes)
    assert first == "it was not begun before the time was over"
    assert second.startswith(f"1 of {EPOCHS} epochs are safe in {queue[1].path}; the same command")
    said = capsys.readouterr().err
    assert "seed 0: its first epoch is unlikely to end within --minutes" in said
    assert f"stopped: seed 1: {second}" in said
    assert "failed" not in said
    assert whys(queue[1].path) == ["its minutes were over"]
    assert train_all(queue, InProcess())[1] == []
    assert [bits(job.path) for job in queue] == expected


def test_an_epoch_begins_only_if_it_ends_in_time():
    def reporter(seconds):
        return jobs.Reporter("", SimpleNamespace(), time.monotonic() + seconds)

    reporter(HANG_SECONDS).epoch_ended(HANG_SECONDS / 2)
    with pytest.raises(runs.TimeIsUp):
        reporter(HANG_SECONDS).epoch_ended(2 * HANG_SECONDS)
    with pytest.raises(runs.TimeIsUp):
        reporter(-1).tick(1)


def test_runs_that_fail_are_named_at_once_and_the_others_go_on(
    expected, tmp_path, monkeypatch, capsys
):
    queue, train_run = make_jobs(tmp_path, 5), runs.train_run

    def fail(path, *arguments):
        match path.stem:
            case "seed1":
                raise Problem("it cannot go on")
            case "seed3":
                raise ZeroDivisionError("so it is")
            case "seed4":  # a worker's error comes without the error that caused it
                try:
                    raise MemoryError
                finally:
                    raise ValueError("I/O operation on closed file.")
        return train_run(path, *arguments)

    monkeypatch.setattr(runs, "train_run", fail)
    found, failures = train_all(queue, InProcess())
    assert [run is None for run in found] == [False, True, False, True, True]
    assert failures[:2] == ["it cannot go on", "ZeroDivisionError: so it is"]
    assert "not enough memory" in failures[2]
    assert [bits(queue[k].path) for k in (0, 2)] == expected[::2]
    assert [run_bits(found[k]) for k in (0, 2)] == [bits[:4] for bits in expected[::2]]
    said = capsys.readouterr().err
    assert said.index("failed: seed 1: it cannot go on\n") < said.index("seed 2: epoch 1/")
    assert said.endswith("3 of 5 runs failed, see above\n")
    assert said.count("Traceback") == 1  # of the error in our code


def test_table_has_the_runs_that_did_not_fail(tmp_path, capsys):
    def table():
        (path,) = tmp_path.glob("table1*.csv")
        rows = list(csv.DictReader(path.open(newline="")))
        return [[value for name, value in row.items() if name not in TIMES] for row in rows]

    argv = [*TABLE, "--workers", "1", "--out", str(tmp_path)]
    first, second = (tmp_path / f"hidden9-seed{k}-load_digits.lock" for k in range(2))
    with FileLock(first), FileLock(second):
        assert table1.main(argv) == 1
    assert capsys.readouterr().out == ""
    assert not list(tmp_path.glob("table1*"))
    with FileLock(first):
        assert table1.main(argv) == 1
    assert "failed: 841-9-10, seed 0: another process is training " in capsys.readouterr().err
    others = table()
    assert table1.main(argv) == 0  # now that it can be had
    assert table()[1:] == others


TIMES = "seconds", "seconds_by_median", "date"


class Elsewhere(InProcess):
    """A pool whose workers do not share the folder of the command."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def submit(self, function, job):
        return super().submit(function, replace(job, path=self.folder / job.path.name))


def test_runs_trained_in_another_folder_are_written_here(expected, tmp_path, capsys):
    queue = make_jobs(tmp_path / "here")
    stop_after(4, queue[0])  # begun here: its weights are of no use any more
    found, failures = train_all(queue, Elsewhere(tmp_path / "there"))
    assert failures == []
    assert [run_bits(run) for run in found] == [bits[:4] for bits in expected]
    assert [run_bits(store.read_run(job.path)) for job in queue] == [b[:4] for b in expected]
    assert " epochs done, about" in capsys.readouterr().err
    # And a later command finds them so, wherever it works.
    jobs.train_all(queue, Elsewhere(tmp_path / "nowhere"))
    assert "seed 0 and 2 like it: finished, in" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_weights_begun_here_stay_until_the_finished_run_is_written(tmp_path, monkeypatch):
    job = make_job(tmp_path, 0)
    stop_after(4, job)
    finished = store.read_run(job.path)
    monkeypatch.setattr(runs, "epochs_done", lambda *_: 3)
    monkeypatch.setattr(store, "write_run", Mock(side_effect=Problem("the disk is full")))
    with pytest.raises(Problem, match="full"):
        jobs._save_here(job, finished)
    assert store.weights_path(job.path).exists()


def test_worker_with_other_data_fails_the_job(tmp_path):
    job = make_job(tmp_path, 0)
    job = replace(job, config=changed(job.config, data={"sha256": "0" * 64}))
    outcome = jobs.train_job(Channel(print), job)
    assert f"expected SHA-256 {'0' * 64}, found " in outcome.failure


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs SIGKILL and groups")


@pytest.mark.parametrize("engine", ["cpu", "cuda"])
def test_threads_prepare_alone_and_only_on_a_gpu_train_at_once(engine, tmp_path, monkeypatch):
    """They share the data; and an engine on the CPU has all cores."""
    running, seen, both = Counter(), set(), threading.Barrier(2, timeout=HANG_SECONDS)

    @contextmanager
    def count(step, seconds):
        running[step] += 1
        time.sleep(seconds)  # in which the other thread would come, too
        seen.add((step, running[step]))
        yield
        running[step] -= 1

    def load(*_):
        with count("prepare", 0.1):
            return "images"

    def train(job):
        with jobs._ready(job) as found:
            assert found == ("engine", "images")
            if engine == "cuda":
                both.wait()
            with count("train", 0.4):
                pass

    monkeypatch.setattr(jobs.configs, "load", load)
    monkeypatch.setattr(jobs.nets, "make_engine", lambda *_: "engine")
    monkeypatch.setattr(jobs.runs, "warm_up", lambda *_: None)
    job = make_job(tmp_path, 0)
    job = replace(job, config=changed(job.config, engine=engine))
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(train, [job, job]))
    assert max(n for step, n in seen if step == "prepare") == 1
    assert max(n for step, n in seen if step == "train") == (2 if engine == "cuda" else 1)


def test_processes_train_to_the_same_bits(expected, tmp_path, monkeypatch, capsys):
    queue, heard, show = make_jobs(tmp_path), [], View.show
    monkeypatch.setattr(View, "show", lambda *args: heard.append(args[1]) or show(*args))
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
    trained = [m.images for m in heard if m.run == "seed 0" and isinstance(m, Trained)]
    assert sum(trained) == found[0].epochs * found[0].config.data.n_train
    assert "in all, on 2 workers\n" in capsys.readouterr().err


@linux
def test_workers_release_the_runs_of_a_killed_client(cluster, tmp_path):
    """The workers must notice; else they would go on and keep the next command from the runs."""
    long = [*TABLE[:-4], "--epochs", "100000", *TABLE[-2:], "--out", str(tmp_path)]
    long += ["--scheduler", cluster.scheduler_address]
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.table1", *long],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: process.poll() is not None or len(store.run_files(tmp_path)) == 2)
    process.kill()
    process.wait()
    for path in store.run_files(tmp_path):
        with runs.lock(path, timeout=HANG_SECONDS):
            assert whys(path) == ["SIGTERM"]
