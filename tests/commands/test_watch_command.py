"""`python -m experiments.watch` as a command: with and without a terminal, until it is stopped."""

import os
import select
import signal
import subprocess
import sys
import time

import pytest
from watched_runs import NOW, make_run, write

from deepbig_runtime.errors import Problem
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
            preexec_fn=lambda: is_controlling and fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(side)
        self.text = ""

    def _read(self):
        """What is written next. Raises OSError if the command has ended."""
        ready, _, _ = select.select([self._main], [], [], 120)
        assert ready, "nothing was written for two minutes"
        return os.read(self._main, 65536)

    def read_until(self, part):
        """Read on until `part` has come since the last call; returns what has."""
        came, end = "", time.monotonic() + 120
        while part not in came:
            assert time.monotonic() < end, f"{part!r} did not come in two minutes, but {came!r}"
            came += self._read().decode()
        self.text += came
        return came

    def press(self, key):
        os.write(self._main, key)

    def read_rest(self):
        """Wait for the end; returns what came until then."""
        rest = b""
        try:
            while part := self._read():
                rest += part
        except OSError:  # Linux says so when the other side is closed
            pass
        self.process.wait(120)
        self.close()
        self.text += rest.decode()
        return rest.decode()

    def close(self):
        os.close(self._main)


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
    assert rest.replace("^C", "").endswith("\r\n")  # Linux may echo the key after the answer
    *_, last = terminal.text.split("\x1b[H")  # the table stays
    assert "net4" in last
    assert "and 3 more" in last
    assert "Traceback" not in terminal.text
    assert "stopped by" not in terminal.text


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
def test_sigterm_ends_it_as_any_other_script(tmp_path):
    write(tmp_path / "net.h5", make_run())
    terminal = Terminal(str(tmp_path))
    terminal.read_until("\x1b[J")
    terminal.process.send_signal(signal.SIGTERM)
    assert "stopped by SIGTERM" in terminal.read_rest()
    assert terminal.process.returncode == 128 + signal.SIGTERM


@linux
def test_it_ends_when_its_terminal_is_gone(tmp_path):
    write(tmp_path / "net.h5", make_run())
    terminal = Terminal(str(tmp_path), "--interval", "0.1", is_controlling=False)
    terminal.read_until("\x1b[J")
    terminal.close()
    try:
        assert terminal.process.wait(120) == 2
    finally:
        terminal.process.kill()


@pytest.mark.usefixtures("signals_raise")
def test_a_signal_waits_until_the_table_is_whole(tmp_path, monkeypatch, capsys):
    write(tmp_path / "net.h5", make_run())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    describe_all = watch.describe_all

    def interrupted(snapshots, now):
        os.kill(os.getpid(), signal.SIGINT)
        return describe_all(snapshots, now)

    monkeypatch.setattr(watch, "describe_all", interrupted)
    watch.main([str(tmp_path)])
    head, _, row, end = capsys.readouterr().out.splitlines()
    assert head.startswith("\x1b[H\x1b[K1 of 1 run training")  # the file is newer than NOW
    assert row.startswith("\x1b[Knet")
    assert end == "\x1b[J"
