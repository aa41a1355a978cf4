"""Programs of tests, on the fake driver or without it, and marks of tests by what they need."""

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from cuda_on_cpu import missing_toolkit
from cuda_on_cpu.driver import build

HANG_SECONDS = 2400  # of a program that ends well on any machine
needs_toolkit = pytest.mark.skipif(missing_toolkit() is not None, reason=str(missing_toolkit()))
needs_driver = pytest.mark.skipif(build.missing() is not None, reason=str(build.missing()))
needs_mlir = pytest.mark.skipif(
    find_spec("numba_cuda_mlir") is None,
    reason="numba-cuda-mlir is not installed: pip install numba-cuda-mlir",
)
# The module `cuda` of each compiler.
COMPILERS = "numba.cuda", pytest.param("numba_cuda_mlir.cuda", marks=needs_mlir)
# Compiled code is cached for the processes of this run; for longer, if this names a folder already.
folder = tempfile.TemporaryDirectory()
os.environ.setdefault("CUDA_ON_CPU_CACHE", folder.name)
CACHE = Path(os.environ["CUDA_ON_CPU_CACHE"])


def run(*arguments, first=(), environment=os.environ, **variables):
    """Run this interpreter with these arguments and variables; first: a command that starts it."""
    path = os.pathsep.join([environment.get("PYTHONPATH", ""), *sys.path])
    return subprocess.run(
        [*first, sys.executable, *map(str, arguments)],
        env=environment | {"PYTHONPATH": path} | variables,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )


def run_on_driver(*arguments, **variables):
    """The same on the fake driver."""
    return run(*arguments, environment=build.environment(), **variables)


def without_numbers(text):
    """A message without the numbers of its registers."""
    return re.sub(r"%([a-z]+)\d+", r"%\1", text)
