"""`python -m experiments.watch` as a command: with and without a terminal, until it is stopped."""

import os
import select
import signal
import subprocess
import sys
from contextlib import nullcontext

import pytest
from watched_runs import NOW, make_run, write

from deepbig_runtime.errors import Interrupted, Problem
from experiments import watch
from experiments.training.provenance import REPOSITORY

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


@pytest.mark.parametrize("interval", ["0.09", "3601", "nan", "x"])
def test_bad_interval(interval, capsys):
    with pytest.raises(SystemExit) as end:
        watch.main(["--interval", interval])
    assert end.value.code == 2
    assert "--interval: expected a number from 0.1 to 3600" in capsys.readouterr().err


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
            assert select.select([self.main], [], [], 120)[0], f"only {came!r} came in two minutes"
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
        assert terminal.process.wait(120) == 0
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
        assert terminal.process.wait(120) == 2
    finally:
        terminal.process.kill()


@pytest.mark.usefixtures("signals_raise")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_the_table_is_whole(signum, tmp_path, monkeypatch, capsys):
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
