"""Python programs on the fake driver, for tests."""

import os
import subprocess
import sys
from pathlib import Path

from waiting import HANG_SECONDS

from cuda_on_cpu.driver import build
from deepbig_runtime import compiled_cache

TESTS = Path(__file__).parent
DRIVER_TESTS = TESTS.parent / "cuda_on_cpu"


def environment(**variables):
    """The environment in which Python uses the fake driver, with these variables."""
    found = build.environment()
    found["PYTHONPATH"] += "".join(os.pathsep + str(folder) for folder in (TESTS, DRIVER_TESTS))
    cache = {"CUDA_ON_CPU_CACHE": str(compiled_cache.FOLDER)} if compiled_cache.FOLDER else {}
    return found | cache | variables


def run(code, **variables):
    """Run Python code on the fake driver, in a process of its own with these variables."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
