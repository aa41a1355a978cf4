"""timing/connections.py and timing/cnn_peers.py: the peers train the same convolutional nets."""

import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork, weight_mask
from experiments.timing import cnn_peers, connections, peers
from experiments.timing.cnn_peers import Settings
from experiments.timing.peers import Peer

NETS = {
    "convolution": ("3M3", Maps(1, 7, 9)),
    "skipping": ("3M3x2s1x2-4M2c2-5N", Maps(2, 11, 9)),
    "skipping later": ("4M3-6M3s1c1", Maps(2, 9, 11)),
    "fully connected": ("11N-7N", Maps(2, 3, 4)),
    "wide": ("33M5s2x1-65M3x2c32", Maps(1, 9, 11)),
}
ETA = 0.02


@pytest.fixture(params=NETS.values(), ids=NETS)
def trained(request):
    """A net, images, labels, and the net that our engine makes of it."""
    return train(*request.param)


def train(description, source):
    network = ConvNetwork.initial(description, source, 10, 5)
    rng = np.random.default_rng(1)
    for layer, W, table in zip(network.layers, network.weights, network.connections, strict=True):
        W *= 30 / np.sqrt(len(W)) * weight_mask(layer, table)
    images = rng.uniform(-1, 1, (10, source.n_neurons)).astype(np.float32)
    labels = rng.integers(0, 10, 10).astype(np.uint8)
    engine = ConvCpuEngine()
    engine.set_network(network)
    engine.train(images, labels, np.arange(10), ETA)
    return network, images, labels, engine.get_network()


def assert_same_net(make, trained):
    """Assert that a peer's weights after ten steps are the engine's, and that it trains on."""
    network, images, labels, expected = trained
    before = [W.copy() for W in network.weights]
    peer = make(network, images, labels, ETA)
    peer.train()
    found = [W.copy() for W in peer.weights()]
    layers = zip(network.layers, network.connections, found, before, expected.weights, strict=True)
    for layer, table, W, old, V in layers:
        assert W.shape == V.shape
        assert abs(W - V).max() < 1e-4 * abs(V - old).max()
        assert (W[~weight_mask(layer, table)] == 0).all()
    cnn_peers.check(peer, network, expected)
    peer.train()
    for W, once in zip(peer.weights(), found, strict=True):
        assert abs(W - once).max() > 0
    for W, old in zip(network.weights, before, strict=True):
        assert (old == W).all()


def test_loops_over_connections_train_the_same_net(trained):
    assert_same_net(connections.loops, trained)


def needs_torch():
    return pytest.importorskip("torch", reason="PyTorch, an optional peer, is not installed")


def test_torch_trains_the_same_net(trained):
    needs_torch()
    assert_same_net(partial(peers.torch_eager, build=cnn_peers.torch_net), trained)


@pytest.mark.parametrize("name", ["PyTorch eager, GPU", "PyTorch graph, GPU"])
def test_torch_trains_the_same_net_on_a_gpu(name, trained):
    needs_torch()
    makers = cnn_peers.on_gpu()  # which has convolutions computed in float32
    if not makers:
        pytest.skip("PyTorch sees no GPU")
    assert_same_net(makers[name], trained)


@pytest.mark.parametrize("settings", [Settings(), Settings(2, False, True)], ids=str)
def test_torch_by_hand_trains_the_same_net(settings, trained):
    torch = needs_torch()
    before = torch.get_num_threads(), torch.backends.mkldnn.enabled
    assert_same_net(partial(cnn_peers.torch_by_hand, settings=settings), trained)
    assert (torch.get_num_threads(), torch.backends.mkldnn.enabled) == before


@pytest.mark.slow
def test_compiled_torch_trains_the_same_net():
    needs_torch()
    make = partial(cnn_peers.torch_compiled_step, settings=Settings())
    assert_same_net(make, train(*NETS["skipping"]))


def test_all_settings_are_tried(monkeypatch):
    monkeypatch.setattr(cnn_peers.provenance, "cores", lambda: 4)
    texts = list(map(str, cnn_peers.all_settings()))
    assert len(set(texts)) == 8
    assert {"1 thread, oneDNN", "4 threads, without oneDNN, channels last"} < set(texts)
    monkeypatch.setattr(cnn_peers.provenance, "cores", lambda: 1)
    assert len(cnn_peers.all_settings()) == 4


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_another_net_is_refused(layer):
    network, images, labels, expected = train("3M3-4M3-5N", Maps(1, 9, 9))
    peer = connections.loops(network, images, labels, ETA)
    peer.train()
    weights = peer.weights()
    weights[layer] += 0.02 * (weights[layer] - network.weights[layer])
    wrong = Peer(peer.train, lambda: weights)
    with pytest.raises(ValueError, match=rf"not train the same net: in layer {layer + 1} .* 0\.02"):
        cnn_peers.check(wrong, network, expected)
    weights[layer][:] = np.nan
    with pytest.raises(ValueError, match=f"in layer {layer + 1} "):
        cnn_peers.check(wrong, network, expected)


def test_what_has_no_weights_is_refused():
    network = ConvNetwork.initial("3M3-MP2", Maps(1, 8, 8), 10, 0)
    with pytest.raises(ValueError, match="expected layers with weights, got max-pooling"):
        connections.loops(network, np.zeros((1, 64), np.float32), np.zeros(1, np.uint8), ETA)


def test_without_torch_there_are_loops_over_connections(monkeypatch):
    monkeypatch.setattr(peers, "import_error", lambda package: f"No module named {package!r}")
    assert list(cnn_peers.on_cpu()) == ["loops over connections, CPU"]
    assert not cnn_peers.on_gpu()


@pytest.mark.parametrize("sees", [True, False])
def test_peers_are_where_they_compute(sees, monkeypatch):
    cudnn = SimpleNamespace(allow_tf32=True, benchmark=False)
    torch = SimpleNamespace(backends=SimpleNamespace(cudnn=cudnn))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(peers, "import_error", lambda package: None)
    monkeypatch.setattr(peers, "torch_sees_a_gpu", lambda: sees)
    on_cpu, on_gpu = cnn_peers.on_cpu(), cnn_peers.on_gpu()
    assert list(on_cpu)[1:] == [
        "PyTorch eager, CPU",
        "PyTorch eager at its best, CPU",
        "PyTorch compiled, CPU",
    ]
    assert list(on_gpu) == (["PyTorch eager, GPU", "PyTorch graph, GPU"] if sees else [])
    assert cudnn.allow_tf32 is not sees  # else a convolution has 10 bits
