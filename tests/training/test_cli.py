"""training/cli.py and messages.py: command lines that are refused, and how commands end."""

import errno
import importlib
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from waiting import HANG_SECONDS

from deepbig_runtime.errors import signals, tell
from experiments.training import cli
from experiments.training.provenance import REPOSITORY


def refusal(main, arguments, capsys):
    """What a command says that refuses its arguments."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    *_, line = capsys.readouterr().err.splitlines()
    return line


REFUSED = [
    ("bench", "--repeats=2", "expected an integer from 3 to 1000, got '2'"),
    ("cnn", "--data=norb --nets=1,3", "argument --nets: there is no net 3 for norb"),
    ("cnn", "--data=cifar10 --net=9M33", "33x33 must be at least 1x1 and fit into maps of 32"),
    ("cnn", "--nets=1 --net=9M5", "argument --net: not allowed with argument --nets"),
    ("cnn", "--data=norb --translation=51", "expected a number from 0 to 50, got '51'"),
    ("cnn", "--schedule=window", "argument --schedule: invalid choice: 'window'"),
    ("committee", "--data=norb", "or a folder of your own, got 'norb'"),
    ("committee", f"--seed={2**63 + 1}", "argument --seed: expected an integer from 0 to"),
    ("committee", "a.h5 --eta-decay=0.9 --workers=2", "--eta-decay, --workers: not allowed with"),
    ("committee", "--experiment=4 --validation 9", "unrecognized arguments: --validation"),
    ("ladder", "--hidden=9", "from 10 to 512"),
    ("notebooks", "training nonsense", "no notebook nonsense; there are committee, convolution"),
    ("table1", "--hidden=800,0", "expected an integer from 1 to 1000000, got '0'"),
    ("table1", "--sigma=0", "expected a number from 0.1 to 10, got '0'"),
    ("table1", "--beta=1,2", "expected 1 or 10 values with commas, got 2"),
    ("table1", "--shear=1.1", "expected a number from 0 to 1, got '1.1'"),
    ("table1", "--validation=0", "expected an integer of at least 1, got '0'"),
    ("table1", "--validation-part=2", "needs --validation"),
    ("table1", "--minutes=5 --scheduler=tcp://a:1", "not allowed with --scheduler"),
    ("table1", "--no-distortion --sigma=4", "not allowed with options of the deformation"),
    ("table1", "--data=nothing", "expected auto, mnist, digits, or a folder of your own"),
    ("table1", "--nets=1,1", "argument --nets: expected different values, got '1,1'"),
    ("table1", f"--seeds={2**64}", "argument --seeds: expected an integer from 0 to"),
    ("table1", "--epochs=1.5", "--epochs: expected an integer from 1 to 1000000, got '1.5'"),
    ("table1", "--eta=nan", "argument --eta: expected a number from 1e-06 to 10, got 'nan'"),
]


@pytest.mark.parametrize(("command", "arguments", "complaint"), REFUSED)
def test_a_command_refuses_what_it_cannot_do(command, arguments, complaint, capsys):
    module = importlib.import_module(f"experiments.{command}")
    parse = getattr(module, "parse_arguments", module.main)
    assert complaint in refusal(parse, arguments.split(), capsys)


@pytest.mark.parametrize("argument", ["", "--scheduler=", "--number=--", "--numb=--"])
def test_empty_value_is_refused(argument, capsys):
    parser = cli.Parser("watch", None)
    parser.add_argument("--scheduler")
    parser.add_argument("--number", type=cli.number(0, 1))
    parser.add_argument("paths", nargs="*")
    said = refusal(parser.parse_args, ["a", argument], capsys)
    assert said.endswith(f"error: expected a value, got {argument!r}")
    given = ["--number=1", "--scheduler", "a=", "-", "--", "-x"]
    assert parser.parse_args(given).paths == ["-", "-x"]


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
    with signals.blocked():  # as for processes that commands start
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


@pytest.mark.usefixtures("signals_raise")  # which gives the test process its handlers back
@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "not enough memory"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (RuntimeError("can't start new thread"), "starts no more processes or threads"),
    ],
)
def test_run_reports_a_lack_of_the_machine_before_later_errors(error, sentence, capsys):
    def main():
        try:
            raise error
        finally:
            raise ImportError("some module")

    assert sentence in refusal(lambda _: cli.run(main), None, capsys)


@pytest.mark.usefixtures("signals_raise")
def test_run_does_not_hide_a_mistake_in_our_code():
    with pytest.raises(LookupError):
        cli.run(lambda: {}["a mistake in our code"])


# Outputs that nobody reads, or that cannot be written


def test_a_sentence_is_written_together_with_its_newline(monkeypatch):
    """A signal that came between would have the next sentence on the same line."""
    written = []
    stream = SimpleNamespace(write=written.append, flush=lambda: None)
    monkeypatch.setattr(sys, "stderr", stream)
    tell("a sentence")
    assert written[0] == "a sentence\n"


full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


def run(command, *arguments):
    """The result of a command in a shell, in which "$0" is Python and "$@" are the arguments."""
    return subprocess.run(
        ["bash", "-c", f"{command}\nexit ${{PIPESTATUS[0]}}", sys.executable, *map(str, arguments)],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path]), "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )


@full
@pytest.mark.parametrize(
    ("program", "status"),
    [("print('printed'), os.kill(os.getpid(), 2)", 130), ("sys.exit(3)", 3)],
)
def test_status_is_right_though_nobody_can_read(program, status):
    program = "import os, sys; from experiments.training import cli\n" + (
        f"cli.run(lambda: ({program}))"
    )
    done = run('"$0" -c "$@" >/dev/full', program)
    assert done.returncode == status
    assert run('"$0" -c "$@" >/dev/full 2>/dev/full', program).returncode == status
    if status == 130:
        assert done.stderr == "stopped by SIGINT\n"


GIVEN_UP = """
import os, signal, threading, time
from contextlib import closing
from experiments.training import cli, workers

