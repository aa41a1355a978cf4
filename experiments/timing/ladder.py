"""What each rung of the ladder does for an image, counted by executing it; and what is timed."""

import math
from collections.abc import Callable
from types import ModuleType

import numpy as np

from experiments.ptx import report
from experiments.ptx.device import Executor, device_array
from experiments.timing import compiled
from experiments.timing.host import Workload
from mlp_gpu import gpu
from mlp_gpu.gpu import Launch
from mlp_gpu.ladder import arrays, cpu, formulas, one_kernel
from mlp_gpu.ladder.arrays import Arrays
from mlp_gpu.ladder.net import N_OUTPUTS, Net
from mlp_gpu.ladder.rungs import RUNGS, SIGNATURES

CC = (9, 0)  # compute capability that is counted
GPU_IMAGES, CPU_IMAGES, NUMPY_IMAGES, PYTHON_IMAGES = 2000, 1000, 200, 20  # of a repeat

Examples = tuple[np.ndarray, np.ndarray]  # images, float32 (n, 784), and labels, uint8 (n,)


def copy_of(net: Net) -> Net:
    """A net that may be trained without changing this one."""
    return Net(*(W.copy() for W in net.arrays))


def count_rungs(net: Net, examples: Examples) -> list[dict]:
    """A row for each kernel of each rung: how it is launched, what it takes, what it does an image.

    examples: two at least. Bytes are those that the threads of the launch ask for; segments are the
    32 bytes each that its warps touch; passes are those over shared memory, as many as accesses of
    warps if there are no bank conflicts. distance: of the rung's weights from those of the CPU
    engine after the counted steps, relative to how far they moved.
    """
    rows: list[dict] = []
    done: dict[Callable, list[dict]] = {}  # by what makes launches, which some rungs share
    for name, rung in RUNGS.items():
        if rung.launches not in done:
            done[rung.launches] = _count_rung(rung, net, examples)
        rows += [{"rung": name} | row for row in done[rung.launches]]
    return rows


def _count_rung(rung: ModuleType, net: Net, examples: Examples) -> list[dict]:
    executor = Executor(CC, traced=True)
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
        kernel = compiled.compile_kernel(launch.kernel, SIGNATURES[launch.kernel], CC)
        row = {"kernel": kernel.name, "blocks": math.prod(launch.grid), "threads": launch.threads}
        row |= {"registers": kernel.registers, "shared_bytes": kernel.shared_bytes}
        row |= {"spill_bytes": kernel.spill_store_bytes + kernel.spill_load_bytes}
        rows.append(row | counts | {"distance": distance})
    return rows


def _launches(rung: ModuleType, there: Arrays, steps: int) -> list[Launch]:
    return rung.launches(there, steps) if rung is one_kernel else rung.launches(there)


def _there(net: Net, examples: Examples, steps: int, rung: ModuleType) -> Arrays:
    """Arrays of the executor, for an epoch of some steps."""
    found = []
    for host in arrays.hosts(net, *examples, np.arange(steps), rung.TURNED):
        found.append(device_array(host.shape, host.dtype))
        found[-1].copy_to_device(np.ascontiguousarray(host))
    return Arrays(rung.TURNED, *found)


def _counts(executor: Executor, launch: Launch) -> dict[str, int]:
    launched = executor.execute(launch)
    found = report.accesses(launched)
    nothing = report.Accesses(0, 0, 0, 0, 0)
    counts = {"flops": report.float_operations(launched)}
    for kind in ("read", "write"):
        one = found.get(("global", kind), nothing)
        counts |= {f"{kind}_bytes": one.n_bytes, f"{kind}_segments": one.segments}
    shared = [found.get(("shared", kind), nothing) for kind in ("read", "write")]
    counts["shared_accesses"] = sum(one.warps for one in shared)
    return counts | {"shared_passes": sum(one.passes for one in shared)}


