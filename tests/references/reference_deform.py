"""The deformations in float64, plain and slow, to compare deform_gpu with. Imports none of it."""

from functools import cache

import numpy as np
from scipy import ndimage, signal

GRID, MARGIN = 10, 10
WORD = 2**32 - 1


def philox(counter, key):
    """Philox4x32-10 as in Salmon et al. 2011: four words of any shape in, four out (uint64)."""
    c = [np.asarray(word, np.uint64) for word in counter]
    for i in range(10):
        k0, k1 = ((key[0] + i * 0x9E3779B9) & WORD, (key[1] + i * 0xBB67AE85) & WORD)
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (p1 >> 32) ^ c[1] ^ np.uint64(k0),
            p1 & WORD,
            (p0 >> 32) ^ c[3] ^ np.uint64(k1),
            p0 & WORD,
        ]
    return c


def uniform(words):
    """Words to numbers in [-1, 1)."""
    return np.floor(np.asarray(words, np.float64) / 2**8) / 2**23 - 1


def key_of(seed):
    return seed % 2**32, seed // 2**32


def random_field(seed, epoch, batch, side=29):
    """(2, 310, 310) where side is 29: y and x of every cell, zero in the margin."""
    inner = GRID * side
    index = np.arange(inner * inner // 2).reshape(inner // 2, inner)
    words = uniform(np.broadcast_arrays(*philox((index, batch, epoch, 0), key_of(seed))))
    field = np.empty((2, inner, inner))
    field[:, ::2], field[:, 1::2] = words[:2], words[2:]
    return np.pad(field, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))


def gaussian_kernel(sigma):
    """The full 21x21 kernel, normalised."""
    y, x = np.mgrid[-MARGIN : MARGIN + 1, -MARGIN : MARGIN + 1]
    kernel = np.exp(-((x / sigma) ** 2 + (y / sigma) ** 2) / 2)
    return kernel / kernel.sum()


@cache
def displacement(seed, epoch, batch, sigma, alpha, side=29):
    """(2, 290, 290) where side is 29, pixels."""
    kernel = gaussian_kernel(sigma)
    return np.array(
        [
            alpha * signal.convolve2d(axis, kernel, mode="valid")
            for axis in random_field(seed, epoch, batch, side)
        ]
    )


def affine(u, beta, gamma_x, gamma_y, shear_probability):
    """M, forward, acting on (y, x): scaling first, then rotation or shear."""
    angle = np.deg2rad(u[1] * beta)
    scale = np.diag([1 + u[3] * gamma_y / 100, 1 + u[2] * gamma_x / 100])
    if (u[0] + 1) / 2 < shear_probability:
        turn = np.array([[1, 0], [np.tan(angle), 1]])
    else:
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return turn @ scale


def affine_numbers(seed, epoch, image):
    """The four numbers in [-1, 1) that define the affine deformation of an image."""
    return uniform(philox((0, image, epoch, 1), key_of(seed)))


def translation(seed, epoch, image, percent, side):
    """How far an image is moved, down and to the right, pixels."""
    u = uniform(philox((1, image, epoch, 1), key_of(seed)))
    return percent / 100 * side * u[:2]


def warp(image, matrix, t, shift, background):
    """One image (side, side); matrix is M; t (2,), down and to the right; shift (2, side, side)."""
    side = len(image)
    centre = (side - 1) / 2
    target = np.indices((side, side)).reshape(2, -1) - centre - t[:, None]
    source = centre + np.linalg.solve(matrix, target).reshape(2, side, side) + shift
    # "grid-constant" and not "constant", which does not interpolate beyond the edge.
    return ndimage.map_coordinates(
        image.astype(np.float64), source, order=1, mode="grid-constant", cval=background
    )


def deform(images, labels, deformation, seed, epoch, first=0):
    """As deform_gpu.deform, in float64."""
    out = np.empty(images.shape)
    side = images.shape[1]
    fields = {}
    for i, image in enumerate(images, start=first):
        batch, place = divmod(i, 100)
        if batch not in fields:
            strengths = deformation.sigma, deformation.alpha
            fields[batch] = displacement(seed, epoch, batch, *strengths, side)
        row, column = np.array(divmod(place, GRID)) * side
        shift = fields[batch][:, row : row + side, column : column + side]
        matrix = affine(
            affine_numbers(seed, epoch, i),
            deformation.beta[labels[i - first]],
            deformation.gamma_x,
            deformation.gamma_y,
            deformation.shear_probability,
        )
        t = translation(seed, epoch, i, deformation.translation, side)
        out[i - first] = warp(image, matrix, t, shift, deformation.background)
    return out
