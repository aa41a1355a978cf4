"""Where a number comes from: commit, versions, machine, time."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from experiments.running import gpu_trial

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SOURCES = ("mlp_gpu", "deform_gpu", "cnn_gpu", "experiments", "pyproject.toml", "requirements.lock")
PACKAGES = ("numpy", "numba", "numba-cuda", "scipy", "h5py")
GPU_PACKAGES = (*PACKAGES, "cuda-bindings", "cuda-core")


def now() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def device(engine: str = "cpu") -> str:
    """What an engine computes on: the GPU's name, or the processor's and how many cores we have."""
    if engine == "cuda":
        from mlp_gpu import gpu  # imports numba

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


def lacks_multiply_add() -> bool:
    """Whether the processor has no fused multiply-add, of which the CPU engine's kernel is made."""
    from llvmlite import binding

    return not binding.get_host_cpu_features().get("fma", True)  # only x86 has it or has it not


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
    """The commit of this source tree and whether sources differ from it; 'unknown' without git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(REPOSITORY), *arguments]
        done = subprocess.run(command, capture_output=True, check=True)
        return os.fsdecode(done.stdout).strip()  # a folder's name may be no UTF-8

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() == REPOSITORY:
            changes = git("status", "--porcelain", "--", *SOURCES)
            return {"commit": git("rev-parse", "HEAD"), "dirty": bool(changes)}
    except (OSError, subprocess.CalledProcessError):
        pass  # no git, or not a clone
    return {"commit": "unknown", "dirty": True}


def collect(engine: str = "cpu") -> dict:
    """Everything about this process and its engine that a number should carry with it."""
    driver: str | None = None
    packages: Sequence[str] = PACKAGES
    if engine == "cuda":
        from mlp_gpu import gpu  # imports numba

        driver, packages = gpu.driver_version(), GPU_PACKAGES
    found = {
        **commit(),
        "argv": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "versions": versions(packages),
        "driver": driver,
        "platform": platform.platform(),
        "device": device(engine),
        "start": now(),
    }
    trial = gpu_trial.last_trial() if engine == "cuda" else None
    return found | ({"gpu_trial": asdict(trial)} if trial else {})


def peak_memory() -> int | None:
    """The most memory, in bytes, that this process has had resident; None where unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # bytes there, KiB on Linux


def columns(found: dict) -> dict[str, str]:
    """What `collect` found, as columns of a table: device, driver, versions, time, commit."""
    return {
        "device": found["device"],
        "driver": found.get("driver") or "",
        "versions": " ".join(f"{name}={version}" for name, version in found["versions"].items()),
        "date": found.get("end") or found["start"],
        "commit": found["commit"] + ("-dirty" if found["dirty"] else ""),
    }
