"""The engines for convolutional nets against float64, which finite differences prove."""

from functools import cache, partial

import numpy as np
import pytest
import reference_cnn
from executed import ENGINE_DEVICES, HAS_GPU, on_device, places
from gpu_arrays import capture_small_graphs, count_bytes

from cnn_gpu import cpu, cuda
from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.cuda import ConvCudaEngine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork, weight_mask
from experiments.results import cnn_tables
from mlp_gpu import activation
from mlp_gpu import cpu as mlp_cpu
from mlp_gpu import cuda as mlp_cuda
from mlp_gpu.activation import A, B

ETA = float(np.float32(0.02))
ORDER = np.array([3, 1, 4, 1, 5, 0, 2])
NETS = {  # odd sizes and every kind of layer
    "convolution": ("3M3", Maps(1, 7, 9)),
    "one neuron": ("1N", Maps(1, 1, 1)),
    "skipping": ("3M3x2s1x2-4M2c2-5N", Maps(2, 11, 9)),
    "pooling": ("5M2-MP2x3-7M2c40%-MP2-6N", Maps(3, 11, 11)),
    "pooling first": ("MP2-4M3s1", Maps(1, 10, 10)),
    "image processing": ("IP(hat5+scharr)-4M3c6-MP2", Maps(2, 7, 8)),
    "image processing alone": ("IP(sobel)", Maps(1, 4, 3)),
    "fully connected": ("11N-7N", Maps(2, 3, 4)),
    "wide": ("33M5s2x1-65M3x2c32", Maps(1, 9, 11)),
    "kernels as large as maps": ("4M5-6M4x2", Maps(2, 6, 8)),
    "more than a block has threads": ("2M2-2M33", Maps(1, 36, 35)),
    "a single position, some connections": ("4M3-6M5c2", Maps(1, 7, 7)),
}
ENGINES = {
    "cpu": ConvCpuEngine,
    **{f"cuda {name}": partial(ConvCudaEngine, name) for name in mlp_cuda.SCHEDULES},
}


@pytest.fixture(params=places(ENGINES), ids=" on ".join)
def new_engine(request, monkeypatch):
    name, device = request.param
    capture_small_graphs(monkeypatch)
    for module in (mlp_cpu, cuda):
        monkeypatch.setattr(module, "PREDICT_BATCH", 4)
    with on_device(device):
        yield ENGINES[name]


def make(name):
    """A net with weights that do not saturate, float64 copies, images and labels."""
    description, source = NETS[name]
    network = ConvNetwork.initial(description, source, 3, 5)
    rng = np.random.default_rng(1)
    for layer, W, table in zip(network.layers, network.weights, network.connections, strict=True):
        if W is not None:
            W *= 30 / np.sqrt(len(W)) * weight_mask(layer, table)
    weights = [None if W is None else W.astype(float) for W in network.weights]
    images = rng.uniform(-1, 1, (6, source.height, source.width, source.n)).astype(np.float32)
    return network, weights, images, rng.integers(0, 3, 6).astype(np.uint8)


@pytest.fixture(params=NETS)
def net(request):
    return make(request.param)


def trained(engine, network, images, labels, order=ORDER, eta=ETA):
    engine.set_network(network)
    return engine, engine.train(images, labels, order, eta)


def distance(some, others):
    """Of two nets' weights, relative to the others."""
    pairs = [(W, V) for W, V in zip(some, others, strict=True) if V is not None]
    apart = np.sqrt(sum(((W - V) ** 2).sum() for W, V in pairs))
    return apart / np.sqrt(sum((V**2).sum() for _, V in pairs))


def test_the_references_gradient_is_that_of_finite_differences(net):
    network, weights, images, labels = net
    found = reference_cnn.gradients(network, weights, images[0], labels[0])
    rng, step = np.random.default_rng(2), 1e-6
    for layer, table, W, gradient in zip(
        network.layers, network.connections, weights, found, strict=True
    ):
        if W is None:
            assert gradient is None
            continue
        mask = weight_mask(layer, table)
        assert (gradient[~mask] == 0).all()
        places = np.argwhere(mask)
        for place in map(tuple, places[rng.permutation(len(places))[:12]]):
            kept, losses = W[place], []
            for sign in (1, -1):
                W[place] = kept + sign * step
                losses.append(reference_cnn.loss(network, weights, images[0], labels[0]))
            W[place] = kept
            difference = (losses[0] - losses[1]) / (2 * step)
            assert difference == pytest.approx(gradient[place], rel=1e-5, abs=1e-8)


trained_reference = cache(lambda name: reference_cnn.train(*make(name), ORDER, ETA))


