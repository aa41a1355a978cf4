"""The rungs of the ladder: operations and accesses for an image, counted as executed; and times."""

import math
from collections.abc import Callable
from copy import deepcopy
from types import ModuleType

import numpy as np

from cuda_on_cpu import (
    Accesses,
    CompiledKernel,
    Executor,
    accesses,
    compile_kernel,
    device_array,
    float_operations,
)
from deepbig_runtime import gpu
from deepbig_runtime.compiled_cache import FOLDER
from deepbig_runtime.errors import Problem, tell
from deepbig_runtime.gpu import Launch
from experiments.benchmarks import baselines, gpu_times
from experiments.benchmarks.executor import execute, new_executor
from experiments.benchmarks.host import Workload, time_workloads
from experiments.benchmarks.window import weight_distance
from experiments.results.records import ProgramTime, RungKernel
from mlp_gpu.ladder import arrays, cpu, formulas
from mlp_gpu.ladder import rung6_graph as graph
from mlp_gpu.ladder import rung7_one_kernel as one_kernel
from mlp_gpu.ladder.arrays import Arrays
from mlp_gpu.ladder.net import Net
from mlp_gpu.ladder.rungs import RUNGS, SIGNATURES

CC = (9, 0)  # compute capability that is counted
GPU_IMAGES, CPU_IMAGES, NUMPY_IMAGES = 2000, 1000, 200  # of a repeat
COPY = "copy of all weights and velocities, GPU"
WORK_STEPS = 100  # of the one kernel, timed alone

Examples = tuple[np.ndarray, np.ndarray]  # images, float32 (n, 784), and labels, uint8 (n,)


def count_rungs(net: Net, examples: Examples) -> list[RungKernel]:
    """A row for each kernel of each rung: how it is launched, what it takes, what it does an image.

    examples: two at least.
    """
    rows: list[RungKernel] = []
    done: dict[Callable, list[dict]] = {}  # by what makes launches, which some rungs share
    for name, rung in RUNGS.items():
        if rung.launches not in done:
            done[rung.launches] = _count_rung(rung, net, examples)
        n_images = 1
        if rung in (graph, one_kernel):
            n_images = graph.IMAGES_PER_GRAPH if rung is graph else one_kernel.CHUNK
        first = {"rung": name, "images_a_launch": n_images}
        rows += [RungKernel(**first | row) for row in done[rung.launches]]
    return rows


def _count_rung(rung: ModuleType, net: Net, examples: Examples) -> list[dict]:
    executor = new_executor(CC, traced=True)
    steps = 2 if rung is one_kernel else 1
    there = _there(net, examples, steps, rung)
    launches = _launches(rung, there, steps)
    found = [_counts(executor, launch) for launch in launches]
    if rung is one_kernel:  # without what it does once a chunk
        once = _counts(executor, *_launches(rung, _there(net, examples, 1, rung), 1))
        found = [{key: n - once[key] for key, n in found[0].items()}]
    distance = _distance(net, examples, steps, there)
    rows = []
    for launch, counts in zip(launches, found, strict=True):
        kernel = compile_kernel(launch.kernel, SIGNATURES[launch.kernel], CC, FOLDER)
        threads = int(np.prod(launch.threads))
        row = {"kernel": kernel.name, "blocks": math.prod(launch.grid), "threads": threads}
        row |= {"registers": kernel.registers, "shared_bytes": kernel.shared_bytes}
        row |= {"spill_bytes": kernel.spill_store_bytes + kernel.spill_load_bytes}
        row |= {"warps": resident_warps(math.prod(launch.grid), threads, kernel)}
        rows.append(row | counts | {"distance": distance})
    return rows


