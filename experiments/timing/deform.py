"""Time the deformation on the GPU: wholly there, and the papers' way.

By CUDA events where all is on the GPU already, as it is in training, and by the host's clock where
the host has a part in it. Everything works on more data than an L2 cache holds, so all is `cold`.
"""

import numpy as np

from deform_gpu import TABLE1
from deform_gpu.batches import BATCH
from deform_gpu.cuda import GpuSet
from deform_gpu.field import GRID, KERNEL, gaussian_weights
from deform_gpu.kernels import listing1, stages
from deform_gpu.philox import split_seed
from experiments.timing.gpu import Timer, Work, put_on_gpu
from mlp_gpu import gpu
from mlp_gpu.gpu import DeviceArray, Stream, play
from mlp_gpu.network import pad32

IMAGES = 60_000  # of an epoch
PART = 2000  # of them, whose fields are in memory together where each stage has a kernel
SEED, EPOCH = 0, 1


def whole_works(
    out: DeviceArray, images: np.ndarray, labels: np.ndarray, stream: Stream
) -> dict[str, Work]:
    """Deform all images into out: by a kernel a tile, and by a kernel a stage.

    out: float32 (n, side, side) on the GPU. images: the same on the host. labels: uint8 (n,).
    """
    there = GpuSet(images, labels, TABLE1, SEED, 0, stream)
    tiled = there.launches(out, EPOCH)
    part = min(PART, len(images))
    shapes = stages.scratch_shapes(-(-part // BATCH), images.shape[1])
    scratch = [gpu.device_array(shape, np.float32) for shape in shapes]
    key = (*split_seed(SEED), np.uint32(EPOCH))
    staged = tiled[:1]  # the matrices
    for first in range(0, len(images), part):
        own = slice(first, first + part)
        mine = out[own], there.images[own], there.matrices[own]
        staged += stages.displace(scratch, there.weights, TABLE1, key, first // BATCH)
        staged += stages.warp(*mine, scratch[2], TABLE1, first)
    return {
        "GPU, a kernel a tile": lambda stream: play(tiled, stream),
        "GPU, a kernel a stage": lambda stream: play(staged, stream),
    }


def field_works(n_batches: int, side: int, stream: Stream) -> dict[str, Work]:
    """Convolve the fields of some batches, y and x, and no more: by Listing 1, and separably.

    side: of the images that the fields are for, pixels.
    """
    rng, inner = np.random.default_rng(0), GRID * side
    shapes = stages.scratch_shapes(n_batches, side)
    scratch = [put_on_gpu(rng.uniform(-1, 1, shape).astype(np.float32), stream) for shape in shapes]
    weights = gaussian_weights(TABLE1.sigma)
    key = (np.uint32(0),) * 3  # of the first stage, which is left out
    separable = stages.displace(scratch, put_on_gpu(weights, stream), TABLE1, key, 0)[1:]

    padded = inner + KERNEL - 1
    field = rng.uniform(-1, 1, (padded, pad32(padded))).astype(np.float32)
    kernel = np.zeros((KERNEL, pad32(KERNEL)), np.float32)
    kernel[:, :KERNEL] = np.outer(weights, weights)
    out = gpu.device_array((inner, pad32(inner)), np.float32)
    listing = listing1.convolve(
        out, put_on_gpu(field, stream), put_on_gpu(kernel, stream), TABLE1.alpha, inner
    )
    return {
        "GPU, convolution by Listing 1": lambda stream: play(listing * 2 * n_batches, stream),
        "GPU, convolution separable": lambda stream: play(separable, stream),
    }


def measure(images: np.ndarray, labels: np.ndarray, timer: Timer, repeats: int) -> list[dict]:
    """Measurements, as `bench_report.row` takes them, of what is wholly on the GPU."""
    timer.wake()
    out = gpu.device_array(images.shape, np.float32)
    whole = whole_works(out, images, labels, timer.stream)
    fields = field_works(PART // BATCH, images.shape[1], timer.stream)
    n_images = dict.fromkeys(whole, len(images)) | dict.fromkeys(fields, PART)
    works = whole | fields
    us = {name: np.empty(repeats) for name in works}
    for repeat in range(repeats):
        for name, work in works.items():
            us[name][repeat] = timer(work, "cold") / n_images[name]
    return [
        {"group": "deformation", "name": name, "state": "cold", "us": us[name], "images": 1}
        for name in works
    ]
