"""Baselines train the same nets as our engines, each at its best settings."""

import os
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork, weight_mask
from experiments.benchmarks import baseline_nets, baselines, cnn_times, connections, host
from experiments.benchmarks.baseline_nets import TorchSettings, Trainer
from experiments.benchmarks.baselines import CPU, GPU, ProcessSettings
from experiments.drawing import bench_plots
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network

NETS = {
    "skipping": ("3M3x2s1x2-4M2c2-5N", Maps(2, 11, 9)),
    "fully connected": ("11N-7N", Maps(2, 3, 4)),
    "wide": ("33M5s2x1-65M3x2c32", Maps(1, 9, 11)),
}
ETA = 0.05


def perceptron(sizes=(33, 21, 17, 10)):
    """A perceptron, images, labels and eta: the arguments of a maker; and the trained weights."""
    network, examples = Network.initial(sizes, 0), host.random_examples(10, sizes[0])
    engine = CpuEngine()
    engine.set_network(network)
    engine.train(*examples, np.arange(10), ETA)
    return (network, *examples, ETA), engine.get_network().unpadded()


def convolutional(description, source):
    network = ConvNetwork.initial(description, source, 10, 5)
    for layer, W, table in zip(network.layers, network.weights, network.connections, strict=True):
        W *= 30 / np.sqrt(len(W)) * weight_mask(layer, table)
    examples = host.random_examples(10, source.n_neurons)
    engine = ConvCpuEngine()
    engine.set_network(network)
    engine.train(*examples, np.arange(10), ETA / 2)
    return (network, *examples, ETA / 2), engine.get_network().weights


CASES = {"perceptron": perceptron} | {name: partial(convolutional, *NETS[name]) for name in NETS}


def assert_same_net(make, case):
    """Assert that ten steps give the engine's weights, change no argument, and can be repeated."""
    arguments, expected = CASES[case]()
    network = arguments[0]
    trainer = make(*arguments)
    before = network.unpadded() if case == "perceptron" else network.weights
    before = [W.copy() for W in before]
    trainer.train()
    found = [W.copy() for W in trainer.weights()]
    for W, V, old in zip(found, expected, before, strict=True):
        assert W.shape == V.shape
        assert abs(W - V).max() < 1e-4 * abs(V - old).max()
    if case != "perceptron":
        for layer, table, W in zip(network.layers, network.connections, found, strict=True):
            assert (W[~weight_mask(layer, table)] == 0).all()
    trainer.train()
    for W, once in zip(trainer.weights(), found, strict=True):
        assert abs(W - once).max() > 0
    after = network.unpadded() if case == "perceptron" else network.weights
    assert all((old == W).all() for W, old in zip(after, before, strict=True))


def on(device):
    """Every maker of a table of baselines on a device, with the nets that it can train."""
    return [
        pytest.param(baseline, case, id=f"{baseline.name}-{case}")
        for baseline in baselines.BASELINES
        for case in CASES
        if baseline.device == device
        and baseline.group == ("net" if case == "perceptron" else "cnn")
    ]


def needs(baseline):
    if baseline.package:
        reason = f"{baseline.package}, an optional baseline, is not installed"
        pytest.importorskip(baseline.package, reason=reason)
    if baseline.name not in baselines.available(baseline.group, baseline.device):
        pytest.skip(f"{baseline.package} does not see the device")


@pytest.mark.parametrize(
    ("baseline", "case"),
    [one for one in on(CPU) if "best" not in one.id and "compiled" not in one.id],
)
def test_baseline_on_cpu_trains_the_same_net(baseline, case):
    needs(baseline)
    assert_same_net(baseline.make, case)


@pytest.mark.gpu
@pytest.mark.parametrize(("baseline", "case"), on(GPU))
def test_baseline_on_gpu_trains_the_same_net(baseline, case):
    needs(baseline)
    assert_same_net(baseline.make, case)


@pytest.mark.parametrize("case", NETS)
@pytest.mark.parametrize("settings", [TorchSettings(), TorchSettings(2, False, True)], ids=str)
def test_torch_by_hand_trains_the_same_net(settings, case):
    torch = needs_torch()
    before = torch.get_num_threads(), torch.backends.mkldnn.enabled
    assert_same_net(partial(baseline_nets.torch_by_hand, settings=settings), case)
    assert (torch.get_num_threads(), torch.backends.mkldnn.enabled) == before


def needs_torch():
    return pytest.importorskip("torch", reason="PyTorch, an optional baseline, is not installed")


