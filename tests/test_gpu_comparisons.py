"""timing/gpu_comparisons.py, where there is no GPU: CPU engines stand in for those compared."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from deepbig_runtime import gpu
from deform_gpu import COMMITTEE, TABLE1, deform
from experiments.running import data
from experiments.timing import gpu_comparisons, peers
from mlp_gpu import training
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import NETS, Network

SIZES = (841, 40, 20, 10)


@pytest.fixture(scope="module")
def sample(digits):
    few = {"test_images": digits.test_images[:200], "test_labels": digits.test_labels[:200]}
    return replace(data.limit(digits, 300), **few)


class Faster(CpuEngine):
    """Trains with a learning rate that is too high by a part `more`."""

    def __init__(self, more):
        super().__init__()
        self.more = more

    def train(self, images, labels, order, eta, tick):
        return super().train(images, labels, order, eta * (1 + self.more), tick)


class Odd(CpuEngine):
    """Differs in a single bit."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def get_network(self):
        network = super().get_network()
        if self.where == "padding":
            network.weights[1][-1, -1] = -0.0
        elif self.where == "weights":
            network.weights[0][3, 4] = np.nextafter(network.weights[0][3, 4], np.float32(1))
        return network

    def train(self, *arguments):
        loss = super().train(*arguments)
        return np.nextafter(loss, 9) if self.where == "loss" else loss

    def predict(self, images):
        outputs = super().predict(images)
        if self.where == "outputs" and len(images) == 200:
            outputs[7, 1] = np.nextafter(outputs[7, 1], np.float32(1))
        return outputs


