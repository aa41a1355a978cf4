"""Deform a set of images on the CPU: the whole training set at the beginning of every epoch."""

import numba
import numpy as np

from deform_gpu.checks import check_epoch, check_images, check_integer, check_place
from deform_gpu.field import GRID, KERNEL, convolve_field, fill_field, gaussian_weights
from deform_gpu.parameters import Deformation
from deform_gpu.philox import split_seed
from deform_gpu.warp import draw_matrices, warp_batch
from mlp_gpu.team import share

BATCH = GRID * GRID  # images that share a displacement field


def deform_set(
    out: np.ndarray,
    images: np.ndarray,
    labels: np.ndarray | None,
    deformation: Deformation,
    seed: int,
    epoch: int,
    first: int = 0,
    threads: int | None = None,
) -> None:
    """Deform images on the CPU: affine and elastic together (2012 section 4).

    out, images: (n, side, side) float32, C order, without common memory; out is modified. The other
    arguments are those of `deform_gpu.deform`. Each thread needs 1,600 * side**2 bytes for the
    field of a whole batch, and less for a part of one. Raises ValueError for any other input.
    """
    check_images("images", images)
    check_images("out", out)
    if out.shape != images.shape:
        raise ValueError(f"out has shape {out.shape}; expected that of images, {images.shape}")
    if not out.flags.writeable or np.may_share_memory(out, images):
        raise ValueError("out is read-only or overlaps images; expected memory of its own")
    if threads is None:
        threads = numba.config.NUMBA_NUM_THREADS
    threads = check_integer("threads", threads, 1, 2**16)
    n, side = images.shape[:2]
    first = check_place(first, n)
    beta = deformation.beta_of(labels, n)
    matrices = _draw_matrices(beta, deformation, seed, epoch, first, side)
    background = np.float32(deformation.background)
    batches = range(first // BATCH, -(-(first + n) // BATCH))

    def work(worker: int) -> None:
        scratch = None
        for batch in batches[worker::threads]:
            begin, end = max(first, batch * BATCH), min(first + n, (batch + 1) * BATCH)
            place = begin - batch * BATCH
            # The rows of the grid that these images are in. No others are needed.
            top, bottom = place // GRID, -(-(end - batch * BATCH) // GRID)
            if scratch is None or scratch[1].shape[1] != (bottom - top) * side:
                scratch = _make_scratch(side, bottom - top)
            displacement = _fill_displacement(scratch, deformation, seed, epoch, batch, top)
            own = slice(begin - first, end - first)
            place -= top * GRID
            warp_batch(out[own], images[own], matrices[own], displacement, place, background)

    share(work, range(min(threads, len(batches))), threads)


def make_displacement(
    deformation: Deformation, seed: int, epoch: int, batch: int, side: int
) -> np.ndarray:
    """The displacement field of the images at places 100 * batch, ... , 100 * batch + 99 of a set.

    (2, 10 side, 10 side) float32, y and x, pixels; image i of the batch has rows side * (i // 10),
    ... and columns side * (i % 10), .... Raises ValueError for a seed or epoch out of range.
    """
    return _fill_displacement(_make_scratch(side, GRID), deformation, seed, epoch, batch, top=0)


def make_matrices(
    labels: np.ndarray, deformation: Deformation, seed: int, epoch: int, side: int
) -> np.ndarray:
    """The matrices [M^-1, -M^-1 t] of the images with these labels, at places 0, 1, ....

    labels: (n,) integers in 0..9. side: of the images, pixels. Returns (n, 2, 3) float32, rows
    (y, x), columns (y, x, 1) (see warp.py). Raises ValueError for other labels, or for a seed or
    epoch out of range.
    """
    beta = deformation.beta_of(labels, np.size(labels))
    return _draw_matrices(beta, deformation, seed, epoch, 0, side)


def _draw_matrices(
    beta: np.ndarray, deformation: Deformation, seed: int, epoch: int, first: int, side: int
) -> np.ndarray:
    matrices = np.empty((len(beta), 2, 3), np.float32)
    key = *split_seed(seed), check_epoch(epoch)
    draw_matrices(matrices, beta, *deformation.affine_strengths(side), *key, first)
    return matrices


def _make_scratch(side: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Arrays for the field and the displacement of some rows of the grid."""
    margins, inner = KERNEL - 1, GRID * side
    field = np.empty((2, rows * side + margins, inner + margins), np.float32)
    return field, np.empty((2, rows * side, inner), np.float32)


def _fill_displacement(
    scratch: tuple[np.ndarray, np.ndarray],
    deformation: Deformation,
    seed: int,
    epoch: int,
    batch: int,
    top: int,
) -> np.ndarray:
    """Displacement of the images in rows top, top + 1, ... of the grid; modifies scratch."""
    field, displacement = scratch
    side = displacement.shape[2] // GRID
    fill_field(field, top * side, *split_seed(seed), check_epoch(epoch), np.uint32(batch))
    weights, alpha = gaussian_weights(deformation.sigma), np.float32(deformation.alpha)
    for axis in range(2):
        convolve_field(displacement[axis], field[axis], weights, alpha)
    return displacement
