"""`deform`: deform uint8 or float images of any square size, on the CPU or on a GPU."""

import numpy as np

from deepbig_runtime import gpu
from deform_gpu import cuda
from deform_gpu.batches import deform_set
from deform_gpu.parameters import TABLE1, Deformation

DEVICES = ("cpu", "cuda")
HALF_WHITE = np.float32(127.5)  # a uint8 v stands for v / 127.5 - 1


def deform(
    images: np.ndarray,
    labels: np.ndarray | None = None,
    deformation: Deformation = TABLE1,
    seed: int = 0,
    epoch: int = 0,
    first: int = 0,
    device: str = "cpu",
    threads: int | None = None,
) -> np.ndarray:
    """Deformed copies of square images: affine and elastic together (2012 section 4).

    images: (n, side, side), uint8 or floats. Floats become float32, and are not checked to be
        finite. A uint8 v stands for v / 127.5 - 1 (2010 section 2), and results are rounded to the
        nearest uint8.
    labels: (n,) integers in 0..9, which choose beta. None, if all beta are equal.
    deformation: its lengths are in pixels of these images. The presets are made for 29x29. Pixels
        outside an image have the value of its background. That of the presets, -1, is the 0 of
        uint8; floats with another background need a deformation with that background.
    seed: 0..2**64 - 1. epoch: 0..2**32 - 1.
    first: the place of images[0] in the set. Places 0 to 99 are the first batch, and so on.
    device: "cpu", or "cuda" for a GPU.
    threads: how many threads a CPU uses. None for as many as numba would use.

    The result for the image at place i of a set is a function of (image, label, deformation, seed,
    epoch, i) alone. Neither the other images nor the number of threads change a bit of it, and with
    first=i that image can be deformed alone. A GPU gives the same result up to rounding: for images
    in [-1, 1] of 29x29 and the presets, less than 1e-5.

    Raises ValueError for any other input, and GpuFault if there is no GPU or if it has too little
    memory.
    """
    kind = getattr(images, "dtype", None)
    if not isinstance(images, np.ndarray) or not (kind == np.uint8 or images.dtype.kind == "f"):
        raise ValueError(
            f"images is {kind or type(images).__name__}; expected a NumPy array of uint8 or floats"
        )
    if device not in DEVICES:
        raise ValueError(f"device is {device!r}; expected one of {DEVICES}")
    source = np.ascontiguousarray(images, np.float32)
    if kind == np.uint8:
        source = source / HALF_WHITE - np.float32(1)
    if device == "cuda" and (reason := gpu.missing()):
        raise gpu.GpuFault(reason)
    if device == "cuda" and len(source):
        out = cuda.deform_set(source, labels, deformation, seed, epoch, first)
    else:
        out = np.empty_like(source)
        deform_set(out, source, labels, deformation, seed, epoch, first, threads)
    if kind == np.uint8:
        return np.rint((out + np.float32(1)) * HALF_WHITE).clip(0, 255).astype(np.uint8)
    return out
