"""`python -m experiments.watch`: what is shown of run files, while they are written."""

import multiprocessing
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pytest
from filelock import FileLock

from experiments import watch
from experiments.running import runs, store
from experiments.running.errors import Problem, signals
from experiments.running.provenance import REPOSITORY
from experiments.running.store import Run
from experiments.watch import Look, Watcher

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp()
WRITTEN = NOW - 7  # when the last epoch was saved

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's terminals")


def utc(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def make_run(epochs=4, of=10, seconds=20.0, started=None, why="running", n_validation=None):
    """A run that was never trained. seconds: an epoch; started: of its last process, since 1970."""
    config = {
        "data": {"name": "MNIST", "n_train": 6000, "n_validation": n_validation, "n_test": 200},
        "epochs": of,
    }
    metrics = {name: [1.0] * epochs for name in store.METRICS}
    metrics |= {
        "epoch": list(range(1, epochs + 1)),
        "validation_errors": [90, 30, 60, 45][:epochs] + [50] * (epochs - 4),
        "test_errors": [13, 7, 5, 9][:epochs] + [8] * (epochs - 4),
        "deform_seconds": [0.25 * seconds] * epochs,
        "train_seconds": [0.5 * seconds] * epochs,
        "evaluate_seconds": [0.25 * seconds] * epochs,
    }
    started = WRITTEN - seconds * epochs - 1 if started is None else started
    session = {"start": utc(started), "end": None if why == "running" else utc(NOW), "why": why}
    return Run(config, [session], metrics, np.zeros((200, 10), np.float32), np.zeros(200, np.uint8))


def cells(run, now=NOW):
    """The cells of a run by their heads."""
    found = watch.describe("net", Look((0, 0, 0), WRITTEN, run), now)
    return dict(zip(watch.HEAD, found, strict=True))


def write(path, run):
    path.parent.mkdir(exist_ok=True)
    store.write_run(path, run)


# --- a row


def test_a_run_in_training():
    assert cells(make_run()) == {
        "run": "net",
        "epoch": "4/10",
        "valid": "0.75",  # 45 of 6,000
        "test": "4.50",  # 9 of 200
        "TEfBV": "3.50",  # 7 of 200, where 30 were wrong in validation
        "rate": "600",  # 6,000 in 10 s
        "left": "0:01:53",  # 6 epochs of 20 s, less 7 s
        "state": "training",
    }


def test_validation_images_that_were_kept_apart():
    assert cells(make_run(n_validation=500))["valid"] == "9.00"


def test_the_rate_is_that_of_the_last_epoch():
    run = make_run()
    run.metrics["train_seconds"] = [1.0, 2.0, 3.0, 4.0]
    assert cells(run)["rate"] == "1500"


def test_what_is_left_is_never_less_than_nothing():
    run = make_run(epochs=9)
    assert cells(run, WRITTEN + 19)["left"] == "0:00:01"
    assert cells(run, WRITTEN + 21)["left"] == "0:00:00"
    assert cells(run, WRITTEN - 5)["left"] == "0:00:20"  # another machine's clock is ahead


def test_what_is_left_in_days():
    assert cells(make_run(of=104, seconds=900))["left"] == "1d 0:59:53"
    assert cells(make_run(of=204, seconds=900))["left"] == "2d 1:59:53"


@pytest.mark.parametrize(
    ("started", "mean"),
    [
        (-90, 20),  # both epochs of 20 s, and one of 100 s before them that does not fit
        (-141, 140 / 3),  # that one, too
        (-21, 20),
        (3, 20),  # by clocks that differ: at least the last one
    ],
)
def test_what_is_left_counts_the_epochs_of_the_latest_process(started, mean):
    run = make_run(started=WRITTEN + started)
    for name in ("deform_seconds", "train_seconds", "evaluate_seconds"):
        run.metrics[name][:2] = [5 * seconds for seconds in run.metrics[name][:2]]
    assert watch.mean_epoch(run, WRITTEN) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("run", "age", "state", "left"),
    [
        (make_run(epochs=4, of=4, why="finished"), 9999, "finished", "-"),
        (make_run(why="SIGTERM"), 7, "stopped: SIGTERM", "-"),
        (make_run(why="the loss is gone"), 7, "stopped: the loss is gone", "-"),
        (make_run(seconds=40), 119, "training", "0:02:01"),
        (make_run(seconds=40), 121, "silent 0:02:01", "-"),  # three epochs
        (make_run(seconds=2), 59, "training", "0:00:00"),
        (make_run(seconds=2), 61, "silent 0:01:01", "-"),  # a minute
    ],
)
def test_states(run, age, state, left):
    found = cells(run, WRITTEN + age)
    assert (found["state"], found["left"]) == (state, left)


