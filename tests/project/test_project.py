"""The project's own promises: the same dependencies, licence and targets everywhere."""

import re
import subprocess
import tomllib

import yaml

from experiments.training.provenance import REPOSITORY

WHOLE = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, BUILD = WHOLE["project"], WHOLE["dependency-groups"]["build"]


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
    text = (REPOSITORY / "requirements.lock").read_text().replace("\\\n", "")
    assert "://" not in text
    assert WHOLE["build-system"]["requires"] == BUILD
    pins = [line for line in text.splitlines() if not line.startswith("#")]
    hashes = r"( +--hash=sha256:[0-9a-f]{64})+"
    assert all(re.fullmatch(rf"[a-z0-9.-]+==[^ ]+( ; [^-]+)?{hashes}", pin) for pin in pins)
    locked = {pin.partition("==")[0] for pin in pins}
    wanted = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]
    assert {re.match(r"[A-Za-z0-9-]+", r)[0] for r in wanted + BUILD} <= locked


def test_citation_and_licence_are_those_of_pyproject():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["title"] == PROJECT["name"]
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"] == "BSD-3-Clause"
    (path,) = PROJECT["license-files"]
    text = (REPOSITORY / path).read_text()
    assert "the deepbig developers" in text
    assert text.count("Redistribution") == 3  # its three clauses begin after the first
    assert {entry["year"] for entry in citation["references"]} == {2010, 2011, 2012}


def test_help_lists_every_target_in_its_group():
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = re.search(r"\.PHONY: (.+)", makefile)[1].split()
    said = subprocess.run(
        ["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    assert re.findall(r"^(\w+)$", said, re.MULTILINE) == ["train", "look", "measure", "maintain"]
    assert re.findall(r"^  make (\S+) +\w.+$", said, re.MULTILINE) == targets[1:]
    assert set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE)) == {
        *targets,
        "check-packages",
    }


def test_targets_run_on_an_interpreter_without_installing():
    for target in ("table1", "figure1", "kernels", "gpu-check", "test", "test-all", "lint"):
        said = subprocess.run(
            ["make", "--no-print-directory", "-n", target, "PYTHON=some-python", "VENV="],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert re.search(r"^some-python -m ", said, re.MULTILINE)
        assert not re.search("pip|venv", said)
