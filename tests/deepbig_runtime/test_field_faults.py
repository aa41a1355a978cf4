"""Machines that are not as ours: file systems without locks, names that are not UTF-8, settings of
other programs, variables that libraries read, signals of a terminal that closes."""

import errno
import os
import signal
import warnings

import pytest
from factories import changed
from programs import run
from run_bits import bits
from small_runs import CONFIG, train

from deepbig_runtime import compiled_cache, jit
from deepbig_runtime.errors import Problem, check_threads, signals
from experiments import committee, table1
from experiments.drawing import figures
from experiments.training import store

TINY = ["--data", "digits", "--limit", "60", "--engine", "cpu", "--nets", "1", "--epochs", "1"]
posix = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs flock and SIGHUP")


def command(name, *arguments, **variables):
    """The result of a command with these environment variables."""
    return run("-m", f"experiments.{name}", *arguments, **variables)


# Locks


@pytest.fixture
def no_locks(monkeypatch):
    import fcntl

    def refuse(file, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


@posix
@pytest.mark.usefixtures("no_locks")
def test_a_run_is_not_trained_where_it_cannot_be_locked(tmp_path):
    with pytest.raises(Problem, match=r"no file can be locked .*\(No locks available\).*--out"):
        train(tmp_path / "run.h5")
    assert not (tmp_path / "run.h5").exists()


@posix
@pytest.mark.usefixtures("no_locks")
def test_without_locks_no_code_is_kept_and_nothing_warns(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jit, "FOLDER", compiled_cache.open_folder()[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jit.njit(lambda x: x + 1)(1) == 2
    assert not list(tmp_path.rglob("*.nbc"))


# Names of folders


@pytest.mark.slow
def test_a_folder_whose_name_is_not_utf8_takes_runs_and_tables(tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    done = command("table1", *TINY, "--seeds", "0,1", "--out", folder)
    assert done.returncode == 0, done.stderr
    assert "caf\\udce9: table1-load_digits.md, table1-load_digits.csv" in done.stderr
    paths = folder.glob("*.h5")  # weights files too, as a shell's *.h5 names them
    done = command("committee", *paths, "--out", folder / "both")
    assert done.returncode == 0, done.stderr
    assert "A committee of 2 nets" in done.stdout
    for name, option in (("report", "--runs"), ("watch", "--once")):
        done = command(name, option, folder, RUNS_DIR=str(folder))
        assert done.returncode == 0, done.stderr


def test_sources_below_such_a_folder_keep_no_code(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_cache, "SOURCES", tmp_path / os.fsdecode(b"caf\xe9"))
    folder, reason = compiled_cache.open_folder()
    assert folder is None
    assert reason.endswith("is not UTF-8; rename it")


# Libraries


def test_libraries_show_no_warnings_and_matplotlib_reads_no_matplotlibrc(tmp_path):
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfont.size: 30\nno.such.key: 1\n")
    code = "import sys; sys.argv = ['-m']; import experiments.drawing.figures, matplotlib\n"
    code += "import logging, warnings; logging.getLogger('matplotlib').warning('raw')\n"
    code += "warnings.warn('raw')\n"
    code += "print(matplotlib.rcParams['text.usetex'], matplotlib.rcParams['font.size'])"
    done = run("-c", code, MATPLOTLIBRC=str(tmp_path))
    assert (done.stdout, done.stderr) == ("False 10.0\n", "")


def test_a_picture_that_fails_ends_nothing(tmp_path, monkeypatch, capsys):
    def fail(figure, path):
        raise RuntimeError("latex was not found")

    table1.main([*TINY, "--seeds", "0,1", "--out", str(tmp_path)])
    monkeypatch.setattr(figures, "save_figure", fail)
    paths = map(str, store.run_files(tmp_path))
    assert committee.main([*paths, "--out", str(tmp_path / "both")]) == 0
    printed = capsys.readouterr()
    assert "A committee of 2 nets" in printed.out
    assert printed.err.count("a picture is missing: RuntimeError: latex was not found") == 2


# Environment variables


@pytest.mark.parametrize("value", ["0", "-1", "99999999999"])
def test_a_number_of_threads_that_is_none_is_refused(value, monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", value)
    with pytest.raises(Problem, match=f"NUMBA_NUM_THREADS is '{value}', expected a number of thr"):
        check_threads()


def test_a_command_with_a_number_of_threads_that_is_none_ends_in_one_sentence(tmp_path):
    done = command("table1", *TINY, "--out", tmp_path, NUMBA_NUM_THREADS="abc")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: NUMBA_NUM_THREADS is 'abc', expected a number of threads")


# A terminal that closes


@posix
def test_signals_under_nohup_leave_hangups_ignored(signals_raise):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals.install()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


# Runs that are extended


def test_a_run_of_fewer_epochs_is_extended_to_the_same_bits(tmp_path):
    train(tmp_path / "long.h5")
    train(tmp_path / "run.h5", changed(CONFIG, epochs=3))
    assert store.read_run(tmp_path / "run.h5").finished
    train(tmp_path / "run.h5")
    assert bits(tmp_path / "run.h5") == bits(tmp_path / "long.h5")
    with pytest.raises(Problem, match=r"epochs is 6 there and 3 here; choose another folder"):
        train(tmp_path / "run.h5", changed(CONFIG, epochs=3))
    with pytest.raises(Problem, match=r"another run .*: decay is 0.9 there and 0.5 here; choose"):
        train(tmp_path / "run.h5", changed(CONFIG, epochs=9, decay=0.5))