def test_a_name_that_would_garble_the_terminal():
    row = watch.describe("a\x1b[2Jb\n\udcffc", Look((0, 0, 0), WRITTEN, make_run()), NOW)
    assert row[0] == "a?[2Jb??c"


# --- the table


def test_newest_first_finished_last():
    looks = {
        "old": Look((0, 0, 0), WRITTEN, make_run(started=NOW - 500)),
        "done": Look((0, 0, 0), WRITTEN, make_run(epochs=10, started=NOW - 200)),
        "bad": Look((0, 0, 0), 0.0, None, "damaged"),
        "new": Look((0, 0, 0), WRITTEN, make_run(started=NOW - 100)),
        "done too": Look((0, 0, 0), WRITTEN, make_run(epochs=10, started=NOW - 190)),
        "stopped": Look((0, 0, 0), WRITTEN, make_run(started=NOW - 300, why="SIGINT")),
        "also new": Look((0, 0, 0), WRITTEN, make_run(started=NOW - 100)),
    }
    names = [row[0] for row in watch.describe_all(looks, NOW)]
    assert names == ["also new", "new", "stopped", "old", "bad", "done too", "done"]


ROWS = [
    ["table1/net1-seed0", "4/2300", "0.75", "4.50", "3.50", "12345", "1d 0:10:00", "training"],
    ["b/net2", "10/10", "10.00", "9.00", "3.00", "600", "-", "stopped: the loss is no number"],
    ["b/net3", "-", "-", "-", "-", "-", "-", "damaged, or no run file"],
]


def test_a_table_with_room():
    assert watch.table(ROWS, 120) == [
        "1 of 3 runs training; errors in %, rate in images/s",
        "run                epoch valid test TEfBV  rate       left state",
        "table1/net1-seed0 4/2300  0.75 4.50  3.50 12345 1d 0:10:00 training",
        "b/net2             10/10 10.00 9.00  3.00   600          - stopped: the loss is no number",
        "b/net3                 -     -    -     -     -          - damaged, or no run file",
    ]


def test_a_narrow_table_cuts_names_then_states():
    assert watch.table(ROWS, 69) == [
        "1 of 3 runs training; errors in %, rate in images/s",
        "run          epoch valid test TEfBV  rate       left state",
        "net1-seed0  4/2300  0.75 4.50  3.50 12345 1d 0:10:00 training",
        "b/net2       10/10 10.00 9.00  3.00   600          - stopped: the lo~",
        "b/net3           -     -    -     -     -          - damaged, or no ~",
    ]
    assert watch.table(ROWS, 60) == [
        "1 of 3 runs training; errors in %, rate in images/s",
        "run       epoch valid test TEfBV  rate       left state",
        "net1~ed0 4/2300  0.75 4.50  3.50 12345 1d 0:10:00 training",
        "b/net2    10/10 10.00 9.00  3.00   600          - stopped: ~",
        "b/net3        -     -    -     -     -          - damaged, ~",
    ]


def test_no_line_is_wider_than_the_terminal():
    for width in range(1, 140):
        lines = watch.table(ROWS, width)
        assert len(lines) == 5
        assert max(map(len, lines)) <= width


