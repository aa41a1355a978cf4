"""What is imported only when it is needed: heavy packages, and what is not installed everywhere."""

import subprocess
import sys

import pytest

from experiments.training.provenance import REPOSITORY

ENGINES = ("mlp_gpu.cpu", "mlp_gpu.cuda", "numba")
SLOW = (
    "distributed",
    "sklearn",
    "scipy.stats",
    "scipy.ndimage",
    "tensorboard",
    "torch",
    "nbconvert",
)


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("experiments.training.store", ("argparse", *ENGINES, *SLOW, "matplotlib")),
        ("experiments.training.jobs", (*ENGINES, *SLOW, "matplotlib")),
        ("experiments.watch", (*ENGINES, *SLOW, "matplotlib")),
        ("experiments.export", (*ENGINES, *SLOW, "matplotlib")),
        ("experiments.figure1", (*ENGINES, *SLOW)),
        ("experiments.table1", (*ENGINES, *SLOW, "matplotlib")),
        ("experiments.committee", (*ENGINES, *SLOW)),
        ("experiments.pictures", (*ENGINES, *SLOW)),
        ("experiments.deformations", (*ENGINES, *SLOW)),
        ("experiments.bench", ("matplotlib", *SLOW)),
    ],
)
def test_an_import_that_is_not_needed_is_spared(module, spared):
    """So that run files are read at once, and --help takes less than a second."""
    code = f"import sys, {module}; print(*sys.modules, sep='\\n')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert set(spared).isdisjoint(done.stdout.split())


@pytest.mark.parametrize("module", ["experiments.kernels", "experiments.bench"])
def test_nothing_is_compiled_before_it_is_needed(module):
    """Numba takes seconds for the helpers of executed kernels."""
    code = f"import {module}\nfrom cuda_on_cpu import machine_code, memory_checks\n"
    code += "assert machine_code._helpers.cache_info().currsize == 0\n"
    code += "assert not memory_checks.check.signatures"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)
