"""The progress of trainings: lines of text, or bars on a terminal."""

import io
import sys
from contextlib import contextmanager

import pytest
from tqdm import tqdm

from experiments.running import progress
from experiments.running.formatting import duration
from experiments.running.progress import Track, View


class Clock:
    """Stands for the module time, and stands still until it is set."""

    now = 1000.0

    def perf_counter(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@contextmanager
def on_terminal():
    """Inside, stderr is a terminal, which keeps what is written."""
    with pytest.MonkeyPatch.context() as patch:  # a fixture's would not outlive pytest's own
        patch.setattr(sys, "stderr", Terminal())
        yield sys.stderr


def track(label, epochs, epoch_seconds=10.0, epochs_done=0):
    n = {"n_train": 600, "n_validation": 300, "n_test": 100}
    return Track(label, epochs, **n, epoch_seconds=epoch_seconds, epochs_done=epochs_done)


def start(run, done=0):
    return {"run": run, "event": "start", "epochs_done": done}


def tick(run, images):
    return {"run": run, "event": "tick", "images": images}


def epoch(run, number):
    return {
        "run": run,
        "event": "epoch",
        "epoch": number,
        "eta": 1e-3,
        "train_loss": 0.5,
        "validation_errors": 60,
        "test_errors": 7,
        "deform_seconds": 0.1,
        "train_seconds": 2.0,
        "evaluate_seconds": 0.1,
    }


def end(run):
    return {"run": run, "event": "end"}


def said(capsys):
    return capsys.readouterr().err.splitlines()


def test_one_run_needs_no_more_than_its_own_line(clock, capsys):
    with View([track("net", 6)]) as view:
        view.show(start("net"))
        clock.now += 30
        view.show(tick("net", 600))
        view.show(epoch("net", 1))
        view.show(end("net"))
    assert said(capsys) == [
        "net: epoch 1/6, eta 1.00e-03, loss 0.5000, validation 20.00 %, test 7.00 %, "
        "300 images/s, left 0:02:30"
    ]


def test_what_is_left_counts_from_where_a_resumed_run_began(clock, capsys):
    with View([track("net", 8, epochs_done=4)], n_finished=1) as view:
        clock.now += 1  # until its worker is ready
        view.show(start("net", done=4))
        clock.now += 100
        view.show(epoch("net", 5))
        clock.now += 50
        view.show(epoch("net", 6))
    first, second = said(capsys)
    assert first.startswith("net: epoch 5/8, ")
    assert first.endswith(" left 0:05:00; 1 of 2 runs done, all left 0:05:03")
    assert second.endswith(" left 0:02:30; 1 of 2 runs done, all left 0:02:31")


def test_runs_side_by_side_share_what_is_left_of_all(clock, capsys):
    with View([track("a", 2), track("b", 4, epoch_seconds=20.0)], n_finished=1) as view:
        view.show(start("a"))
        view.show(start("b"))
        view.show(tick("b", 300))
        clock.now += 30
        view.show(epoch("a", 1))  # 10 s of work, and half of 20 s
        view.show(tick("b", 200))
        clock.now += 20
        view.show(epoch("b", 1))
        clock.now += 10
        view.show(epoch("a", 2))
        view.show(end("a"))
    a1, b1, a2 = said(capsys)
    assert a1.endswith(" left 0:00:30; 1 of 3 runs done, all left 0:02:00")  # 30 s x 80 / 20
    assert b1.endswith(" left 0:02:30; 1 of 3 runs done, all left 0:02:30")  # its own
    assert a2.endswith(" left 0:00:00; 2 of 3 runs done, all left 0:01:22")  # 60 s x 150 / 110


def test_an_estimate_that_was_wrong_is_corrected_by_the_first_epoch(clock, capsys):
    """Also for trainings that have not begun: 1 of 4 epochs in 2 s, and 4 of half as long each."""
    with View([track("a", 4, 20.0), track("b", 4, 10.0)]) as view:
        view.show(start("a"))
        clock.now += 2
        view.show(epoch("a", 1))
        assert said(capsys)[-1].endswith("left 0:00:06; 0 of 2 runs done, all left 0:00:10")


def test_work_beyond_an_epoch_is_not_counted(clock, capsys):
    """A training that starts again after its worker died may report some images twice."""
    with View([track("a", 2), track("b", 2)]) as view:
        view.show(start("a"))
        view.show(start("b"))
        view.show(tick("b", 6000))
        clock.now += 20
        view.show(epoch("a", 1))
    assert said(capsys)[0].endswith("all left 0:00:20")


def test_a_run_that_starts_again_loses_only_its_epoch(clock, capsys):
    with View([track("a", 4), track("b", 4)]) as view:
        view.show(start("a"))
        view.show(start("b"))
        clock.now += 10
        view.show(epoch("a", 1))
        view.show(tick("a", 300))
        view.show(tick("b", 540))
        clock.now += 10  # their worker died
        view.show(start("b"))
        view.show(start("a", done=1))
        clock.now += 20
        view.show(epoch("a", 2))
        view.show(epoch("b", 1))
    _, a2, b1 = said(capsys)
    assert a2.endswith(" left 0:00:40; 0 of 2 runs done, all left 0:02:00")  # 40 s x 60 / 20
    assert b1.endswith(" left 0:01:00; 0 of 2 runs done, all left 0:01:07")  # 40 s x 50 / 30


def test_a_run_that_ends_before_its_epoch_does_has_not_done_that_work(clock, capsys):
    with View([track("a", 2), track("b", 2)]) as view:
        view.show(start("a"))
        view.show(start("b"))
        view.show(tick("b", 300))
        view.show(end("b"))
        clock.now += 10
        view.show(epoch("a", 1))
    assert said(capsys)[0].endswith("0 of 2 runs done, all left 0:00:30")


def test_a_worker_in_another_folder_has_not_what_is_done_here(clock, capsys):
    with View([track("a", 4, epochs_done=2), track("b", 2)]) as view:
        view.show(start("a", done=0))
        for number in (1, 2):
            clock.now += 10
            view.show(epoch("a", number))
    a1, a2 = said(capsys)
    assert a1.endswith(" left 0:00:30; 0 of 2 runs done, all left 0:00:50")
    assert a2.endswith(" left 0:00:20; 0 of 2 runs done, all left 0:00:40")


def test_bars_of_several_runs(clock):
    tracks = [track("a", 2), track("b", 2, epoch_seconds=30.0, epochs_done=1)]
    with on_terminal() as terminal, View(tracks, n_finished=1) as view:
        assert view._bar.total == 80
        assert view._bar.n == 30
        view.show(start("a"))
        view.show(start("b", done=1))
        assert len(tqdm._instances) == 3
        view.show(tick("a", 300))
        assert view._bar.n == pytest.approx(35)
        assert view._tracks["a"].bar.n == 300
        clock.now += 10
        view.show(epoch("a", 1))
        assert view._bar.n == pytest.approx(40)
        assert view._tracks["a"].bar.n == 600
        view.show(tick("b", 150))
        assert view._bar.n == pytest.approx(47.5)
        view.show(start("b", done=1))  # its worker died
        view.show(tick("b", 60))
        assert view._bar.n == pytest.approx(43)
        assert view._tracks["b"].bar.n == 660
        assert len(tqdm._instances) == 3
        assert terminal.getvalue().count("\na: epoch 1/2") == 0  # a bar shows it
        for run, seconds in (("a", 10), ("b", 20)):
            clock.now += seconds
            view.show(epoch(run, 2))
            view.show(end(run))
            assert view._tracks[run].bar is None
        assert view._bar.n == pytest.approx(80)
        assert view._bar.desc.startswith("3 of 3 runs")
        assert len(tqdm._instances) == 1
    assert not tqdm._instances
    text = terminal.getvalue()
    assert "epoch 1/2, validation 20.00 %, test 7.00 %" in text
    assert "1 of 3 runs:  38%" in text
    assert "3 of 3 runs: 100%" in text.splitlines()[-1]
    for line in (
        "a: epoch 2/2, eta 1.00e-03, loss 0.5000, validation 20.00 %, test 7.00 %, 300 images/s, "
        "left 0:00:00",
        "b: epoch 2/2, eta 1.00e-03",
    ):
        assert line in text


def test_the_bar_of_one_run_stays(clock):
    with on_terminal() as terminal, View([track("net", 2)]) as view:
        assert view._bar is None
        view.show(start("net"))
        for number in (1, 2):
            clock.now += 10
            view.show(tick("net", 600))
            view.show(epoch("net", number))
        view.show(end("net"))
    assert not tqdm._instances
    text = terminal.getvalue()
    assert "net: epoch" not in text  # no lines
    assert text.splitlines()[-1].strip().startswith("net: 100%")
    assert text.endswith("epoch 2/2, validation 20.00 %, test 7.00 %]\n")


def test_bars_are_closed_when_an_error_comes_through(clock):
    def fail():
        with View([track("a", 2), track("b", 2)]) as view:
            view.show(start("a"))
            view.show(start("b"))
            raise ZeroDivisionError

    with on_terminal(), pytest.raises(ZeroDivisionError):
        fail()
    assert not tqdm._instances


def test_a_command_with_nothing_left_to_do_shows_nothing():
    with on_terminal() as terminal, View([], n_finished=3):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00:00"), (3661, "1:01:01"), (200_000, "2 days, 7:33:20")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
