"""Whether there is an NVIDIA driver, found out without numba, whose import takes half a second."""

import ctypes
import sys
from contextlib import suppress
from pathlib import Path

LIBRARIES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so", "libcuda.so.1")
MISSING = "there is no NVIDIA driver on this machine; install one"
PCI = Path("/sys/bus/pci/devices")
NVIDIA, DISPLAY = "0x10de", "0x03"  # vendor, and the first digits of the class


def is_missing() -> bool:
    """Whether the driver's library can be loaded under none of its names."""
    for library in LIBRARIES:
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return False
    return True


def finds_gpu() -> bool:
    """Whether an NVIDIA GPU is plugged in, with a driver or without. Linux alone says so."""
    for device in PCI.glob("*"):
        with suppress(OSError):
            vendor, kind = ((device / name).read_text() for name in ("vendor", "class"))
            if vendor.strip() == NVIDIA and kind.startswith(DISPLAY):
                return True
    return False