def test_a_low_table_says_how_many_runs_are_hidden():
    whole = watch.table(ROWS, 120)
    assert watch.table(ROWS, 120, 5) == whole
    assert watch.table(ROWS, 120, 4) == [*whole[:3], "and 2 more"]
    assert watch.table(ROWS, 120, 2) == [whole[0], "and 3 more"]
    assert watch.table(ROWS, 120, 1) == ["and 3 more"]


def test_a_drawing_replaces_the_one_before(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "5")
    head, columns, row, more = watch.table(ROWS, 60, 4)
    assert watch.draw(ROWS) == (
        f"\x1b[H\x1b[K{head}\n\x1b[K{columns}\n\x1b[K{row}\n\x1b[K{more}\n\x1b[J"
    )


# --- files


def test_names_are_paths_in_the_one_folder(tmp_path):
    write(tmp_path / "a.b.h5", make_run())
    write(tmp_path / "sub" / "c.h5", make_run())
    (tmp_path / "a.b.weights.h5").touch()
    assert set(Watcher([tmp_path]).look()) == {"a.b", "sub/c"}
    found = Watcher([tmp_path / "sub", tmp_path / "a.b.h5"]).look()
    assert set(found) == {f"{tmp_path}/sub/c", f"{tmp_path}/a.b"}


