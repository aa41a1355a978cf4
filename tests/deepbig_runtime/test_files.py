"""Files as they should not be: pipes, folders in their places, closed ones, names of any bytes."""

import os
import sys
from pathlib import Path

import pytest
from factories import make_run
from forgeries import expect_sentence
from programs import run

from deepbig_runtime import files
from experiments import committee, record, watch
from experiments.datasets import cifar, data, mnist, norb
from experiments.drawing import examples, report_sections
from experiments.training import net_files, store

NOBODYS = b"run-\xff\xfe.h5"  # no UTF-8
linux = pytest.mark.skipif(sys.platform != "linux", reason="tried with what Linux has")


@linux
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "it is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "it is not a regular file"),
        (Path.mkdir, "Is a directory"),
    ],
)
def test_read_bytes_of_no_regular_file_is_refused(tmp_path, make, why, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    make(Path("a.h5"))
    for read in (store.read_run, net_files.read):
        assert expect_sentence(lambda read=read: read(Path("a.h5"))) == f"cannot read a.h5: {why}"


@linux
def test_commands_that_look_for_files_skip_pipes(tmp_path, capsys):
    for name in ("a.h5", "b.csv"):
        os.mkfifo(tmp_path / name)
    watch.main(["--once", str(tmp_path)])
    report_sections.Report(tmp_path)
    assert not capsys.readouterr().err
    said = expect_sentence(lambda: record.main([str(tmp_path / "b.csv")]))
    assert said == f"cannot read {tmp_path}/b.csv: it is not a regular file"


@linux
@pytest.mark.parametrize(
    ("choice", "name"),
    [("mnist", mnist.FILES[0].name), ("norb", norb.FILES[0].name), ("cifar10", cifar.ARCHIVE)],
)
def test_load_pixels_of_pipes_is_refused(tmp_path, choice, name):
    for file in (*mnist.FILES, *norb.FILES):
        os.mkfifo(tmp_path / file.name)
    os.mkfifo(tmp_path / cifar.ARCHIVE)
    said = expect_sentence(lambda: data.load_pixels(choice, str(tmp_path)))
    assert said.startswith(f"{tmp_path / name} is damaged or wrong: ")
    assert "it is not a regular file" in said


CLOSED = """
import sys
from pathlib import Path
from deepbig_runtime import files
from experiments.training import cli, runs
folder = Path(sys.argv[1])
cli.run(lambda: {})
"""


@linux
@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("files.make_folder(folder)", "error: cannot make the folder {} or open it: "),
        ("runs.epochs_done(folder / 'run.h5', {})", "error: {}/run.h5: "),
    ],
)
def test_closed_folder_is_one_sentence(tmp_path, code, sentence):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o600)
    # Root may enter any folder, unless it gives that up.
    first = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    try:
        done = run(
            "-c", CLOSED.replace("{}", code, 1), closed, first=first if os.geteuid() == 0 else ()
        )
    except FileNotFoundError:
        pytest.skip("root without setpriv cannot try a closed folder")
    assert done.returncode == 2
    assert done.stderr.startswith(sentence.format(closed) + "Permission denied; ")
    assert done.stderr.count("\n") == 1


@linux
def test_names_of_any_bytes_are_shown_escaped(tmp_path, capsys):
    paths = [tmp_path / os.fsdecode(NOBODYS), tmp_path / "b.h5"]
    for path in paths:
        store.write_run(path, make_run())
    shown = "run-\\udcff\\udcfe"
    assert sorted(report_sections.Report(tmp_path).runs) == ["b", shown]
    assert sorted(examples.load_runs(tmp_path)) == ["b", shown]
    assert committee.form_committee(paths).members == (shown, "b")
    capsys.readouterr()


def test_replace_of_no_regular_file_is_refused():
    with pytest.raises(files.FileFault, match="no regular file"):
        files.replace(Path("/dev/null"), b"")
    assert Path("/dev/null").is_char_device()
