"""timing/cnn.py and timing/cnn_kernels.py: what of convolutional nets is timed, and how."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from executed import ENGINE_DEVICES
from timers import new_timer

from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from experiments.timing import ceilings, cnn, cnn_kernels, connections, host
from experiments.timing import gpu as gpu_timing
from experiments.timing.peers import Peer
from mlp_gpu import cuda as mlp_cuda


@pytest.fixture
def small():
    """Two convolutions and two fully connected layers."""
    return ConvNetwork.initial("3M3s1-4M2c2-5N", Maps(1, 9, 7), 10, 0)


def test_multiplications_and_additions(small):
    # 3 maps of 4x3 by 3x3 kernels; 4 of 3x2 by 2x2, each from two maps; 24 x 5; 5 x 10.
    forward = [3 * 12 * 9, 4 * 6 * 2 * 4, 24 * 5, 5 * 10]
    assert cnn.training_flops(small) == 2 * (3 * sum(forward) - forward[0])
    # Net 3 of the paper: 84,500 + 375,000 + 243,000 + 900 x 150 + 1,500.
    net3 = 84_500 + 375_000 + 243_000 + 135_000 + 1_500
    assert cnn.training_flops(cnn.initial(3)) == 2 * (3 * net3 - 84_500)


def test_image_processing_is_not_counted():
    network = ConvNetwork.initial("IP(sobel)-3M3", Maps(1, 9, 9), 10, 0)
    assert cnn.training_flops(network) == 2 * (
        2 * network.layers[1].n_multiply_adds + 3 * network.layers[2].n_multiply_adds
    )


def test_engine_peers_and_peak_are_measured(small, monkeypatch, capsys):
    def noted(*arguments):
        return replace(connections.loops(*arguments), note=" (slowly)")

    def idle(network, images, labels, eta):
        return Peer(lambda: None, lambda: list(network.weights))

    monkeypatch.setattr(host, "MIN_REPEAT_SECONDS", 0)
    monkeypatch.setattr(ceilings, "CALL_FLOPS", 10_000)
    monkeypatch.setattr(cnn.cnn_peers, "on_cpu", lambda: {"loops": noted, "idle": idle})
    found = cnn.measure_on_cpu(small, 7)
    assert [one.name for one in found] == ["engine cpu", "multiply-adds", "loops (slowly)"]
    assert "idle fails, so it is not measured: ValueError: it does not train the same net" in (
        capsys.readouterr().err
    )
    engine, peak, loops = found
    assert {one.group for one in found} == {"cnn"}
    assert all(one.us.shape == (7,) and (one.us > 0).all() for one in found)
    assert engine.flops == loops.flops == cnn.training_flops(small)
    assert (engine.n_images, peak.n_images, loops.n_images) == (1, None, 1)
    assert all((one.peak.us == peak.us).all() for one in found)
    assert engine.peak.flops == peak.flops > 0


def test_kernel_bytes(small):
    # Layer 2: 36 neurons to 24, 4 maps that read two of 3, kernels of 4.
    weights, tables = 8 * 4, 8
    assert cnn_kernels.kernel_bytes(small.layers[1]) == {
        "convolve_maps": 4 * (36 + weights + 4 + tables + 2 * 4 + 24),
        "pull_deltas": 4 * (24 + 36 + 36 + weights + 2 * tables + 3),
        "adjust_weights": 4 * (36 + 24 + 2 * (weights + 4) + 3 * tables),
    }


@pytest.fixture(params=ENGINE_DEVICES)
def timer(request):
    with new_timer(request.param) as timer:
        yield timer


def test_everything_on_the_gpu_is_measured(timer, small, monkeypatch):
    monkeypatch.setattr(mlp_cuda, "IMAGES_PER_TICK", 1)
    monkeypatch.setattr(host, "MIN_REPEAT_SECONDS", 0)
    monkeypatch.setattr(cnn.cnn_peers, "on_gpu", lambda: {"peer": connections.loops})
    monkeypatch.setattr(cnn, "GPU_PEER_IMAGES", 5)
    kernels = list(cnn_kernels.training_kernels(small, timer.stream))
    assert [(kernel.name, kernel.layer) for kernel in kernels] == [
        ("pick_image", 1),
        ("rows_to_maps", 1),
        ("convolve_maps", 1),
        ("adjust_weights", 1),
        ("convolve_maps", 2),
        ("pull_deltas", 2),
        ("adjust_weights", 2),
        ("maps_to_rows", 2),
        ("rows_to_maps", 2),
        ("forward_partial", 3),
        ("forward_reduce", 3),
        ("delta_partial", 3),
        ("delta_reduce", 3),
        ("update_weights", 3),
        ("forward_partial", 4),
        ("output_delta", 4),
        ("delta_partial", 4),
        ("delta_reduce", 4),
        ("update_weights", 4),
    ]
    sizes = {kernel.layer: (kernel.n_in, kernel.n_out) for kernel in kernels[2:7]}
    assert sizes == {1: (63, 36), 2: (36, 24)}
    assert [kernel.n_bytes for kernel in kernels[:2]] == [4 * 2 * 63] * 2
    assert kernels[9].flops == 2 * 25 * 5
    engine = cnn.ConvCudaEngine("launch")
    engine.set_network(small)
    images, labels = host.random_examples(1, 63)
    engine.train(images, labels, np.arange(1), 0.0)
    launched = [launch.kernel.py_func.__name__ for launch in engine.launches()]
    assert sorted(launched) == sorted(kernel.name for kernel in kernels)

    found = list(cnn.measure_on_gpu(small, timer, 1, kernel_by_kernel=True))
    assert all((one.us > 0).all() for one in found)
    whole = [one for one in found if one.group == "cnn"]
    assert [one.name for one in whole] == ["engine cuda graph", "engine cuda launch", "peer"]
    assert {one.flops for one in whole} == {cnn.training_flops(small)}
    assert whole[0].n_bytes == sum(kernel.n_bytes for kernel in kernels)
    by_kernel = [one for one in found if one.group == "cnn kernel"]
    assert len(by_kernel) == 2 * len(kernels)
    convolution = next(one for one in by_kernel if (one.name, one.layer) == ("convolve_maps", 2))
    assert (convolution.flops, convolution.copy.n_bytes) == (2 * 192, convolution.n_bytes)


def test_kernels_are_left_out_unless_asked_for(timer, small, monkeypatch):
    monkeypatch.setattr(mlp_cuda, "IMAGES_PER_TICK", 1)
    monkeypatch.setattr(cnn.cnn_peers, "on_gpu", dict)
    found = cnn.measure_on_gpu(small, timer, 1, kernel_by_kernel=False)
    assert [one.group for one in found] == ["cnn", "cnn"]


def test_kernels_that_cannot_be_timed_cost_nothing_else(small, monkeypatch, capsys):
    def late(*_arguments):
        raise gpu_timing.Problem("the host is too slow")

    monkeypatch.setattr(cnn, "training_kernels", lambda network, stream: [])
    monkeypatch.setattr(cnn, "ConvCudaEngine", lambda schedule: cnn.ConvCpuEngine())
    monkeypatch.setattr(cnn, "time_training", lambda *_: np.ones(7))
    monkeypatch.setattr(cnn, "measure_kernels", late)
    monkeypatch.setattr(cnn.cnn_peers, "on_gpu", dict)
    timer = SimpleNamespace(wake=lambda: None, stream=None)
    found = cnn.measure_on_gpu(small, timer, 7, kernel_by_kernel=True)
    assert [one.name for one in found] == ["engine cuda graph", "engine cuda launch"]
    assert "the host is too slow" in capsys.readouterr().err
