"""timing/peers.py: the benchmark's peers train the same net."""

from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.drawing import bench_plots
from experiments.timing import host, peers
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network

SIZES = (33, 21, 17, 10)
ETA = 0.05


def assert_same_net(make):
    """Assert that a peer's weights after ten steps are the CPU engine's."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (10, 33)).astype(np.float32)
    labels = rng.integers(0, 10, 10).astype(np.uint8)
    network = Network.initial(SIZES, 0)
    engine = CpuEngine()
    engine.set_network(network)
    engine.train(images, labels, np.arange(10), ETA)
    peer = make(network, images, labels, ETA)
    peer.train()
    trained = engine.get_network().weights
    for W, V, before in zip(peer.weights(), trained, network.weights, strict=True):
        V, before = V[: W.shape[0], : W.shape[1]], before[: W.shape[0], : W.shape[1]]
        assert abs(W - V).max() < 1e-4 * abs(V - before).max()


def test_numpy_trains_the_same_net():
    assert_same_net(peers.numpy_loop)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_torch_trains_the_same_net(device):
    torch = pytest.importorskip("torch", reason="PyTorch, an optional peer, is not installed")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    assert_same_net(partial(peers.torch_eager, device=device))


def test_torch_graph_trains_the_same_net():
    torch = pytest.importorskip("torch", reason="PyTorch, an optional peer, is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    assert_same_net(peers.torch_graph)


def test_torch_graph_trains_the_same_net_without_a_gpu(monkeypatch):
    """With a graph that is not captured but replayed step by step on the CPU."""
    torch = pytest.importorskip("torch", reason="PyTorch, an optional peer, is not installed")
    nets = []

    class Net(peers.TorchNet):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            nets.append(self)

    @contextmanager
    def graph(_graph):
        yield

    stream = SimpleNamespace(wait_stream=lambda other: None)
    fakes = {
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": nullcontext,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: nets[0].step()),
        "graph": graph,
    }
    monkeypatch.setattr(peers, "TorchNet", Net)
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    assert_same_net(partial(peers.torch_graph, device="cpu"))


def test_jax_trains_the_same_net():
    pytest.importorskip("jax", reason="JAX, an optional peer, is not installed")
    assert_same_net(peers.jax_scan)


def test_peers_train_on():
    """Each call of `train` goes on from the last, so that a repeat is not another piece of work."""
    images, labels = host.random_examples(5, 33)
    for make in peers.on_cpu().values():
        peer = make(Network.initial(SIZES, 0), images, labels, ETA)
        peer.train()
        once = [W.copy() for W in peer.weights()]
        peer.train()
        assert all(abs(W - V).max() > 0 for W, V in zip(peer.weights(), once, strict=True))


def test_peers_that_are_missing_are_named_with_how_to_get_them(monkeypatch):
    monkeypatch.setattr(peers, "import_error", lambda package: f"No module named {package!r}")
    assert list(peers.on_cpu()) == ["NumPy loop, CPU"]
    assert not peers.on_gpu()
    torch, jax = peers.missing(gpu=True)
    assert "PyTorch is not measured (No module named 'torch')" in torch
    assert all("pip install -e '.[peers]' brings it" in sentence for sentence in (torch, jax))


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_peers_are_where_they_compute(backend, monkeypatch):
    monkeypatch.setattr(peers, "import_error", lambda package: None)
    monkeypatch.setattr(peers, "torch_sees_a_gpu", lambda: backend == "gpu")
    jax = SimpleNamespace(default_backend=lambda: backend)
    monkeypatch.setattr(peers, "import_jax", lambda: jax)
    on_cpu, on_gpu = peers.on_cpu(), peers.on_gpu()
    assert {"NumPy loop, CPU", "PyTorch eager, CPU"} <= set(on_cpu)
    assert ("JAX scan, CPU" in on_cpu) == (backend == "cpu")
    gpu_peers = {"PyTorch eager, GPU", "PyTorch graph, GPU", "JAX scan, GPU"}
    assert set(on_gpu) == (gpu_peers if backend == "gpu" else set())
    assert len(peers.missing(gpu=True)) == (0 if backend == "gpu" else 2)
    assert not peers.missing(gpu=False)
    assert {*on_cpu, *on_gpu} < set(bench_plots.STYLES)


def test_a_package_that_breaks_at_its_import_is_told(monkeypatch):
    def broken(package):
        raise OSError(f"lib{package}.so: no such file\nand more")

    monkeypatch.setattr(peers.importlib, "import_module", broken)
    assert peers.import_error("torch") == "OSError: libtorch.so: no such file"
    assert "PyTorch eager, CPU" not in peers.on_cpu()


def test_the_fastest_settings_are_taken(monkeypatch):
    """The first of three trainings, which may compile, does not count."""
    now, made = [0.0], []
    monkeypatch.setattr(peers.time, "perf_counter", lambda: now[0])
    seconds = {1: [1, 5, 4], 2: [90, 3, 9], 3: [2, 6, 7]}

    def make(network, images, labels, eta, choice):
        assert (network, images, labels, eta) == ("net", "images", "labels", 0.5)
        made.append(choice)
        spans = iter(seconds[choice])

        def train():
            now[0] += next(spans)

        return peers.Peer(train, list, f"as {choice}")

    peer = peers.fastest("net", "images", "labels", 0.5, make, list(seconds))
    assert made == [1, 2, 3, 2]
    assert peer.note == "as 2"
