"""deepbig_runtime/requirements.py: what an interpreter lacks of pyproject.toml, for VENV=."""

import os
import platform
import re
import subprocess
import sys

import pytest

from deepbig_runtime import requirements
from experiments.training.provenance import REPOSITORY


def install(folder, name, version):
    """Make a package of that version seem installed in a folder of the path."""
    (folder / f"{name}-{version}.dist-info").mkdir()
    (folder / f"{name}-{version}.dist-info/METADATA").write_text(
        f"Name: {name}\nVersion: {version}"
    )


def test_unmet_names_what_is_missing_too_old_or_too_new(tmp_path, monkeypatch):
    install(tmp_path, "aged", "1.0")
    install(tmp_path, "fresh", "3.0")
    install(tmp_path, "candidate", "2.5rc1")
    monkeypatch.syspath_prepend(tmp_path)
    text = """
        [project]
        requires-python = ">=3.99"
        dependencies = ["aged>=2,<3", "fresh>=2,<3", "candidate>=2,<3", "absent>=1"]
        [project.optional-dependencies]
        cu12 = ["aged[cu12]>=1.5,<2; sys_platform != 'none'", "absent-too[cu12]>=1"]
    """
    (tmp_path / "pyproject.toml").write_text(text)
    assert requirements.unmet(tmp_path / "pyproject.toml") == [
        f"Python>=3.99 (it has {platform.python_version()})",
        "aged>=2,<3 (it has 1.0)",
        "fresh>=2,<3 (it has 3.0)",
        "absent>=1",
        "aged[cu12]>=1.5,<2 (it has 1.0)",
    ]


@pytest.mark.parametrize(
    ("case", "lacks"),
    [
        ("all", None),
        ("old Python", r"Python>=3\.11"),
        ("no packages", r"filelock>=\S+; h5py>=.*; tqdm>=\S+"),
    ],
)
def test_make_says_in_one_sentence_what_an_interpreter_lacks(case, lacks, tmp_path):
    python = sys.executable
    if case == "old Python":
        (tmp_path / "tomllib.py").write_text("raise ModuleNotFoundError")
    elif case == "no packages":
        subprocess.run([python, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
        python = tmp_path / "venv/bin/python"
    done = subprocess.run(
        ["make", "--no-print-directory", "check-packages", f"PYTHON={python}", "VENV="],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    said, *rest = done.stderr.splitlines() or [""]
    if lacks is None:
        assert (done.returncode, said) == (0, "")
    else:
        assert re.fullmatch(rf"error: {python} lacks {lacks}", said)
        assert done.returncode != 0
        advice, *rest = rest
        assert advice.startswith("name another interpreter with PYTHON=")
        assert not rest[1:]  # the first is make's own


def test_make_says_how_a_broken_environment_is_made_anew(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    (tmp_path / ".core").touch()
    command = ["make", "--no-print-directory", "table1", f"VENV={tmp_path}", "DRIVER="]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    said, advice, *rest = done.stderr.splitlines()
    assert said.startswith(f"error: {tmp_path}/bin/python lacks filelock>=")
    assert advice == f"'make clean' removes {tmp_path}; the same command then installs it anew"
    assert (done.returncode, rest[1:]) == (2, [])
