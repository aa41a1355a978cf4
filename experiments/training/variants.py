"""Variants of deformation that no option of a command offers: see `experiments.study`.

The name of a run's variant is in `Config.study`. Variants are trained on the CPU only; the
variants of the outputs are in `mlp_gpu.squared_error`.
"""

from collections.abc import Callable

import numpy as np

from deform_gpu.batches import BATCH, deform_set, make_displacement, make_matrices
from deform_gpu.field import GRID, MARGIN, convolve_field, gaussian_weights
from deform_gpu.parameters import SIDE, Deformation
from deform_gpu.warp import warp_batch
from mlp_gpu import random


def pad(pixels: np.ndarray) -> np.ndarray:
    """Images (n, k, k) amid zeros, not stretched: float32 (n, 29, 29).

    An odd row and column of zeros are below and on the right.
    """
    before = (SIDE - pixels.shape[1]) // 2
    around = before, SIDE - pixels.shape[1] - before
    return np.pad(pixels, ((0, 0), around, around)).astype(np.float32)


def deformer(
    variant: str, images: np.ndarray, labels: np.ndarray, deformation: Deformation, seed: int
) -> Callable[[int], np.ndarray]:
    """As `deform_gpu.epochs.deformer`, by a variant."""
    out = np.empty_like(images)
    side = SIDE - 1 if variant == "padded after" else SIDE

    def deform(epoch: int) -> np.ndarray:
        rng = random.generator(seed, random.VARIANTS, epoch)
        if variant == "padded after":
            inner = np.ascontiguousarray(images[:, :side, :side])
            deformed = np.empty_like(inner)
            deform_set(deformed, inner, labels, deformation, seed, epoch)
            out[:] = deformation.background
            out[:, :side, :side] = deformed
            return out
        if variant not in ("field an image", "field an epoch", "equal scaling", "fixed sizes"):
            deform_set(out, images, labels, deformation, seed, epoch)
            if variant == "a tenth undeformed":
                undeformed = rng.random(len(images)) < 0.1
                out[undeformed] = images[undeformed]
            return out
        matrices = make_matrices(labels, deformation, seed, epoch, side)
        if variant == "equal scaling":
            scale_y(matrices)
        if variant == "fixed sizes":
            fix_sizes(matrices, deformation.beta_of(labels, len(labels)), deformation)
        background, displacement = np.float32(deformation.background), None
        if variant == "field an epoch":
            displacement = tile(make_displacement(deformation, seed, epoch, 0, side), side)
        for start in range(0, len(images), BATCH):
            batch = slice(start, start + BATCH)
            if variant == "field an image":
                displacement = draw_apart(deformation, rng, side)
            elif variant != "field an epoch":
                displacement = make_displacement(deformation, seed, epoch, start // BATCH, side)
            warp_batch(out[batch], images[batch], matrices[batch], displacement, 0, background)
        return out

    return deform


def scale_y(matrices: np.ndarray) -> None:
    """Make the scale in y that in x. matrices: as `make_matrices` gives them; are modified.

    For rotations, whose two rows are as long as the inverse of their scale.
    """
    lengths = np.linalg.norm(matrices[:, :, :2], axis=2)
    matrices[:, 0] *= (lengths[:, 1] / lengths[:, 0])[:, None]


def fix_sizes(matrices: np.ndarray, beta: np.ndarray, deformation: Deformation) -> None:
    """Make angles and scales the largest ones, with the signs that they have. As `scale_y`.

    beta: the largest angle of each image, float32 (n,), degrees.
    """
    sizes = 1 / np.linalg.norm(matrices[:, :, :2], axis=2) - 1
    gammas = np.array([deformation.gamma_y, deformation.gamma_x], np.float32) / 100
    scales = 1 + np.copysign(gammas, sizes)
    angles = np.copysign(np.radians(beta), -matrices[:, 0, 1])
    matrices[:, 0, :2] = np.stack([np.cos(angles), -np.sin(angles)], axis=1) / scales[:, :1]
    matrices[:, 1, :2] = np.stack([np.sin(angles), np.cos(angles)], axis=1) / scales[:, 1:]


def tile(displacement: np.ndarray, side: int) -> np.ndarray:
    """The field of an image in the middle of a batch, for all images of it."""
    middle = slice(GRID // 2 * side, (GRID // 2 + 1) * side)
    return np.tile(displacement[:, middle, middle], (1, GRID, GRID))


def draw_apart(deformation: Deformation, rng: np.random.Generator, side: int) -> np.ndarray:
    """As `make_displacement`, but beyond an image its own random field is zero."""
    cell = side + 2 * MARGIN
    field = np.zeros((2, GRID, cell, GRID, cell), np.float32)
    inner = slice(MARGIN, MARGIN + side)
    field[:, :, inner, :, inner] = rng.uniform(-1, 1, (2, GRID, side, GRID, side))
    whole = field.reshape(2, GRID * cell, GRID * cell)
    weights, alpha = gaussian_weights(deformation.sigma), np.float32(deformation.alpha)
    smooth = np.empty((GRID * cell - 2 * MARGIN,) * 2, np.float32)
    places = (cell * np.arange(GRID)[:, None] + np.arange(side)).ravel()
    fields = []
    for axis in range(2):
        convolve_field(smooth, whole[axis], weights, alpha)
        fields.append(smooth[np.ix_(places, places)])
    return np.stack(fields)
