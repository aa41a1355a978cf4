"""Wrong digits against seconds: on-line steps by our engine, mini-batches by other programs.

One net of 0.57 million weights learns the same deformed digits in the same order, on as many
threads as there are cores, for the same time. Of the settings of each way the one with the fewest
wrong of 10,000 training images is taken, which are set aside; seeds after the first try that one
alone. Evaluation is not counted, the deformation is.
"""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from deform_gpu import TABLE1
from experiments.running import data
from experiments.running.dataset import Dataset
from experiments.running.messages import tell
from experiments.timing.peer_processes import PeerProcess, all_settings
from experiments.timing.peers import import_error, matrices, torch_perceptron
from mlp_gpu.activation import SLOPE, A, B
from mlp_gpu.network import Network
from mlp_gpu.training import image_order

SIZES = 841, 512, 256, 10
SECONDS = 60.0  # of training and deforming
N_APART = 10_000  # training images to choose a setting by
SEEDS = (0, 1, 2)
LAST = 1 / 30  # of the learning rate that is left at the end; it falls by the same factor an epoch
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
        if self.batch == 1:
            return f"rate {self.eta:g}"
        return f"batches of {self.batch}, momentum {MOMENTUM:g}, rate {self.eta:g}"


CHOICES = {
    ONLINE: [Setting(ONLINE, eta) for eta in (2e-3, 3e-3, 5e-3)],
    NUMPY: [Setting(NUMPY, *one) for one in ((0.01, 32), (0.02, 32), (0.03, 128), (0.06, 128))],
    TORCH: [Setting(TORCH, *one) for one in ((0.01, 32), (0.02, 32), (0.03, 128), (0.06, 128))],
}


class OnLine:
    """Our engine: one image, one step. Of each way:

    train(images, labels, order, eta): steps on images, float32 (n, 841), uint8 (n,), in this order.
    weights(): a matrix a layer, (n_in + 1, n_out), row 0 the biases.
    """

    def __init__(self, network: Network, batch: int):
        from mlp_gpu.cpu import CpuEngine  # imports numba

        self._engine = CpuEngine()
        self._engine.set_network(network)
        self.train = self._engine.train

    def weights(self) -> list[np.ndarray]:
        return self._engine.get_network().unpadded()


class NumPyBatches:
    """Mini-batches with momentum in NumPy, whose BLAS has all threads."""

    def __init__(self, network: Network, batch: int):
        self._weights, self._batch = matrices(network), batch
        self._steps = [np.zeros_like(W) for W in self._weights]

    def train(self, images: np.ndarray, labels: np.ndarray, order: np.ndarray, eta: float) -> None:
        for start in range(0, len(order), self._batch):
            now = order[start : start + self._batch]
            states = forward(self._weights, images[now])
            delta = states.pop()
            delta[np.arange(len(now)), labels[now]] -= 1
            delta /= np.float32(len(now))
            for W, step, h in zip(
                self._weights[::-1], self._steps[::-1], states[::-1], strict=True
            ):
                back = (delta @ W[1:].T) * SLOPE * (A - h) * (A + h)
                step *= MOMENTUM
                step[0] += delta.sum(axis=0)
                step[1:] += h.T @ delta
                W -= np.float32(eta) * step
                delta = back

    def weights(self) -> list[np.ndarray]:
        return self._weights


class TorchBatches:
    """Mini-batches with momentum in PyTorch."""

    def __init__(self, network: Network, batch: int):
        import torch

        none = np.zeros((0, network.sizes[0]), np.float32)
        net, self.weights = torch_perceptron(network, none, none[:, 0], 0.0, "cpu")
        self._torch, self._model, self._batch = torch, net.model, batch
        self._optimizer = torch.optim.SGD(net.model.parameters(), lr=0.0, momentum=float(MOMENTUM))

    def train(self, images: np.ndarray, labels: np.ndarray, order: np.ndarray, eta: float) -> None:
        torch = self._torch
        self._optimizer.param_groups[0]["lr"] = eta
        inputs, classes = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))
        for now in torch.from_numpy(order).split(self._batch):
            self._optimizer.zero_grad(set_to_none=True)
            outputs = self._model(inputs[now])
            torch.nn.functional.cross_entropy(outputs, classes[now]).backward()
            self._optimizer.step()


LEARNERS = {ONLINE: OnLine, NUMPY: NumPyBatches, TORCH: TorchBatches}


def forward(weights: Sequence[np.ndarray], images: np.ndarray) -> list[np.ndarray]:
    """What each layer reads, (n, n_in), and the class probabilities, (n, n_classes)."""
    states = [images]
    for W in weights[:-1]:
        states.append(A * np.tanh(B * (states[-1] @ W[1:] + W[0])))
    a = states[-1] @ weights[-1][1:] + weights[-1][0]
    y = np.exp(a - a.max(axis=1, keepdims=True))
    return [*states, y / y.sum(axis=1, keepdims=True)]


