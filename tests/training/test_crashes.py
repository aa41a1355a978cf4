"""Runs that survive: kill -9, signals, full disks, read-only folders, second processes."""

import ctypes
import errno
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
from small_runs import CONFIG, NO_CALLBACKS, AtEpoch, train, train_some
from waiting import join, wait_until

from deepbig_runtime import errors, files, hdf5
from deepbig_runtime.errors import Interrupted, Problem
from experiments.training import cli, progress, runs, store
from mlp_gpu import network
from mlp_gpu.network import Network

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's fork")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run.h5"
    train(path)
    return path


def child(path, action=lambda: None, config=CONFIG, callbacks=NO_CALLBACKS):
    """A forked process that trains as a script would; everything is compiled already.

    What it says goes to the file run.stderr beside the run file.
    """

    def main():
        action()
        train(path, config, callbacks)

    def work():
        sys.stderr = path.with_suffix(".stderr").open("w")
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # not as under nohup
        cli.run(main)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


@linux
def test_a_child_that_was_killed_with_the_bars_lock_stops_nobody(uninterrupted, tmp_path):
    def hold():
        progress.tqdm.get_lock().acquire()
        (tmp_path / "held").touch()
        time.sleep(600)

    progress.tqdm.get_lock()  # as any bar does before the fork
    holder = multiprocessing.get_context("fork").Process(target=hold)
    holder.start()
    wait_until((tmp_path / "held").exists)
    holder.kill()
    join(holder)
    process = child(tmp_path / "run.h5")
    process.join(60)
    status = process.exitcode
    process.kill()
    assert status == 0


@pytest.mark.parametrize("epoch", [2, 3, 4, 5])
def test_stopped_before_the_epoch_between_the_two_files_is_done_again(
    uninterrupted, tmp_path, epoch, monkeypatch
):
    """What is written then must be the run as it was one epoch before."""
    path = tmp_path / "run.h5"
    train_some(path, epoch - 1)
    weights = store.weights_path(path).read_bytes()
    path.unlink()
    store.weights_path(path).unlink()
    train_some(path, epoch)
    store.weights_path(path).write_bytes(weights)

    class Stop(runs.Callbacks):
        def tick(self, n_images):
            raise Interrupted(signal.SIGTERM)

    with pytest.raises(Interrupted, match=f"{epoch - 1} of 6 epochs are safe"):
        train(path, callbacks=Stop())
    run = store.read_run(path)
    assert run.epochs == epoch - 1
    assert (run.outputs.argmax(1) != run.labels).sum() == run.chosen_errors
    train(path)
    assert bits(path) == bits(uninterrupted)


@linux
@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals_save_and_the_same_command_goes_on(uninterrupted, tmp_path, signum, status):
    path = tmp_path / "run.h5"

    process = child(path, callbacks=AtEpoch(2, lambda: os.kill(os.getpid(), signum)))
    join(process)
    assert process.exitcode == status
    run = store.read_run(path)
    assert run.epochs == 2
    assert run.provenance[-1].why == signal.Signals(signum).name
    assert run.provenance[-1].end
    train(path)
    assert bits(path) == bits(uninterrupted)


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


@linux
def test_second_process_is_refused(tmp_path):
    path = tmp_path / "run.h5"
    with FileLock(path.with_suffix(".lock")):
        process = child(path)
        join(process)
    assert process.exitcode == 2
    assert "another process is training" in path.with_suffix(".stderr").read_text()
    assert not path.exists()
    train(path)


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


def test_what_a_killed_process_left_is_removed(tmp_path):
    left = tmp_path / "run.weights.h5.12345.tmp"
    other = tmp_path / "run2.h5.12345.tmp"
    left.touch()
    other.touch()
    with runs.lock(tmp_path / "run.h5"):
        assert not left.exists()
        assert other.exists()


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
    names = {}
    source = "def notify():\n    kill()\n    called.append(1)"
    exec(compile(source, f"/site-packages/{errors.LLVM}", "exec"), names)
    names["called"] = []
    names["kill"] = lambda: os.kill(os.getpid(), signal.SIGTERM)

    def compile_and_go_on():
        ctypes.CFUNCTYPE(None)(names["notify"])()
        time.sleep(20)

    with pytest.raises(Interrupted):
        compile_and_go_on()
    assert names["called"]
    assert capfd.readouterr().err == ""


def test_a_signal_while_an_object_ends_is_not_dropped(signals_raise, capfd, monkeypatch):
    """What is raised there Python prints and forgets."""
    other = []
    monkeypatch.setattr(sys, "unraisablehook", other.append)

    class Ending:
        def __init__(self, end):
            self.end = end

        def __del__(self):
            self.end()

    def end_and_go_on():
        Ending(lambda: 1 / 0)
        Ending(lambda: os.kill(os.getpid(), signal.SIGTERM))
        time.sleep(20)

    errors.Signals().install()
    with pytest.raises(Interrupted):
        end_and_go_on()
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

    def import_and_go_on():
        import module_of_a_signal

        imported.append(module_of_a_signal)
        time.sleep(20)

    imported = []
    with pytest.raises(Interrupted):
        import_and_go_on()
    assert imported


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "not enough memory"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "no more memory"),
        (RuntimeError("can't start new thread"), "starts no more processes or threads"),
    ],
)
def test_a_lack_of_the_machine_ends_in_one_sentence_whatever_follows_it(error, said, capsys):
    def main():
        try:
            raise error
        finally:
            raise ImportError("some module")

    with pytest.raises(SystemExit) as ending:
        cli.run(main)
    assert ending.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_an_unexpected_refusal_of_the_system_ends_in_one_sentence(capsys):
    with pytest.raises(SystemExit) as ending:
        cli.run(lambda: os.listdir("missing"))
    assert ending.value.code == 2
    assert capsys.readouterr().err.startswith("error: missing: No such file or directory; ")


def test_a_mistake_in_our_code_is_not_hidden():
    def main():
        raise LookupError("a mistake in our code")

    with pytest.raises(LookupError):
        cli.run(main)