def test_new_files_are_picked_up_and_only_changed_ones_read(tmp_path, monkeypatch):
    read, reads = store.read_run, []

    def count(path):
        reads.append(path.name)
        return read(path)

    monkeypatch.setattr(store, "read_run", count)
    write(tmp_path / "a.h5", make_run())
    (tmp_path / "bad.h5").write_text("not HDF5")
    watcher = Watcher([tmp_path])
    first = watcher.look()
    assert sorted(reads) == ["a.h5", "bad.h5"]
    assert watcher.look() == first
    assert len(reads) == 2
    write(tmp_path / "sub" / "b.h5", make_run())
    assert set(watcher.look()) == {"a", "bad", "sub/b"}
    assert reads[2:] == ["b.h5"]
    write(tmp_path / "a.h5", make_run(epochs=3))
    assert watcher.look()["a"].run.epochs == 3
    assert reads[3:] == ["a.h5"]
    # The same size and the same time, but another file.
    stat = (tmp_path / "a.h5").stat()
    write(tmp_path / "a.h5", make_run(epochs=3, why="SIGINT"))
    content = (tmp_path / "a.h5").read_bytes()
    assert len(content) == stat.st_size
    os.utime(tmp_path / "a.h5", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert watcher.look()["a"].run.provenance[0]["why"] == "SIGINT"
    # The same size and the same place, but another time.
    (tmp_path / "bad.h5").write_bytes(b"not  HDF")
    os.utime(tmp_path / "bad.h5", ns=(0, 0))
    watcher.look()
    assert reads[4:] == ["a.h5", "bad.h5"]


def test_files_that_cannot_be_read_are_named(tmp_path):
    write(tmp_path / "gone.h5", make_run())
    (tmp_path / "bad.h5").write_bytes((tmp_path / "gone.h5").read_bytes()[:-1])
    (tmp_path / "folder.h5").mkdir()
    watcher = Watcher([tmp_path])
    watcher.look()
    (tmp_path / "gone.h5").unlink()
    rows = watch.describe_all(watcher.look(), NOW)
    none = ["-"] * 6
    assert sorted(rows) == [
        ["bad", *none, "damaged, or no run file"],
        ["folder", *none, "cannot read it: Is a directory"],
        ["gone", *none, "cannot read it: No such file or directory"],
    ]
    write(tmp_path / "gone.h5", make_run())
    write(tmp_path / "bad.h5", make_run())
    assert [row[1] for row in watch.describe_all(watcher.look(), NOW)] == ["4/10", "4/10", "-"]


def test_what_the_system_refuses_once_is_read_again(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", make_run())
    watcher = Watcher([tmp_path])
    read_bytes = watch.Path.read_bytes

    def refuse(path):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(watch.Path, "read_bytes", refuse)
    assert watcher.look()["a"].fault == "cannot read it: Input/output error"
    monkeypatch.setattr(watch.Path, "read_bytes", read_bytes)
    assert watcher.look()["a"].run.epochs == 4


def test_a_folder_that_goes_while_it_is_searched_stops_nothing(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", make_run())
    watcher = Watcher([tmp_path])
    watcher.look()

    def gone(folder):
        raise FileNotFoundError(folder)

    monkeypatch.setattr(store, "run_files", gone)
    assert set(watcher.look()) == {"a"}


@linux
def test_a_writer_and_its_watcher_do_not_disturb_each_other(tmp_path):
    """Each epoch k of these files has k wrong digits everywhere, so a mixture would show."""
    path = tmp_path / "net.h5"
    context = multiprocessing.get_context("fork")
    stop = context.Event()

    def make(epochs):
        run = make_run(epochs=epochs, of=1000)
        run.metrics["test_errors"] = run.metrics["validation_errors"] = [epochs] * epochs
        return run

    def work():
        epochs = 0
        while not stop.is_set():
            epochs = epochs % 150 + 1
            with runs.lock(path):  # fails if another process holds it
                store.write_run(path, make(epochs))

    with runs.lock(path):
        store.write_run(path, make(1))
    listing = set(tmp_path.iterdir())
    writer = context.Process(target=work)
    writer.start()
    watcher, reads, before = Watcher([tmp_path]), 0, None
    try:
        while reads < 200:
            assert writer.is_alive()
            (look,) = watcher.look().values()
            reads += look is not before
            before = look
            assert not look.fault
            assert set(look.run.metrics["test_errors"]) == {look.run.epochs}
            assert set(look.run.metrics["validation_errors"]) == {look.run.epochs}
            assert look.run.metrics["epoch"] == list(range(1, look.run.epochs + 1))
    finally:
        stop.set()
        writer.join()
    assert writer.exitcode == 0
    assert set(tmp_path.iterdir()) == listing == {path, tmp_path / "net.lock"}


def test_a_look_makes_no_file_and_waits_for_no_lock(tmp_path):
    write(tmp_path / "a.h5", make_run())
    write(tmp_path / "b.h5", make_run())
    with FileLock(tmp_path / "a.lock"):
        before = {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.iterdir())}
        assert [look.run.epochs for look in Watcher([tmp_path]).look().values()] == [4, 4]
        after = {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.iterdir())}
    assert after == before


# --- the command


def test_without_a_terminal_it_prints_once_and_cuts_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "a-name-that-is-far-too-long-for-a-terminal-of-eighty-columns-but-not-for-a-file"
    write(tmp_path / f"{name}.h5", make_run(why="SIGINT"))
    watch.main([str(tmp_path)])
    head, _, row = capsys.readouterr().out.splitlines()
    assert head == "0 of 1 run training; errors in %, rate in images/s"
    assert row.split() == [name, "4/10", "0.75", "4.50", "3.50", "600", "-", "stopped:", "SIGINT"]
    monkeypatch.setenv("COLUMNS", "60")
    watch.main([str(tmp_path)])
    assert len(capsys.readouterr().out.splitlines()[2]) <= 60


def test_runs_is_where_it_looks(tmp_path, capsys, monkeypatch):
    write(tmp_path / "runs" / "a.h5", make_run())
    monkeypatch.chdir(tmp_path)
    watch.main([])
    assert capsys.readouterr().out.splitlines()[2].startswith("a ")


def test_nothing_there(tmp_path):
    with pytest.raises(Problem, match=f"there is no run in {tmp_path}: train one with"):
        watch.main([str(tmp_path)])
    with pytest.raises(Problem, match=f"there is no {tmp_path}/no.h5: name run files or"):
        watch.main([str(tmp_path), str(tmp_path / "no.h5")])


@pytest.mark.parametrize("interval", ["0.09", "3601", "nan", "x"])
def test_bad_interval(interval, capsys):
    with pytest.raises(SystemExit) as end:
        watch.main(["--interval", interval])
    assert end.value.code == 2
    assert "--interval: expected a number from 0.1 to 3600" in capsys.readouterr().err


class Terminal:
    """The command on a terminal of its own, 70 columns wide and 6 lines high."""

    def __init__(self, *arguments):
        import fcntl  # not on Windows
        import struct
        import termios

        self._main, side = os.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 6, 70, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "experiments.watch", *arguments],
            stdin=side,
            stdout=side,
            stderr=side,
            cwd=REPOSITORY,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        )
        os.close(side)
        self.text = ""

    def read_until(self, part):
        """Read on until `part` has come since the last call; returns what has."""
        came = ""
        while part not in came:
            came += os.read(self._main, 65536).decode()  # raises OSError if the command ends
        self.text += came
        return came

    def press(self, key):
        os.write(self._main, key)

    def read_rest(self):
        """Wait for the end; returns what came until then."""
        rest = b""
        try:
            while part := os.read(self._main, 65536):
                rest += part
        except OSError:  # Linux says so when the other side is closed
            pass
        self.process.wait()
        os.close(self._main)
        self.text += rest.decode()
        return rest.decode()


