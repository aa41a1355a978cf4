"""What tests of the deformation share: images, parameters at their extremes, derived tolerances."""

import dataclasses
from functools import cache

import numpy as np
import reference_deform as reference
from scipy import signal

from deform_gpu import COMMITTEE, TABLE1, Deformation

EPS = np.finfo(np.float32).eps
SEED = 2**40 * 77 + 5  # both halves of the key in use
IDENTITY = Deformation(sigma=5.5, alpha=0, beta=(0,) * 10, gamma_x=0, gamma_y=0)
BETAS = (15, 7.5, 45, 30, 1, 60, 20, 5, 10, 40)  # every digit another one


def make_images(n, side=29):
    """Noise in [-1, 1], in which no error of position hides, and labels."""
    rng = np.random.default_rng(n)
    return rng.uniform(-1, 1, (n, side, side)).astype(np.float32), rng.integers(0, 10, n)


MIXED = Deformation(5.5, 37, BETAS, 17.5, 30, translation=15)
EXTREMES = {
    "Table 1": TABLE1,
    "committee": COMMITTEE,
    "each digit its beta": MIXED,
    "sigma tiny": dataclasses.replace(MIXED, sigma=1e-3, alpha=0.7),
    "sigma large": dataclasses.replace(MIXED, sigma=50, alpha=300),
    "affine only": dataclasses.replace(MIXED, alpha=0),
    "elastic only": dataclasses.replace(MIXED, beta=(0,) * 10, gamma_x=0, gamma_y=0, translation=0),
    "shears only": dataclasses.replace(MIXED, beta=(45,) * 10, shear_probability=1),
    "rotations only": dataclasses.replace(MIXED, beta=(45,) * 10, shear_probability=0),
    "translation large": dataclasses.replace(IDENTITY, translation=99),
    "all strong": dataclasses.replace(MIXED, beta=(45,) * 10, gamma_x=50, gamma_y=50, alpha=90),
    "background": dataclasses.replace(MIXED, gamma_x=50, gamma_y=50, background=0.25),
}


@cache
def displacement_tolerance(epoch, batch, sigma, alpha, side=29):
    """As in the convolution's test: sqrt(n) * EPS * sum|terms|, and each weight rounded."""
    kernel = alpha * reference.gaussian_kernel(sigma)
    field = reference.random_field(SEED, epoch, batch, side)
    terms = np.array([signal.convolve2d(abs(axis), kernel, mode="valid") for axis in field])
    return (21 + 4) * EPS * terms


def inverse_affine_tolerance(u, beta, gamma_x, gamma_y, shear_probability):
    """Bound of the rounding errors of M^-1, entry by entry.

    The angle carries three roundings, so at most 2 EPS of itself, which a tangent amplifies by
    1 + tan^2; sine, cosine and tangent add an EPS; a scale is off by 2 EPS; then a division.
    """
    angle = np.deg2rad(abs(u[1] * beta))
    scale = np.array([1 + u[3] * gamma_y / 100, 1 + u[2] * gamma_x / 100])[:, None]
    inverse = np.linalg.inv(reference.affine(u, beta, gamma_x, gamma_y, shear_probability))
    turn = abs(inverse) * scale
    turn_error = EPS * (2 * angle * (1 + np.tan(angle) ** 2) + turn)
    return (turn_error + turn * 2 * EPS / scale) / scale + EPS * abs(inverse)


def affine_part(u, t, *strengths):
    """[M^-1, -M^-1 t], (2, 3) float64, and the bound of its rounding errors, entry by entry.

    u: the numbers of M. strengths: what `reference.affine` takes besides. A translation carries two
    roundings, and its product with M^-1 two more.
    """
    inverse = np.linalg.inv(reference.affine(u, *strengths))
    error = inverse_affine_tolerance(u, *strengths)
    column_error = error @ abs(t) + 2 * EPS * abs(inverse) @ abs(t)
    return np.column_stack((inverse, -inverse @ t)), np.column_stack((error, column_error))


def deform_tolerance(labels, deformation, epoch, first=0, side=29):
    """Error of the source position, times how steep an image can be, for every pixel."""
    n = len(labels)
    tolerance = np.empty((n, side, side))
    target = abs(np.indices((side, side)) - (side - 1) / 2)
    where = np.concatenate((target, np.ones((1, side, side))))  # y, x and 1
    for i in range(first, first + n):
        if i == first or i % 100 == 0:
            arguments = (epoch, i // 100, deformation.sigma, deformation.alpha)
            field = abs(reference.displacement(SEED, *arguments, side))
            field_error = displacement_tolerance(*arguments, side)
        row, column = np.array(divmod(i % 100, 10)) * side
        own = (slice(None), slice(row, row + side), slice(column, column + side))
        parameters = (
            reference.affine_numbers(SEED, epoch, i),
            reference.translation(SEED, epoch, i, deformation.translation, side),
            deformation.beta[labels[i - first]],
            deformation.gamma_x,
            deformation.gamma_y,
            deformation.shear_probability,
        )
        matrix, error = affine_part(*parameters)
        matrix_error = np.tensordot(error, where, 1)
        # Two products and three sums of these terms, and the matrix less one.
        less_one = abs(matrix) + np.eye(2, 3)
        rounding = 3 * EPS * (np.tensordot(less_one, where, 1) + field[own])
        # Neighbouring pixels in [-1, 1] differ by 2 at most. The rest as in the bilinear test.
        position_error = (field_error[own] + matrix_error + rounding).sum(axis=0)
        tolerance[i - first] = 2 * position_error + 10 * EPS
    return tolerance