class Watched(CpuEngine):
    """Writes down what it is trained on."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def train(self, images, labels, order, eta, tick):
        self.heard.append((images.copy(), labels, order, eta))
        return super().train(images, labels, order, eta, tick)


class Slow(CpuEngine):
    def train(self, *arguments):
        time.sleep(0.2)
        return super().train(*arguments)


def compare(sample, graph, launch):
    """Of a small perceptron."""
    network, engines = Network.initial(SIZES, 0), (CpuEngine(), graph, launch)
    return gpu_comparisons.compare_engines(sample, network, *engines, peers.numpy_loop)


def test_the_same_engine_passes(sample):
    found = compare(sample, CpuEngine(), CpuEngine())
    assert found["gpu_distance"] == found["output_difference"] == 0
    assert found["gpu_bit_equal"] is True
    assert 1e-8 < found["peer_distance"] < 1e-4
    assert found["gpu_errors"] == found["cpu_errors"]
    assert len(found["gpu_errors"]) == 3
    assert (found["data"], found["n_train"], found["n_test"]) == ("load_digits", 300, 200)
    result = gpu_comparisons.judge_engines(found)
    assert result.passed
    assert result.details is found
    json.dumps(found)


def test_the_seconds_of_each_epoch_are_kept(sample):
    found = compare(sample, Slow(), CpuEngine())
    assert len(found["gpu_seconds"]) == len(found["cpu_seconds"]) == 3
    assert min(found["gpu_seconds"]) >= 0.2


@pytest.mark.parametrize("more", [0.01, 1e-3])
def test_another_learning_rate_fails(sample, more):
    found = compare(sample, Faster(more), Faster(more))
    assert found["gpu_bit_equal"] is True
    assert more / 10 < found["gpu_distance"] < 2 * more
    assert found["output_difference"] > 0
    result = gpu_comparisons.judge_engines(found)
    assert not result.passed
    assert f"weights {found['gpu_distance']:.2g} apart" in result.text


def test_errors_are_those_of_the_engines(sample):
    found = compare(sample, Faster(30), Faster(30))
    same = compare(sample, CpuEngine(), CpuEngine())
    assert found["cpu_errors"] == same["cpu_errors"]
    assert found["gpu_errors"][-1] < 100 < found["cpu_errors"][-1]  # of 200
    assert not gpu_comparisons.judge_engines(found).passed


def test_distances_are_parts_of_the_way(sample, monkeypatch):
    monkeypatch.setattr(gpu_comparisons, "train_peer", lambda make, net, *_: peers.matrices(net))
    found = compare(sample, CpuEngine(), CpuEngine())
    assert found["peer_distance"] == 1  # it has not left


@pytest.mark.parametrize("where", ["weights", "padding", "loss", "outputs"])
def test_one_bit_between_the_schedules_fails(sample, where):
    found = compare(sample, CpuEngine(), Odd(where))
    assert found["gpu_bit_equal"] is False
    assert found["gpu_distance"] == 0
    result = gpu_comparisons.judge_engines(found)
    assert not result.passed
    assert result.text.endswith("two runs on the GPU NOT bit-equal")


def test_all_train_on_the_same_deformed_images(sample):
    graph, launch = Watched(), Watched()
    compare(sample, graph, launch)
    for epoch, (one, other) in enumerate(zip(graph.heard, launch.heard, strict=True), start=1):
        assert (one[0] == other[0]).all()
        assert (one[1] == sample.train_labels).all()
        assert (one[2] == training.image_order(300, 0, epoch)).all()
        assert one[3] == other[3] == 1e-3
        assert (one[0] != sample.train_images).any(axis=(1, 2)).all()
    assert len(graph.heard) == 3
    assert (graph.heard[0][0] != graph.heard[1][0]).any()


def test_distance():
    some = [np.array([[1, 2]], np.float32), np.array([3], np.float32)]
    others = [np.array([[4, 2]], np.float32), np.array([7], np.float32)]
    assert gpu_comparisons.weight_distance(some, others) == 5


def test_a_peer_makes_the_steps_of_the_engine(sample):
    network = Network.initial(SIZES, 0)
    epochs = {1: sample.train_images, 2: sample.train_images[:, ::-1].copy()}
    trained, rows = gpu_comparisons.train(CpuEngine(), network, sample, epochs.get, 2)
    weights = gpu_comparisons.train_peer(peers.numpy_loop, network, sample.train_labels, epochs)
    after = peers.matrices(trained)
    before = peers.matrices(network)
    assert gpu_comparisons.weight_distance(weights, after) < 1e-4 * gpu_comparisons.weight_distance(
        before, after
    )
    assert [row.eta for row in rows] == [1e-3, 1e-3]


MEASURED = {
    "data": "MNIST",
    "n_test": 10_000,
    "gpu_bit_equal": True,
    "gpu_distance": 2.9e-5,
    "peer_distance": 1e-5,
    "gpu_errors": [900, 320],
    "cpu_errors": [100, 300],
}


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        ({}, True),
        ({"gpu_distance": 3.1e-5}, False),
        ({"gpu_distance": float("nan")}, False),
        ({"gpu_errors": [900, 280]}, True),
        ({"gpu_errors": [900, 321]}, False),
        ({"gpu_errors": [900, 279]}, False),
        ({"gpu_bit_equal": False}, False),
    ],
)
def test_what_is_too_far_apart(change, passed):
    assert gpu_comparisons.judge_engines(MEASURED | change).passed == passed


@pytest.mark.parametrize(("n", "used"), [(5001, 5000), (60, 60)])
def test_net_1_learns_from_5000_images_at_most(n, used, monkeypatch, sample):
    asked = []
    monkeypatch.setattr(gpu_comparisons, "CudaEngine", lambda schedule: schedule)
    monkeypatch.setattr(
        gpu_comparisons, "compare_engines", lambda *how: asked.append(how) or MEASURED
    )
    images = np.zeros((n, 29, 29), np.float32)
    many = replace(sample, train_images=images, train_labels=np.zeros(n, np.uint8))
    assert gpu_comparisons.check_engines(many).passed
    ((dataset, *rest),) = asked
    assert len(dataset.train_images) == len(dataset.train_labels) == used
    network, cpu, graph, launch, make_peer = rest
    assert network.sizes == NETS[1]
    assert (type(cpu), graph, launch) == (CpuEngine, "graph", "launch")
    assert make_peer is peers.numpy_loop


@pytest.mark.parametrize(("difference", "passed"), [(0, True), (1e-5, True), (1.1e-5, False)])
def test_deformed_images_may_differ_by_rounding(sample, monkeypatch, difference, passed):
    asked = []

    def fake(images, labels, deformation, seed, epoch, device="cpu"):
        asked.append((len(images), seed, epoch, device))
        found = np.zeros(images.shape)
        if device == "cuda" and deformation is COMMITTEE:
            found[299, 28, 28] = -difference
        return found

    monkeypatch.setattr(gpu_comparisons, "deform", fake)
    result = gpu_comparisons.check_deformation(sample)
    assert result.passed == passed
    assert result.details == {"difference": difference, "repeats_bit_equal": True}
    assert set(asked) == {(300, 0, 1, "cpu"), (300, 0, 1, "cuda")}


def test_deformation_must_repeat_itself():
    assert gpu_comparisons.judge_deformation(3, 0.0, True).passed
    result = gpu_comparisons.judge_deformation(3, 0.0, False)
    assert not result.passed
    assert result.text == "3 images: 0 apart at most; repeats NOT bit-equal"
    assert not gpu_comparisons.judge_deformation(3, float("nan"), True).passed


class Event:
    """CUDA's, by a clock that each record moves on by a millisecond."""

    clock = 0

    def record(self, stream):
        Event.clock += 1
        self.at = Event.clock

    def elapsed_time(self, end):
        return end.at - self.at

    def synchronize(self):
        pass


