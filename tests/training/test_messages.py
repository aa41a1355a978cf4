"""running/messages.py: what cannot be written ends nothing."""

import os
import subprocess
import sys
import warnings

import pytest
from run_bits import bits
from tqdm import tqdm

from experiments.training.provenance import REPOSITORY

TRAINING = ("--data", "digits", "--nets", "1", "--limit", "60", "--epochs", "3", "--engine", "cpu")

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


def run(command, *arguments):
    """The result of a command in a shell, in which "$0" is Python and "$@" are the arguments."""
    return subprocess.run(
        ["bash", "-c", f"{command}\nexit ${{PIPESTATUS[0]}}", sys.executable, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])},
        capture_output=True,
        text=True,
        timeout=600,
    )


def train(folder, redirection="", *options):
    """The result of a small training whose output the shell redirects."""
    command = f'"$0" -m experiments.table1 "$@" {redirection}'
    return run(command, *TRAINING, *options, "--out", folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of two runs that were trained while somebody listened."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert train(folder, "", "--seeds", "0,1", "--workers", "1").returncode == 0
    return folder


def slow(*arguments):
    return pytest.param(*arguments, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("redirection", "seeds", "status"),
    [
        ("2>&1 | head -3", "0", 0),  # the reader of both leaves early
        ("2>&-", "0", 0),
        slow("| true", "0", 0),
        slow(">&- 2>&-", "0", 0),
        slow(">/dev/full", "0", 2),  # the table is written, but not printed
        slow("2>/dev/full", "0,1", 0),
        slow("<&- >&- 2>&-", "0,1", 0),  # seeds in two workers
    ],
)
def test_training_ends_the_same_whoever_listens(undisturbed, tmp_path, redirection, seeds, status):
    workers = "1" if seeds == "0" else "2"
    result = train(tmp_path, redirection, "--seeds", seeds, "--workers", workers)
    assert result.returncode == status
    assert "Traceback" not in result.stderr
    if status:
        sentence = "error: cannot print the result: No space left on device\n"
        assert result.stderr.endswith(sentence)
    for seed in seeds.split(","):
        name = f"net1-seed{seed}-load_digits.h5"
        assert bits(tmp_path / name) == bits(undisturbed / name)
    title = (undisturbed / "table1.md").read_text().splitlines()[0]
    assert (tmp_path / "table1.md").read_text().splitlines()[0] == title


@pytest.mark.parametrize(
    ("options", "redirection", "status"),
    [
        ("--help", "", 0),
        ("--help", ">/dev/full", 2),
        ("--nets 7", "2>/dev/full", 2),
        ("--nets 1 --data-dir /nowhere --data mnist --out {}", ">&- 2>/dev/full", 2),
    ],
)
def test_status_is_right_though_nobody_reads_the_message(tmp_path, options, redirection, status):
    options = options.format(tmp_path).split()
    assert run(f'"$0" -m experiments.table1 "$@" {redirection}', *options).returncode == status


def make_noise(_channel, path):
    """Write to stderr as a worker may. Returns the file descriptor that a new file gets."""
    warnings.warn("beware", stacklevel=1)
    for _ in tqdm(range(3), file=sys.stderr):
        sys.stderr.flush()
    print("a result", flush=True)
    with path.open("w") as file:
        return file.fileno()


PARENT = """
import subprocess, sys
from experiments.training.messages import drop_unwritable
drop_unwritable()
child = "import os; print([os.fstat(descriptor) for descriptor in range(3)])"
sys.exit(subprocess.run([sys.executable, "-c", child]).returncode)
"""


def test_program_that_a_command_starts_has_open_streams():
    assert run('"$0" -c "$@" <&- >&- 2>&-', PARENT).returncode == 0


WORKER = """
import sys
from pathlib import Path
from experiments.training.messages import drop_unwritable
from experiments.training.workers import LocalProcesses
from test_messages import make_noise

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    drop_unwritable()
    pool = LocalProcesses(1)
    (noise,) = pool.as_completed([pool.submit(make_noise, folder / "file")])
    (folder / "answer").write_text(str(noise.result()))
    pool.close()
"""


@pytest.mark.parametrize("redirection", ["", "2>/dev/full >/dev/full", "<&- >&- 2>&-"])
def test_worker_drops_what_it_cannot_write(tmp_path, redirection):
    (tmp_path / "script.py").write_text(WORKER)
    result = run(f'"$0" "$@" {redirection}', tmp_path / "script.py", tmp_path)
    assert result.returncode == 0, result.stderr
    # What is written to stderr without Python does not get into that file.
    assert int((tmp_path / "answer").read_text()) > 2