@pytest.mark.slow
def test_compiled_torch_trains_the_same_net():
    needs_torch()
    make = partial(baseline_nets.torch_compiled_step, settings=TorchSettings())
    assert_same_net(make, "skipping")


@pytest.mark.parametrize(("layer", "more"), [(0, 0.02), (1, 0.02), (2, 0.02), (2, np.nan)])
def test_check_of_another_net_raises_value_error(layer, more):
    arguments, expected = convolutional("3M3-4M3-5N", Maps(1, 9, 9))
    before, after = arguments[0], SimpleNamespace(weights=expected)
    weights = [W.copy() for W in expected]
    wrong = Trainer(lambda: None, lambda: weights)
    cnn_times.check(wrong, before, after)
    weights[layer] += more * (weights[layer] - before.weights[layer])
    with pytest.raises(ValueError, match=rf"the same net: in layer {layer + 1} .* {more:.2g} of"):
        cnn_times.check(wrong, before, after)


def test_layer_without_weights_is_refused():
    network = ConvNetwork.initial("3M3-MP2", Maps(1, 8, 8), 10, 0)
    with pytest.raises(ValueError, match="expected layers with weights, got max-pooling"):
        connections.loops(network, np.zeros((1, 64), np.float32), np.zeros(1, np.uint8), ETA)


# --- which there are


ALWAYS = {"net": "NumPy loop, CPU", "cnn": "loops over connections, CPU"}
ALWAYS |= {"deformation": "scipy recipe"}


def test_missing_packages_are_named_with_how_to_get_them(monkeypatch):
    monkeypatch.setattr(baselines, "import_error", lambda package: f"No module named {package!r}")
    for group, name in ALWAYS.items():
        assert list(baselines.available(group, CPU)) == [name]
        assert not baselines.available(group, GPU)
    sentences = baselines.missing(gpu=True)
    assert sentences[0] == (
        "PyTorch is not measured (No module named 'torch'); pip install -e '.[baselines]' brings it"
    )
    names = ["PyTorch", "JAX", "albumentations", "kornia"]
    assert [sentence.split()[0] for sentence in sentences] == names


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_available_baselines_are_those_of_the_devices(backend, monkeypatch):
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: backend == "gpu"))
    jax = SimpleNamespace(default_backend=lambda: backend)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(baselines, "import_error", lambda package: None)
    monkeypatch.setattr(baseline_nets, "import_jax", lambda: jax)
    on_gpu = ["PyTorch eager, GPU", "PyTorch graph, GPU", "JAX scan, GPU"]
    net = {CPU: ["NumPy loop, CPU", "PyTorch eager, CPU"], GPU: on_gpu}
    deformations = {CPU: ["scipy recipe", "albumentations, CPU", "kornia, CPU"]}
    deformations[GPU] = ["kornia, GPU"]
    if backend == "cpu":
        net = {CPU: [*net[CPU], "JAX scan, CPU"], GPU: []}
        deformations[GPU] = []
    for device in (CPU, GPU):
        assert list(baselines.available("net", device)) == net[device]
        assert list(baselines.available("deformation", device)) == deformations[device]
    window = baselines.available("window", GPU)
    assert list(window) == ["PyTorch window, GPU"] * (backend == "gpu")
    assert {*net[CPU], *net[GPU], *window} < set(bench_plots.STYLES)
    sentences = baselines.missing(gpu=True)
    expected = ["PyTorch sees no GPU, so PyTorch and kornia can be", "JAX sees no GPU"]
    for sentence, said in zip(sentences, expected * (backend == "cpu"), strict=True):
        assert said in sentence
    assert not baselines.missing(gpu=False)


def test_package_that_breaks_at_its_import_is_missing(monkeypatch):
    def broken(package):
        raise OSError(f"lib{package}.so: no such file\nand more")

    monkeypatch.setattr(baselines.importlib, "import_module", broken)
    assert baselines.import_error("torch") == "OSError: libtorch.so: no such file"
    assert "PyTorch eager, CPU" not in baselines.available("net", CPU)


