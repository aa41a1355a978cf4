"""running/messages.py: what cannot be said ends nothing."""

import os
import subprocess
import sys

import pytest
from run_bits import bits

TRAINING = ("--nets", "1", "--data", "digits", "--limit", "60", "--epochs", "3", "--engine", "cpu")


def train(folder, redirection=""):
    """The exit status of a small training whose output the shell redirects."""
    command = f'"$0" -m experiments.table1 "$@" {redirection}\nexit ${{PIPESTATUS[0]}}'
    options = (*TRAINING, "--out", str(folder))
    return subprocess.run(["bash", "-c", command, sys.executable, *options], capture_output=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert train(folder).returncode == 0
    return folder


def outcome(folder):
    """What a training must leave behind: bits of its run, and the table."""
    table = (folder / "table1.md").read_text().splitlines()
    return bits(folder / "net1-seed0-load_digits.h5"), table[0]


@pytest.mark.parametrize(
    "redirection",
    [
        "2>&1 | head -3",  # whoever reads both leaves early
        "2>&-",
        pytest.param("2>/dev/full", marks=pytest.mark.slow),
        pytest.param(">&- 2>&-", marks=pytest.mark.slow),
        pytest.param("<&- >/dev/null 2>&-", marks=pytest.mark.slow),
    ],
)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_training_ends_the_same_whoever_listens(undisturbed, tmp_path, redirection):
    result = train(tmp_path, redirection)
    assert result.returncode == 0
    assert outcome(tmp_path) == outcome(undisturbed)
