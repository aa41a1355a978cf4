"""What docs/security.md says of the sources, and of the lock of dependencies."""

import ast
import re

from experiments.training.provenance import REPOSITORY

FOLDERS = REPOSITORY, REPOSITORY / "cuda-on-cpu" / "src"
PACKAGES = [path.parent for folder in FOLDERS for path in folder.glob("*/__init__.py")]

# What could run bytes as a program, or open a port: modules, names of functions, and arguments.
MODULES = {
    *("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml"),
    *("code", "codeop", "runpy", "pty", "socket", "socketserver", "http", "asyncio", "distributed"),
    *("dask", "multiprocessing", "ctypes", "ftplib", "urllib", "requests", "pooch", "xmlrpc"),
}
CALLS = {
    *("eval", "exec", "compile", "__import__", "import_module", "exec_module", "system", "popen"),
    *("execv", "execve", "execvp", "spawnl", "spawnv", "loadtxt", "extract", "extractall"),
    *("read_pickle", "FunctionCache", "CDLL", "unsafe_load", "literal_eval", "startfile"),
    *("add_object_file", "parse_assembly"),
}
ARGUMENTS = {"allow_pickle", "shell", "weights_only"}

# Where that is all the same, and why.
ALLOWED = {
    ("deepbig_runtime/driver.py", "ctypes"): "asks whether there is a driver",
    ("deepbig_runtime/driver.py", "CDLL"): "the driver of that name, as the system finds it",
    ("deepbig_runtime/jit.py", "FunctionCache"): "compiled code, kept in a private folder",
    ("cuda_on_cpu/driver/build.py", "execve"): "the user's program, on the fake driver",
    ("cuda_on_cpu/driver/start/fake_cuda_driver.py", "CDLL"): "the fake driver, which we compiled",
    ("cuda_on_cpu/driver/start/fake_cuda_driver.py", "ctypes"): "calls of the fake driver",
    ("cuda_on_cpu/driver/start/fake_cuda_driver.py", "exec_module"): "numba-cuda's own compiler",
    ("cuda_on_cpu/machine_code.py", "add_object_file"): "machine code, cached in a private folder",
    ("cuda_on_cpu/machine_code.py", "ctypes"): "calls of that machine code",
    ("cuda_on_cpu/machine_code.py", "parse_assembly"): "LLVM IR, cached in a private folder",
    ("cuda_on_cpu/pytest_plugin.py", "CDLL"): "the fake driver, which we compiled",
    ("cuda_on_cpu/pytest_plugin.py", "ctypes"): "calls of the fake driver",
    ("cuda_on_cpu/run.py", "ctypes"): "texts that a kernel prints",
    ("experiments/training/cluster.py", "asyncio"): "Dask's",
    ("experiments/training/cluster.py", "distributed"): "Dask, where a scheduler is named",
    ("experiments/datasets/download.py", "pooch"): "downloads, which are verified",
    ("experiments/datasets/download.py", "requests"): "the errors of downloads",
    ("experiments/training/workers.py", "multiprocessing"): "pipes between our own processes",
    ("experiments/benchmarks/baselines.py", "import_module"): "packages of a fixed list",
}


def dangers(source):
    """The names in a module by which bytes could become a program, or a port be opened."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from {alias.name.partition(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from {node.module.partition(".")[0]} & MODULES
            yield from {alias.name for alias in node.names} & CALLS
        elif isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            base = node.value.id if hasattr(node, "value") and hasattr(node.value, "id") else ""
            if name in CALLS and not (name == "compile" and base in ("re", "torch")):
                yield name
            if name == "load" and base in ("np", "numpy", "torch"):
                yield f"{base}.load"
        elif isinstance(node, ast.keyword) and node.arg in ARGUMENTS:
            yield node.arg


def test_nothing_that_is_read_runs_but_where_it_is_listed():
    found = {
        (path.relative_to(package.parent).as_posix(), name)
        for package in PACKAGES
        for path in package.rglob("*.py")
        for name in dangers(path.read_text(encoding="utf-8"))
    }
    assert found == set(ALLOWED)


def test_only_one_module_opens_hdf5():
    sources = [path for package in PACKAGES for path in package.rglob("*.py")]
    openers = [p.name for p in sources if "h5py.File(" in p.read_text(encoding="utf-8")]
    assert openers == ["hdf5.py"]


def test_addresses_of_downloads_are_encrypted():
    sources = [path for package in PACKAGES for path in package.rglob("*.py")]
    assert not [p for p in sources if re.search(r"\bhttp://", p.read_text(encoding="utf-8"))]
