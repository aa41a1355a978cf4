"""The affine deformation of each image, drawn on the GPU (2011 and 2012, section 4).

    matrices[i] = [M^-1, -M^-1 t] of the image at place first + i (see `deform_gpu.warp`)

matrices (n, 2, 3) and beta (n,) are float32. A thread draws the matrix of an image. Not in the
papers, which did this on the host.
"""

import numpy as np

from deepbig_runtime.gpu import DeviceArray, Launch, cuda, device_function
from deform_gpu import philox, warp
from deform_gpu.parameters import Deformation

THREADS = 128

philox4x32 = device_function(philox.philox4x32_formula)
uniform = device_function(philox.uniform_formula)
inverse_affine = device_function(warp.inverse_affine_formula)
inverse_translation = device_function(warp.inverse_translation_formula)


@cuda.jit
def draw_matrices(
    matrices, beta, gamma_x, gamma_y, shear_probability, largest, k0, k1, epoch, first
):
    i = np.uint32(cuda.grid(1))
    if i < matrices.shape[0]:
        purpose, image = np.uint32(philox.PURPOSE_AFFINE), np.uint32(first + i)
        w0, w1, w2, w3 = philox4x32(np.uint32(0), image, epoch, purpose, k0, k1)
        w4, w5, _, _ = philox4x32(np.uint32(1), image, epoch, purpose, k0, k1)
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


SIGNATURES = {
    draw_matrices: "void(float32[:, :, ::1], float32[::1], float32, float32, float32, "
    "float32, uint32, uint32, uint32, uint32)",
}


def draw(
    matrices: DeviceArray,
    beta: DeviceArray,
    deformation: Deformation,
    key: tuple[np.uint32, ...],
    first: int,
    side: int,
) -> list[Launch]:
    """Draw the matrices of images at places first, .... Modifies matrices.

    key: (k0, k1, epoch), uint32. side: of the images, pixels.
    """
    strengths = deformation.affine_strengths(side)
    arguments = (matrices, beta, *strengths, *key, np.uint32(first))
    blocks = -(-matrices.shape[0] // THREADS)
    return [Launch(draw_matrices, (blocks, 1), THREADS, arguments)]
