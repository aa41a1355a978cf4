"""Time the deformation: ours on the CPU and on the GPU, its baselines, and the papers' way.

On the GPU whole, and its convolution alone, ours and Listing 1; by CUDA events: images and results
stay on the GPU, as they do in training. Everything works on more data than an L2 cache holds, so
the state is always `cold`.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from msgspec.structs import replace

from deepbig_runtime import gpu
from deepbig_runtime.errors import Problem, tell
from deepbig_runtime.gpu import DeviceArray, Stream, play
from deform_gpu import TABLE1
from deform_gpu.batches import BATCH, deform_set
from deform_gpu.cuda import GpuSet
from deform_gpu.field import GRID, KERNEL, gaussian_weights
from deform_gpu.kernels import listing1, stages
from deform_gpu.paper import PaperSet
from deform_gpu.philox import split_seed
from experiments.benchmarks import baselines, host
from experiments.benchmarks.columns import bench_row
from experiments.benchmarks.gpu_times import Enqueue, Timer, copy_to_gpu
from experiments.benchmarks.host import Workload, random_examples
from experiments.datasets import data
from experiments.results.rows import BenchRow
from experiments.training import provenance
from experiments.training.formatting import plural
from mlp_gpu.network import pad32

N_IMAGES = 60_000  # an epoch
# Images per call on the CPU: enough that its overhead does not count, few enough that it ends soon.
CPU_IMAGES, BASELINE_IMAGES = 6000, 600
IMAGES_PER_STAGE = 2000  # deformed together where each stage is a kernel: fields take memory
SEED, EPOCH = 0, 1


def whole_deformations(
    out: DeviceArray, images: np.ndarray, labels: np.ndarray, stream: Stream
) -> dict[str, Enqueue]:
    """Deform all images into out: by one kernel for a tile, and by one kernel for each stage.

    out: float32 (n, side, side) on the GPU. images: the same on the host. labels: uint8 (n,).
    """
    gpu_set = GpuSet(images, labels, TABLE1, SEED, 0, stream)
    tiled = gpu_set.launches(out, EPOCH)
    n_together = min(IMAGES_PER_STAGE, len(images))
    shapes = stages.scratch_shapes(-(-n_together // BATCH), images.shape[1])
    scratch = [gpu.device_array(shape, np.float32) for shape in shapes]
    key = (*split_seed(SEED), np.uint32(EPOCH))
    staged = tiled[:1]  # the matrices
    for first in range(0, len(images), n_together):
        some = slice(first, first + n_together)
        arrays = out[some], gpu_set.images[some], gpu_set.matrices[some]
        staged += stages.displace(scratch, gpu_set.weights, TABLE1, key, first // BATCH)
        staged += stages.warp(*arrays, scratch[2], TABLE1, first)
    return {
        "GPU, a kernel a tile": lambda stream: play(tiled, stream),
        "GPU, a kernel a stage": lambda stream: play(staged, stream),
    }


def field_convolutions(n_batches: int, side: int, stream: Stream) -> dict[str, Enqueue]:
    """Only convolve the fields of some batches, y and x: by Listing 1, and separably.

    side: of the images that the fields are for, in pixels.
    """
    rng, inner = np.random.default_rng(0), GRID * side
    shapes = stages.scratch_shapes(n_batches, side)
    scratch = [
        copy_to_gpu(rng.uniform(-1, 1, shape).astype(np.float32), stream) for shape in shapes
    ]
    weights = gaussian_weights(TABLE1.sigma)
    key = (np.uint32(0),) * 3  # of the first stage, which is left out
    separable = stages.displace(scratch, copy_to_gpu(weights, stream), TABLE1, key, 0)[1:]

    padded = inner + KERNEL - 1
    field = rng.uniform(-1, 1, (padded, pad32(padded))).astype(np.float32)
    kernel = np.zeros((KERNEL, pad32(KERNEL)), np.float32)
    kernel[:, :KERNEL] = np.outer(weights, weights)
    out = gpu.device_array((inner, pad32(inner)), np.float32)
    listing = listing1.convolve(
        out, copy_to_gpu(field, stream), copy_to_gpu(kernel, stream), TABLE1.alpha, inner
    )
    return {
        "GPU, convolution by Listing 1": lambda stream: play(listing * 2 * n_batches, stream),
        "GPU, convolution separable": lambda stream: play(separable, stream),
    }


def measure_on_gpu(
    images: np.ndarray, labels: np.ndarray, timer: Timer, repeats: int
) -> list[BenchRow]:
    """Rows of whole deformations and of convolutions on the GPU, per image.

    images: float32 (n, side, side). labels: uint8 (n,).
    """
    timer.wake()
    out = gpu.device_array(images.shape, np.float32)
    whole = whole_deformations(out, images, labels, timer.stream)
    fields = field_convolutions(IMAGES_PER_STAGE // BATCH, images.shape[1], timer.stream)
    n_images = dict.fromkeys(whole, len(images)) | dict.fromkeys(fields, IMAGES_PER_STAGE)
    works = whole | fields
    us = {name: np.empty(repeats) for name in works}
    for repeat in range(repeats):
        for name in list(us):
            try:
                us[name][repeat] = timer(works[name], "cold") / n_images[name]
            except Problem as reason:  # must not cost the measurements of everything else
                tell(f"{name} is left out: {reason}")
                del us[name]
    return [
        bench_row(times, group="deformation", name=name, state="cold", images=1)
        for name, times in us.items()
    ]


def measure(repeats: int, timer: Timer | None, on_cpu: bool = True) -> Iterator[BenchRow]:
    """Rows of the deformation: ours, the baselines', and the papers' division of work.

    timer: None without a GPU. on_cpu: whether the CPU is measured.
    """
    images, labels = random_examples(N_IMAGES if timer else CPU_IMAGES, data.SIDE**2)
    images = images.reshape(-1, data.SIDE, data.SIDE)
    some, few = slice(CPU_IMAGES), slice(BASELINE_IMAGES)
    out = np.empty_like(images[some])
    ours_on_cpu = partial(deform_set, out, images[some], labels[some], TABLE1, seed=0, epoch=1)

    def baseline_workloads(device: str, *examples: np.ndarray) -> dict[str, Workload]:
        makers = baselines.available("deformation", device)
        return baselines.workloads(makers, (*examples, TABLE1), len(examples[0]))

    if on_cpu:
        works = {
            f"CPU, {plural(n, 'thread')}": Workload(partial(ours_on_cpu, threads=n), CPU_IMAGES)
            for n in sorted({1, 2, provenance.cores()})
        }
        works |= baseline_workloads(baselines.CPU, images[few], labels[few])
        device = provenance.device("cpu")
        yield from (
            replace(row, ran_on=device) for row in host.measure("deformation", works, repeats)
        )
    if timer:

        def measure_others() -> list[BenchRow]:
            paper_set = PaperSet(images[some], labels[some], TABLE1, seed=0)
            paper = Workload(lambda: paper_set.deform(out, 1), len(out))
            works = {"Listing 1 on the GPU, the rest on the CPU": paper}
            works |= baseline_workloads(baselines.GPU, images[some], labels[some])
            return host.measure("deformation", works, repeats)

        ours = partial(measure_on_gpu, images, labels, timer, repeats)
        found = host.attempts([ours, measure_others])
        yield from (replace(row, ran_on=gpu.name()) for row in found)
