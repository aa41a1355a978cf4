"""Files as they should not be: pipes, folders in their places, closed ones, names of any bytes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import watched_runs

from deepbig_runtime import files
from experiments import committee
from experiments.drawing import report_sections
from experiments.running import cifar, examples, norb, runs
from experiments.running.provenance import REPOSITORY

NOBODYS = b"run-\xff\xfe.h5"  # no UTF-8
linux = pytest.mark.skipif(sys.platform != "linux", reason="tried with what Linux has")


def run(*arguments, first=()):
    """The result of this interpreter with these arguments, by the command `first`."""
    command = [*first, sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=100)


def complaint(code, first=()):
    """What a command says that runs this code and cannot."""
    imports = "from pathlib import Path; from experiments.running import cli, data, runs, store; "
    done = run(
        "-c", f"{imports}from deepbig_runtime import files; cli.run(lambda: {code})", first=first
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def make_device(path):
    path.symlink_to("/dev/zero")


@linux
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (make_pipe, "it is not a regular file"),
        (make_device, "it is not a regular file"),
        (make_socket, "No such device or address"),
        (Path.mkdir, "Is a directory"),
    ],
)
def test_what_is_no_file_is_not_opened(tmp_path, make, why, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    make(Path("a.h5"))
    path = tmp_path / "a.h5"
    assert (
        complaint(f"store.read_run(Path({str(path)!r}))") == f"error: cannot read {path}: {why}\n"
    )


@linux
def test_what_is_no_file_hangs_no_command(tmp_path):
    """One that looks for files skips it, or says why it leaves it out."""
    make_pipe(tmp_path / "a.h5")
    make_pipe(tmp_path / "b.csv")
    watched = run("-m", "experiments.watch", "--once", tmp_path)
    assert (watched.returncode, watched.stderr) == (0, "")
    assert "Traceback" not in watched.stdout
    found = run(
        "-c", f"from experiments.drawing.report_sections import *; Report(Path('{tmp_path}'))"
    )
    assert (found.returncode, found.stderr) == (0, "")
    recorded = run("-m", "experiments.record", tmp_path / "b.csv")
    assert recorded.returncode == 2
    assert recorded.stderr == f"error: cannot read {tmp_path}/b.csv: it is not a regular file\n"


@linux
@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("mnist", [f"{part}-ubyte" for part in ("train-images-idx3", "train-labels-idx1")]),
        ("norb", [file.name for file in norb.FILES]),
        ("cifar10", [cifar.ARCHIVE]),
    ],
)
def test_data_that_are_no_files_are_refused(tmp_path, choice, names):
    if choice == "mnist":
        names = [*names, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte.gz"]
    for name in names:
        make_pipe(tmp_path / name)
    said = complaint(f"data.load_pixels({choice!r}, {str(tmp_path)!r})")
    assert said.startswith(f"error: {tmp_path / names[0]} is damaged or wrong: ")
    assert "it is not a regular file" in said
    assert said.count("\n") == 1


def test_a_folder_named_like_a_half_written_file_stays(tmp_path):
    (tmp_path / "run.h5.123.tmp").mkdir()
    (tmp_path / "run.h5.124.tmp").touch()
    with runs.lock(tmp_path / "run.h5"):
        assert (tmp_path / "run.h5.123.tmp").is_dir()
        assert not (tmp_path / "run.h5.124.tmp").exists()


@linux
@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("files.make_folder(Path({!r}))", "error: cannot make the folder {} or open it: "),
        ("runs.epochs_done(Path({!r}) / 'run.h5', {{}})", "error: {}/run.h5: "),
    ],
)
def test_a_closed_folder_is_one_sentence(tmp_path, code, sentence):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o600)
    # Root may enter any folder, unless it gives that up.
    first = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    try:
        said = complaint(code.format(str(closed)), first if os.geteuid() == 0 else ())
    except FileNotFoundError:
        pytest.skip("root without setpriv cannot try a closed folder")
    assert said.startswith(sentence.format(closed) + "Permission denied; ")
    assert said.count("\n") == 1


@linux
def test_a_name_may_have_any_bytes(tmp_path, capsys):
    paths = [tmp_path / os.fsdecode(NOBODYS), tmp_path / "b.h5"]
    for path in paths:
        watched_runs.write(path, watched_runs.make_run(of=4))
    shown = "run-\\udcff\\udcfe"
    assert sorted(report_sections.Report(tmp_path).runs) == ["b", shown]
    assert sorted(examples.load_runs(tmp_path)) == ["b", shown]
    assert committee.form_committee(paths).members == (shown, "b")
    capsys.readouterr()


@linux
@pytest.mark.slow
def test_a_report_may_name_any_bytes(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff")
    watched_runs.write(folder / os.fsdecode(NOBODYS), watched_runs.make_run(of=4))
    (folder / os.fsdecode(b"damaged-\xff.h5")).write_bytes(b"x")
    done = run("-m", "experiments.report", "--runs", folder, "--out", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "damaged-\\udcff.h5 is damaged" in done.stderr
    assert "run-\\udcff\\udcfe" in (tmp_path / "page.html").read_text()
    assert "damaged-\\udcff.h5" in (tmp_path / "page.html").read_text()


@linux
def test_a_command_prints_names_of_any_bytes(tmp_path):
    path = tmp_path / os.fsdecode(NOBODYS)
    watched_runs.write(path, watched_runs.make_run())
    done = run("-m", "experiments.export", "--csv", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == f"{tmp_path}/run-\\udcff\\udcfe.metrics.csv"
    assert path.with_suffix(".metrics.csv").exists()


def test_a_regular_file_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    assert files.read_bytes(tmp_path / "file") == b"content"


def test_what_is_no_file_is_not_replaced():
    with pytest.raises(files.FileFault, match="no regular file"):
        files.replace(Path("/dev/null"), b"")
    assert Path("/dev/null").is_char_device()
