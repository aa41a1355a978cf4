"""`python -m experiments.nightly`: its list, what it leaves behind, and how it ends."""

import importlib
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from factories import changed
from waiting import wait_until

from campaign.run_bits import epochs_on_disk
from experiments import cnn, nightly, table1
from experiments.nightly import STEPS, Step
from experiments.running import plans, runs, store
from experiments.running.errors import Problem, signals
from experiments.running.plans import PAPER, PAPER_CNN
from experiments.running.provenance import REPOSITORY
from experiments.scoring import cnn_tables

TINY = (
    Step("a perceptron", "table1", "--nets 1 --epochs 1 --limit 60", "paper"),
    Step("a net", "cnn", "--net 1M1-MP29 --epochs 2 --limit 60", "cnn34"),
)


@pytest.fixture(autouse=True)
def niced(monkeypatch):
    """What was asked for: the process that tests could not take it back."""
    asked = []
    monkeypatch.setattr(os, "nice", asked.append)
    return asked


def plan_of(step):
    """How a step's nets are trained on MNIST, as its command reads its options."""
    command = importlib.import_module(f"experiments.{step.command}")
    arguments = command.parse_arguments([*step.options.split(), "--out", "x"])
    paper = PAPER_CNN if command is cnn else PAPER
    return arguments, plans.choose(arguments, "cpu", PAPER, paper)


def test_the_list_is_that_of_the_papers():
    read = [plan_of(step) for step in STEPS]
    assert all(plan.n_images is None for _, plan in read)
    (first, own), (second, convolutional) = read[:2]
    assert first.nets == [1]
    assert own == PAPER
    assert second.nets == read[2][0].nets == [3]
    assert cnn_tables.PAPER[3].name == "20M-60M-100M-150N"
    assert convolutional == PAPER_CNN
    assert read[-1][1] == PAPER_CNN


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.title)
def test_epochs_are_those_of_the_title(step):
    _, plan = plan_of(step)
    assert f"{plan.schedule.epochs:,} epochs" in step.title
    if "paper" not in step.options and "17 epochs" not in step.title:
        last = plan.schedule.eta * plan.schedule.decay ** (plan.schedule.epochs - 1)
        assert last == pytest.approx(1e-4, rel=0.15)


def test_two_steps_never_write_the_same_tables():
    """table1 writes table1.md into its folder, or table3.md; cnn cnn.md.

    committee writes committees.md, and a table for each experiment: the last step those of all.
    """
    written = [(step.folder, step.command) for step in STEPS if step.command != "committee"]
    assert len(set(written)) == len(written)


def test_all_committees_are_trained_alike_so_that_they_can_be_compared():
    steps = [(step, plan_of(step)) for step in STEPS if step.command == "committee"]
    (first, _), (last, _) = (arguments_and_plan for _, arguments_and_plan in steps)
    assert first.experiment == [6, 3]  # what the order asks for comes first
    assert last.experiment is None  # so all
    assert len({(step.folder, plan) for step, (_, plan) in steps}) == 1


@pytest.mark.slow
def test_all_of_it_in_order_and_again(tmp_path, monkeypatch, capfd, niced):
    monkeypatch.setattr(nightly, "STEPS", TINY)
    options = ["--data", "digits", "--out", str(tmp_path)]
    assert nightly.main(options) == 0
    paths = store.run_files(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in paths] == [
        "cnn34/1M1-MP29-seed0-load_digits.h5",
        "paper/net1-seed0-load_digits.h5",
    ]
    text = capfd.readouterr()
    order = [text.err.index(what) for what in ("1 of 2: a perceptron", "2 of 2: a net", "mixed")]
    assert order == sorted(order)
    assert "A committee of 2 nets" in text.out
    assert (tmp_path / "mixed" / "committee.md").exists()
    assert niced == [19]
    before = [path.read_bytes() for path in paths]
    assert nightly.main(options) == 0
    assert [path.read_bytes() for path in paths] == before  # finished runs are only read


def test_the_mixed_committee_has_no_unfinished_nets_and_of_the_committees_the_widths(tmp_path):
    arguments = ["--data", "digits", "--nets", "1", "--epochs", "1", "--limit", "60", "--out"]
    table1.main([*arguments, str(tmp_path / "one")])
    made = store.read_run(tmp_path / "one" / "net1-seed0-load_digits.h5")
    expected = []
    for name, epochs in (
        ("paper/net1-seed0", 1),
        ("net4/net4-seed0", 2),
        ("committee100/WN10-seed0", 1),
        ("committee100/original-seed0", 1),
        ("committee100/WN10-undeformed-seed0", 1),
        ("undeformed/net1-seed0-no-distortion", 1),
    ):
        path = tmp_path / f"{name}.h5"
        path.parent.mkdir(exist_ok=True)
        made.config = changed(made.config, epochs=epochs)
        store.write_run(path, made)
        path.with_name(f"{path.stem}.weights.h5").touch()
        if name in ("paper/net1-seed0", "committee100/WN10-seed0"):
            expected.append(path)
    assert sorted(nightly.mixed_members(tmp_path)) == sorted(expected)
    made.config = changed(made.config, epochs=1, data={"sha256": "1" * 64})
    store.write_run(tmp_path / "paper" / "of-other-data.h5", made)
    assert sorted(nightly.mixed_members(tmp_path)) == sorted(expected)