class Before:
    """Deforms an epoch before it is asked for, on the CPU."""

    def __init__(self, dataset, deformation=TABLE1):
        self.events, self.asked = (Event(), Event()), []
        self.set = dataset.train_images, dataset.train_labels, deformation, 0

    def __call__(self, epoch):
        self.asked.append(epoch)
        for event in self.events:
            event.record(None)
        return deform(*self.set, epoch)


class Streaming(CpuEngine):
    stream = None


@pytest.fixture
def on_cpu(monkeypatch):
    """The CPU stands in for the GPU; returns what is deformed beforehand, and where."""
    asked = []

    def fake(images, labels, deformation, seed, epoch, device):
        asked.append((epoch, device))
        return deform(images, labels, deformation, seed, epoch)

    monkeypatch.setattr(gpu.cuda, "event", Event)
    monkeypatch.setattr(gpu_comparisons, "deform", fake)
    return asked


def test_training_on_images_deformed_meanwhile_is_compared(sample, on_cpu):
    ahead = Before(sample)
    found = gpu_comparisons.compare_ahead(sample, SIZES, Streaming(), CpuEngine(), ahead)
    assert ahead.asked == [1, 2, 3]
    assert on_cpu == [(n, device) for device in ("cuda", "cpu") for n in (1, 2, 3)]
    assert found["bit_equal"] is True
    assert found["cpu_distance"] == 0
    assert found["errors"] == found["cpu_errors"]
    assert len(found["errors"]) == 3
    timeline = {"deformation_begun": -2, "deformation_ended": -1, "trained": 1}
    assert found["timelines_ms"] == [timeline] * 2
    assert all(0 < seconds < 60 for seconds in found["waited_seconds"] + found["train_seconds"])
    json.dumps(found)


@pytest.mark.parametrize("stale", [1, 2, 3])
def test_one_epoch_of_other_images_is_seen(sample, on_cpu, stale):
    class Stale(Before):
        def __call__(self, epoch):
            return super().__call__(9 if epoch == stale else epoch)

    found = gpu_comparisons.compare_ahead(sample, SIZES, Streaming(), CpuEngine(), Stale(sample))
    assert found["bit_equal"] is False
    assert found["cpu_distance"] > 0


@pytest.mark.parametrize("n", [100, 300, 1000])
def test_few_images_come_again_until_they_are_many(sample, n, monkeypatch):
    asked = []
    monkeypatch.setattr(gpu_comparisons, "N_IMAGES", n)
    monkeypatch.setattr(gpu_comparisons, "DeformedAhead", lambda *given, **more: given)
    monkeypatch.setattr(gpu_comparisons, "WindowCudaEngine", lambda: None)
    monkeypatch.setattr(gpu_comparisons, "compare_ahead", lambda *given: asked.append(given))
    monkeypatch.setattr(gpu_comparisons, "judge_ahead", lambda found: None)
    gpu_comparisons.check_ahead(sample)
    ((dataset, _, _, _, (images, labels, *_)),) = asked
    assert images is dataset.train_images
    assert labels is dataset.train_labels
    assert len(images) == len(labels) == max(n, 300)
    for k in (0, 99, max(n, 300) - 1):
        np.testing.assert_array_equal(images[k], sample.train_images[k % 300])
        assert labels[k] == sample.train_labels[k % 300]


AHEAD = {
    "timelines_ms": [
        {"deformation_begun": -0.1, "deformation_ended": 2.0, "trained": 600.0},
        {"deformation_begun": 0.5, "deformation_ended": 2.5, "trained": 610.0},
    ],
    "waited_seconds": [0.9, 0.0001, 0.0009],
    "train_seconds": [0.6, 0.61, 0.62],
    "bit_equal": True,
    "errors": [500, 320],
    "cpu_errors": [600, 300],
    "n_test": 10_000,
}

SLOW = {"deformation_begun": 0.0, "deformation_ended": 500.0, "trained": 600.0}


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        ({}, True),
        ({"waited_seconds": [0.0, 0.0, 0.0011]}, False),  # more than half of 2 ms
        ({"timelines_ms": [SLOW] * 2, "waited_seconds": [0.0, 0.0, 0.006]}, True),
        ({"timelines_ms": [SLOW] * 2, "waited_seconds": [0.0, 0.0061, 0.0]}, False),
        ({"bit_equal": False}, False),
        ({"errors": [600, 321]}, False),
        ({"errors": [600, 279]}, False),
        ({"timelines_ms": [SLOW | {"deformation_ended": 600.1}] * 2}, False),
    ],
)
def test_a_deformation_that_training_waits_for_fails(change, passed):
    result = gpu_comparisons.judge_ahead(AHEAD | change)
    assert result.passed == passed
    if not change:
        assert result.text == (
            "deformed from 0.50 to 2.50 ms of 610 ms of training, which waited 0.90 ms; bit-equal "
            "to deforming before; 320 wrong, deformed on the CPU 300"
        )