@pytest.mark.parametrize("name", NETS)
def test_a_training_is_the_references(new_engine, name):
    network, weights, images, labels = make(name)
    expected, expected_loss = trained_reference(name)
    engine, loss = trained(new_engine(), network, images, labels)
    found = engine.get_network()
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    # What is trained is some tenths of the weights: rounding stays a thousand times below.
    assert distance(weights, expected) > 1e-3
    assert distance(found.weights, expected) < 1e-6
    for layer, table, W in zip(network.layers, network.connections, found.weights, strict=True):
        assert W is None or (W[~weight_mask(layer, table)] == 0).all()
    outputs = [reference_cnn.forward(network, expected, image)[1] for image in images]
    np.testing.assert_allclose(engine.predict(images), outputs, rtol=1e-4, atol=1e-6)


def test_states_are_those_of_the_reference(net):
    network, weights, images, _ = net
    engine = ConvCpuEngine()
    engine.set_network(network)
    for image in (images[1], images[2].ravel()):
        *expected, _ = reference_cnn.forward(network, weights, image)[0]
        *found, outputs = engine.states(image)
        for state, maps in zip(found, expected, strict=True):
            np.testing.assert_allclose(state, maps.transpose(1, 2, 0), rtol=1e-4, atol=1e-5)
        assert outputs.tobytes() == engine.predict(image[None]).tobytes()
        assert outputs.shape == (1, 1, 3)
    with pytest.raises(ValueError, match="expected float32 images"):
        engine.states(images[0, 1:])


def test_the_same_input_gives_the_same_bits_whatever_came_before(new_engine, net, monkeypatch):
    network, _, images, labels = net
    engine, loss = trained(new_engine(), network, images, labels)
    for module in (cpu, mlp_cuda):
        monkeypatch.setattr(module, "IMAGES_PER_TICK", 3)
    ticks = []
    again = new_engine()
    again.set_network(network)
    for part in (ORDER[:2], ORDER[2:]):
        flat = images.reshape(len(images), -1)
        again.train(flat, labels, part, ETA, lambda *done: ticks.append(done))
    for W, V in zip(engine.get_network().weights, again.get_network().weights, strict=True):
        assert W is None or W.tobytes() == V.tobytes()
    assert [n for n, _ in ticks] == [2, 3, 2]
    assert loss == pytest.approx(sum(n * mean for n, mean in ticks) / len(ORDER), rel=1e-12)
    one_by_one = np.concatenate([engine.predict(images[k : k + 1]) for k in range(len(images))])
    assert engine.predict(images).tobytes() == one_by_one.tobytes()


def test_networks_are_copied(new_engine):
    network, _, images, labels = make("skipping")
    before = [None if W is None else W.copy() for W in network.weights]
    engine, _ = trained(new_engine(), network, images, labels)
    between = engine.get_network()
    kept = [None if W is None else W.copy() for W in between.weights]
    engine.train(images, labels, ORDER, ETA)
    for W, V in zip((*network.weights, *between.weights), (*before, *kept), strict=True):
        assert W is None or (W == V).all()


def test_large_activations_are_probabilities(new_engine):
    network = ConvNetwork.initial("2M3", Maps(1, 6, 6), 3, 0)
    network.weights[-1][0] = [0, 1000, 1000]
    engine = new_engine()
    engine.set_network(network)
    p = engine.predict(np.zeros((1, 6, 6), np.float32))
    np.testing.assert_allclose(p, [[0, 0.5, 0.5]], atol=0.02)


@pytest.mark.parametrize("device", ENGINE_DEVICES)
def test_memory_on_the_gpu_is_what_device_bytes_says(device, monkeypatch):
    network, _, images, labels = make("pooling")
    monkeypatch.setattr(cuda, "PREDICT_BATCH", 4)
    with on_device(device):
        taken = count_bytes(monkeypatch)
        engine = ConvCudaEngine()
        engine.set_network(network)
        for _ in range(2):  # the second epoch takes no more
            engine.train(images, labels, np.arange(len(images)), 0.0)
        engine.predict(images)
        assert sum(taken) == cuda.device_bytes(network, len(images))


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("IP(sobel)-MP2-4M3-MP2-2M2", {"delta_partial": 1, "pull_deltas": 1, "unpool_deltas": 1}),
        ("IP(sobel)-MP2", {"delta_partial": 0, "pull_deltas": 0, "unpool_deltas": 0}),
    ],
)
def test_no_deltas_are_computed_below_the_first_weights(layers, expected):
    network = ConvNetwork.initial(layers, Maps(1, 12, 12), 3, 0)
    with on_device(ENGINE_DEVICES[0]):
        images = np.zeros((1, 12, 12), np.float32)
        engine, _ = trained(ConvCudaEngine(), network, images, np.zeros(1, np.uint8), np.arange(1))
        names = [launch.kernel.py_func.__name__ for launch in engine.launches()]
    assert {name: names.count(name) for name in expected} == expected


