"""Kernels compiled by numba-cuda-mlir, which follows numba-cuda: see docs/kernels.md."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from programs import needs_toolkit

from experiments.training.provenance import REPOSITORY

TESTS = "(test_propagate_forward or test_propagate_back or test_update) and 33-31"


@needs_toolkit
@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("numba_cuda_mlir") is None,
    reason="numba-cuda-mlir is not installed: pip install -e '.[mlir]'",
)
def test_kernels_of_numba_cuda_mlir_pass_the_tests_of_kernels(tmp_path):
    path = f"tests/support:{os.environ.get('PYTHONPATH', '')}"
    environment = os.environ | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("NUMBA_NUM_THREADS")  # of conftest.py
    command = [sys.executable, "-m", "pytest", "-q", "-p", "numba_mlir", "-k", TESTS]
    done = subprocess.run(
        [*command, "tests/mlp_gpu/test_kernels.py"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout  # forward, back, update: for 7.5 and for 10.0
    assert not list(tmp_path.rglob("*update_weights*"))  # numba-cuda would take it for its own
