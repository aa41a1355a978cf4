"""The stand-in for NVIDIA's driver, compiled."""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parent / "source"
OPTIONS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]


def missing() -> str | None:
    """Why the stand-in cannot be made here, in a sentence; None if it can."""
    if compiler() is None:
        return "there is no C compiler"
    return None if linker() else "there is no nvJitLink: pip install 'numba-cuda[cu12]'"


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


@functools.cache
def linker() -> str | None:
    """Where NVIDIA's linker is, which numba-cuda uses and the stand-in hands on to."""
    try:
        from cuda import pathfinder
    except ImportError:
        return None
    try:
        return pathfinder.load_nvidia_dynamic_lib("nvJitLink").abs_path
    except pathfinder.DynamicLibNotFoundError:
        return None


@functools.cache
def library() -> Path:
    """The library, under the name of NVIDIA's. It is compiled if its source changed."""
    sources = sorted(SOURCE.iterdir())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"standin-{os.getuid()}-{digest[:16]}"
    found = folder / "libcuda.so.1"
    if not found.exists():
        folder.mkdir(exist_ok=True)
        part = folder / f"{os.getpid()}.so"
        files = [str(path) for path in sources if path.suffix == ".c"]
        subprocess.run([compiler(), *OPTIONS, "-o", str(part), *files], check=True)
        part.replace(found)  # at once, because several processes may compile it
    return found


def environment() -> dict[str, str]:
    """The environment of this process, changed so that Python started in it uses the stand-in."""
    start = [str(SOURCE.parent / "start"), str(SOURCE.parents[1])]
    known = os.environ.get("PYTHONPATH")
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(start + ([known] if known else [])),
        "STANDIN_LIBRARY": str(library()),
        "STANDIN_NVJITLINK": str(linker()),
        # Compiled kernels are kept by all such variables: no GPU shall load what was made for it.
        "NUMBA_STANDIN": "1",
    }


def run(code: str, **variables: str) -> subprocess.CompletedProcess:
    """Run Python on the stand-in, in a process of its own with these variables."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment() | variables,
        capture_output=True,
        text=True,
        timeout=600,
    )
