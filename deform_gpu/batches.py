"""Deform a set of images: the whole training set at the beginning of every epoch."""

from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np

from deform_gpu.field import (
    FIELD,
    GRID,
    INNER,
    SIDE,
    convolve_field,
    fill_field,
    gaussian_weights,
)
from deform_gpu.parameters import DIGITS, TABLE1, Deformation
from deform_gpu.philox import split_seed
from deform_gpu.warp import draw_matrices, warp_batch

BATCH = GRID * GRID  # images that share a displacement field


def deform(
    images: np.ndarray,
    labels: np.ndarray,
    deformation: Deformation = TABLE1,
    seed: int = 0,
    epoch: int = 0,
    out: np.ndarray | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """Deformed copies of images: affine and elastic together (2012 section 4).

    images: (n, 29, 29) float32, C order. labels: (n,) integers in 0..9; they choose beta.
    seed: 0..2**64 - 1. epoch: 0..2**32 - 1. out: (n, 29, 29) float32, C order, apart from images:
    modified and returned; made anew where None. threads: None for as many as numba would use.

    Image i is deformed as a function of (image, label, deformation, seed, epoch, i) alone: neither
    the number of images nor of threads changes a bit of it. Raises ValueError for any other input.
    """
    _check_images("images", images)
    if out is None:
        out = np.empty_like(images)
    _check_images("out", out)
    if out.shape != images.shape:
        raise ValueError(f"out has shape {out.shape}; expected that of images, {images.shape}")
    if not out.flags.writeable or np.may_share_memory(out, images):
        raise ValueError("out is read-only or overlaps images; expected memory of its own")
    if threads is None:
        threads = numba.config.NUMBA_NUM_THREADS
    if not threads >= 1:
        raise ValueError(f"threads is {threads}; expected at least 1")

    matrices = make_matrices(labels, deformation, seed, epoch)
    if len(matrices) != len(images):
        raise ValueError(f"{len(matrices)} labels for {len(images)} images; expected one each")
    background = np.float32(deformation.background)
    batches = -(-len(images) // BATCH)

    def work(worker):
        field, displacement = _make_scratch()
        for batch in range(worker, batches, threads):
            _fill_displacement(displacement, field, deformation, seed, epoch, batch)
            own = slice(batch * BATCH, (batch + 1) * BATCH)
            warp_batch(out[own], images[own], matrices[own], displacement, background)

    with ThreadPoolExecutor(threads) as executor:
        list(executor.map(work, range(min(threads, batches))))  # list() raises what work raised
    return out


def make_displacement(deformation: Deformation, seed: int, epoch: int, batch: int) -> np.ndarray:
    """The displacement field that `deform` gives images 100 * batch, ... , 100 * batch + 99.

    (2, 290, 290) float32, y and x, pixels; image i of the batch has rows 29 * (i // 10), ... and
    columns 29 * (i % 10), .... Raises ValueError for a seed or epoch out of range.
    """
    field, displacement = _make_scratch()
    _fill_displacement(displacement, field, deformation, seed, epoch, batch)
    return displacement


def make_matrices(
    labels: np.ndarray, deformation: Deformation, seed: int, epoch: int
) -> np.ndarray:
    """The matrices M^-1 (see warp.py) that `deform` gives images with these labels, from image 0.

    labels: (n,) integers in 0..9. Returns (n, 2, 2) float32, rows and columns (y, x). Raises
    ValueError for other labels, or for a seed or epoch out of range.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"labels are {labels.dtype} {labels.shape}; expected integers, (n,)")
    if len(labels) and not (labels.min() >= 0 and labels.max() < DIGITS):
        raise ValueError(
            f"labels run from {labels.min()} to {labels.max()}; expected 0 to {DIGITS - 1}"
        )
    matrices = np.empty((len(labels), 2, 2), np.float32)
    draw_matrices(
        matrices,
        np.array(deformation.beta, np.float32)[labels],
        np.float32(deformation.gamma_x),
        np.float32(deformation.gamma_y),
        np.float32(deformation.shear_probability),
        *split_seed(seed),
        _check_epoch(epoch),
    )
    return matrices


def _make_scratch():
    # Zeros: the margin of the random field, which nothing writes.
    return np.zeros((2, FIELD, FIELD), np.float32), np.empty((2, INNER, INNER), np.float32)


def _fill_displacement(displacement, field, deformation, seed, epoch, batch):
    fill_field(field, *split_seed(seed), _check_epoch(epoch), np.uint32(batch))
    weights = gaussian_weights(deformation.sigma)
    for axis in range(2):
        convolve_field(displacement[axis], field[axis], weights, np.float32(deformation.alpha))


def _check_images(name, array):
    if not isinstance(array, np.ndarray) or array.dtype != np.float32:
        kind = getattr(array, "dtype", type(array).__name__)
        raise ValueError(f"{name} is {kind}; expected a NumPy array of float32")
    if array.shape[1:] != (SIDE, SIDE) or not array.flags.c_contiguous:
        raise ValueError(
            f"{name} has shape {array.shape}, strides {array.strides}; "
            f"expected (n, {SIDE}, {SIDE}) in C order"
        )


def _check_epoch(epoch: int) -> np.uint32:
    if not 0 <= epoch < 2**32:
        raise ValueError(f"epoch is {epoch}; expected an integer from 0 to 2**32 - 1")
    return np.uint32(epoch)
