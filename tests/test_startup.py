"""`python -m experiments.startup`: what it times, and what it writes."""

import csv
import functools
import subprocess
import time

import pytest

from experiments import startup
from experiments.running import data
from experiments.running.errors import Problem
from experiments.timing.findings import STARTUP


@pytest.fixture
def made_up(monkeypatch):
    """Times that are made up: 3, 1, 2 seconds, ten times that with an empty cache folder."""

    def first_step(dataset, cache=None, nets="all"):
        calls.append("compiling" if cache else nets)
        assert cache is None or list(cache.iterdir()) == []
        return (3.0, 1.0, 2.0)[calls.count(calls[-1]) % 3] * (10 if cache else 1)

    calls = []
    monkeypatch.setattr(startup, "first_step", first_step)
    monkeypatch.setattr(startup, "worker_start", lambda dataset, data_dir: 0.5)
    monkeypatch.setattr(startup, "time_tests", lambda command: 100.0 * len(command))
    return calls


def rows_of(folder):
    with (folder / "startup.csv").open(newline="") as file:
        return {row["what"]: row for row in csv.DictReader(file)}


def test_rows_are_medians_of_what_the_readme_names(made_up, tmp_path, capsys):
    options = ["--repeats", "3", "--data", "digits", "--out", str(tmp_path)]
    startup.main([*options, "--tests"])
    assert made_up == []
    startup.main(options)  # keeps the times of the tests
    rows = rows_of(tmp_path)
    assert set(rows) == set(STARTUP)
    # The first one only fills the cache folder.
    assert made_up == 4 * ["all"] + 3 * ["1"] + 3 * ["compiling"]
    seconds = {what: float(row["seconds"]) for what, row in rows.items()}
    assert [seconds[what] for what in STARTUP] == [900.0, 1300.0, 2.0, 2.0, 20.0, 0.5]
    kept = rows[STARTUP[2]]
    assert (kept["repeats"], kept["seconds_p20"], kept["seconds_p80"]) == ("3", "1.4", "2.6")
    assert {"device", "versions", "date", "commit"} <= kept.keys()
    assert "| make test-all" in capsys.readouterr().out
    startup.main([*options, "--tests"])
    assert rows_of(tmp_path)[STARTUP[2]] == kept


def test_tests_that_fail_are_no_measurement(monkeypatch):
    done = subprocess.CompletedProcess([], 2)
    monkeypatch.setattr(startup.subprocess, "run", lambda *_, **__: done)
    with pytest.raises(Problem, match="'make test' failed"):
        startup.time_tests("make test")


@pytest.mark.slow
def test_what_is_timed_is_shorter_than_the_whole(tmp_path):
    dataset = data.load("digits")
    net1 = functools.partial(startup.first_step, nets="1")
    for timed in (net1, lambda digits: startup.worker_start(digits, None)):
        began = time.perf_counter()
        seconds = timed(dataset)
        assert 0.2 < seconds < time.perf_counter() - began


@pytest.mark.slow
def test_a_training_that_fails_is_a_problem(tmp_path):
    (tmp_path / "deepbig").write_text("neither a folder for compiled code nor for MNIST")
    dataset = data.load("digits")
    unknown = type(dataset)("MNIST", *[dataset.train_images] * 4, "", str(tmp_path))
    with pytest.raises(Problem, match="a training failed: error: --data-dir"):
        startup.first_step(unknown, tmp_path)
