"""Wrong digits against seconds: on-line steps by our engine, mini-batches by other programs.

One net of 0.57 million weights learns the same deformed digits in the same order, on all cores, for
the same time. Of each way the setting is taken that has the fewest wrong of 10,000 training images
set aside; seeds after the first try that one alone. Deformation counts, evaluation does not.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from deepbig_runtime.errors import tell
from deform_gpu import TABLE1
from experiments.benchmarks import window
from experiments.datasets import data
from experiments.datasets.dataset import Dataset
from experiments.results.rows import RaceRow
from experiments.training.provenance import SourceColumns
from mlp_gpu.network import Network
from mlp_gpu.training import image_order

SIZES = 841, 512, 256, 10
SECONDS = 60.0  # of training and deforming
N_APART = 10_000  # training images to choose a setting by
SEEDS = (0, 1, 2)
LAST = 1 / 30  # of the learning rate that is left when the time is over; it falls with the time
MOMENTUM = np.float32(0.9)
WARM_UP_IMAGES = 256
PARTS = (1 / 4, 1 / 2, 1)  # of the time, for the table

ONLINE, NUMPY, TORCH = "on-line, engine cpu", "mini-batches, NumPy", "mini-batches, PyTorch"


@dataclass(frozen=True)
class Setting:
    """One way to train. eta: the learning rate at first. batch: images of a mini-batch."""

    way: str
    eta: float
    batch: int = 1

    def __str__(self) -> str:
        batches = f"batches of {self.batch}, momentum {MOMENTUM:g}, " * (self.batch > 1)
        return f"{batches}rate {self.eta:g}"


BATCHES = (0.01, 32), (0.02, 32), (0.03, 128), (0.06, 128)
CHOICES = {
    ONLINE: [Setting(ONLINE, eta) for eta in (2e-3, 3e-3, 5e-3)],
    **{way: [Setting(way, *one) for one in BATCHES] for way in (NUMPY, TORCH)},
}


class Learner(NamedTuple):
    """A net that learns.

    train(images, labels, order, eta): steps on images, float32 (n, 841), uint8 (n,), in this order.
    weights(): a matrix a layer, (n_in + 1, n_out), row 0 the biases.
    """

    train: Callable[[np.ndarray, np.ndarray, np.ndarray, float], object]
    weights: Callable[[], list[np.ndarray]]


def online(network: Network, batch: int) -> Learner:
    """Our engine: one image, one step."""
    from mlp_gpu.cpu import CpuEngine  # imports numba

    engine = CpuEngine()
    engine.set_network(network)
    return Learner(engine.train, lambda: engine.get_network().unpadded())


def numpy_batches(network: Network, batch: int) -> Learner:
    """Mini-batches with momentum in NumPy, whose BLAS has all threads."""
    weights = [W.copy() for W in network.unpadded()]
    steps = [np.zeros_like(W) for W in weights]

    def train(images: np.ndarray, labels: np.ndarray, order: np.ndarray, eta: float) -> None:
        for start in range(0, len(order), batch):
            now = order[start : start + batch]
            *states, a = forward(weights, images[now])
            delta = window.output_delta(a, labels[now]) / np.float32(len(now))
            for layer, h in reversed(list(enumerate(states))):
                W, step, own = weights[layer], steps[layer], delta
                if layer:
                    delta = (own @ W[1:].T) * window.slope(h)
                step *= MOMENTUM
                step[0] += own.sum(axis=0)
                step[1:] += h.T @ own
                W -= np.float32(eta) * step

    return Learner(train, lambda: weights)


def torch_batches(network: Network, batch: int) -> Learner:
    """Mini-batches with momentum in PyTorch."""
    import torch

    from experiments.benchmarks.baselines import torch_perceptron  # imports numba

    none = np.zeros((0, network.sizes[0]), np.float32)
    net = torch_perceptron(network, none)
    optimizer = torch.optim.SGD(net.model.parameters(), lr=0.0, momentum=float(MOMENTUM))

    def train(images: np.ndarray, labels: np.ndarray, order: np.ndarray, eta: float) -> None:
        optimizer.param_groups[0]["lr"] = eta
        inputs, classes = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))
        for now in torch.from_numpy(order).split(batch):
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(net.model(inputs[now]), classes[now]).backward()
            optimizer.step()

    return Learner(train, net.weights)


LEARNERS = {ONLINE: online, NUMPY: numpy_batches, TORCH: torch_batches}


def forward(weights: Sequence[np.ndarray], images: np.ndarray) -> list[np.ndarray]:
    """The inputs of each layer, (n, n_in), and the sums of the last one, (n, n_classes)."""
    states = [images]
    for W in weights[:-1]:
        states.append(window.activate(states[-1] @ W[1:] + W[0]))
    return [*states, states[-1] @ weights[-1][1:] + weights[-1][0]]


def wrong(weights: Sequence[np.ndarray], images: np.ndarray, labels: np.ndarray) -> int:
    """Wrong digits."""
    a = forward(weights, images.reshape(len(images), -1))[-1]
    return int((a.argmax(axis=1) != labels).sum())


def learn(dataset: Dataset, setting: Setting, seed: int) -> list[tuple[float, int, int]]:
    """Seconds, validation and test errors of each epoch of a net; the last ends about at SECONDS.

    dataset: with images set aside for validation.
    """
    from deform_gpu.batches import deform_set  # imports numba

    assert dataset.validation is not None
    x, labels, eta = dataset.train_images, dataset.train_labels, setting.eta
    deformed, n, network = np.empty_like(x), WARM_UP_IMAGES, Network.initial(SIZES, seed)
    images, make = deformed.reshape(len(x), -1), LEARNERS[setting.way]
    deform_set(deformed[:n], x[:n], labels[:n], TABLE1, seed, 1)
    make(network, setting.batch).train(images[:n], labels[:n], np.arange(n), eta)
    net, seconds, taken = make(network, setting.batch), 0.0, 0.0
    points: list[tuple[float, int, int]] = []
    while seconds + taken / 2 < SECONDS:
        done, started = len(points), time.perf_counter()
        deform_set(deformed, x, labels, TABLE1, seed, done + 1)
        order = image_order(len(labels), seed, done + 1)
        net.train(images, labels, order, eta * LAST ** (seconds / SECONDS))
        taken = time.perf_counter() - started
        seconds += taken
        test_set = dataset.test_images, dataset.test_labels
        validation_errors = wrong(net.weights(), *dataset.validation)
        points.append((seconds, validation_errors, wrong(net.weights(), *test_set)))
    return points


def measure(dataset: Dataset, source: SourceColumns) -> list[RaceRow]:
    """Train all nets, each way in a separate process; tells the progress.

    source: of the rows.
    """
    from experiments.benchmarks import baselines, processes

    split, found = data.split(dataset, N_APART, seed=0), []
    environment = processes.process_settings()[-1].environment
    for way, settings in CHOICES.items():
        if way == TORCH and baselines.import_error("torch"):
            continue
        tell(f"training, {SECONDS:g} s each time: {way} ...")
        with closing(processes.ConfiguredProcess(environment)) as process:
            train = partial(process.call, learn, split)
            first = {setting: train(setting, SEEDS[0]) for setting in settings}
            best = min(first, key=lambda setting: first[setting][-1][1])
            learnt = [(setting, SEEDS[0], points) for setting, points in first.items()]
            learnt += [(best, seed, train(best, seed)) for seed in SEEDS[1:]]
        for setting, seed, points in learnt:
            trained: dict[str, Any] = {"way": way, "setting": str(setting), "seed": seed}
            trained |= {"taken": setting == best, "source": source}
            for seconds, apart, test in points:
                errors = {"apart_errors": apart, "test_errors": test}
                found.append(RaceRow(seconds=seconds, **trained, **errors))
    return found


def curves(points: Sequence[RaceRow]) -> dict[str, list[list[RaceRow]]]:
    """The points of the settings that were taken, by way and then by seed."""
    found: dict[str, dict[int, list[RaceRow]]] = {}
    for point in points:
        if point.taken:
            found.setdefault(point.way, {}).setdefault(point.seed, []).append(point)
    return {way: list(seeds.values()) for way, seeds in found.items()}


def table(points: Sequence[RaceRow]) -> list[dict[str, str]]:
    """Wrong test digits of each way: the median, and the fewest and most, of its seeds."""
    lines = []
    for way, seeds in curves(points).items():
        lines.append({"way": way, "setting": seeds[0][0].setting, "seeds": str(len(seeds))})
        for part in PARTS:
            counts = [
                min(own, key=lambda point: abs(point.seconds - part * SECONDS)).test_errors
                for own in seeds
            ]
            text = f"{np.median(counts):.0f} ({min(counts)}-{max(counts)})"
            lines[-1][f"wrong after {part * SECONDS:.0f} s"] = text
    return lines