@dataclass(frozen=True)
class Point:
    """After an epoch of one net; a row of race.csv.

    taken: whether this setting was chosen of its way. seconds: of training and deforming so far.
    apart_errors, test_errors: wrong digits.
    """

    way: str
    setting: str
    seed: int
    taken: bool
    seconds: float
    apart_errors: int
    test_errors: int


def learn(
    dataset: Dataset, setting: Setting, seed: int, seconds: float
) -> list[tuple[float, int, int]]:
    """Train a new net for about `seconds` seconds. Returns the last three fields of each Point.

    dataset: with images set aside for validation. The first epoch says how many epochs there are.
    """
    from deform_gpu.batches import deform_set  # imports numba

    images, labels = dataset.train_images, dataset.train_labels
    assert dataset.validation is not None

    def new() -> Any:
        return LEARNERS[setting.way](Network.initial(SIZES, seed), setting.batch)

    deformed, n = np.empty_like(images), WARM_UP_IMAGES
    deform_set(deformed[:n], images[:n], labels[:n], TABLE1, seed, 1)
    new().train(deformed[:n].reshape(n, -1), labels[:n], np.arange(n), setting.eta)
    points: list[tuple[float, int, int]] = []
    net, spent, n_epochs = new(), 0.0, 1
    while len(points) < n_epochs:
        epoch = len(points) + 1
        eta = setting.eta * LAST ** ((epoch - 1) / max(1, n_epochs - 1))
        started = time.perf_counter()
        deform_set(deformed, images, labels, TABLE1, seed, epoch)
        order = image_order(len(labels), seed, epoch)
        net.train(deformed.reshape(len(labels), -1), labels, order, eta)
        spent += time.perf_counter() - started
        if epoch == 1:
            n_epochs = max(2, round(seconds / spent))
        apart, test = (
            int((forward(net.weights(), x.reshape(len(x), -1))[-1].argmax(axis=1) != y).sum())
            for x, y in (dataset.validation, (dataset.test_images, dataset.test_labels))
        )
        points.append((spent, apart, test))
    return points


class Training:
    """A training that a `PeerProcess` makes and runs. Takes the arguments of `learn`."""

    def __init__(self, *arguments: Any):
        self._arguments = arguments

    def learn(self) -> list[tuple[float, int, int]]:
        """As the function of this name."""
        return learn(*self._arguments)


def measure(dataset: Dataset) -> list[Point]:
    """Train all nets, each way in a process of its own; tells the progress."""
    apart, found = data.split(dataset, N_APART, seed=0), []
    for way, settings in CHOICES.items():
        if way == TORCH and import_error("torch"):
            continue
        tell(f"training, {SECONDS:g} s each time: {way} ...")
        with closing(PeerProcess(all_settings()[-1])) as process:
            learnt, best, tried = [], settings[0], list(product(SEEDS[:1], settings))
            while tried:
                seed, setting = tried.pop(0)
                process.ask(Training, "make", apart, setting, seed, SECONDS)
                learnt.append((setting, seed, process.ask(Training, "learn")))
                if not tried and seed == SEEDS[0]:
                    best = min(learnt, key=lambda one: one[2][-1][1])[0]
                    tried = list(product(SEEDS[1:], [best]))
        for setting, seed, points in learnt:
            found += [Point(way, str(setting), seed, setting == best, *one) for one in points]
    return found


def read(rows: Sequence[dict]) -> list[Point]:
    """The points in rows of race.csv, all text."""
    return [
        Point(
            row["way"],
            row["setting"],
            int(row["seed"]),
            row["taken"] == "True",
            float(row["seconds"]),
            int(row["apart_errors"]),
            int(row["test_errors"]),
        )
        for row in rows
    ]


def curves(points: Sequence[Point]) -> dict[str, list[list[Point]]]:
    """The points of the settings that were taken, by way and then by seed."""
    found: dict[str, dict[int, list[Point]]] = {}
    for point in points:
        if point.taken:
            found.setdefault(point.way, {}).setdefault(point.seed, []).append(point)
    return {way: list(seeds.values()) for way, seeds in found.items()}


def table(points: Sequence[Point]) -> list[dict[str, str]]:
    """Wrong test digits of each way: the median, and the fewest and most, of its seeds."""
    lines = []
    for way, seeds in curves(points).items():
        lines.append({"way": way, "setting": seeds[0][0].setting, "seeds": str(len(seeds))})
        for part in PARTS:
            wrong = [
                min(own, key=lambda point: abs(point.seconds - part * SECONDS)).test_errors
                for own in seeds
            ]
            counts = f"{np.median(wrong):.0f} ({min(wrong)}-{max(wrong)})"
            lines[-1][f"wrong after {part * SECONDS:.0f} s"] = counts
    return lines