def give_up():
    with closing(workers.Threads(1)) as pool:
        job = pool.submit(lambda channel: os.kill(os.getpid(), signal.SIGINT) or time.sleep(9999))
        list(pool.as_completed([job]))

workers.CLOSE_SECONDS = 0.1
cli.run(give_up)
"""


def test_command_ends_while_a_thread_polls_no_stop_signal():
    done = run('"$0" -c "$@"', GIVEN_UP)
    assert (done.returncode, done.stderr) == (130, "stopped by SIGINT\n")


def test_new_file_of_a_command_is_no_standard_stream():
    program = "import os; from experiments.training import cli\n"
    program += "cli.run(lambda: os.open('/', os.O_RDONLY))"  # its number is the status
    assert run('"$0" -c "$@" <&- >&- 2>&-', program).returncode > 2


def number_of_a_new_file(_channel, path):
    """The file descriptor that a new file gets in a worker."""
    print("a message", file=sys.stderr)
    with path.open("w") as file:
        return file.fileno()


WORKER = """
import sys
from pathlib import Path
from experiments.training.messages import open_streams
from experiments.training.workers import LocalProcesses
from test_cli import number_of_a_new_file

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    open_streams()
    pool = LocalProcesses(1)
    (number,) = pool.as_completed([pool.submit(number_of_a_new_file, folder / "file")])
    (folder / "answer").write_text(str(number.result()))
    pool.close()
"""


def test_new_file_of_a_worker_is_no_standard_stream(tmp_path):
    """Text that is written to stderr without Python does not get into that file."""
    (tmp_path / "script.py").write_text(WORKER)
    assert run('"$0" "$@" <&- >&- 2>&-', tmp_path / "script.py", tmp_path).returncode == 0
    assert int((tmp_path / "answer").read_text()) > 2
