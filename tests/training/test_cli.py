"""training/cli.py: command lines that no command may take, and how commands end."""

import errno
import importlib
import os
import signal
import subprocess
import sys

import pytest

from experiments.training import cli
from experiments.training.provenance import REPOSITORY

COMMANDS = sorted(
    path.stem for path in REPOSITORY.glob("experiments/*.py") if path.stem != "__init__"
)


def refusal(main, arguments, capsys):
    """What a command says that refuses its arguments."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    *_, line = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_empty_values(command, capsys):
    main = importlib.import_module(f"experiments.{command}").main
    said = refusal(main, ["--out=--"], capsys)
    expected = "argument --out: expected a value, got '--'"
    assert said == f"python -m experiments.{command}: error: {expected}"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--scheduler", ""], "argument --scheduler: expected a value, got ''"),
        (["--scheduler="], "argument --scheduler: expected a value, got ''"),
        (["--number=--"], "argument --number: expected a value, got '--'"),
        (["--numb=--"], "argument --numb: expected a value, got '--'"),
        (["--number", "--"], "argument --number: expected one argument"),
        (["a", ""], "expected a value, got ''"),
    ],
)
def test_a_value_that_is_none_is_refused(arguments, complaint, capsys):
    parser = cli.Parser("watch", None)
    parser.add_argument("--scheduler")
    parser.add_argument("--number", type=cli.number(0, 1))
    parser.add_argument("paths", nargs="*")
    assert refusal(parser.parse_args, arguments, capsys).endswith(f"error: {complaint}")
    given = ["--number=1", "--scheduler", "a=", "-", "--", "-x"]
    assert parser.parse_args(given).paths == ["-", "-x"]


@pytest.mark.parametrize("kind", [cli.integer(1), cli.integers(1, 6), cli.number(0, 1)])
def test_a_long_number_is_not_repeated_whole(kind, capsys):
    parser = cli.Parser("table1", None)
    parser.add_argument("--number", type=kind)
    said = refusal(parser.parse_args, ["--number", "1" * 5000], capsys)
    assert "expected a" in said
    assert "got '1111" in said
    assert "111...111" in said
    assert len(said) < 300


# Python runs it before anything else. The signal arrives in the middle of what a command imports.
SIGNAL_AT_IMPORT = """
import signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            signal.raise_signal({signum})

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_while_a_command_imports_is_one_line(tmp_path, signum):
    (tmp_path / "sitecustomize.py").write_text(SIGNAL_AT_IMPORT.format(signum=int(signum)))
    done = subprocess.run(
        [sys.executable, "-m", "experiments.table1", "--help"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # not as under nohup
    )
    assert done.returncode == 128 + signum
    assert (done.stdout, done.stderr) == ("", f"stopped by {signum.name}\n")


LONG = "/" + "a" * 5000


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "not enough memory"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "no more memory"),
        (RuntimeError("can't start new thread"), "starts no more processes or threads"),
    ],
)
def test_run_reports_a_lack_of_the_machine_whatever_follows_it(error, sentence, capsys):
    def main():
        try:
            raise error
        finally:
            raise ImportError("some module")

    assert sentence in refusal(lambda _: cli.run(main), None, capsys)


def test_run_reports_other_refusals_of_the_system_with_short_names(capsys):
    said = refusal(lambda _: cli.run(lambda: os.listdir(LONG)), None, capsys)
    assert said.startswith(f"error: {LONG[:40]}...{LONG[-39:]}: File name too long; ")


def test_run_does_not_hide_a_mistake_in_our_code():
    with pytest.raises(LookupError):
        cli.run(lambda: {}["a mistake in our code"])
