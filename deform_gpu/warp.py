"""The affine deformation, and the one interpolation that applies affine and elastic together.

Guess: a target pixel takes the value found at

    source = centre + M^-1 (target - centre - t) + displacement(target)

where M scales first and then rotates or shears, about the centre of the image, which is pixel
(14, 14) of 29x29, and t translates last. Positions are (y, x) in pixels, y pointing down. The code
computes

    source - target = (M^-1 - 1) (target - centre) - M^-1 t + displacement(target)

because small numbers have small rounding errors: so CPU and GPU agree. The affine part of an image
is the 2x3 matrix [M^-1, -M^-1 t], whose columns are y, x and 1.
"""

import math

import numpy as np

from deepbig_runtime.jit import njit
from deform_gpu.field import GRID
from deform_gpu.philox import PURPOSE_AFFINE, philox4x32, uniform

RADIANS = math.pi / 180
FRAME = 2  # pixels of background around an image: a position there has no other neighbours


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


def inverse_translation_formula(yy, yx, xy, xx, u4, u5, largest):
    """-M^-1 t as (y1, x1), pixels, float32, from M^-1 and two uniform numbers in [-1, 1).

    2011 section 4. u4 and u5 choose how far down and to the right the image moves, each from
    [-largest, largest]. largest: pixels. All arguments float32.
    """
    ty, tx = u4 * largest, u5 * largest
    return -(yy * ty + yx * tx), -(xy * ty + xx * tx)


def offset_formula(yy, yx, y1, xy, xx, x1, dy, dx, shift_y, shift_x):
    """Source minus target of a pixel, (down, right), float32.

    yy, yx, y1, xy, xx, x1: [M^-1, -M^-1 t]. dy, dx: target minus centre. shift_y, shift_x:
    displacement. All float32.
    """
    # Added here, y1 and x1 cost a GPU nothing, because products become fused multiply-adds; and
    # zeros change no bit.
    one = np.float32(1)
    down = (yy - one) * dy + (yx * dx + y1) + shift_y
    right = xy * dy + ((xx - one) * dx + x1) + shift_x
    return down, right


def bilinear_formula(image, row, column, down, right, background):
    """The value of image at (row + down, column + right); a neighbour outside it is background.

    image: (side, side) float32. row, column: integers, a pixel of it. down, right: float32.
    """
    side = image.shape[0]
    # False for NaN too, and it keeps the conversion to integers in range.
    if not (abs(down) <= np.float32(side) and abs(right) <= np.float32(side)):
        return background
    # The floor; math.floor would call the C library.
    below = np.int32(down) - np.int32(down < np.float32(np.int32(down)))
    beside = np.int32(right) - np.int32(right < np.float32(np.int32(right)))
    top, left = row + below, column + beside
    bottom, end = top + 1, left + 1
    if top >= 0 and left >= 0 and bottom < side and end < side:  # nearly always, and faster
        v00, v01 = image[np.uint32(top), np.uint32(left)], image[np.uint32(top), np.uint32(end)]
        v10 = image[np.uint32(bottom), np.uint32(left)]
        v11 = image[np.uint32(bottom), np.uint32(end)]
    else:
        has_top, has_bottom = 0 <= top < side, 0 <= bottom < side
        has_left, has_end = 0 <= left < side, 0 <= end < side
        v00 = image[top, left] if has_top and has_left else background
        v01 = image[top, end] if has_top and has_end else background
        v10 = image[bottom, left] if has_bottom and has_left else background
        v11 = image[bottom, end] if has_bottom and has_end else background
    fy = down - np.float32(below)
    fx = right - np.float32(beside)
    # In this form a fraction of 0 gives back v00 bit for bit.
    upper = v00 + fx * (v01 - v00)
    lower = v10 + fx * (v11 - v10)
    return upper + fy * (lower - upper)


# error_model="numpy": a division by zero gives infinity, as it does on a GPU.
inverse_affine = njit(inverse_affine_formula, error_model="numpy", inline="always")
inverse_translation = njit(inverse_translation_formula, inline="always")
offset = njit(offset_formula, inline="always")