def test_workload_of_a_failing_baseline_is_left_out(capsys):
    def fail(*_arguments):
        raise RuntimeError("no such thing")

    def wrong(trainer):
        if trainer.settings == "b":
            raise ValueError("another net")

    calls = []
    makers = {"bad": fail, "deforms": lambda n: partial(calls.append, n)}
    makers |= {name: lambda n, name=name: Trainer(list, list, name) for name in "ab"}
    found = baselines.workloads(makers, (7,), 3, wrong)
    said = capsys.readouterr().err
    assert "bad fails, so it is not measured: RuntimeError: no such thing" in said
    assert "b fails, so it is not measured: ValueError: another net" in said
    assert {name: (one.n_images, one.settings) for name, one in found.items()} == {
        "deforms": (3, ""),
        "a": (3, "a"),
    }
    assert calls == [7]


# --- settings


def test_all_settings_are_tried(monkeypatch):
    monkeypatch.setattr(baselines.provenance, "cores", lambda: 4)
    monkeypatch.setattr(baselines.platform, "libc_ver", lambda: ("glibc", "2.36"))
    found = [str(one) for one in baselines.process_settings()]
    assert found == ["1 thread", "1 thread, memory kept", "4 threads", "4 threads, memory kept"]
    monkeypatch.setattr(baselines.platform, "libc_ver", lambda: ("", ""))
    assert baselines.process_settings() == [ProcessSettings(1), ProcessSettings(4)]
    texts = list(map(str, baseline_nets.torch_settings()))
    assert len(set(texts)) == 8
    assert {"1 thread, oneDNN", "4 threads, without oneDNN, channels last"} < set(texts)
    monkeypatch.setattr(baselines.provenance, "cores", lambda: 1)
    assert baselines.process_settings() == [ProcessSettings(1)]
    assert len(baseline_nets.torch_settings()) == 4


def test_fastest_settings_are_taken(monkeypatch):
    """The first of three trainings, which may compile, does not count."""
    now, made = [0.0], []
    monkeypatch.setattr(host.time, "perf_counter", lambda: now[0])
    seconds = {1: [1, 5, 4], 2: [90, 3, 9], 3: [2, 6, 7]}

    def make(network, choice):
        assert network == "net"
        made.append(choice)
        spans = iter(seconds[choice])

        def train():
            now[0] += next(spans)

        return Trainer(train, list, f"as {choice}")

    trainer = baselines.fastest("net", make=make, choices=lambda: list(seconds))
    assert made == [1, 2, 3, 2]
    assert trainer.settings == "as 2"


# --- processes


def fail(*_arguments):
    raise ValueError("no such net")


def environment(*_arguments):
    """In place of a trainer: its weights are the process's number and its variables."""
    print("this is no answer")
    return Trainer(lambda: os._exit(3), lambda: (os.getpid(), dict(os.environ)))


def test_process_has_its_settings_and_ends(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.path.dirname(__file__), *sys.path]))
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    process = baselines.BaselineProcess(ProcessSettings(7, True).environment)
    try:
        with pytest.raises(RuntimeError, match="ValueError: no such net"):
            process.ask(fail, "make")
        process.ask(environment, "make")
        pid, variables = process.ask(environment, "weights")
        assert pid != os.getpid()
        libraries = ("NUMBA", "OMP", "OPENBLAS", "MKL")
        expected = {"NPROC": "7"} | {f"{library}_NUM_THREADS": "7" for library in libraries}
        expected |= {"MALLOC_MMAP_THRESHOLD_": str(32 * 1024**2)}
        expected |= {"MALLOC_TRIM_THRESHOLD_": str(1024**3), "PATH": os.environ["PATH"]}
        assert variables.items() >= expected.items()
        assert "OPENBLAS_CORETYPE" not in variables
        for _ in range(2):
            with pytest.raises(RuntimeError, match="its process ended, status 3"):
                process.ask(environment, "train")
    finally:
        process.close()
    assert "MALLOC_MMAP_THRESHOLD_" not in ProcessSettings(2).environment


def test_baseline_trains_in_its_fastest_process_until_the_end(monkeypatch):
    settings = [ProcessSettings(), ProcessSettings(1, True)]
    monkeypatch.setattr(baselines, "process_settings", lambda: settings)
    seconds = iter([9, 9, 1, 1])  # of two timed trainings for each of the settings
    monkeypatch.setattr(host, "time_calls", lambda call: (call(), next(seconds))[1])
    case, expected = perceptron()
    with baselines.in_processes({"NumPy": baseline_nets.numpy_loop}) as makers:
        trainer = makers["NumPy"](*case)
        assert trainer.settings == "1 thread, memory kept"
        trainer.train()
        for W, V in zip(trainer.weights(), expected, strict=True):
            assert np.allclose(W, V, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="closed file"):
        trainer.train()
