"""Whether there is an NVIDIA driver, found out without numba, whose import takes half a second.

As a program it prints which of pyproject.toml's extras has CUDA for that driver, or nothing.
"""

import ctypes
import sys
from contextlib import suppress
from pathlib import Path

LIBRARIES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so", "libcuda.so.1")
MISSING = "there is no NVIDIA driver on this machine; install one"
PCI = Path("/sys/bus/pci/devices")
NVIDIA, DISPLAY = "0x10de", "0x03"  # vendor, and the first digits of the class


def _load() -> ctypes.CDLL | None:
    """The driver's library, None if it can be loaded under none of its names."""
    for library in LIBRARIES:
        with suppress(OSError):
            return ctypes.CDLL(library)
    return None


def is_missing() -> bool:
    """Whether there is no driver's library."""
    return _load() is None


def cuda_extra() -> str:
    """The extra of pyproject.toml with the driver's version of CUDA; empty without a driver."""
    library, version = _load(), ctypes.c_int()
    if library is None or library.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return ""
    return "cu13" if version.value >= 13000 else "cu12"


def finds_gpu() -> bool:
    """Whether an NVIDIA GPU is plugged in, with a driver or without. Linux alone says so."""
    for device in PCI.glob("*"):
        with suppress(OSError):
            vendor, kind = ((device / name).read_text() for name in ("vendor", "class"))
            if vendor.strip() == NVIDIA and kind.startswith(DISPLAY):
                return True
    return False


if __name__ == "__main__":
    print(cuda_extra())
