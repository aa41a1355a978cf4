"""The project's own promises: the same dependencies everywhere, a README made of records."""

import re
import subprocess
import textwrap
import tomllib

import numpy as np
import pytest

from experiments import readme
from experiments.running.provenance import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def normal(requirement):
    """A requirement without spaces and quotes: name, extras, range, marker."""
    return re.sub(r"[\s\"']", "", requirement)


def test_environment_has_the_dependencies_of_pyproject():
    expected = {normal(r) for r in PROJECT["dependencies"]}
    expected |= {normal(r) for r in PROJECT["optional-dependencies"]["test"]}
    expected.add("python" + PROJECT["requires-python"])
    lines = re.findall(r"^ +- (.+)$", (REPOSITORY / "environment.yml").read_text(), re.MULTILINE)
    found = {normal(line) for line in lines} - {"conda-forge", "pip", "pip:"}
    assert found == {r.replace(" ", "") for r in expected}


def test_lock_pins_every_dependency():
    lines = (REPOSITORY / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[^ ]+", pin) for pin in pins)
    locked = {pin.partition("==")[0].lower().replace("_", "-") for pin in pins}
    wanted = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]
    assert {re.match(r"[A-Za-z0-9-]+", r)[0] for r in wanted} <= locked


def test_readme_tables_are_what_results_say():
    text = readme.README.read_text(encoding="utf-8")
    assert readme.render(text) == text, "run 'make readme'"


def test_readme_lacks_no_marker():
    with pytest.raises(readme.Problem, match="lacks the line"):
        readme.render("no markers here")


def test_help_lists_every_target():
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = re.search(r"\.PHONY: (.+)", makefile)[1].split()
    said = subprocess.run(
        ["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    for target in targets:
        assert re.search(rf"^  make {target} +\w.+$", said, re.MULTILINE), target


def test_targets_run_on_an_interpreter_without_installing():
    for target in (
        "table1",
        "table3",
        "committee",
        "figure1",
        "deformations",
        "kernels",
        "bench",
        "scaling",
        "gpu-check",
        "test",
        "test-all",
        "lint",
    ):
        said = subprocess.run(
            ["make", "--no-print-directory", "-n", target, "PYTHON=some-python", "VENV="],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert re.search(r"^some-python -m ", said, re.MULTILINE)
        assert not re.search("pip|venv", said)


def test_the_readmes_example_of_the_library_runs():
    text = readme.README.read_text(encoding="utf-8")
    block = re.search(r"\n\n((?:    .*\n)*    from deform_gpu import .*\n\n?(?:    .*\n)+)", text)[
        1
    ]
    assert 'device="cuda"' in block
    code = textwrap.dedent(block).replace('device="cuda"', 'device="cpu"')
    rng = np.random.default_rng(0)
    names = {
        "images": rng.uniform(-1, 1, (50, 29, 29)).astype(np.float32),
        "labels": rng.integers(0, 10, 50),
        "icons": rng.random((3, 16, 16)),
    }
    exec(code, names)
    assert (names["one"][0] == names["more"][42]).all()
    assert names["bent"].shape == (3, 16, 16)
    assert names["narrow"].shape == (50, 29, 29)
