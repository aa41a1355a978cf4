"""Whether there is an NVIDIA driver, found out without numba, whose import takes half a second."""

import ctypes
import sys

LIBRARIES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so", "libcuda.so.1")
MISSING = "there is no NVIDIA driver on this machine; install one"


def is_missing() -> bool:
    """Whether the driver's library can be loaded under none of its names."""
    for library in LIBRARIES:
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return False
    return True
