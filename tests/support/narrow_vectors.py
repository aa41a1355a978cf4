"""Run code that Numba compiles for a processor with narrower vectors than this one may have."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding

from deepbig_runtime import files
from experiments.benchmarks.narrow import AVX2, AVX2_LANES, SSE, environment

# A processor, and the lanes of its vectors. Without fused multiply-add LLVM calls fmaf of the C
# library.
NARROWER = [
    pytest.param(AVX2, AVX2_LANES, id="avx2"),
    pytest.param(SSE, 4, id="sse-without-fma", marks=pytest.mark.slow),
]


def _has_avx2_and_fma() -> bool:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    features = binding.get_host_cpu_features()
    return bool(features.get("avx2") and features.get("fma"))


needs_avx2 = pytest.mark.skipif(
    not _has_avx2_and_fma(), reason="needs an x86-64 processor with AVX2 and FMA"
)


def printed_by(processor, code):
    """The words that a process prints which runs `code`, compiled for a processor of NARROWER.

    Its compiled code has a folder of its own in the cache, and so does not displace the user's.
    """
    folder = files.cache_folder() / "narrow"
    folder.mkdir(parents=True, exist_ok=True)
    folders = {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(folder)}
    process = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(processor) | folders,
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return process.stdout.split()
