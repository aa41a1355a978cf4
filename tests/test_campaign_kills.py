"""The campaign's kills: that whatever a kill can break is found."""

import random
import re
import shutil

import pytest
from small_runs import train, train_some

from campaign import kills
from campaign.commands import Ended
from campaign.run_bits import epochs_on_disk
from experiments.running import store


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    train(folder / "run.h5")
    return folder


@pytest.fixture
def outcome(expected, tmp_path, monkeypatch):
    """What a trial says of a command that does one thing after another to its run.

    Each of them is killed, as the trial believes. Things: functions of the run file's path, which
    may return how the command ended.
    """

    def make(*things):
        coming = iter(things)

        def run(command, where, out, folder, variables, meanwhile):
            out.mkdir(exist_ok=True)
            meanwhile(None, "")
            ended = {"status": -9, "stderr": "", "left_behind": 0}
            ended |= next(coming)(out / "run.h5") or {}
            return Ended(["command"], stdout="", seconds=1.0, **ended)

        monkeypatch.setattr(kills, "_run", run)
        monkeypatch.setattr(kills._Trial, "_kill", lambda trial, *_: vars(trial).update(_killed=1))
        kill = {"how": "SIGKILL"}
        trial = {"command": "table1", "where": "1", "is_cold": False, "kills": [kill] * 3}
        return kills._Trial(trial, expected, 1.0, tmp_path).make()

    return make


def some(epochs):
    def thing(path):
        path.unlink(missing_ok=True)
        store.weights_path(path).unlink(missing_ok=True)
        train_some(path, epochs)

    return thing


def finish(path):
    train(path)
    return {"status": 0}


def test_a_command_that_survives_holds(outcome):
    found = outcome(some(1), some(3), some(3), finish)
    assert found.failure is None
    assert found.tries == 3


def leave_over(path):
    train(path)
    (path.parent / "run.h5.1.tmp").touch()
    return {"status": 0}


@pytest.mark.parametrize(
    ("things", "complaint"),
    [
        ([some(3), some(2)], "3 epochs were saved, now 2"),
        ([some(1), leave_over], r"the files are .*run\.h5\.1\.tmp"),
        ([lambda path: {"status": 1}], "the status is 1, expected one of"),
        ([lambda path: {"left_behind": 2}], "2 processes live on"),
        ([lambda path: {"stderr": "Traceback (most recent call last):"}], "a traceback"),
        ([some(1), some(1), some(1), some(2)], r"the status is -9, expected one of \[0\]"),
    ],
)
def test_what_a_kill_breaks_is_found(things, complaint, outcome):
    found = outcome(*things)
    assert found.failure is not None
    assert re.search(complaint, found.failure)


def test_other_bits_are_found(outcome, expected):
    def change(path):
        shutil.copytree(expected, path.parent, dirs_exist_ok=True)
        run = store.read_run(path)
        run.outputs[0, 0] += 1e-6
        store.write_run(path, run)
        return {"status": 0}

    assert outcome(change).failure == "run.h5 has other bits than undisturbed"


def test_trials_are_of_all_kinds():
    drawn = [kills.draw(random.Random(number), number) for number in range(400)]
    assert {trial["command"] for trial in drawn} == set(kills.COMMANDS)
    assert {trial["where"] for trial in drawn} == set(kills.WHERE)
    assert 0.02 < sum(trial["is_cold"] for trial in drawn) / len(drawn) < 0.2
    all_kills = [kill for trial in drawn for kill in trial["kills"]]
    assert {kill["how"] for kill in all_kills} == set(kills.STATUSES)
    assert {bool(kill["change"]) for kill in all_kills} == {True, False}
    for trial in drawn:
        if trial["where"] == "1":
            assert "worker" not in {kill["how"] for kill in trial["kills"]}


@pytest.mark.slow
def test_a_real_command_is_killed(tmp_path):
    shared, folder = tmp_path / "shared", tmp_path / "folder"
    shared.mkdir()
    folder.mkdir()
    how = {"to_all": False, "moment": 0.0, "change": 6, "delay": 0.0}
    names = ["SIGKILL", "SIGTERM", "worker"]
    trial = {"command": "table1", "where": "2", "is_cold": False}
    trial["kills"] = [{"how": name} | how for name in names]
    outcome = kills.attempt(trial, shared, folder)
    assert outcome.failure is None
    assert outcome.tries >= 1
    for path in store.run_files(folder / "out"):
        assert epochs_on_disk(path) == 5
        assert store.read_run(path).finished
