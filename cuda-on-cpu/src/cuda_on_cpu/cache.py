"""Texts that take long to compile, kept in a folder for the next process.

Anybody who can write to the folder can run code as its reader: it must be private.
"""

import functools
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

COMPILERS = "numba", "llvmlite", "numba-cuda", "numba-cuda-mlir", "cuda-toolkit"


def named_cache() -> Path | None:
    """The folder that CUDA_ON_CPU_CACHE names; None without it."""
    name = os.environ.get("CUDA_ON_CPU_CACHE")
    return Path(name) if name else None


def cached_text(cache: Path | None, name: str, key: str, make: Callable[[], str]) -> str:
    """The text that `make` returns, or returned to an earlier process. Damaged files are remade.

    cache: an existing folder; None keeps nothing. name: the file's name begins with it. key:
    everything that the text depends on, except for Python, COMPILERS and this package.
    """
    if cache is None:
        return make()
    path = cache / f"{name}-{_sha256(_toolchain() + key)[:16]}.txt"
    with suppress(OSError, ValueError):  # missing or damaged
        digest, content = path.read_text(encoding="utf-8").split("\n", 1)
        if digest == _sha256(content):
            return content
    content = make()
    with suppress(OSError):
        _replace(path, f"{_sha256(content)}\n{content}")
    return content


def _replace(path: Path, text: str) -> None:
    """Write a file at once: processes may write the same one at the same time."""
    descriptor, part = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except OSError:
        os.unlink(part)
        raise


@functools.cache
def _toolchain() -> str:
    """Everything that each text depends on: versions, and the sources of this package."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return " ".join((sys.version, *map(_version, COMPILERS), digest))


def _version(package: str) -> str:
    """A package's version; none for one that is not installed."""
    with suppress(PackageNotFoundError):
        return version(package)
    return ""


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