@njit(nogil=True)
def draw_matrices(
    matrices, beta, gamma_x, gamma_y, shear_probability, largest, k0, k1, epoch, first
):
    """Draw [M^-1, -M^-1 t] of images first, first + 1, ..., first + n - 1 in an epoch.

    matrices: (n, 2, 3) float32, modified; rows are (y, x), columns (y, x, 1). beta: (n,) float32,
    the largest angle of each image, degrees. gamma_x, gamma_y: float32, percent.
    shear_probability: float32. largest: float32, the largest translation, pixels. k0, k1, epoch:
    uint32. first: integer.
    """
    zero, one, purpose = np.uint32(0), np.uint32(1), np.uint32(PURPOSE_AFFINE)
    for i in range(len(matrices)):
        image = np.uint32(first + i)
        w0, w1, w2, w3 = philox4x32(zero, image, epoch, purpose, k0, k1)
        w4, w5, _, _ = philox4x32(one, image, epoch, purpose, k0, k1)
        u0, u1, u2, u3 = uniform(w0), uniform(w1), uniform(w2), uniform(w3)
        yy, yx, xy, xx = inverse_affine(
            u0, u1, u2, u3, beta[i], gamma_x, gamma_y, shear_probability
        )
        y1, x1 = inverse_translation(yy, yx, xy, xx, uniform(w4), uniform(w5), largest)
        matrices[i, 0, 0] = yy
        matrices[i, 0, 1] = yx
        matrices[i, 0, 2] = y1
        matrices[i, 1, 0] = xy
        matrices[i, 1, 1] = xx
        matrices[i, 1, 2] = x1


@njit(nogil=True)
def warp_batch(out, images, matrices, displacement, place, background):
    """Deform images of one batch, which lie at places place, place + 1, ... of its grid.

    Place p is row p // 10 and column p % 10. out: (n, side, side) float32, modified. images: (n,
    side, side) float32. matrices: (n, 2, 3) float32, [M^-1, -M^-1 t]. displacement: (2, height,
    10 side) float32, y and x, pixels, of the grid or its upper rows. background: float32.

    The bits are those of `bilinear_formula` for each pixel. A frame of background around a copy of
    the image takes the place of its conditions, so that the loops over pixels vectorise, except the
    one that reads neighbours.
    """
    side = images.shape[1]
    centre = np.float32(side - 1) / np.float32(2)
    one, zero = np.float32(1), np.float32(0)
    first, last, far = np.float32(-FRAME), np.float32(side), np.float32(2 * side)
    framed = np.full((side + 2 * FRAME, side + 2 * FRAME), background)
    pixels, line = framed.ravel(), np.int32(side + 2 * FRAME)
    places, corner = np.empty(side * side, np.int32), np.int32(FRAME * line + FRAME)
    fy, fx, v00, v01, v10, v11 = np.empty((6, side * side), np.float32)
    for i in range(len(images)):
        framed[FRAME : FRAME + side, FRAME : FRAME + side] = images[i]
        yy, yx, y1 = matrices[i, 0, 0], matrices[i, 0, 1], matrices[i, 0, 2]
        xy, xx, x1 = matrices[i, 1, 0], matrices[i, 1, 1], matrices[i, 1, 2]
        first_row, first_column = (place + i) // GRID * side, (place + i) % GRID * side
        for row in range(side):
            shift_y = displacement[0, first_row + row, first_column : first_column + side]
            shift_x = displacement[1, first_row + row, first_column : first_column + side]
            of_row = slice(row * side, (row + 1) * side)
            row_places, row_fy, row_fx = places[of_row], fy[of_row], fx[of_row]
            y, dy = np.float32(row), np.float32(row) - centre
            for column in range(side):
                x = np.float32(np.int32(column))  # AVX2 converts no integers of 64 bits
                shift = shift_y[column], shift_x[column]
                down, right = offset(yy, yx, y1, xy, xx, x1, dy, x - centre, shift[0], shift[1])
                # False for NaN too.
                down = down if abs(down) <= last else far
                right = right if abs(right) <= last else far
                floor_y, floor_x = np.float32(np.int32(down)), np.float32(np.int32(right))
                floor_y -= one if down < floor_y else zero
                floor_x -= one if right < floor_x else zero
                row_fy[column], row_fx[column] = down - floor_y, right - floor_x
                top, left = min(max(y + floor_y, first), last), min(max(x + floor_x, first), last)
                row_places[column] = np.int32(np.int32(top) * line) + np.int32(left)
        for p in range(side * side):
            at = np.uint32(places[p] + corner)
            v00[p], v01[p] = pixels[at], pixels[at + np.uint32(1)]
            at += np.uint32(line)
            v10[p], v11[p] = pixels[at], pixels[at + np.uint32(1)]
        result = out[i].reshape(side * side)
        for p in range(side * side):
            upper = v00[p] + fx[p] * (v01[p] - v00[p])
            lower = v10[p] + fx[p] * (v11[p] - v10[p])
            result[p] = upper + fy[p] * (lower - upper)
