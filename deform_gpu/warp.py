"""The affine deformation, and the one interpolation that applies affine and elastic together.

Guess: a target pixel takes the value found at

    source = centre + M^-1 (target - centre) + displacement(target)

where M scales first and then rotates or shears, about the centre pixel (14, 14). Positions are
(y, x) in pixels, y pointing down.
"""

import math

import numba
import numpy as np

from deform_gpu.field import GRID, SIDE
from deform_gpu.philox import PURPOSE_AFFINE, philox4x32, uniform

CENTRE = SIDE // 2
RADIANS = math.pi / 180


def inverse_affine_formula(u0, u1, u2, u3, beta, gamma_x, gamma_y, shear_probability):
    """M^-1 as (yy, yx, xy, xx), float32, from four uniform numbers in [-1, 1).

    2012 section 4. u0 chooses shear or rotation, u1 the angle from [-beta, beta], u2 and u3 the
    horizontal and vertical scale from [1 - gamma/100, 1 + gamma/100]. A positive angle turns the
    image clockwise, or shears its lower half to the right, by tan(angle) times the height.
    beta: degrees. gamma_x, gamma_y: percent. All arguments float32.
    """
    angle = u1 * beta * np.float32(RADIANS)
    scale_x = np.float32(1) + u2 * gamma_x / np.float32(100)
    scale_y = np.float32(1) + u3 * gamma_y / np.float32(100)
    if u0 < np.float32(2) * shear_probability - np.float32(1):
        yy, yx = np.float32(1), np.float32(0)
        xy, xx = np.float32(-math.tan(angle)), np.float32(1)
    else:
        cosine, sine = np.float32(math.cos(angle)), np.float32(math.sin(angle))
        yy, yx = cosine, -sine
        xy, xx = sine, cosine
    return yy / scale_y, yx / scale_y, xy / scale_x, xx / scale_x


def bilinear_formula(image, y, x, background):
    """The value of image (29, 29) at (y, x), float32; each neighbour outside it is background."""
    # False for NaN too, and it keeps the conversion to integers in range.
    edge = np.float32(SIDE)
    if not (y > np.float32(-1) and y < edge and x > np.float32(-1) and x < edge):
        return background
    # The floor, above -1; math.floor would call the C library.
    top = np.int32(y) if y >= 0 else np.int32(-1)
    left = np.int32(x) if x >= 0 else np.int32(-1)
    v00 = image[top, left] if top >= 0 and left >= 0 else background
    v01 = image[top, left + 1] if top >= 0 and left < SIDE - 1 else background
    v10 = image[top + 1, left] if top < SIDE - 1 and left >= 0 else background
    v11 = image[top + 1, left + 1] if top < SIDE - 1 and left < SIDE - 1 else background
    fy = y - np.float32(top)
    fx = x - np.float32(left)
    # In this form a fraction of 0 gives back v00 bit for bit.
    upper = v00 + fx * (v01 - v00)
    lower = v10 + fx * (v11 - v10)
    return upper + fy * (lower - upper)


# error_model="numpy": a division by zero gives infinity, as it does on a GPU.
inverse_affine = numba.njit(inverse_affine_formula, error_model="numpy", inline="always")
bilinear = numba.njit(bilinear_formula, inline="always")


@numba.njit(nogil=True)
def draw_matrices(matrices, beta, gamma_x, gamma_y, shear_probability, k0, k1, epoch):
    """Draw M^-1 of images 0, 1, ..., n - 1 in an epoch.

    matrices: (n, 2, 2) float32, modified; rows and columns are (y, x). beta: (n,) float32, the
    largest angle of each image, degrees. gamma_x, gamma_y: float32, percent.
    shear_probability: float32. k0, k1, epoch: uint32.
    """
    zero, purpose = np.uint32(0), np.uint32(PURPOSE_AFFINE)
    for i in range(len(matrices)):
        w0, w1, w2, w3 = philox4x32(zero, np.uint32(i), epoch, purpose, k0, k1)
        u0, u1, u2, u3 = uniform(w0), uniform(w1), uniform(w2), uniform(w3)
        yy, yx, xy, xx = inverse_affine(
            u0, u1, u2, u3, beta[i], gamma_x, gamma_y, shear_probability
        )
        matrices[i, 0, 0] = yy
        matrices[i, 0, 1] = yx
        matrices[i, 1, 0] = xy
        matrices[i, 1, 1] = xx


@numba.njit(nogil=True)
def warp_batch(out, images, matrices, displacement, background):
    """Deform the images of one batch; image i lies in row i // 10, column i % 10 of the grid.

    out: (n, 29, 29) float32, n <= 100, modified. images: (n, 29, 29) float32. matrices: (n, 2, 2)
    float32, M^-1. displacement: (2, 290, 290) float32, y and x, pixels. background: float32.
    """
    for i in range(len(images)):
        image, result = images[i], out[i]
        yy, yx = matrices[i, 0, 0], matrices[i, 0, 1]
        xy, xx = matrices[i, 1, 0], matrices[i, 1, 1]
        first_row, first_column = i // GRID * SIDE, i % GRID * SIDE
        for row in range(SIDE):
            shift_y = displacement[0, first_row + row, first_column : first_column + SIDE]
            shift_x = displacement[1, first_row + row, first_column : first_column + SIDE]
            dy = np.float32(row - CENTRE)
            for column in range(SIDE):
                dx = np.float32(column - CENTRE)
                y = np.float32(CENTRE) + yy * dy + yx * dx + shift_y[column]
                x = np.float32(CENTRE) + xy * dy + xx * dx + shift_x[column]
                result[row, column] = bilinear(image, y, x, background)