def test_large_states_are_evaluated_few_at_a_time():
    network = ConvNetwork.initial("64M1", Maps(1, 64, 128), 3, 0)
    n_bytes = 65 * 64 * 128 * 4
    assert cuda.batch_size(network) == cuda.BATCH_BYTES // n_bytes > 1
    without_maps = ConvNetwork.initial("10N", Maps(1, 2, 2000), 2, 0)
    assert cuda.batch_size(without_maps) == mlp_cuda.PREDICT_BATCH


@pytest.mark.parametrize(
    ("net", "width", "what"),
    [("1M1", 1025, "map is 1025 neurons"), ("1M1024x1", 1024, "kernel is 1024 weights")],
)
def test_what_is_wider_than_a_block_is_refused(net, width, what):
    network = ConvNetwork.initial(net, Maps(1, 1, width), 3, 0)
    with on_device(ENGINE_DEVICES[0]):
        engine = ConvCudaEngine()
        with pytest.raises(ValueError, match=f"{what} wide; .* take the CPU"):
            engine.set_network(network)


@pytest.mark.slow
@pytest.mark.parametrize("device", ENGINE_DEVICES)
@pytest.mark.parametrize("number", list(cnn_tables.PAPER)[: None if HAS_GPU else 2])
def test_gpu_and_cpu_agree_on_nets_of_table_1(device, number):
    """As the paper checks its GPU program: by the results of a training on the CPU."""
    rng = np.random.default_rng(0)
    n = 500 if HAS_GPU else 3
    images = rng.uniform(-1, 1, (n, 841)).astype(np.float32)
    labels = rng.integers(0, 10, n).astype(np.uint8)
    network = ConvNetwork.initial(cnn_tables.PAPER[number].layers, Maps(1, 29, 29), 10, 0)
    outputs, weights = [], []
    with on_device(device):
        for engine in (ConvCpuEngine(), ConvCudaEngine("launch")):
            engine.set_network(network)
            engine.train(images, labels, np.arange(n), 1e-3)
            outputs.append(engine.predict(images[:5]))
            weights.append(engine.get_network().weights)
    assert abs(outputs[0] - outputs[1]).max() < 1e-4
    for W, V, before in zip(*weights, network.weights, strict=True):
        assert np.linalg.norm(W - V) < 1e-3 * np.linalg.norm(W - before)


def test_of_equal_pixels_the_first_wins():
    source = np.zeros((9, 1), np.float32)  # 3x3, all equal
    state, winners = np.ones((4, 1), np.float32), np.ones((4, 1), np.int32)
    shape = np.array([1, 2, 2, 1, 3, 2, 2, 1, 1])
    cpu.pool(state, winners, source, shape)
    assert winners[:, 0].tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("images", "labels", "order"),
    [
        (np.zeros((4, 5, 5), np.float32), np.zeros(4, np.uint8), np.arange(4)),
        (np.zeros((4, 6, 6), np.float32), np.full(4, 3, np.uint8), np.arange(4)),
    ],
)
def test_bad_input_is_refused(new_engine, images, labels, order):
    network = ConvNetwork.initial("2M3", Maps(1, 6, 6), 3, 0)
    with pytest.raises(ValueError, match="expected"):
        trained(new_engine(), network, images, labels, order)


def test_the_tanh_is_that_of_float64():
    a = np.concatenate([np.linspace(-20, 20, 100_001), np.geomspace(1e-30, 1, 1000)])
    a = a.astype(np.float32)
    found = a.copy()
    cpu.activate(found)
    expected = float(A) * np.tanh(float(B) * a.astype(float))
    assert abs(found - expected).max() < 5e-7
    small = abs(a) < 1e-2
    np.testing.assert_allclose(found[small], expected[small], rtol=1e-6)
    edges = np.array([np.nan, np.inf, -np.inf, 0, -0.0], np.float32)
    cpu.activate(edges)
    assert np.isnan(edges[0])
    np.testing.assert_allclose(edges[1:3], [A, -A], rtol=3e-7)
    assert edges[3:].tobytes() == np.array([0, -0.0], np.float32).tobytes()
    assert activation.scaled_tanh(np.float32(0.3)) == pytest.approx(A * np.tanh(B * 0.3), rel=1e-6)
