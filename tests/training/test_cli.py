"""running/cli.py: command lines that no command may take."""

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
    return capsys.readouterr().err.splitlines()[-1]


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


def test_a_fault_is_told_without_words_of_thousands_of_letters():
    command = [sys.executable, "-m", "experiments.figure1", f"/{'a' * 5000}.h5"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 2
    letters = "a" * 40
    expected = f"/{letters[1:]}...{letters[4:]}.h5:"
    assert done.stderr == f"error: cannot read {expected} File name too long\n"


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
@pytest.mark.parametrize("command", ["table1", "watch"])
def test_a_signal_while_a_command_imports_is_one_line(tmp_path, command, signum):
    (tmp_path / "sitecustomize.py").write_text(SIGNAL_AT_IMPORT.format(signum=int(signum)))
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{command}", "--help"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # not as under nohup
    )
    assert done.returncode == 128 + signum
    assert (done.stdout, done.stderr) == ("", f"stopped by {signum.name}\n")


def test_the_signals_of_a_program_that_imports_experiments_stay_its_own():
    code = "import signal; before = signal.getsignal(signal.SIGINT); import experiments.table1; "
    code += "assert signal.getsignal(signal.SIGINT) is before"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)
