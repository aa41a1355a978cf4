"""docs/python.md: its programs run, as they stand there, in a folder that is no checkout."""

import re

import programs
import pytest

from experiments.training.provenance import REPOSITORY

PAGE = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def run(tmp_path, program, *options):
    path = tmp_path / "program.py"
    path.write_text(program)
    done = programs.run(*options, path, first=("env", "-C", tmp_path))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_nets_and_deformations(tmp_path):
    said = run(tmp_path, "\n".join(PROGRAMS[:-1]) + "\nprint(cnn.n_iter_)")
    accuracy, guess, epochs = said.split()
    assert 0.95 < float(accuracy) < 0.98
    assert (guess, epochs) == ("[7]", "5")


@programs.needs_toolkit
def test_kernel(tmp_path):
    said = run(tmp_path, PROGRAMS[-1], "-m", "cuda_on_cpu")
    assert said.count("-1.") == 320
