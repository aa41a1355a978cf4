"""The next image of the epoch, picked on the GPU.

    h = images[order[step]]

images (n, n_in) and h (n_in,) are float32, order int64 (m,) and step int64 (1,). The step counts
the images of the epoch; `output_delta` increases it. So an epoch needs nothing from the host, and a
CUDA graph, whose arguments are fixed, trains another image each time it is replayed.

A thread copies one pixel. Not in the papers.
"""

import numpy as np

from deepbig_runtime.gpu import DeviceArray, Launch, cuda

THREADS = 256


@cuda.jit
def pick_image(h, images, order, step):
    i = np.uint32(cuda.grid(1))
    if i < h.shape[0]:
        h[i] = images[np.uint32(order[np.uint32(step[0])]), i]


SIGNATURES = {
    pick_image: "void(float32[::1], float32[:, ::1], int64[::1], int64[::1])",
}


def pick(
    h: DeviceArray, images: DeviceArray, order: DeviceArray, step: DeviceArray
) -> list[Launch]:
    """Copy the image of this step into h. Modifies h."""
    blocks = -(-h.shape[0] // THREADS)
    return [Launch(pick_image, (blocks, 1), THREADS, (h, images, order, step))]
