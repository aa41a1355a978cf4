"""The progress of trainings: lines of text, or bars on a terminal."""

import os
import sys
from types import SimpleNamespace

import pytest
from factories import make_config
from tqdm import tqdm

from experiments.training import progress
from experiments.training.progress import Track, View
from experiments.training.workers import EpochSaved, Started, Trained


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until `now` is set."""
    clock = SimpleNamespace(now=1000.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(progress, "time", clock)
    return clock


def make_terminal(monkeypatch):
    """Let stderr be a terminal. Of a fixture pytest would keep another stderr."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def track(label, epochs, epoch_seconds=10.0, epochs_done=0, **config):
    images = {"n_train": 600, "n_validation": 300, "n_test": 100}
    config = make_config(epochs=epochs, data=images, **config)
    return Track(label, config, epoch_seconds, epochs_done)


def epoch(run, number):
    return EpochSaved(run, number, 1e-3, 0.5, 60, 7, 2.0)


LINE = "eta 1.00e-03, loss 0.5000, validation 20.00 %, test 7.00 %, 300 images/s"


@pytest.mark.parametrize(
    ("tracks", "n_finished", "steps", "left"),
    [
        # One run needs no more than its own line.
        ([("a", 6)], 0, "a>0 30 a+600 a=1", ["0:02:30"]),
        # A resumed run counts from where it began, a second after the command.
        (
            [("a", 8, 10.0, 4)],
            1,
            "1 a>4 100 a=5 50 a=6",
            ["0:05:00; 1 of 2, all left 0:05:03", "0:02:30; 1 of 2, all left 0:02:31"],
        ),
        # Runs at the same time share the work: at first 10 s, and half of 20 s, so 30 s x 80 / 20.
        (
            [("a", 2), ("b", 4, 20.0)],
            1,
            "a>0 b>0 b+300 30 a=1 b+200 20 b=1 10 a=2",
            [
                "0:00:30; 1 of 3, all left 0:02:00",
                "0:02:30; 1 of 3, all left 0:02:30",  # of b alone
                "0:00:00; 2 of 3, all left 0:01:30",  # 60 s x 60 / 40
            ],
        ),
        # Images beyond an epoch, which a second worker reports again, do not count.
        ([("a", 2), ("b", 4)], 0, "a>0 b>0 b+6000 20 a=1", ["0:00:20; 0 of 2, all left 0:00:40"]),
        # Runs whose worker died lose their epoch.
        (
            [("a", 4), ("b", 4)],
            0,
            "a>0 b>0 10 a=1 a+300 b+540 10 b>0 a>1 20 a=2 b=1",
            [
                "0:00:30; 0 of 2, all left 0:01:10",
                "0:00:40; 0 of 2, all left 0:02:00",  # 40 s x 60 / 20
                "0:01:00; 0 of 2, all left 0:01:07",  # 40 s x 50 / 30
            ],
        ),
        # A run that ends within an epoch has not done that work.
        ([("a", 2), ("b", 2)], 0, "a>0 b>0 b+300 b. 10 a=1", ["0:00:10; 0 of 2, all left 0:00:30"]),
        # A worker with another folder finds other epochs done.
        (
            [("a", 4, 10.0, 2), ("b", 2)],
            0,
            "a>0 10 a=1 10 a=2",
            ["0:00:30; 0 of 2, all left 0:00:50", "0:00:20; 0 of 2, all left 0:00:40"],
        ),
    ],
)
def test_lines_predict_the_time_left(tracks, n_finished, steps, left, clock, capsys):
    """steps: seconds that pass; of a run: > started, + images trained, = epoch saved, . ended."""
    saved = []
    with View([track(*arguments) for arguments in tracks], n_finished) as view:
        for step in steps.split():
            match step[0], step[1:2], step[2:]:
                case run, ">", number:
                    view.show(Started(run, int(number)))
                case run, "+", number:
                    view.show(Trained(run, int(number)))
                case run, "=", number:
                    view.show(epoch(run, int(number)))
                    saved.append(f"{run}: epoch {number}/{dict(t[:2] for t in tracks)[run]}")
                case run, ".", _:
                    view.close(run)
                case _:
                    clock.now += int(step)
    expected = [text.replace(", all", " runs done, all") for text in left]
    assert capsys.readouterr().err.splitlines() == [
        f"{start}, {LINE}, left {text}" for start, text in zip(saved, expected, strict=True)
    ]


def test_a_run_that_begins_again_from_an_earlier_epoch_predicts_a_time(clock, capsys):
    with View([track("a", 9, epochs_done=5), track("b", 9)]) as view:
        for first in (5, 0):  # by a worker, and after its death by one with another folder
            view.show(Started("a", first))
            for number in range(first + 1, 7):
                clock.now += 10
                view.show(epoch("a", number))
    assert "all left 0:02:00" in capsys.readouterr().err.splitlines()[0]


def test_epochs_that_a_gpu_saves_together_predict_the_same_time(clock, capsys):
    with View([track("a", 4, engine="cuda")]) as view:
        view.show(Started("a", 0))
        clock.now += 30
        view.show(Trained("a", 3 * 600))
        for number in (1, 2, 3):
            view.show(epoch("a", number))
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == ["0:00:10"] * 3


def test_bar_of_several_runs(clock, capsys, monkeypatch):
    make_terminal(monkeypatch)
    tracks = [track("a", 2), track("b", 2, epoch_seconds=30.0, epochs_done=1)]
    with View(tracks, n_finished=1) as view:
        assert (view._bar.total, view._bar.n) == (80, 30)
        assert "1 of 3 runs:  38%" in capsys.readouterr().err
        view.show(Started("a", 0))
        view.show(Trained("a", 300))
        assert view._bar.n == pytest.approx(35)
        clock.now += 10
        view.show(epoch("a", 1))
        assert view._bar.n == pytest.approx(40)
        assert "\na: epoch 1/2" not in capsys.readouterr().err  # the bar shows it
        for row, seconds in zip(tracks, (10, 20), strict=True):
            clock.now += seconds
            view.show(epoch(row.label, 2))
            view.close(row.label)
        assert view._bar.n == pytest.approx(80)
    assert not tqdm._instances
    text = capsys.readouterr().err
    assert "3 of 3 runs: 100%" in text.splitlines()[-1]
    assert f"a: epoch 2/2, {LINE}, left 0:00:00" in text
    assert "b: epoch 2/2, eta 1.00e-03" in text


def test_bar_of_one_run_stays(clock, capsys, monkeypatch):
    make_terminal(monkeypatch)
    with View([track("net", 2)]) as view:
        view.show(Started("net", 0))
        view.show(Trained("net", 600))
        view.show(Trained("net", 150))  # of the next epoch, while the first is saved
        for number in (1, 2):
            clock.now += 10
            view.show(epoch("net", number))
            assert view._bar.n == pytest.approx((12.5, 20)[number - 1])
    text = capsys.readouterr().err
    assert "net: epoch" not in text  # no lines
    assert text.splitlines()[-1].strip().startswith("net: 100%")
    assert text.endswith("epoch 2/2, validation 20.00 %, test 7.00 %\n")


def test_closed_terminal_ends_no_training(monkeypatch):
    make_terminal(monkeypatch)
    with View([track("a", 2)]) as view:
        monkeypatch.setattr(tqdm, "update", lambda *_: os.close(-1))
        monkeypatch.setattr(tqdm, "write", lambda *_, file: os.close(-1))
        view.show(Started("a", 0))
        view.tell("a sentence")
