"""Kernels compiled by numba-cuda-mlir, which follows numba-cuda: see docs/kernels.md."""

import os
import subprocess
import sys

import pytest
from programs import needs_mlir, needs_toolkit

from experiments.training.provenance import REPOSITORY

TESTS = "(test_propagate_forward or test_propagate_back or test_update) and 33-31"


@needs_toolkit
@needs_mlir
@pytest.mark.slow
def test_kernels_of_numba_cuda_mlir_pass_the_tests_of_kernels():
    path = f"tests/support:{os.environ.get('PYTHONPATH', '')}"
    environment = os.environ | {"PYTHONPATH": path}
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