# As our commands do, it hears of SIGINT also where a shell began the tests in the background.
LISTEN = "import signal, time; signal.signal(signal.SIGINT, signal.default_int_handler); "
LISTEN += "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})"
SLEEPING = ["timeit", "-n1", "-r1", f"{LISTEN}; time.sleep(60)"]


def test_a_command_has_a_time_to_end():
    before = time.monotonic()
    assert nightly.run_until(SLEEPING, before + 2) is None
    assert 2 <= time.monotonic() - before < 50
    assert nightly.run_until(["calendar", "2026"], math.inf) == 0


def test_a_command_that_was_killed_did_not_succeed():
    command = ["timeit", "-n1", "-r1", "import os; os.kill(os.getpid(), 9)"]
    assert nightly.run_until(command, math.inf) == 128 + 9


def test_when_the_time_is_over_nothing_else_is_begun(tmp_path, monkeypatch, capsys):
    asked = []

    def stop(command, end):
        asked.append(end - time.monotonic())

    monkeypatch.setattr(nightly, "run_until", stop)
    assert nightly.main(["--hours", "0.5", "--out", str(tmp_path)]) == 0
    assert asked == [pytest.approx(1800, abs=60)]
    assert "stopped after 0.5 hours; the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("statuses", "expected", "n"),
    [([0, 1, 0], 1, 3), ([0, 2, 0], 2, 3), ([130, 0, 0], 130, 1), ([128 + 9, 0, 0], 128 + 9, 1)],
)
def test_a_training_that_fails_does_not_stop_the_others(statuses, expected, n, monkeypatch):
    asked = []

    def end(command, until):
        asked.append(command)
        return statuses[len(asked) - 1]

    monkeypatch.setattr(nightly, "STEPS", STEPS[:2])
    monkeypatch.setattr(nightly, "run_until", end)
    monkeypatch.setattr(nightly, "mixed_members", lambda folder: [Path("a.h5"), Path("b.h5")])
    assert nightly.main(["--data-dir", "somewhere", "--out", "nowhere"]) == expected
    assert len(asked) == n
    assert all("somewhere" in command for command in asked)


def test_without_two_finished_nets_there_is_no_mixed_committee(tmp_path, monkeypatch, capsys):
    """Without run files experiments.committee would train its own."""
    asked = []
    monkeypatch.setattr(nightly, "STEPS", STEPS[:1])
    monkeypatch.setattr(nightly, "run_until", lambda command, end: asked.append(command) or 1)
    assert nightly.main(["--out", str(tmp_path)]) == 1
    assert len(asked) == 1
    assert "it needs two nets at least" in capsys.readouterr().err


def test_one_core_is_left_free_if_asked_for(monkeypatch, tmp_path):
    left = []
    monkeypatch.setattr(nightly, "leave_a_core", lambda: left.append(1))
    monkeypatch.setattr(nightly, "run_until", lambda command, end: None)
    nightly.main(["--hours", "1", "--out", str(tmp_path)])
    assert left == []
    nightly.main(["--hours", "1", "--free-core", "--out", str(tmp_path)])
    assert left == [1]


@pytest.mark.slow
@pytest.mark.parametrize("to_all", [True, False], ids=["Ctrl-C", "kill"])
def test_a_signal_stops_the_training_too_and_the_same_command_goes_on(to_all, tmp_path):
    """A terminal's Ctrl-C reaches the command and the training, a kill the command alone."""
    command = [sys.executable, "-m", "experiments.nightly", "--data", "digits", "--out"]
    process = subprocess.Popen(
        [*command, str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    path = tmp_path / "paper" / "net1-seed0-load_digits.h5"
    try:
        wait_until(lambda: process.poll() is not None or epochs_on_disk(path) > 1, 120, "epochs")
        if to_all:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 128 + (signal.SIGINT if to_all else signal.SIGTERM)
    assert "Traceback" not in said
    assert said.count("stopped by") == 1
    assert "1 of 9: net 1, the paper's 2,300 epochs" in said
    assert "the same command goes on from there" in said
    with runs.lock(path):  # nobody trains any more
        assert store.read_run(path).epochs < 2300


def test_a_command_that_was_just_started_ends_in_a_sentence_too():
    """Ctrl-C reaches its Python while that is starting, where only Python could answer."""
    with signals.blocked():
        process = subprocess.Popen(
            [sys.executable, "-m", "experiments.nightly", "--help"],
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + signal.SIGINT, "stopped by SIGINT\n")


def test_a_core_is_left_free(monkeypatch):
    taken = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 4}, raising=False)
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda process, cores: taken.append(cores), raising=False
    )
    nightly.leave_a_core()
    assert taken == [[4, 5]]
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    with pytest.raises(Problem, match="needs two cores at least"):
        nightly.leave_a_core()
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(Problem, match="needs Linux"):
        nightly.leave_a_core()
