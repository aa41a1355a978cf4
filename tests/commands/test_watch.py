"""`python -m experiments.watch`: its lines on run files, with and without a terminal."""

import os
import select
import signal
import subprocess
import sys
from contextlib import nullcontext

import pytest
from filelock import FileLock
from waiting import HANG_SECONDS
from watched_runs import NOW, WRITTEN, make_run, write

from deepbig_runtime import hdf5
from deepbig_runtime.errors import Interrupted, Problem
from experiments import watch
from experiments.training import store
from experiments.training.provenance import REPOSITORY
from experiments.watch import RunScanner, Snapshot


def cells(run, now=NOW):
    """The cells of a run by their heads. Its name would garble the terminal."""
    found = watch.describe("a\x1b[2Jb\n\udcffc", Snapshot((0, 0, 0), WRITTEN, run), now)
    return dict(zip(watch.HEADINGS, found, strict=True))


def test_describe_a_run_in_training():
    run = make_run()
    run.metrics.train_seconds[0] = 1.0
    assert cells(run) == {
        "run": "a?[2Jb??c",
        "epoch": "4/10",
        "valid": "0.75",  # 45 of 6,000
        "test": "4.50",  # 9 of 200
        "TEfBV": "3.50",  # 7 of 200, where 30 were wrong in validation
        "rate": "600",  # 6,000 in 10 s
        "left": "0:01:40",  # 6 epochs of 17.75 s, less 7 s
        "state": "training",
    }
    assert cells(make_run(n_validation=500))["valid"] == "9.00"


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
        values = getattr(run.metrics, name)
        values[:2] = [5 * seconds for seconds in values[:2]]
    assert watch.mean_epoch(run, WRITTEN) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("run", "age", "state", "left"),
    [
        (make_run(epochs=4, of=4, why="finished"), 9999, "finished", "-"),
        (make_run(why="the loss is gone"), 7, "stopped: the loss is gone", "-"),
        (make_run(seconds=40), 119, "training", "0:02:01"),
        (make_run(seconds=40), 121, "silent 0:02:01", "-"),  # three epochs
        (make_run(seconds=2), 59, "training", "0:00:00"),
        (make_run(seconds=2), 61, "silent 0:01:01", "-"),  # a minute
        (make_run(epochs=9), 21, "training", "0:00:00"),
        (make_run(epochs=9), -5, "training", "0:00:20"),  # another machine's clock is ahead
        (make_run(of=104, seconds=900), 7, "training", "1d 0:59:53"),
        (make_run(of=204, seconds=900), 7, "training", "2d 1:59:53"),
    ],
)
def test_describe_shows_the_state_and_the_time_left(run, age, state, left):
    found = cells(run, WRITTEN + age)
    assert (found["state"], found["left"]) == (state, left)


def test_describe_all_sorts_newest_first_and_finished_last():
    snapshots = {
        "old": Snapshot((0, 0, 0), WRITTEN, make_run(started=NOW - 500)),
        "done": Snapshot((0, 0, 0), WRITTEN, make_run(epochs=10, started=NOW - 200)),
        "bad": Snapshot((0, 0, 0), 0.0, None, "damaged"),
        "new": Snapshot((0, 0, 0), WRITTEN, make_run(started=NOW - 100)),
        "done too": Snapshot((0, 0, 0), WRITTEN, make_run(epochs=10, started=NOW - 190)),
        "also new": Snapshot((0, 0, 0), WRITTEN, make_run(started=NOW - 100)),
    }
    names = [row[0] for row in watch.describe_all(snapshots, NOW)]
    assert names == ["also new", "new", "old", "bad", "done too", "done"]


ROWS = [
    ["table1/net1-seed0", "4/2300", "0.75", "4.50", "3.50", "12345", "1d 0:10:00", "training"],
    ["b/net2", "10/10", "10.00", "9.00", "3.00", "600", "-", "stopped: the loss is no number"],
    ["b/net3", "-", "-", "-", "-", "-", "-", "damaged, or no run file"],
]


