"""Baselines take the steps of our engines; those that cannot run here are named."""

import sys
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from types import SimpleNamespace
from unittest.mock import MagicMock

import nets
import numpy as np
import pytest
import reference

from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork, weight_mask
from experiments.benchmarks import baselines, host, window
from experiments.benchmarks.baselines import CPU, GPU, TorchWindow, Trainer
from experiments.benchmarks.gpu_checks import matrices
from experiments.drawing import bench_plots
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network

NETS = {
    "skipping": ("3M3x2s1x2-4M2c2-5N", Maps(2, 11, 9)),
    "fully connected": ("11N-7N", Maps(2, 3, 4)),
    "wide": ("33M5s2x1-65M3x2c32", Maps(1, 9, 11)),
}
ETA = 0.05


def trained(case):
    """The arguments of a maker: a net, images, labels and eta; and the net that our engine made."""
    if case == "perceptron":
        network, engine, eta = Network.initial((33, 21, 17, 10), 0), CpuEngine(), ETA
        n_inputs = 33
    else:
        description, source = NETS[case]
        network, engine, eta = (
            ConvNetwork.initial(description, source, 10, 5),
            ConvCpuEngine(),
            ETA / 2,
        )
        for layer, W, table in zip(
            network.layers, network.weights, network.connections, strict=True
        ):
            W *= 30 / np.sqrt(len(W)) * weight_mask(layer, table)
        n_inputs = source.n_neurons
    examples = host.random_examples(10, n_inputs)
    engine.set_network(network)
    engine.train(*examples, np.arange(10), eta)
    return (network, *examples, eta), engine.get_network()


def run_before(step):
    """In place of a CUDA graph: a step, which runs some times before, as for a graph."""
    for _ in range(3):
        step()
    return step


def trainers():
    """The baselines of nets, each with its maker and the nets that it can train.

    A CUDA graph is also tested as the steps that it repeats, on the CPU.
    """
    for baseline in baselines.BASELINES:
        if baseline.make is TorchWindow:  # see below
            continue
        mark = [pytest.mark.gpu] if baseline.device == GPU else []
        makers = {baseline.name: (baseline.make, mark)}
        if "graph" in baseline.name:
            makers["PyTorch, CPU"] = partial(baseline.make, device=CPU, capture=run_before), []
        for name, (make, marks) in makers.items():
            for case in {"net": ["perceptron"], "cnn": NETS}.get(baseline.group, []):
                yield pytest.param(baseline, make, case, marks=marks, id=f"{name}-{case}")


@pytest.mark.parametrize(("baseline", "make", "case"), list(trainers()))
def test_ten_steps_give_the_weights_of_the_engine(baseline, make, case):
    """They change no argument, and can be repeated."""
    if baseline.package:
        reason = f"{baseline.package}, an optional baseline, is not installed"
        pytest.importorskip(baseline.package, reason=reason)
    known = baselines.available(baseline.group, baseline.device)
    if make is baseline.make and baseline.name not in known:
        pytest.skip(f"{baseline.package} does not see the device")
    (network, *examples), by_engine = trained(case)
    before = deepcopy(matrices(network))
    trainer = make(network, *examples)
    trainer.train()
    found = deepcopy(trainer.weights())
    for W, V, old in zip(found, matrices(by_engine), before, strict=True):
        assert W.shape == V.shape
        assert abs(W - V).max() < 1e-4 * abs(V - old).max()
    if case != "perceptron":
        for layer, table, W in zip(network.layers, network.connections, found, strict=True):
            assert (W[~weight_mask(layer, table)] == 0).all()
    trainer.train()
    for W, once in zip(trainer.weights(), found, strict=True):
        assert abs(W - once).max() > 0
    np.testing.assert_equal(matrices(network), before)


# --- PyTorch's window


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch, an optional baseline, is not installed")


def replayed(step):
    """In place of a CUDA graph: the operations of a step, recorded once, with its shapes."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    nothing = torch.zeros(1)
    recorded = make_fx(lambda x: (x, step()))(nothing)
    return lambda: recorded(nothing)


LARGE_ETA = float(np.float32(ETA))  # so that corrections and steps show
N = 30


ON_GPU = pytest.param("cuda", baselines.capture_step, marks=pytest.mark.gpu, id="cuda")


@pytest.mark.parametrize(("device", "capture"), [("cpu", replayed), ON_GPU])
@pytest.mark.parametrize(
    ("per_window", "per_block", "eta"),
    [*((n, block, LARGE_ETA) for n, block in ((1, 8), (5, 11), (64, 7), (9, 100))), (9, 100, 1e-4)],
)
@pytest.mark.parametrize("sizes", [(13, 7), (50, 37, 64, 33, 10)], ids=str)
def test_torch_window_matches_float64_and_the_numpy_program(
    sizes, per_window, per_block, eta, device, capture, torch, monkeypatch
):
    """Each time it trains, from the same weights."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch does not see the device")
    engine, weights, images, labels = nets.make(MagicMock(), sizes, n=N)
    (network,) = engine.set_network.call_args.args
    some = np.random.default_rng(1).integers(0, N, N)  # some repeat
    images, labels = images[some], labels[some]
    known = [W.copy() for W in network.unpadded()]
    settings, order = (per_window, per_block), np.arange(N)
    trainer = TorchWindow(network, images, labels, eta, *settings, device, capture)
    _, loss = reference.train(weights, images, labels, order, eta)  # which PyTorch need not know
    sweeps = window.train_in_windows(known, images, labels, eta, *settings)
    for likely in (baselines.LIKELY, 3):  # then many sweeps are launched in vain
        monkeypatch.setattr(baselines, "LIKELY", likely)
        trainer.train()
        found = SimpleNamespace(unpadded=trainer.weights)
        nets.assert_trained(found, loss, weights, images, labels, order, eta)
        if device == "cpu":  # on a GPU rounding may decide whether a delta has changed
            assert int(trainer._sweeps) == len(sweeps)