def _distance(net: Net, examples: Examples, steps: int, there: Arrays) -> float:
    expected = copy_of(net)
    cpu.train(expected, *examples, np.arange(steps))
    found = (there.W1, there.W2, there.V1, there.V2)
    apart = moved = 0.0
    for array, W, before in zip(found, expected.arrays, net.arrays, strict=True):
        V = array.content.T if there.turned else array.content
        apart += float(((V - W) ** 2).sum(dtype=float))
        moved += float(((W - before) ** 2).sum(dtype=float))
    return math.sqrt(apart / moved)


def numpy_train(net: Net, images: np.ndarray, labels: np.ndarray) -> None:
    """The steps of `mlp_gpu.ladder.cpu.train` in NumPy, in order. Modifies the net."""
    eta, momentum, one = formulas.ETA, formulas.MOMENTUM, formulas.ONE
    for h, label in zip(images, labels, strict=True):
        y1 = one / (one + np.exp(-(net.W1 @ h)))
        y2 = one / (one + np.exp(-(net.W2 @ y1)))
        expected = np.zeros(N_OUTPUTS, np.float32)
        expected[label] = 1
        delta2 = y2 * (one - y2) * (expected - y2)
        delta1 = y1 * (one - y1) * (delta2 @ net.W2)
        for W, V, delta, state in ((net.W2, net.V2, delta2, y1), (net.W1, net.V1, delta1, h)):
            V *= momentum
            V += eta * delta[:, None] * state
            W += V


def python_train(
    W1: list, W2: list, V1: list, V2: list, images: list[list[float]], labels: list[int]
) -> None:
    """The steps of `mlp_gpu.ladder.cpu.train` in plain Python, as a sequential program has them.

    W1 to V2: lists of rows, modified.
    """
    eta, momentum = float(formulas.ETA), float(formulas.MOMENTUM)
    for h, label in zip(images, labels, strict=True):
        y1 = [formulas.sigmoid(sum(w * x for w, x in zip(row, h, strict=True))) for row in W1]
        y2 = [formulas.sigmoid(sum(w * x for w, x in zip(row, y1, strict=True))) for row in W2]
        delta2 = [formulas.output_delta(y, float(k == label)) for k, y in enumerate(y2)]
        delta1 = [
            formulas.slope(y) * sum(row[j] * d for row, d in zip(W2, delta2, strict=True))
            for j, y in enumerate(y1)
        ]
        for W, V, delta, state in ((W2, V2, delta2, y1), (W1, V1, delta1, h)):
            for w, v, d in zip(W, V, delta, strict=True):
                for i, x in enumerate(state):
                    v[i] = formulas.velocity(v[i], d, x, eta, momentum)
                    w[i] += v[i]


def workloads(net: Net, examples: Examples, on_gpu: bool) -> dict[str, Workload]:
    """What is timed: the CPU engine, NumPy, plain Python, and on a GPU every rung."""
    images, labels = (np.resize(x, (GPU_IMAGES, *x.shape[1:])) for x in examples)
    on_cpu, in_numpy = copy_of(net), copy_of(net)
    order, some, few = np.arange(CPU_IMAGES), slice(NUMPY_IMAGES), slice(PYTHON_IMAGES)
    lists = [W.tolist() for W in net.arrays] + [images[few].tolist(), labels[few].tolist()]
    found = {
        "CPU engine": Workload(lambda: cpu.train(on_cpu, images, labels, order), CPU_IMAGES),
        "NumPy": Workload(lambda: numpy_train(in_numpy, images[some], labels[some]), NUMPY_IMAGES),
        "plain Python": Workload(lambda: python_train(*lists), PYTHON_IMAGES),
    }
    if on_gpu:
        for name, rung in RUNGS.items():
            found[name] = Workload(_on_gpu(net, (images, labels), rung), GPU_IMAGES)
    return found


def _on_gpu(net: Net, examples: Examples, rung: ModuleType) -> Callable[[], None]:
    stream = gpu.new_stream()
    order = np.arange(len(examples[1]))
    there = arrays.put(net, *examples, order, rung.TURNED, stream)

    def train() -> None:
        gpu.fill([(there.step, np.zeros(1, np.int64))], stream)
        rung.train(there, stream)
        gpu.synchronize(stream)

    return train
