"""Every rung of the ladder against float64, as it was compiled."""

import numpy as np
import pytest
from executed import HAS_GPU, KERNEL_DEVICES, on_device
from ladder_cases import copy, epoch, moving

from deepbig_runtime import gpu
from mlp_gpu.ladder import arrays, cpu, formulas
from mlp_gpu.ladder import rung6_graph as graph
from mlp_gpu.ladder import rung7_one_kernel as one_kernel
from mlp_gpu.ladder.net import Net, black_and_white
from mlp_gpu.ladder.rungs import RUNGS

pytestmark = pytest.mark.gpu
HIDDEN = [10, 33, pytest.param(128, marks=[] if HAS_GPU else pytest.mark.slow)]
HIDDEN += [pytest.param(512, marks=pytest.mark.slow)]


def reference(net, images, labels, order):
    """W1, W2, V1, V2 after the same steps in float64."""
    W1, W2, V1, V2 = (W.astype(float) for W in net.arrays)
    eta, momentum = float(formulas.ETA), float(formulas.MOMENTUM)
    for image in order:
        h = images[image].astype(float)
        y1 = 1 / (1 + np.exp(-W1 @ h))
        y2 = 1 / (1 + np.exp(-W2 @ y1))
        delta2 = y2 * (1 - y2) * (np.eye(10)[labels[image]] - y2)
        delta1 = y1 * (1 - y1) * (W2.T @ delta2)
        V2 = momentum * V2 + eta * np.outer(delta2, y1)
        V1 = momentum * V1 + eta * np.outer(delta1, h)
        W2, W1 = W2 + V2, W1 + V1
    return W1, W2, V1, V2


def assert_close(found, expected, before):
    """Rounding stays far below what the steps changed; the images are few."""
    for V, W, old in zip(found, expected, before, strict=True):
        assert np.isfinite(V).all()
        assert np.linalg.norm(V - W) < 1e-5 * np.linalg.norm(W - old)


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("device", KERNEL_DEVICES)
@pytest.mark.parametrize("rung", RUNGS)
def test_a_rung_makes_the_references_steps(rung, device, hidden, monkeypatch):
    monkeypatch.setattr(graph, "IMAGES_PER_GRAPH", 3)  # two graphs and one image
    monkeypatch.setattr(one_kernel, "CHUNK", 4)  # two launches
    net, (images, labels, order) = moving(hidden), epoch()
    with on_device(device):
        stream = gpu.new_stream()
        there = arrays.put(net, images, labels, order, RUNGS[rung].TRANSPOSED, stream)
        RUNGS[rung].train(there, stream)
        found = arrays.read(there, stream)
        (step,) = gpu.read([there.step], stream)
    assert step == len(order)
    assert_close(found.arrays, reference(net, images, labels, order), net.arrays)


@pytest.mark.parametrize("hidden", [10, 33, 128])
def test_the_cpu_makes_the_references_steps(hidden):
    net, (images, labels, order) = moving(hidden), epoch()
    trained = copy(net)
    cpu.train(trained, images, labels, order)
    expected = reference(net, images, labels, order)
    assert_close(trained.arrays, expected, net.arrays)
    outputs = 1 / (1 + np.exp(-expected[1] @ (1 / (1 + np.exp(-expected[0] @ images.T)))))
    np.testing.assert_allclose(cpu.predict(trained, images), outputs.T, rtol=1e-4, atol=1e-6)


def test_weights_are_those_of_the_sequential_program():
    net = Net.initial(128, 0)
    assert net.W1.shape == (128, 784)
    assert net.W2.shape == (10, 128)
    np.testing.assert_allclose(np.unique(abs(net.W1)), np.arange(6) / 10, rtol=1e-6)
    np.testing.assert_allclose(np.unique(abs(net.W2)), np.arange(1, 11) / 100, rtol=1e-6)
    assert abs((net.W1 > 0).mean() - 5 / 12) < 0.01
    assert not net.V1.any()
    assert (Net.initial(128, 0).W1 == net.W1).all()
    assert (Net.initial(128, 1).W1 != net.W1).any()


@pytest.mark.parametrize("hidden", [9, 513])
def test_what_no_block_can_have_is_refused(hidden):
    with pytest.raises(ValueError, match=f"expected 10 to 512 neurons, got {hidden}"):
        Net.initial(hidden, 0)


def test_pixels_are_black_or_white():
    pixels = np.zeros((2, 28, 28), np.uint8)
    pixels[1, 27, 27], pixels[1, 0, 1] = 1, 255
    found = black_and_white(pixels)
    assert found.dtype == np.float32
    assert np.argwhere(found).tolist() == [[1, 1], [1, 783]]
    assert found.max() == 1
