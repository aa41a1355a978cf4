"""Build the fake driver, and start programs on it."""

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from cuda_on_cpu.compile import missing_library, missing_toolkit

SOURCE = Path(__file__).parent / "source"
OPTIONS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]


def missing() -> str | None:
    """Why the fake driver cannot be built here, in a sentence; None if it can."""
    if compiler() is None:
        return "there is no C compiler"
    return missing_library("nvJitLink")


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


@functools.cache
def linker() -> str:
    """The path of NVIDIA's linker, to which the fake driver passes numba-cuda's calls."""
    from cuda import pathfinder

    return pathfinder.load_nvidia_dynamic_lib("nvJitLink").abs_path


@functools.cache
def library() -> Path:
    """The library, under the name of NVIDIA's. It is compiled if its source or OPTIONS changed."""
    sources = sorted(SOURCE.iterdir())
    parts = [
        " ".join((*OPTIONS, platform.machine())).encode(),
        *(path.read_bytes() for path in sources),
    ]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()
    found = _folder() / digest[:16] / "libcuda.so.1"
    if not found.exists():
        found.parent.mkdir(exist_ok=True)
        part = found.with_name(f"{os.getpid()}.so")
        files = [str(path) for path in sources if path.suffix == ".c"]
        subprocess.run([str(compiler()), *OPTIONS, "-o", str(part), *files], check=True)
        part.replace(found)  # at once, because several processes may compile it
    return found


def _folder() -> Path:
    """A folder for compiled code, which runs as this user."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cuda_on_cpu"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root


def environment() -> dict[str, str]:
    """The environment of this process, in which a new Python finds the fake driver."""
    paths = [str(SOURCE.parent / "start"), str(SOURCE.parents[2]), os.environ.get("PYTHONPATH")]
    kernels = _folder() / "kernels"
    kernels.mkdir(mode=0o700, exist_ok=True)
    found = {"CUDA_ON_CPU_CACHE": str(kernels)} | os.environ
    return found | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CUDA_ON_CPU_LIBRARY": str(library()),
        "CUDA_ON_CPU_NVJITLINK": linker(),
        # For caches of compiled kernels that are named by Numba's settings.
        "NUMBA_CUDA_ON_CPU": "1",
    }


def start(arguments: list[str]) -> None:
    """Replace this process by Python with these arguments, on the fake driver.

    Where there is none, ends the process with status 2 and a sentence.
    """
    reason = missing_toolkit() or missing()
    if arguments == sys.orig_argv[1:] and sys.flags.ignore_environment:
        reason = "it needs the environment, which Python's options -E and -I ignore; leave them out"
    if reason:
        print(f"error: there is no fake driver: {reason}", file=sys.stderr)
        sys.exit(2)
    os.execve(sys.executable, [sys.executable, *arguments], environment())
