"""Runs that survive: kill -9, signals, full disks, read-only folders, second processes."""

import ctypes
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from filelock import FileLock
from run_bits import bits, epochs_on_disk
from small_runs import CONFIG, AtEpoch, train
from waiting import join

from deepbig_runtime import errors, files, hdf5
from deepbig_runtime.errors import Interrupted, Problem
from experiments.training import cli, runs, store
from mlp_gpu import network
from mlp_gpu.network import Network

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's fork")


@linux
@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signal_saves_and_the_same_command_resumes(tmp_path, signum, status):
    path, stderr = tmp_path / "run.h5", tmp_path / "stderr"

    def work():
        sys.stderr = stderr.open("w")
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # not as under nohup
        cli.run(lambda: train(path, CONFIG, AtEpoch(2, lambda: os.kill(os.getpid(), signum))))

    train(tmp_path / "whole.h5")
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    join(process)
    assert process.exitcode == status
    said = f"{signal.Signals(signum).name}: 2 of 6 epochs are safe in {path}; the same command goes"
    assert said in stderr.read_text()
    run = store.read_run(path)
    assert (run.epochs, run.provenance[-1].why) == (2, signal.Signals(signum).name)
    assert run.provenance[-1].end
    train(path)
    assert bits(path) == bits(tmp_path / "whole.h5")


def test_signals_wait_while_files_are_written(signals_raise, tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    write = hdf5.replace

    def interrupted_write(target, content):
        monkeypatch.undo()
        os.kill(os.getpid(), signal.SIGINT)
        write(target, content)

    monkeypatch.setattr(hdf5, "replace", interrupted_write)
    with pytest.raises(Interrupted, match=r"1 of 6 epochs are safe in .*run\.h5"):
        train(path)
    assert epochs_on_disk(path) == 1
    assert network.load(store.weights_path(path), Network)[1]["epoch"] == 1


TAKE_LOCK = """
import pathlib, sys
from experiments.training import cli, runs
cli.run(lambda: runs.lock(pathlib.Path(sys.argv[1])).__enter__())
"""


@linux
@pytest.mark.parametrize(
    ("name", "complaint"), [("run.h5", "cannot write in"), ("sub/run.h5", "cannot make the folder")]
)
def test_read_only_folder(tmp_path, name, complaint):
    tmp_path.chmod(0o555)
    command = [sys.executable, "-c", TAKE_LOCK, str(tmp_path / name)]
    if os.geteuid() == 0:  # root may write anywhere, unless it gives that up
        command = ["setpriv", "--bounding-set", "-dac_override", *command]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("root without setpriv cannot try a read-only folder")
    finally:
        tmp_path.chmod(0o755)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {complaint} {tmp_path}")
    assert "Permission denied" in line


def test_a_run_that_is_let_go_soon_is_waited_for(tmp_path):
    path = tmp_path / "run.h5"
    held = FileLock(path.with_suffix(".lock"), thread_local=False)
    held.acquire()
    with pytest.raises(Problem, match="another process is training"), runs.lock(path, 0.1):
        pass
    threading.Timer(0.3, held.release, kwargs={"force": True}).start()
    with runs.lock(path, timeout=60):
        assert not held.is_locked


@linux
def test_what_a_killed_process_left_of_a_table_is_removed_when_it_is_written_again(tmp_path):
    alive = tmp_path / f"table[1].md.{os.getppid()}.tmp"
    left = [tmp_path / f"table[1].md.{2**30}.tmp", tmp_path / f"table[1].md.{2**31}.tmp"]
    others = [tmp_path / f"table1.md.{2**30}.tmp", tmp_path / "table[1].md.mine.tmp"]
    for path in (alive, *left, *others):
        path.touch()
    files.replace(tmp_path / "table[1].md", b"content")
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for path in (alive, *others, tmp_path / "table[1].md")
    }


def test_a_signal_while_llvm_compiles_is_not_dropped(signals_raise, capfd):
    """What Python code raises that C calls is printed and forgotten, and the command goes on."""
    called = []
    names = {"called": called, "kill": lambda: os.kill(os.getpid(), signal.SIGTERM)}
    source = "def notify():\n    kill()\n    called.append(1)"
    exec(compile(source, f"/site-packages/{errors.LLVM}", "exec"), names)
    with pytest.raises(Interrupted):
        go_on_after(ctypes.CFUNCTYPE(None)(names["notify"]))
    assert called
    assert capfd.readouterr().err == ""


def go_on_after(step):
    """What a signal in the step must end."""
    step()
    time.sleep(20)


class Ending:
    """An object with a function that is called at its end."""

    def __init__(self, end):
        self.end = end

    def __del__(self):
        self.end()


def test_a_signal_while_an_object_ends_is_not_dropped(signals_raise, capfd, monkeypatch):
    """What is raised there Python prints and forgets."""
    other = []
    monkeypatch.setattr(sys, "unraisablehook", other.append)
    errors.Signals().install()
    Ending(lambda: 1 / 0)
    with pytest.raises(Interrupted):
        go_on_after(lambda: Ending(lambda: os.kill(os.getpid(), signal.SIGTERM)) and None)
    assert [one.exc_type for one in other] == [ZeroDivisionError]
    assert capfd.readouterr().err == ""


def test_a_signal_while_a_module_is_imported_waits_until_it_is(
    signals_raise, tmp_path, monkeypatch
):
    """A module in C may make an ImportError of it, as if a package were not installed."""
    (tmp_path / "module_of_a_signal.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "except BaseException:\n"
        "    raise ImportError('something is missing')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Interrupted):
        go_on_after(lambda: importlib.import_module("module_of_a_signal"))
    assert "module_of_a_signal" in sys.modules
