"""Where a number comes from: commit, versions, machine, time."""

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from experiments.training.validation import Device, Filled, Text, parse_time

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SOURCES = (
    "deepbig",
    "deepbig_runtime",
    "mlp_gpu",
    "deform_gpu",
    "cnn_gpu",
    "cuda-on-cpu/src",
    "experiments",
    "pyproject.toml",
    "requirements",
)
PACKAGES = ("numpy", "numba", "numba-cuda", "scipy", "h5py")
INSTALLED = "installed, version "  # in the place of a commit
UNKNOWN, DIRTY = "unknown", "-dirty"
TRUST = f"git config --global --add safe.directory {shlex.quote(str(REPOSITORY))}"
NO_COMMIT = (
    "git does not know the commit of these sources, so trainings of today cannot be recorded: "
    f"there is no git, no clone, or another user owns the clone, which is trusted by: {TRUST}"
)
CHANGED = "sources have uncommitted changes, so what is trained now cannot be recorded"
GPU_PACKAGES = (*PACKAGES, "cuda-bindings", "cuda-core")


class SourceColumns(Struct, kw_only=True):
    """A source as columns of a table.

    versions: name=version, with spaces between them. date: ISO 8601. commit: as `marked` gives it.
    """

    device: Device
    driver: Text = ""
    versions: Text = ""
    date: Filled
    commit: Filled

    def __post_init__(self) -> None:
        parse_time(self.date)


class Source(Struct, kw_only=True):
    """Where a number comes from.

    dirty: whether sources differ from the commit. argv: the command line. versions: of Python and
    of packages. vectors: floats in a vector register of the CPU that did the work. start, end: UTC,
    ISO 8601; end is None until the work is done. gpu_trial: of a self-test, in older runs.
    """

    commit: Text
    dirty: bool
    argv: list[str] | UnsetType = UNSET
    versions: dict[Text, Text]
    driver: Text | UnsetType | None = UNSET
    platform: str | UnsetType = UNSET
    device: Device
    vectors: Annotated[int, Meta(ge=1, le=1000)] | UnsetType = UNSET
    start: Text
    gpu_trial: dict | UnsetType = UNSET
    end: Text | None = None

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            text = getattr(self, name)
            if text is not None and parse_time(text).tzinfo is None:
                raise ValueError(f"{name} is {text!a:.80}, expected a time with its zone, ISO 8601")

    def ended(self) -> "Source":
        """The same at the end of the work, which is now."""
        return replace(self, end=now())

    def columns(self) -> SourceColumns:
        """The same as columns of a table."""
        return SourceColumns(
            device=self.device,
            driver=self.driver or "",
            versions=" ".join(f"{name}={version}" for name, version in self.versions.items()),
            date=self.end or self.start,
            commit=marked(self.commit, self.dirty),
        )


class Session(Source, kw_only=True):
    """A process that trained a run.

    schedule: how a GPU's kernels were launched. why: how the process ended, or "running".
    """

    engine: Text | UnsetType = UNSET
    schedule: Text | UnsetType | None = UNSET
    data_sha256: Text | UnsetType = UNSET
    end: Text | None
    why: Text
    peak_memory_bytes: Annotated[int, Meta(ge=0, le=2**62)] | UnsetType | None = UNSET


def now() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def device(engine: str = "cpu") -> str:
    """The name of an engine's device: the GPU's, or the processor's with its usable cores."""
    if engine == "cuda":
        from deepbig_runtime import gpu  # imports numba

        return gpu.name()
    name = platform.processor() or platform.machine()
    try:
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
        name = found[1] if found else name
    except OSError:
        pass  # not Linux
    return f"{name}, {cores()} cores"


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device_folder(name: str) -> Path:
    """Folder for the records of a device, as `device` names it: results/<device>."""
    return REPOSITORY / "results" / re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Python's and the packages' versions; a package that is not installed says so."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def commit() -> dict:
    """The commit of this source tree and whether sources differ from it, when first asked for.

    Later changes are not those of the code that this process has imported. Without git it is
    'unknown', and of an installed package it is the version.
    """
    return _commit(REPOSITORY)


@cache
def _commit(repository: Path) -> dict:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(repository), *arguments]
        done = subprocess.run(command, capture_output=True, check=True)
        return os.fsdecode(done.stdout).strip()  # a folder's name may be no UTF-8

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() == repository:
            changes = git("status", "--porcelain", "--", *SOURCES)
            return {"commit": git("rev-parse", "HEAD"), "dirty": bool(changes)}
    except (OSError, subprocess.CalledProcessError):
        pass  # no git, or not a clone
    if not (repository / "pyproject.toml").exists():
        with suppress(metadata.PackageNotFoundError):
            return {"commit": INSTALLED + metadata.version("deepbig"), "dirty": False}
    return {"commit": UNKNOWN, "dirty": True}


def marked(commit: str, dirty: bool) -> str:
    """A commit in one word, which ends in -dirty if sources differ from it."""
    return commit + (DIRTY if dirty else "")


def is_traced(commits: str) -> bool:
    """Whether sources are those of a commit; commits: one or several as `marked` gives them."""
    return DIRTY not in commits and INSTALLED not in commits


def commit_text(*commits: str) -> str:
    """Commits as `marked` gives them, for people: 'commit 0123456789ab with changes'."""
    names = [one.replace(UNKNOWN + DIRTY, UNKNOWN) for one in commits if INSTALLED not in one]
    shown = [one[:12] + (" with changes" if one.endswith(DIRTY) else "") for one in names]
    installed = [one for one in commits if INSTALLED in one]
    return ", ".join([f"commit {', '.join(shown)}"] * bool(shown) + installed)


def collect(engine: str = "cpu") -> Source:
    """Everything about this process and its engine that a number should carry with it."""
    driver: str | None = None
    packages: Sequence[str] = PACKAGES
    vectors: int | UnsetType = UNSET
    if engine == "cuda":
        from deepbig_runtime import gpu  # imports numba

        driver, packages = gpu.driver_version(), GPU_PACKAGES
    else:
        from mlp_gpu.vector_kernel import LANES  # imports numba

        vectors = LANES
    return Source(
        **commit(),
        argv=[Path(sys.argv[0]).name, *sys.argv[1:]],
        versions=versions(packages),
        driver=driver,
        platform=platform.platform(),
        device=device(engine),
        vectors=vectors,
        start=now(),
    )


def peak_memory() -> int | None:
    """The most memory, in bytes, that this process has had resident; None where unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # bytes there, KiB on Linux