def test_table_wide_is_whole():
    assert watch.table(ROWS, 120) == [
        "1 of 3 runs training; errors in %, rate in images/s",
        "run                epoch valid test TEfBV  rate       left state",
        "table1/net1-seed0 4/2300  0.75 4.50  3.50 12345 1d 0:10:00 training",
        "b/net2             10/10 10.00 9.00  3.00   600          - stopped: the loss is no number",
        "b/net3                 -     -    -     -     -          - damaged, or no run file",
    ]


def test_table_narrow_cuts_names_then_states():
    assert watch.table(ROWS, 60) == [
        "1 of 3 runs training; errors in %, rate in images/s",
        "run       epoch valid test TEfBV  rate       left state",
        "net1~ed0 4/2300  0.75 4.50  3.50 12345 1d 0:10:00 training",
        "b/net2    10/10 10.00 9.00  3.00   600          - stopped: ~",
        "b/net3        -     -    -     -     -          - damaged, ~",
    ]
    for width in range(1, 140):
        lines = watch.table(ROWS, width)
        assert len(lines) == 5
        assert max(map(len, lines)) <= width


def test_table_low_says_how_many_runs_are_hidden():
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


def test_names_are_paths_in_the_one_folder(tmp_path):
    write(tmp_path / "a.b.h5", make_run())
    write(tmp_path / "sub" / "c.h5", make_run())
    (tmp_path / "a.b.weights.h5").touch()
    assert set(RunScanner([tmp_path]).scan()) == {"a.b", "sub/c"}
    found = RunScanner([tmp_path / "sub", tmp_path / "a.b.h5"]).scan()
    assert set(found) == {f"{tmp_path}/sub/c", f"{tmp_path}/a.b"}


