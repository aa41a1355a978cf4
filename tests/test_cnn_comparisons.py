"""timing/gpu_comparisons.py: a convolutional net, trained on the CPU and on the GPU."""

import json
from dataclasses import replace

import numpy as np
import pytest
from executed import ENGINE_DEVICES, HAS_GPU, on_device
from gpu_arrays import capture_small_graphs

from cnn_gpu import cuda as cnn_cuda
from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.cuda import ConvCudaEngine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from experiments.running import data
from experiments.timing import connections, gpu_comparisons
from mlp_gpu import cuda as mlp_cuda


@pytest.fixture(scope="module")
def sample(digits):
    few = {"test_images": digits.test_images[:200], "test_labels": digits.test_labels[:200]}
    return replace(data.limit(digits, 300), **few)


@pytest.mark.parametrize(("n", "used"), [(5001, 5000), (60, 60)])
def test_net_3_of_2011_learns_from_5000_images_at_most(n, used, monkeypatch, sample):
    asked = []
    monkeypatch.setattr(gpu_comparisons, "ConvCudaEngine", lambda schedule: schedule)
    monkeypatch.setattr(gpu_comparisons, "compare_engines", lambda *how: asked.append(how))
    images = np.zeros((n, 29, 29), np.float32)
    many = replace(sample, train_images=images, train_labels=np.zeros(n, np.uint8))
    monkeypatch.setattr(gpu_comparisons, "judge_engines", lambda found: "judged")
    assert gpu_comparisons.check_cnn_engines(many) == "judged"
    ((dataset, network, cpu, graph, launch, make_peer),) = asked
    assert len(dataset.train_images) == len(dataset.train_labels) == used
    assert network.description == "20M5s1-60M5s1c50%-100M3c50%-150N"
    assert (network.source.n_neurons, network.n_classes) == (841, 10)
    assert (type(cpu), graph, launch) == (ConvCpuEngine, "graph", "launch")
    assert make_peer is connections.loops


class FasterCnn(ConvCpuEngine):
    """Trains with a learning rate that is too high by a thousandth."""

    def train(self, images, labels, order, eta, tick):
        return super().train(images, labels, order, 1.001 * eta, tick)


def compare_cnn(sample, graph, launch, description="6M5s1-8M5s1c50%-7N"):
    network = ConvNetwork.initial(description, Maps(1, 29, 29), 10, 0)
    engines = ConvCpuEngine(), graph, launch
    return gpu_comparisons.compare_engines(sample, network, *engines, connections.loops)


def test_the_same_convolutional_engine_passes(sample):
    found = compare_cnn(sample, ConvCpuEngine(), ConvCpuEngine())
    assert found["gpu_distance"] == found["output_difference"] == 0
    assert found["gpu_bit_equal"] is True
    assert 1e-8 < found["peer_distance"] < 1e-4
    assert found["gpu_errors"] == found["cpu_errors"]
    assert gpu_comparisons.judge_engines(found).passed
    json.dumps(found)


def test_another_learning_rate_of_a_convolutional_net_fails(sample):
    found = compare_cnn(sample, FasterCnn(), FasterCnn())
    assert 1e-4 < found["gpu_distance"] < 2e-3
    assert not gpu_comparisons.judge_engines(found).passed


@pytest.mark.parametrize("device", ENGINE_DEVICES)
def test_convolutional_nets_on_the_gpu_pass(device, sample, monkeypatch):
    """Few images where there is no GPU and the kernels are executed; the limits are the same."""
    n = 300 if HAS_GPU else 21
    test = {"test_images": sample.test_images[:n], "test_labels": sample.test_labels[:n]}
    few = replace(data.limit(sample, n), **test)
    for module in (cnn_cuda, mlp_cuda):
        monkeypatch.setattr(module, "PREDICT_BATCH", n)
    capture_small_graphs(monkeypatch)
    with on_device(device):
        found = compare_cnn(few, ConvCudaEngine("graph"), ConvCudaEngine("launch"))
    assert found["gpu_distance"] > 0
    assert gpu_comparisons.judge_engines(found).passed
