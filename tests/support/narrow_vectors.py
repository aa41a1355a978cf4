"""Run code that Numba compiles for a processor with narrower vectors than this one may have."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding

_BASE = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,-avx512f"
# Numba's name of a processor, the features that it compiles for, and the lanes of a vector then.
# Without fused multiply-add LLVM calls fmaf of the C library.
NARROWER = [
    pytest.param(("haswell", f"{_BASE},+avx,+avx2,+fma"), 8, id="avx2"),
    pytest.param(
        ("nehalem", f"{_BASE},-avx,-avx2,-fma"), 4, id="sse-without-fma", marks=pytest.mark.slow
    ),
]


def _has_avx2_and_fma() -> bool:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    features = binding.get_host_cpu_features()
    return bool(features.get("avx2") and features.get("fma"))


needs_avx2 = pytest.mark.skipif(
    not _has_avx2_and_fma(), reason="needs an x86-64 processor with AVX2 and FMA"
)


def printed_by(processor, code, folder):
    """The words that a process prints which runs `code`, compiled for a processor of NARROWER.

    folder: for its compiled code, which so does not displace the user's.
    """
    name, features = processor
    environment = {
        "NUMBA_CPU_NAME": name,
        "NUMBA_CPU_FEATURES": features,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XDG_CACHE_HOME": str(folder),
    }
    process = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return process.stdout.split()