def test_scan_reads_new_and_changed_files_alone(tmp_path, monkeypatch):
    read, reads = store.read_run, []
    monkeypatch.setattr(store, "read_run", lambda path: reads.append(path.name) or read(path))
    write(tmp_path / "a.h5", make_run())
    (tmp_path / "bad.h5").write_text("not HDF5")
    scanner = RunScanner([tmp_path])
    first = scanner.scan()
    assert scanner.scan() == first
    assert sorted(reads) == ["a.h5", "bad.h5"]
    write(tmp_path / "sub" / "b.h5", make_run())
    assert set(scanner.scan()) == {"a", "bad", "sub/b"}
    write(tmp_path / "a.h5", make_run(epochs=3))
    assert scanner.scan()["a"].run.epochs == 3
    # The same size and the same time, but another file.
    stat = (tmp_path / "a.h5").stat()
    write(tmp_path / "a.h5", make_run(epochs=3, why="SIGINT"))
    assert (tmp_path / "a.h5").stat().st_size == stat.st_size
    os.utime(tmp_path / "a.h5", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert scanner.scan()["a"].run.provenance[0].why == "SIGINT"
    # The same size and the same place, but another time.
    (tmp_path / "bad.h5").write_bytes(b"not  HDF")
    os.utime(tmp_path / "bad.h5", ns=(0, 0))
    scanner.scan()
    assert reads[2:] == ["b.h5", "a.h5", "a.h5", "bad.h5"]


def test_files_that_cannot_be_read_are_named(tmp_path):
    write(tmp_path / "gone.h5", make_run())
    (tmp_path / "bad.h5").write_bytes((tmp_path / "gone.h5").read_bytes()[:-1])
    (tmp_path / "folder.h5").mkdir()
    scanner = RunScanner([tmp_path])
    scanner.scan()
    (tmp_path / "gone.h5").unlink()
    rows = watch.describe_all(scanner.scan(), NOW)
    none = ["-"] * 6
    rows.sort()
    assert rows[0][-1].startswith("is damaged: expected SHA-256")
    assert rows == [
        ["bad", *none, rows[0][-1]],
        ["folder", *none, "cannot read it: Is a directory"],
        ["gone", *none, "cannot read it: No such file or directory"],
    ]
    write(tmp_path / "gone.h5", make_run())
    write(tmp_path / "bad.h5", make_run())
    assert [row[1] for row in watch.describe_all(scanner.scan(), NOW)] == ["4/10", "4/10", "-"]


def test_what_the_system_refuses_once_is_read_again(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", make_run())
    scanner = RunScanner([tmp_path])

    def refuse(path):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(hdf5, "read_bytes", refuse)
        assert scanner.scan()["a"].fault == "cannot read it: Input/output error"
    assert scanner.scan()["a"].run.epochs == 4


def test_a_folder_that_goes_while_it_is_searched_stops_nothing(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", make_run())
    scanner = RunScanner([tmp_path])
    scanner.scan()

    def gone(folder):
        raise FileNotFoundError(folder)

    monkeypatch.setattr(store, "run_files", gone)
    assert set(scanner.scan()) == {"a"}


def test_scan_makes_no_file_and_waits_for_no_lock(tmp_path):
    write(tmp_path / "a.h5", make_run())
    with FileLock(tmp_path / "a.lock"):
        before = {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.iterdir())}
        assert RunScanner([tmp_path]).scan()["a"].run.epochs == 4
        after = {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.iterdir())}
    assert after == before


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's terminals")


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


class Terminal:
    """The command on a terminal of its own, 70 columns wide and 6 lines high.

    is_controlling: whether the terminal can send signals, of Ctrl-C and when it is closed.
    """

    def __init__(self, *arguments, is_controlling=True):
        import fcntl  # not on Windows
        import struct
        import termios

        self.main, side = os.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 6, 70, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "experiments.watch", *arguments],
            stdin=side,
            stdout=side,
            stderr=side,
            cwd=REPOSITORY,
            env={k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")},
            start_new_session=True,
            preexec_fn=lambda: is_controlling and fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(side)

    def read_until(self, part):
        """What comes until `part` has, or until the end of the command if that is None."""
        came = ""
        while part is None or part not in came:
            assert select.select([self.main], [], [], HANG_SECONDS)[0], f"only {came!r} came"
            try:
                came += os.read(self.main, 65536).decode()
            except OSError:  # Linux says so when the other side is closed
                assert part is None, f"{part!r} did not come, but {came!r}"
                break
        return came


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
        last = terminal.read_until("and 3 more\r\n\x1b[J")  # the table stays
        assert "5/10" in last
        os.write(terminal.main, b"\x03")
        rest = terminal.read_until(None)
        assert terminal.process.wait(HANG_SECONDS) == 0
    finally:
        terminal.process.kill()
    assert rest.replace("^C", "").endswith("\r\n")  # Linux may echo the key after the answer
    assert "Traceback" not in rest
    assert "stopped by" not in rest


def test_on_a_terminal_once_prints_all_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("LINES", "6")
    for i in range(9):
        write(tmp_path / f"net{i}.h5", make_run())
    watch.main(["--once", str(tmp_path)])
    text = capsys.readouterr().out
    assert len(text.splitlines()) == 11
    assert "\x1b" not in text


@linux
def test_it_ends_when_its_terminal_is_gone(tmp_path):
    write(tmp_path / "net.h5", make_run())
    terminal = Terminal(str(tmp_path), "--interval", "0.1", is_controlling=False)
    terminal.read_until("\x1b[J")
    os.close(terminal.main)
    try:
        assert terminal.process.wait(HANG_SECONDS) == 2
    finally:
        terminal.process.kill()


@pytest.mark.usefixtures("signals_raise")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signal_waits_until_the_table_is_whole(signum, tmp_path, monkeypatch, capsys):
    write(tmp_path / "net.h5", make_run())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    describe_all = watch.describe_all

    def interrupted(snapshots, now):
        os.kill(os.getpid(), signum)
        return describe_all(snapshots, now)

    monkeypatch.setattr(watch, "describe_all", interrupted)
    with pytest.raises(Interrupted) if signum == signal.SIGTERM else nullcontext():
        watch.main([str(tmp_path)])
    head, _, row, end, *_ = [*capsys.readouterr().out.splitlines(), ""]
    assert head.startswith("\x1b[H\x1b[K1 of 1 run training")  # the file is newer than NOW
    assert row.startswith("\x1b[Knet")
    assert end == "\x1b[J"