def resident_warps(blocks: int, threads: int, kernel: CompiledKernel) -> int:
    """The most warps of a launch that a multiprocessor of compute capability 9.0 has at once.

    On paper: 64 warps, 32 blocks, 65,536 registers and 228 KiB of shared memory for it, 1 KiB of
    which each block takes for itself. 64 is all that it can have.
    """
    warps = -(-threads // gpu.WARP)
    registers = warps * gpu.WARP * (-(-kernel.registers // 8) * 8)
    fit = min(64 // warps, 32, 65536 // registers, 228 * 1024 // (kernel.shared_bytes + 1024))
    return min(blocks, fit) * warps


def _launches(rung: ModuleType, there: Arrays, steps: int) -> list[Launch]:
    return rung.launches(there, steps) if rung is one_kernel else rung.launches(there)


def _there(net: Net, examples: Examples, steps: int, rung: ModuleType) -> Arrays:
    """Arrays of the executor, for an epoch of some steps."""
    found = []
    for host in arrays.hosts(net, *examples, np.arange(steps), rung.TRANSPOSED):
        found.append(device_array(host.shape, host.dtype))
        found[-1].copy_to_device(np.ascontiguousarray(host))
    return Arrays(rung.TRANSPOSED, *found)


def _counts(executor: Executor, launch: Launch) -> dict[str, int]:
    launched = execute(executor, launch)
    found = accesses(launched)
    nothing = Accesses(0, 0, 0, 0, 0)
    counts = {"flops": float_operations(launched)}
    for kind in ("read", "write"):
        one = found.get(("global", kind), nothing)
        counts |= {f"{kind}_bytes": one.n_bytes, f"{kind}_segments": one.sectors}
    shared = [found.get(("shared", kind), nothing) for kind in ("read", "write")]
    counts["shared_accesses"] = sum(one.warps for one in shared)
    return counts | {"shared_passes": sum(one.passes for one in shared)}


def _distance(net: Net, examples: Examples, steps: int, there: Arrays) -> float:
    expected = deepcopy(net)
    cpu.train(expected, *examples, np.arange(steps))
    found = [array.content for array in (there.W1, there.W2, there.V1, there.V2)]
    moved = weight_distance(expected.arrays, net.arrays)
    own = [W.T if there.transposed else W for W in found]
    return weight_distance(own, expected.arrays) / moved


def time_on_cpu(net: Net, examples: Examples, repeats: int) -> list[ProgramTime]:
    """Times of the CPU's programs: ours and NumPy."""
    images, labels = examples
    on_cpu, order = deepcopy(net), np.arange(CPU_IMAGES) % len(labels)
    workloads = {
        "CPU engine": Workload(lambda: cpu.train(on_cpu, images, labels, order), CPU_IMAGES)
    }
    n = min(NUMPY_IMAGES, len(labels))
    for name, make in baselines.available("ladder", baselines.CPU).items():
        trainer = make(net, images[:n], labels[:n], float(formulas.ETA))
        workloads[name] = Workload(trainer.train, n)
    return _times(workloads, repeats)


def _times(workloads: dict[str, Workload], repeats: int) -> list[ProgramTime]:
    return [
        ProgramTime(name, us.tolist(), workloads[name].n_images or 1)
        for name, us in time_workloads(workloads, repeats).items()
    ]


def time_on_gpu(net: Net, examples: Examples, repeats: int) -> list[ProgramTime]:
    """Times of all rungs on the GPU, and of JAX where it is installed and sees it.

    Of a rung also work_us: of its kernels alone, each by itself between two events, its data in the
    L2 cache, less the time of an empty kernel; it is left out where the host is too slow for that.
    The last row is a copy on the GPU that reads and writes as much as a step must: all weights and
    velocities.
    """
    images, labels = (np.resize(x, (GPU_IMAGES, *x.shape[1:])) for x in examples)
    workloads = {
        name: Workload(_training(net, (images, labels), rung), GPU_IMAGES)
        for name, rung in RUNGS.items()
    }
    workloads |= baselines.workloads(
        baselines.available("ladder", baselines.GPU),
        (net, images, labels, float(formulas.ETA)),
        GPU_IMAGES,
    )
    rows = _times(workloads, repeats)
    timer = gpu_times.Timer()
    for row in rows:
        if row.name in RUNGS:
            rung = RUNGS[row.name]
            try:
                works = [_work_us(net, (images, labels), rung, timer) for _ in range(repeats)]
            except Problem as reason:  # must not cost the measurements of everything else
                tell(f"the kernels of {row.name} alone are not timed: {reason}")
            else:
                row.work_us = works
    n_bytes = 2 * sum(W.nbytes for W in net.arrays)
    copy = gpu_times.make_copier(n_bytes, timer.stream)(n_bytes)
    us = [timer(copy, "warm") for _ in range(repeats)]
    return [*rows, ProgramTime(COPY, us, 1)]


def _training(net: Net, examples: Examples, rung: ModuleType) -> Callable[[], None]:
    stream = gpu.new_stream()
    there = arrays.put(net, *examples, np.arange(len(examples[1])), rung.TRANSPOSED, stream)

    def train() -> None:
        gpu.fill([(there.step, np.zeros(1, np.int64))], stream)
        rung.train(there, stream)
        gpu.synchronize(stream)

    return train


def _work_us(net: Net, examples: Examples, rung: ModuleType, timer: gpu_times.Timer) -> float:
    steps = WORK_STEPS if rung is one_kernel else 1
    order = np.arange(gpu_times.N_STEPS) % len(examples[1])
    there = arrays.put(net, *examples, order, rung.TRANSPOSED, timer.stream)
    launches = _launches(rung, there, steps)
    empty = timer(Launch(gpu_times.empty_kernel, (1, 1), gpu.WARP, ()), "warm")
    return sum(max(0.0, timer(launch, "warm") - empty) for launch in launches) / steps
