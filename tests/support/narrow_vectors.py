"""Run code that Numba compiles for a processor with narrower vectors than this one may have."""

import platform

import programs
import pytest
from llvmlite import binding

from deepbig_runtime import files

BASE = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,-avx512f"
# Numba's name of a processor and the features that it compiles for; the lanes of its vectors.
# Without fused multiply-add LLVM calls fmaf of the C library.
AVX2 = "haswell", f"{BASE},+avx,+avx2,+fma"
SSE = "nehalem", f"{BASE},-avx,-avx2,-fma"
NARROWER = [
    pytest.param(AVX2, 8, id="avx2"),
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
    name, features = processor
    variables = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    done = programs.run("-c", code, XDG_CACHE_HOME=str(folder), **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
