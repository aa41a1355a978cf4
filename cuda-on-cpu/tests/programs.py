"""Programs of tests, on the fake driver or without it, and marks of tests by what they need."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cuda_on_cpu import missing_toolkit
from cuda_on_cpu.driver import build

HANG_SECONDS = 2400  # of a program that ends well on any machine
needs_toolkit = pytest.mark.skipif(missing_toolkit() is not None, reason=str(missing_toolkit()))
needs_driver = pytest.mark.skipif(build.missing() is not None, reason=str(build.missing()))
# Compiled code is cached for the processes of this run; for longer, if this names a folder already.
folder = tempfile.TemporaryDirectory()
os.environ.setdefault("CUDA_ON_CPU_CACHE", folder.name)
CACHE = Path(os.environ["CUDA_ON_CPU_CACHE"])


def environment(**variables):
    """The environment in which Python uses the fake driver, with these variables."""
    found = build.environment()
    return found | {"PYTHONPATH": os.pathsep.join([found["PYTHONPATH"], *sys.path])} | variables


def run_on_driver(code, **variables):
    """Run Python code on the fake driver, in a process of its own with these variables."""
    return _run([sys.executable, "-c", code], environment(**variables))


def run(*arguments, first=(), **variables):
    """Run this interpreter with these arguments and variables; first: a command that starts it."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
    return _run([*first, sys.executable, *map(str, arguments)], environment)


def _run(command, env):
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_SECONDS)