@linux
def test_on_a_terminal_it_redraws_until_ctrl_c(tmp_path):
    for i in range(4):
        write(tmp_path / f"net{i}.h5", make_run(why="SIGINT", started=NOW - i))
    terminal = Terminal(str(tmp_path), "--interval", "0.1")
    try:
        first = terminal.read_until("and 2 more\r\n\x1b[J")
        assert first.startswith("\x1b[H\x1b[K0 of 4 runs training; ")
        assert "net0" in first
        assert "net2" not in first  # there is no line for it
        write(tmp_path / "net0.h5", make_run(epochs=5, of=10, why="SIGINT", started=NOW))
        write(tmp_path / "net4.h5", make_run(epochs=7, of=10, why="SIGINT", started=NOW + 1))
        terminal.read_until("net4")
        assert "5/10" in terminal.read_until("and 3 more\r\n\x1b[J")
        terminal.press(b"\x03")
        rest = terminal.read_rest()
    finally:
        terminal.process.kill()
    assert terminal.process.returncode == 0
    assert rest.endswith("\r\n")
    *_, last = terminal.text.split("\x1b[H")  # the table stays
    assert "net4" in last
    assert "and 3 more" in last
    assert "Traceback" not in terminal.text
    assert "stopped by" not in terminal.text


@linux
def test_on_a_terminal_once_prints_all_rows(tmp_path):
    for i in range(9):
        write(tmp_path / f"net{i}.h5", make_run())
    terminal = Terminal(str(tmp_path), "--once")
    text = terminal.read_rest()
    assert terminal.process.returncode == 0
    assert len(text.splitlines()) == 11
    assert "\x1b" not in text


@linux
def test_sigterm_ends_it_as_any_other_script(tmp_path):
    write(tmp_path / "net.h5", make_run())
    terminal = Terminal(str(tmp_path))
    terminal.read_until("\x1b[J")
    terminal.process.send_signal(signal.SIGTERM)
    assert "stopped by SIGTERM" in terminal.read_rest()
    assert terminal.process.returncode == 128 + signal.SIGTERM


def test_a_signal_waits_until_the_table_is_whole(tmp_path, monkeypatch, capsys):
    write(tmp_path / "net.h5", make_run())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    describe_all = watch.describe_all

    def interrupted(looks, now):
        os.kill(os.getpid(), signal.SIGINT)
        return describe_all(looks, now)

    monkeypatch.setattr(watch, "describe_all", interrupted)
    signals.install()
    try:
        watch.main([str(tmp_path)])
    finally:
        signal.signal(signal.SIGINT, handlers[0])
        signal.signal(signal.SIGTERM, handlers[1])
    head, _, row, end = capsys.readouterr().out.splitlines()
    assert head.startswith("\x1b[H\x1b[K1 of 1 run training")  # the file is newer than NOW
    assert row.startswith("\x1b[Knet")
    assert end == "\x1b[J"