# --- cuBLAS


def test_products_have_the_shapes_of_the_kernels(torch):
    from torch.utils.flop_counter import FlopCounterMode

    found = baselines.products(37, 21, 3, 5, 8, device="cpu")
    inputs, neurons = 64, 32  # with the bias and the padding
    multiply_adds = {"forward": 3 * inputs * (neurons + 5), "update": 8 * inputs * neurons}
    multiply_adds["backward"] = 3 * neurons * (inputs + 5)
    for name, multiply in found.items():
        with FlopCounterMode(display=False) as counter:
            multiply()
        assert counter.get_total_flops() == 2 * multiply_adds[name], name


def test_cublas_multiplies_on_the_stream_with_its_precision(torch, monkeypatch):
    def products(*shape):
        log.append(shape)
        return {"forward": lambda: log.append(torch.get_float32_matmul_precision())}

    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle: handle)
    monkeypatch.setattr(torch.cuda, "stream", lambda handle: nullcontext(log.append(handle)))
    monkeypatch.setattr(baselines, "products", products)
    for precision in ("high", "highest"):
        log = []
        enqueue = baselines.cublas(precision, "forward", 1, 2)
        assert log == []  # nothing is allocated before it is timed
        for _ in range(2):
            enqueue(SimpleNamespace(handle=7))
        assert log == [7, (1, 2), precision, 7, precision]
        assert torch.get_float32_matmul_precision() == "highest"


# --- which there are


ALWAYS = {"net": "NumPy loop, CPU", "cnn": "NumPy loop, CPU", "deformation": "scipy recipe"}


def test_packages_that_are_missing_or_break_are_named_with_how_to_get_them(monkeypatch):
    def broken(package="jax"):
        raise OSError(f"lib{package}.so: no such file\nand more")

    monkeypatch.setattr(baselines.importlib, "import_module", broken)
    monkeypatch.setattr(baselines, "import_jax", broken)
    for group, name in ALWAYS.items():
        assert list(baselines.available(group, CPU)) == [name]
        assert not baselines.available(group, GPU)
    sentences = baselines.missing(gpu=True)
    assert sentences[0] == (
        "PyTorch is not measured (OSError: libtorch.so: no such file); pip install -e "
        "'.[baselines]' brings it"
    )
    assert [sentence.split()[0] for sentence in sentences] == ["PyTorch", "JAX", "kornia"]


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_available_baselines_are_those_of_the_devices(backend, monkeypatch):
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: backend == "gpu"))
    jax = SimpleNamespace(default_backend=lambda: backend)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(baselines, "import_error", lambda package: None)
    monkeypatch.setattr(baselines, "import_jax", lambda: jax)
    expected = {
        ("net", CPU): ["NumPy loop, CPU"],
        ("net", GPU): ["PyTorch graph, GPU", "PyTorch window, GPU", "JAX scan, GPU"],
        ("deformation", CPU): ["scipy recipe", "kornia, CPU"],
        ("deformation", GPU): ["kornia, GPU"],
    }
    if backend == "cpu":
        expected = {key: names if key[1] == CPU else [] for key, names in expected.items()}
        expected["net", CPU] += ["JAX scan, CPU"]
    assert {key: list(baselines.available(*key)) for key in expected} == expected
    in_plots = {one.name for one in baselines.BASELINES if one.group == "net"}
    assert in_plots < set(bench_plots.STYLES)
    unseen = ["the installed PyTorch sees no GPU", "the installed JAX", "the installed kornia"]
    sentences = baselines.missing(gpu=True)
    for sentence, start in zip(sentences, unseen * (backend == "cpu"), strict=True):
        assert sentence.startswith(start)
    assert not baselines.missing(gpu=False)


def test_workload_of_a_failing_baseline_is_left_out(capsys):
    def fail(*_arguments):
        raise RuntimeError("no such thing")

    calls = []
    makers = {"bad": fail, "deforms": lambda n: partial(calls.append, n)}
    makers["trains"] = lambda n: Trainer(list, list, "so")
    found = baselines.workloads(makers, (7,), 3)
    said = capsys.readouterr().err
    assert "bad fails, so it is not measured: RuntimeError: no such thing" in said
    assert {name: (one.n_images, one.settings) for name, one in found.items()} == {
        "deforms": (3, ""),
        "trains": (3, "so"),
    }
    assert calls == [7]
