"""The project's own promises: the same dependencies, licence and targets everywhere."""

import re
import subprocess
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

import deepbig
from experiments.training.provenance import REPOSITORY

WHOLE = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, BUILD = WHOLE["project"], WHOLE["dependency-groups"]["build"]
EXTRAS = PROJECT["optional-dependencies"]
ON_CPU = tomllib.loads((REPOSITORY / "cuda-on-cpu" / "pyproject.toml").read_text(encoding="utf-8"))
LOCKED_EXTRAS = "cu12", "cu13", "notebooks", "test"


def pins(name):
    """The lines of a lock file, a package each."""
    text = (REPOSITORY / "requirements" / f"{name}.lock").read_text().replace("\\\n", "")
    return [line for line in text.splitlines() if not line.startswith("#")]


def normal(requirement):
    """A requirement without spaces and quotes: name, extras, range, marker."""
    return re.sub(r"[\s\"']", "", requirement)


def versions(name):
    """The version of each package of a lock file."""
    return dict(re.match("([^=]+)==([^ ]+)", pin).groups() for pin in pins(name))


def test_environment_has_the_dependencies_of_pyproject():
    expected = {normal(r) for r in PROJECT["dependencies"]}
    expected |= {normal(r) for name in ("cu12", "test") for r in EXTRAS[name]}
    expected.add("python" + PROJECT["requires-python"])
    lines = re.findall(r"^ +- (.+)$", (REPOSITORY / "environment.yml").read_text(), re.MULTILINE)
    found = {normal(line) for line in lines} - {"conda-forge", "pip", "pip:"}
    assert found == {r.replace(" ", "") for r in expected}


def test_cuda_on_cpu_has_the_dependencies_of_deepbig():
    ours = {*PROJECT["dependencies"], *EXTRAS["cu12"]}
    assert set(ON_CPU["project"]["dependencies"]) < {r.replace("[cu12]", "") for r in ours}
    assert ON_CPU["project"]["requires-python"] == PROJECT["requires-python"]
    assert ON_CPU["build-system"] == WHOLE["build-system"]


def test_all_files_of_packages_are_installed():
    setuptools = WHOLE["tool"]["setuptools"]
    find, data = setuptools["packages"]["find"], setuptools["package-data"]
    assert ON_CPU["tool"]["setuptools"]["package-data"].items() <= data.items()
    folders = [REPOSITORY / where for where in find["where"]]
    declared = {
        path
        for package, patterns in data.items()
        for pattern in patterns
        for folder in folders
        for path in (folder / package.replace(".", "/")).glob(pattern)
    }
    packages = [folder / name.rstrip("*") for name in find["include"] for folder in folders]
    found = {path for folder in packages for path in folder.rglob("*.*") if path.is_file()}
    assert {path for path in found if path.suffix not in (".py", ".pyc")} <= declared


@pytest.mark.parametrize("name", ["core", *LOCKED_EXTRAS])
def test_lock_pins_every_dependency(name):
    hashes = r"( +--hash=sha256:[0-9a-f]{64})+"
    assert all(re.fullmatch(rf"[a-z0-9.-]+==[^ ]+( ; [^-]+)?{hashes}", pin) for pin in pins(name))
    locked = versions(name)
    everywhere = versions("core") | versions("test")
    assert all(everywhere.get(package, version) == version for package, version in locked.items())
    wanted = PROJECT["dependencies"] + BUILD + EXTRAS.get(name, [])
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(locked[requirement.name]), requirement


def test_core_has_neither_cuda_nor_tools_of_tests():
    assert not [pin for pin in pins("core") if re.match("cuda|nvidia|numba-cuda|pytest", pin)]


def test_what_builds_is_locked_as_it_is_required():
    assert WHOLE["build-system"]["requires"] == BUILD


def test_citation_and_licence_are_those_of_pyproject():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["title"] == PROJECT["name"]
    assert citation["version"] == deepbig.__version__
    assert citation["license"] == PROJECT["license"] == "BSD-3-Clause"
    (path,) = PROJECT["license-files"]
    assert "the deepbig developers" in (REPOSITORY / path).read_text()


def said_by_make(*arguments):
    """What make prints in the repository."""
    command = ["make", "--no-print-directory", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout


def test_help_lists_every_target_in_its_group():
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = re.search(r"\.PHONY: (.+)", makefile)[1].split()
    said = said_by_make("help")
    assert re.findall(r"^(\w+)$", said, re.MULTILINE) == ["train", "look", "measure", "maintain"]
    assert re.findall(r"^  make (\S+) +\w.+$", said, re.MULTILINE) == targets[1:]
    assert set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE)) == {
        *targets,
        "check-packages",
        "check-venv",
    }


def test_make_asks_for_the_pythons_of_pyproject():
    low, high = re.search(
        r"not \(3, (\d+)\) <= .*< \(3, (\d+)\)", said_by_make("-n", "setup", "VENV=x")
    ).groups()
    assert PROJECT["requires-python"] == f">=3.{low},<3.{high}"


def test_targets_run_on_an_interpreter_without_installing():
    for target in ("table1", "figure1", "kernels", "gpu-check", "test", "test-all", "lint"):
        said = said_by_make("-n", target, "PYTHON=some-python", "VENV=")
        assert re.search(r"^some-python -m (experiments|pytest|ruff)\b", said, re.MULTILINE)
        assert not re.search("pip|venv", said)


@pytest.mark.parametrize(
    ("target", "driver", "locks"),
    [
        ("table1", "", {"core"}),
        ("table1", "cu13", {"core", "cu13"}),
        ("kernels", "", {"core", "cu12"}),
        ("notebooks", "", {"core", "notebooks"}),
        ("test", "", {"core", "cu12", "test"}),
    ],
)
def test_target_installs_the_packages_it_needs(target, driver, locks, tmp_path):
    said = said_by_make("-n", target, f"VENV={tmp_path / 'venv'}", f"DRIVER={driver}")
    assert set(re.findall(r"--requirement requirements/(\S+)\.lock", said)) == locks
