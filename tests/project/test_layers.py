"""Imports run one way, from commands down to kernels, and each room holds what its name says."""

import ast
import re
import sys
from functools import cache

import programs
import pytest

from experiments.training.provenance import REPOSITORY

# What may import what: each only what stands after it, and itself.
LAYERS = (
    "commands",
    "experiments.drawing",
    "experiments.benchmarks",
    "deepbig",
    "experiments.results",
    "experiments.training",
    "experiments.datasets",
    "deform_gpu",
    "cnn_gpu",
    "mlp_gpu",
    "deepbig_runtime",
    "cuda_on_cpu",  # knows nothing of ours
)
PACKAGES = {name.partition(".")[0] for name in LAYERS} - {"commands"}
FOLDERS = REPOSITORY, REPOSITORY / "cuda-on-cpu" / "src"
SOURCES = sorted(p for root in FOLDERS for name in PACKAGES for p in (root / name).rglob("*.py"))
COMMANDS = {path.stem for path in (REPOSITORY / "experiments").glob("[!_]*.py")}


def layer(name):
    """The layer of a module, by its dotted name; None if it is not ours."""
    package, *rest = name.split(".")
    if package == "experiments":
        return "commands" if not rest or rest[0] in COMMANDS else f"experiments.{rest[0]}"
    return package if package in PACKAGES else None


nodes = cache(lambda path: [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))])


def imports(path):
    """Dotted names of all that a file imports, wherever in it."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module(path):
    """The dotted name of a source file."""
    root = next(root for root in reversed(FOLDERS) if path.is_relative_to(root))
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", SOURCES, ids=module)
def test_imports_run_one_way(path):
    own = layer(module(path))
    assert own in LAYERS, f"{path} is in no room that we know"
    for name in imports(path):
        if other := layer(name):
            assert LAYERS.index(own) <= LAYERS.index(other), f"{path} imports {name}"
            assert other != "commands", f"{path} imports {name}: move what both need into a room"
            needs_executor = own.startswith(("experiments", "commands", "cuda_on_cpu"))
            assert other != "cuda_on_cpu" or needs_executor, f"{path} trains without it"


def files_imported(path):
    """The source files that a file imports, by dotted names, wherever in it."""
    modules = {module(other) for other in SOURCES}
    for name in imports(path):
        found = name if name in modules else name.rpartition(".")[0]
        if found in modules and found != module(path):
            yield found


def test_no_file_imports_itself_by_way_of_others():
    imported = {module(path): set(files_imported(path)) for path in SOURCES}
    while ends := {name for name, others in imported.items() if not others & imported.keys()}:
        imported = {name: others for name, others in imported.items() if name not in ends}
    assert not imported, f"these files import each other in a circle: {sorted(imported)}"


def test_a_file_beside_the_rooms_is_a_command_that_is_named():
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"-m experiments\.(\w+)", makefile + readme))
    assert named == COMMANDS


def test_cuda_on_cpu_and_its_tests_import_what_their_project_names():
    folder = REPOSITORY / "cuda-on-cpu"
    own = {"cuda_on_cpu", *(path.stem for path in folder.rglob("*.py"))}
    named = {"numba", "numba_cuda_mlir", "numpy", "llvmlite", "cuda"}  # with numba and numba-cuda
    for path in folder.rglob("*.py"):
        for_tests = "tests" in path.parts or path.name == "pytest_plugin.py"
        allowed = own | named | ({"pytest"} if for_tests else set())
        others = {name.partition(".")[0] for name in imports(path)} - sys.stdlib_module_names
        assert others <= allowed, path


def test_one_module_of_a_package_imports_numbas_cuda():
    found = {
        module(path)
        for path in SOURCES
        if any(re.match(r"numba(_cuda|\.cuda)", name) for name in imports(path))
    }
    changed = "cuda_on_cpu.driver.start.fake_cuda_driver"  # changes Numba's compiler
    assert found == {"deepbig_runtime.gpu", "cuda_on_cpu.compile", changed}


# Imports on demand: heavy packages, and packages that are not installed everywhere

ENGINES = ("mlp_gpu.cpu", "mlp_gpu.cuda", "numba")
SLOW = "distributed", "sklearn", "scipy.stats", "scipy.ndimage", "torch", "nbconvert"
WITHOUT_FIGURES = "training.jobs", "watch", "export", "table1"
WITH_FIGURES = "figure1", "report", "committee", "pictures"


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("experiments.training.store", ("argparse", *ENGINES, *SLOW, "matplotlib")),
        *((f"experiments.{name}", (*ENGINES, *SLOW, "matplotlib")) for name in WITHOUT_FIGURES),
        *((f"experiments.{name}", (*ENGINES, *SLOW)) for name in WITH_FIGURES),
        ("experiments.bench", ("matplotlib", *SLOW)),
    ],
)
def test_an_import_that_is_not_needed_is_spared(module, spared):
    """So that run files are read at once, and --help takes less than a second."""
    code = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    done = programs.run("-c", code)
    assert done.returncode == 0, done.stderr
    assert set(spared).isdisjoint(done.stdout.split())


@pytest.mark.parametrize("module", ["experiments.kernels", "experiments.bench"])
def test_nothing_is_compiled_before_it_is_needed(module):
    """Numba takes seconds for the helpers of executed kernels."""
    code = f"import {module}\nfrom cuda_on_cpu import machine_code, memory_checks\n"
    code += "assert machine_code._helpers.cache_info().currsize == 0\n"
    code += "assert not memory_checks.check.signatures"
    done = programs.run("-c", code)
    assert done.returncode == 0, done.stderr
