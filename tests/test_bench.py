"""The benchmark's peers train the same net, and its figures are what their names say."""

import csv
import re
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from test_table1 import columns, make_run

from deform_gpu import deform
from experiments import bench, readme
from experiments.bench import Work
from experiments.drawing import bench_plots
from experiments.running import provenance
from experiments.running.errors import Problem
from experiments.running.formatting import csv_text
from experiments.scoring import tables
from experiments.timing import deform as deform_timing
from experiments.timing import deform_peers, peers
from experiments.timing import gpu as gpu_timing
from experiments.timing import report as timing_report
from mlp_gpu import gpu
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import NETS, Network, count_weights

SIZES = (33, 21, 17, 10)
ETA = 0.05


def cells(text, line):
    """The cells of a line of a Markdown table, by their headers; line 0 is the first below them."""
    lines = text.splitlines()
    return dict(zip(columns(lines[0]), columns(lines[2 + line]), strict=True))


# --- peers


def same_net(make):
    """Whether a peer's weights after ten steps are the CPU engine's."""
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
    same_net(peers.numpy_loop)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_torch_trains_the_same_net(device):
    torch = pytest.importorskip("torch", reason="PyTorch, an optional peer, is not installed")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    same_net(partial(peers.torch_eager, device=device))


def test_torch_graph_trains_the_same_net():
    torch = pytest.importorskip("torch", reason="PyTorch, an optional peer, is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    same_net(peers.torch_graph)


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
    same_net(partial(peers.torch_graph, device="cpu"))


def test_jax_trains_the_same_net():
    pytest.importorskip("jax", reason="JAX, an optional peer, is not installed")
    same_net(peers.jax_scan)


def test_peers_train_on():
    """Each call of `train` goes on from the last, so that a repeat is not another piece of work."""
    images, labels = bench.examples(5, 33)
    for make in peers.on_cpu().values():
        peer = make(Network.initial(SIZES, 0), images, labels, ETA)
        peer.train()
        once = [W.copy() for W in peer.weights()]
        peer.train()
        assert all(abs(W - V).max() > 0 for W, V in zip(peer.weights(), once, strict=True))


def test_peers_that_are_missing_are_named_with_how_to_get_them(monkeypatch):
    monkeypatch.setattr(peers, "fault", lambda package: f"No module named {package!r}")
    assert list(peers.on_cpu()) == ["NumPy loop, CPU"]
    assert not peers.on_gpu()
    torch, jax = peers.missing(gpu=True)
    assert "PyTorch is not measured (No module named 'torch')" in torch
    assert "pip install torch" in torch
    assert "pip install jax" in jax


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_peers_are_where_they_compute(backend, monkeypatch):
    monkeypatch.setattr(peers, "fault", lambda package: None)
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


def test_a_peer_that_fails_is_told_and_left_out(capsys):
    def fail(*_arguments):
        raise RuntimeError("no such thing")

    makers = {"bad": fail, "NumPy loop, CPU": peers.numpy_loop}
    assert list(bench.peer_works(makers, Network.initial(SIZES, 0), 2)) == ["NumPy loop, CPU"]
    assert (
        "bad fails, so it is not measured: RuntimeError: no such thing" in capsys.readouterr().err
    )


# --- arithmetic


def test_engine_bytes():
    # (1,347,510 weights: read and written once, read again but for the 842,000 of layer 1)
    assert bench.engine_bytes(Network.initial(NETS[1], 0)) == 4 * (3 * 1_347_510 - 842_000)


def test_kernel_bytes():
    # Layer 1 of net 1: 842 x 1000 weights, 27 blocks of 32 inputs, 32 of 32 neurons.
    assert gpu_timing.kernel_bytes(841, 1000) == {
        "pick_image": 4 * 2 * 841,
        "forward_partial": 4 * (842_000 + 841 + 27 * 1000),
        "forward_reduce": 4 * (27 * 1000 + 1000),
        "output_delta": 4 * (27 * 1000 + 1000),
        "delta_partial": 4 * (842_000 + 1000 + 32 * 841),
        "delta_reduce": 4 * (32 * 841 + 2 * 841),
        "update_weights": 4 * (2 * 842_000 + 841 + 1000),
    }
    # An output layer: the bias makes 32 inputs take two blocks, the ten neurons take one.
    small = gpu_timing.kernel_bytes(32, 10)
    assert small["output_delta"] == 4 * (2 * 10 + 10)
    assert small["delta_partial"] == 4 * (330 + 10 + 32)


def test_row_of_a_kernel():
    found = timing_report.row(
        {
            "group": "kernel",
            "name": "some_kernel",
            "state": "warm",
            "us": np.array([1.0, 2, 3, 4, 5, 6, 7]),
            "bytes": 8000,
            "copy_us": np.array([0.5, 0.5, 0.5, 1, 1, 1, 1]),
            "copy_bytes": 2000,
            "paper_gb_a_second": 115,
        }
    )
    assert list(found) == list(timing_report.COLUMNS)
    assert (found["us_p20"], found["us"], found["us_p80"]) == pytest.approx((2.2, 4, 5.8))
    assert found["repeats"] == 7
    assert found["gb_a_second"] == pytest.approx(2)  # 8,000 bytes in 4 us
    assert found["copy_gb_a_second"] == pytest.approx(2)  # 2,000 bytes in 1 us
    # Median of 1/2, 1/4, 1/6, 1/4, 1/5, 1/6, 1/7: 1/5 of the time, for 4 times the bytes.
    assert found["percent_of_copy"] == pytest.approx(100 * 4 / 5)
    assert found["paper_gb_a_second"] == 115
    for name in ("images_a_second", "updates_a_second", "times_cpu", "tflop_a_second", "net"):
        assert found[name] is None


def test_row_of_a_net():
    one = {"group": "net", "name": "engine", "us": np.full(7, 20.0), "images": 1, "weights": 3000}
    found = timing_report.row(one | {"cpu_us": np.array([70, 80, 90.0])})
    assert found["images_a_second"] == pytest.approx(50_000)
    assert found["updates_a_second"] == pytest.approx(1.5e8)
    assert found["times_cpu"] == pytest.approx(4)
    assert found["gb_a_second"] is found["percent_of_copy"] is None
    assert timing_report.row(one)["updates_a_second"] is None


def test_row_of_an_evaluation():
    one = {"group": "evaluation", "us": np.full(7, 250.0), "images": 4096, "flops": 5e9}
    found = timing_report.row(one)
    assert found["images_a_second"] == pytest.approx(4096 * 4000)
    assert found["tflop_a_second"] == pytest.approx(20)


# --- measuring


def test_works_take_turns(monkeypatch):
    monkeypatch.setattr(bench, "SECONDS", 0)
    now, calls = [0.0], []
    monkeypatch.setattr(bench.time, "perf_counter", lambda: now[0])

    def work(name, seconds):
        calls.append(name)
        now[0] += seconds

    works = {
        "a": Work(lambda: work("a", 2), n_images=10),
        "b": Work(lambda: work("b", 3), n_bytes=600),
    }
    us = bench.time_works(works, 7)
    assert us["a"] == pytest.approx(np.full(7, 0.2e6))  # an image
    assert us["b"] == pytest.approx(np.full(7, 3e6))  # a call
    assert "".join(calls) == "aabb" + 7 * "ab"
    a, b = bench.measure("group", works | {"a": replace(works["a"], n_bytes=30)}, 7, copy="b")
    assert (a["images"], b["images"]) == (1, None)
    assert timing_report.row(a)["percent_of_copy"] == pytest.approx(100 * (30 / 600) * (3 / 0.2))
    assert timing_report.row(b)["percent_of_copy"] == pytest.approx(100)


def test_works_are_repeated_for_some_time(monkeypatch):
    monkeypatch.setattr(bench, "SECONDS", 0.002)
    calls = []
    bench.time_works({"a": Work(lambda: calls.append(1))}, 7)
    assert len(calls) > 2 + 7


class FakeCuda:
    """What the timer uses of numba's cuda. Events are 3 ms apart; lates: whether the host was."""

    def __init__(self, lates=()):
        self.log, self.lates = [], list(lates)
        self.cudadrv = SimpleNamespace(driver=self)

    def get_current_device(self):
        return SimpleNamespace(L2_CACHE_SIZE=500)

    def device_memset(self, buffer, value, n_bytes, stream):
        assert (buffer.nbytes, n_bytes, stream) == (1000, 1000, "stream")
        self.log.append("memset")

    def event(self):
        return SimpleNamespace(
            record=lambda stream: self.log.append("event"),
            synchronize=lambda: self.log.append("wait"),
            query=lambda: self.lates.pop(0) if self.lates else False,
            elapsed_time=lambda end: 3.0,
        )


def fake_timer(monkeypatch, lates=()):
    fake = FakeCuda(lates)
    monkeypatch.setattr(gpu, "cuda", fake)
    monkeypatch.setattr(gpu, "new_stream", lambda: "stream")
    monkeypatch.setattr(gpu, "device_array", lambda shape, dtype: np.empty(shape, dtype))
    monkeypatch.setattr(gpu_timing, "MEMSET_BYTES", 100)  # less than twice the L2
    return fake, gpu_timing.Timer()


@pytest.mark.parametrize("state", gpu_timing.STATES)
def test_timer_hides_the_host_and_sets_the_cache(state, monkeypatch):
    fake, timer = fake_timer(monkeypatch)
    assert timer(lambda stream: fake.log.append(f"work on {stream}"), state) == 3000
    work = "work on stream"
    again = [work] if state == "warm" else []
    assert fake.log == [work, "memset", *again, "event", work, "event", "wait"]


def test_timer_waits_longer_for_a_slow_host(monkeypatch):
    fake, timer = fake_timer(monkeypatch, lates=[True, True, False])
    assert timer(lambda stream: None, "cold") == 3000
    assert fake.log.count("memset") == 1 + 4 + 16


def test_timer_gives_up_on_a_host_that_is_always_late(monkeypatch):
    _, timer = fake_timer(monkeypatch, lates=[True] * 4)
    with pytest.raises(Problem, match="CUDA_LAUNCH_BLOCKING"):
        timer(lambda stream: None, "warm")


def test_timer_wakes_the_gpu(monkeypatch):
    fake, timer = fake_timer(monkeypatch)
    monkeypatch.setattr(gpu, "synchronize", lambda stream: fake.log.append(f"wait for {stream}"))
    monkeypatch.setattr(gpu_timing, "WAKE_SECONDS", 0.01)
    timer.wake()
    assert fake.log[:4] == 2 * ["memset", "wait for stream"]


def test_kernels_and_copies_take_turns():
    said = []

    def timer(work, state):
        said.append((work, state))
        return len(said)

    us = gpu_timing.take_turns(timer, ["kernel", "copy"], 2)
    assert said[:4] == [(w, s) for s in ("warm", "cold") for w in ("kernel", "copy")]
    assert us["warm"].tolist() == [[1, 5], [2, 6]]
    assert us["cold"].tolist() == [[3, 7], [4, 8]]


def test_copies_move_the_bytes_they_are_told(monkeypatch):
    moved = []

    def device_to_device(target, source, n_bytes, stream):
        moved.append((len(target), len(source), n_bytes, stream, target is source))

    def device_array(shape, dtype):
        return DeviceArray(shape, dtype)

    class DeviceArray(np.ndarray):
        def copy_to_device(self, host, stream):
            self[:] = host

    driver = SimpleNamespace(device_to_device=device_to_device)
    monkeypatch.setattr(gpu, "cuda", SimpleNamespace(cudadrv=SimpleNamespace(driver=driver)))
    monkeypatch.setattr(gpu, "device_array", device_array)
    monkeypatch.setattr(gpu, "synchronize", lambda stream: None)
    gpu_timing.copies(1000, "one stream")(600)("another")
    assert moved == [(500, 500, 300, "another", False)]


def test_a_schedule_is_timed_between_ticks(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(gpu_timing.time, "perf_counter", lambda: now[0])

    class Engine:
        def __init__(self, schedule):
            assert schedule == "graph"

        def set_network(self, network):
            now[0] += 100

        def train(self, images, labels, order, eta, tick):
            assert images.shape == (1000, 33)
            assert len(order) == 8 * 1000
            now[0] += 50  # the upload
            for chunk in range(8):
                now[0] += 1 + chunk
                tick(1000, 0.5)

    monkeypatch.setattr(gpu_timing.engine, "CudaEngine", Engine)
    one = gpu_timing.measure_schedule(Network.initial(SIZES, 0), "graph", 77, 7)
    assert one["us"] == pytest.approx([2e3, 3e3, 4e3, 5e3, 6e3, 7e3, 8e3])
    assert (one["name"], one["bytes"], one["images"]) == ("engine cuda graph", 77, 1)


class LaunchOnce:
    """A timer for the simulator, which has no time: it only launches."""

    def __init__(self):
        self.stream = gpu.new_stream()

    def wake(self):
        pass

    def __call__(self, work, state):
        work(self.stream)
        return 1.0


@pytest.mark.skipif(
    gpu.missing() is not None and not gpu.SIMULATED,
    reason=f"needs a GPU or NUMBA_ENABLE_CUDASIM=1: {gpu.missing()}",
)
def test_everything_on_the_gpu_is_measured(monkeypatch):
    monkeypatch.setattr(gpu_timing.engine, "CHUNK", 1)
    monkeypatch.setattr(gpu_timing.engine, "PREDICT_IMAGES", 3)
    if gpu.SIMULATED:  # which has no graphs
        monkeypatch.setattr(gpu_timing.engine, "SCHEDULES", ("launch",))
    timer = LaunchOnce() if gpu.SIMULATED else gpu_timing.Timer()
    network = Network.initial((37, 21, 33, 10), 0)
    kernels = list(gpu_timing.kernels_of(network, timer.stream))
    assert [(kernel.name, kernel.layer) for kernel in kernels] == [
        ("pick_image", 1),
        ("forward_partial", 1),
        ("forward_reduce", 1),
        ("update_weights", 1),
        ("forward_partial", 2),
        ("forward_reduce", 2),
        ("delta_partial", 2),
        ("delta_reduce", 2),
        ("update_weights", 2),
        ("forward_partial", 3),
        ("output_delta", 3),
        ("delta_partial", 3),
        ("delta_reduce", 3),
        ("update_weights", 3),
    ]
    found = gpu_timing.measure_net(network, timer, 1)
    assert all((one["us"] > 0).all() for one in found)
    by_group = {}
    for one in found:
        by_group.setdefault(one["group"], []).append(one)
    assert len(by_group["kernel"]) == 2 * (1 + len(kernels))
    assert len(by_group["evaluation"]) == 2
    assert by_group["evaluation"][0]["flops"] == 2 * 3 * count_weights(network.sizes)
    assert by_group["net"][0]["bytes"] == sum(kernel.n_bytes for kernel in kernels)


def test_the_deformation_on_the_gpu_is_measured(monkeypatch):
    if gpu.missing() is not None and not gpu.SIMULATED:
        pytest.skip(f"needs a GPU or NUMBA_ENABLE_CUDASIM=1: {gpu.missing()}")
    timer = LaunchOnce() if gpu.SIMULATED else gpu_timing.Timer()
    n, side = (3, 1) if gpu.SIMULATED else (950, 29)
    monkeypatch.setattr(deform_timing, "PART", 100)
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (n, side, side)).astype(np.float32)
    labels = rng.integers(0, 10, n).astype(np.uint8)
    expected = deform(images, labels, epoch=deform_timing.EPOCH)
    out = gpu.device_array(images.shape, np.float32)
    for work in deform_timing.whole_works(out, images, labels, timer.stream).values():
        out.copy_to_device(np.full(images.shape, np.nan, np.float32), stream=timer.stream)
        work(timer.stream)
        gpu.synchronize(timer.stream)
        assert (abs(out.copy_to_host() - expected) < 1e-5).all()
    found = deform_timing.measure(images, labels, timer, 2)
    assert [one["name"] for one in found] == [
        "GPU, a kernel a tile",
        "GPU, a kernel a stage",
        "GPU, convolution by Listing 1",
        "GPU, convolution separable",
    ]
    assert all(one["us"].shape == (2,) and (one["us"] > 0).all() for one in found)
    if gpu.SIMULATED:  # whose timer says 1 us for everything
        assert [one["us"][0] for one in found] == [1 / 3, 1 / 3, 1 / 100, 1 / 100]


def test_a_peer_of_the_deformation_that_fails_is_told_and_left_out(capsys):
    def broken(images, labels, deformation):
        raise RuntimeError("no such kernel")

    images = np.zeros((3, 29, 29), np.float32)
    makers = {"broken": broken, "fine": lambda *some: lambda: None}
    works = bench.deform_peer_works(makers, images, np.zeros(3, np.uint8))
    assert {name: work.n_images for name, work in works.items()} == {"fine": 3}
    assert "broken fails, so it is not measured: RuntimeError: no such kernel" in (
        capsys.readouterr().err
    )


# --- the whole


def test_main_measures_writes_and_prints(tmp_path, monkeypatch, capsys):
    """On a tiny net, without a GPU."""
    monkeypatch.setattr(bench, "NETS", {1: SIZES})
    monkeypatch.setattr(bench, "SECONDS", 0)
    monkeypatch.setattr(bench, "DEFORM_IMAGES", 100)
    monkeypatch.setattr(bench, "DEFORM_PEER_IMAGES", 10)
    monkeypatch.setattr(gpu, "SIMULATED", False)
    monkeypatch.setattr(gpu, "missing", lambda n_bytes: "there is none")
    monkeypatch.setattr(bench.compiled, "missing_toolkit", lambda: "there is no compiler")
    bench.main(["--repeats", "7", "--out", str(tmp_path / "out")])
    said = capsys.readouterr()
    with (tmp_path / "out" / "bench.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("bench.csv", "bench.png", "bench.pdf")
    }
    assert list(rows[0])[: len(timing_report.COLUMNS)] == list(timing_report.COLUMNS)
    assert {"device", "versions", "date", "commit"} < set(rows[0])
    names = {one["name"] for one in rows}
    assert {"engine cpu", "scaled copy", *peers.on_cpu(), *deform_peers.on_cpu()} < names
    assert "CPU, 1 thread" in names
    assert {one["ran_on"] for one in rows} == {rows[0]["device"]}
    assert {one["repeats"] for one in rows} == {"7"}
    engine = rows[0]
    assert engine["name"] == "engine cpu"
    assert float(engine["times_cpu"]) == 1
    assert int(engine["weights"]) == count_weights(SIZES)
    # 1,268 weights, 714 of them in layer 1; the copy reads and writes 4,096 with their padding.
    assert int(engine["bytes"]) == 4 * (3 * 1268 - 714)
    copy = rows[1]
    assert (copy["name"], copy["images"]) == ("scaled copy", "")
    assert int(copy["bytes"]) == 2 * 4 * 4096
    assert float(copy["percent_of_copy"]) == pytest.approx(100)
    assert engine["copy_gb_a_second"] == copy["gb_a_second"]
    assert "no GPU is measured: there is none" in said.err
    assert "measuring net 1 ... (part 1 of 2)" in said.err
    assert "| engine cpu" in said.out
    assert "| CPU, 1 thread" in said.out
    assert said.out.endswith("there is no compiler\n")


def test_a_package_that_breaks_at_its_import_is_told(monkeypatch):
    def broken(package):
        raise OSError(f"lib{package}.so: no such file\nand more")

    monkeypatch.setattr(peers.importlib, "import_module", broken)
    assert peers.fault("torch") == "OSError: libtorch.so: no such file"
    assert "PyTorch eager, CPU" not in peers.on_cpu()


def test_kernels_that_cannot_be_timed_cost_nothing_else(monkeypatch, capsys):
    def late(*_arguments):
        raise Problem("the host is too slow")

    monkeypatch.setattr(gpu_timing, "kernels_of", lambda network, stream: [])
    monkeypatch.setattr(gpu_timing, "measure_schedule", lambda *arguments: arguments[1])
    monkeypatch.setattr(gpu_timing, "measure_floor", late)
    monkeypatch.setattr(gpu_timing, "measure_kernels", late)
    monkeypatch.setattr(gpu_timing, "measure_evaluation", lambda *arguments: ["evaluation"])
    timer = SimpleNamespace(wake=lambda: None, stream=None)
    assert gpu_timing.measure_net(None, timer, 7) == ["graph", "launch", "evaluation"]
    assert capsys.readouterr().err.count("the host is too slow") == 2


def test_simulated_gpu_is_not_measured(tmp_path, monkeypatch, capsys):
    class Stop(Exception):
        pass

    def stop(repeats, timer):
        assert timer is None
        raise Stop

    monkeypatch.setattr(gpu, "SIMULATED", True)
    monkeypatch.setattr(bench, "measure_all", stop)
    with pytest.raises(Stop):
        bench.main(["--out", str(tmp_path)])
    assert "only simulates" in capsys.readouterr().err


def test_too_few_repeats_are_refused(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--repeats", "6"])
    assert "expected an integer from 7 to 1000, got '6'" in capsys.readouterr().err


class NoPaper:
    """Stands in for Listing 1 where there is no GPU."""

    def __init__(self, images, labels, deformation, seed):
        assert (images.shape, labels.shape) == ((100, 29, 29), (100,))

    def deform(self, out, epoch):
        assert out.shape == (100, 29, 29)


def test_main_on_a_gpu(tmp_path, monkeypatch, capsys):
    """With made-up times of the GPU."""
    monkeypatch.setattr(bench, "NETS", {4: SIZES})
    monkeypatch.setattr(bench, "SECONDS", 0)
    monkeypatch.setattr(bench, "DEFORM_IMAGES", 100)
    monkeypatch.setattr(bench, "DEFORM_PEER_IMAGES", 10)
    monkeypatch.setattr(gpu, "SIMULATED", False)
    monkeypatch.setattr(gpu, "missing", lambda n_bytes: None)
    monkeypatch.setattr(gpu, "name", lambda: "Some GPU")
    monkeypatch.setattr(gpu, "driver_version", lambda: "1.2")
    measured = [one | {"ran_on": ""} for one in gpu_measurements()]
    monkeypatch.setattr(gpu_timing, "Timer", lambda: "a timer")
    monkeypatch.setattr(gpu_timing, "measure_net", lambda network, timer, repeats: measured)
    on_gpu = {"group": "deformation", "name": "GPU, a kernel a tile", "images": 1}
    on_gpu |= {"us": np.full(7, 0.05)}
    monkeypatch.setattr(bench.deform_timing, "IMAGES", 120)
    monkeypatch.setattr(bench.deform_timing, "measure", lambda *arguments: [on_gpu])
    monkeypatch.setattr(bench, "PaperSet", NoPaper)
    monkeypatch.setattr(deform_peers, "on_cpu", dict)
    monkeypatch.setattr(deform_peers, "on_gpu", lambda: {"kornia, GPU": deform_peers.scipy_recipe})
    monkeypatch.setattr(peers, "on_cpu", dict)
    monkeypatch.setattr(peers, "on_gpu", lambda: {"PyTorch eager, GPU": peers.numpy_loop})
    bench.main(["--repeats", "7", "--out", str(tmp_path)])
    with (tmp_path / "bench.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["device"], row["driver"]) for row in rows} == {("Some GPU", "1.2")}
    on = {row["name"]: row["ran_on"] for row in rows}
    assert (
        on["engine cuda graph"] == on["forward_partial"] == on["PyTorch eager, GPU"] == "Some GPU"
    )
    for name in ("empty kernel", "GPU, a kernel a tile", "kornia, GPU"):
        assert on[name] == "Some GPU"
    assert on["Listing 1 on the GPU, the rest on the CPU"] == "Some GPU"
    assert on["engine cpu"] == on["CPU, 1 thread"] == bench.provenance.device("cpu")
    times = {row["name"]: row for row in rows if row["times_cpu"]}
    assert set(times) == {"engine cuda graph", "engine cpu", "PyTorch eager, GPU"}
    ours, cpu = times["engine cuda graph"], times["engine cpu"]
    assert float(ours["times_cpu"]) == pytest.approx(float(cpu["us"]) / float(ours["us"]))
    said = capsys.readouterr()
    assert "no GPU is measured" not in said.err
    assert "| forward_partial |" in said.out
    assert "TFLOP/s" in said.out
    assert "| GPU, a kernel a tile " in said.out


def net_measurement(name, us, **more):
    one = {"group": "net", "net": 1, "weights": 1_347_510, "name": name, "us": np.full(7, us)}
    return one | {"images": 1, "cpu_us": np.full(7, 300.0), "ran_on": "a chip"} | more


def gpu_measurements():
    """Rows as a GPU would give them, made up."""
    kernel = {"group": "kernel", "n_in": 841, "n_out": 1000, "layer": 1, "bytes": 3_400_000}
    kernel |= {"name": "forward_partial", "copy_bytes": 3_400_000, "paper_gb_a_second": 115}
    evaluation = {"group": "evaluation", "name": "forward_batch", "images": 4096, "flops": 1e10}
    found = [
        {"group": "kernel", "net": 1, "name": "empty kernel", "state": state, "us": np.full(7, us)}
        for state, us in (("warm", 2.5), ("cold", 2.75))
    ]
    for net in (1, 2, 4):
        for state, us in (("warm", 2.0), ("cold", 4.0)):
            both = {"net": net, "state": state, "us": np.full(7, us)}
            found += [kernel | both | {"copy_us": np.full(7, 1.0)}, evaluation | both]
    return [net_measurement("engine cuda graph", 20.0), *found]


SOURCE = {
    "device": "Some GPU",
    "driver": "1.2",
    "versions": "a=1",
    "date": "today",
    "commit": "c" * 40,
}


def written(measurements, source, path):
    """bench.csv at `path`, of measurements."""
    path.parent.mkdir(parents=True)
    path.write_text(csv_text([timing_report.row(one) | source for one in measurements]))


def test_net_table_has_the_papers_figures_above_ours():
    measurements = [
        net_measurement("engine cpu", 300.0, bytes=3_000_000),
        {"group": "net", "net": 1, "name": "scaled copy", "us": np.full(7, 5.0), "ran_on": "it"},
        {"group": "deformation", "name": "deform", "us": np.full(7, 10.0), "images": 1},
    ]
    lines = timing_report.net_table([timing_report.row(one) for one in measurements])
    assert lines[0]["1e9 updates/s"] == "up to 5"
    assert lines[0]["speedup over CPU"] == "40"
    assert lines[1]["engine"] == "2012, GTX 480"
    assert lines[1]["1e9 updates/s"] == "up to 7.5"
    assert lines[1]["speedup over CPU"] == "50"
    assert lines[2] == {
        "net": "1",
        "engine": "engine cpu",
        "us per image (p20-p80)": "300.0 (300.0-300.0)",
        "images/s": "3,333",
        "1e9 updates/s": "4.49",
        "speedup over CPU": "1.00",
        "GB/s": "10.0",
        "% of copy": "",
        "device": "a chip",
    }
    assert lines[3]["us per image (p20-p80)"] == ""
    assert len(lines) == 4


def test_deform_table_has_the_papers_figures_above_ours():
    measurements = [
        {"group": "deformation", "name": name, "us": us * np.ones(7), "images": 1, "ran_on": "it"}
        for name, us in (("CPU, 1 thread", 20.0), ("scipy recipe", 400.0), ("GPU", 0.05))
    ]
    measurements.append(net_measurement("engine cpu", 300.0))
    lines = timing_report.deform_table([timing_report.row(one) for one in measurements])
    assert len(lines) == 6 + 3
    assert lines[1] == {
        "method": "2010, convolution on a GPU",
        "60,000 images (p20-p80)": "9 s",
        "images/s": "6,667",
        "speedup over SciPy recipe": "",
        "device": "the paper",
    }
    assert lines[6] == {
        "method": "CPU, 1 thread",
        "60,000 images (p20-p80)": "1.2 s (1.2 s-1.2 s)",
        "images/s": "50,000",
        "speedup over SciPy recipe": "20.0",
        "device": "it",
    }
    assert lines[7]["speedup over SciPy recipe"] == "1.0"
    assert lines[8]["60,000 images (p20-p80)"] == "3 ms (3 ms-3 ms)"
    assert lines[8]["images/s"] == "20,000,000"
    without = timing_report.deform_table([timing_report.row(measurements[2])])
    assert without[6]["speedup over SciPy recipe"] == ""


def test_kernel_tables_have_both_states_in_a_line():
    found = [timing_report.row(one) for one in gpu_measurements()]
    kernels = timing_report.kernel_table(found, nets=(1, 4))
    evaluation = timing_report.evaluation_table(found)
    assert len(kernels) == 3
    floor = kernels[0]
    assert (floor["kernel"], floor["layer"], floor["MB"]) == ("empty kernel", "", "")
    assert floor["cold: us (p20-p80)"] == "2.75 (2.75-2.75)"
    assert kernels[2] == {
        "net": "4",
        "layer": "1: 841 x 1000",
        "kernel": "forward_partial",
        "MB": "3.400",
        "paper GB/s": "115",
        "warm: us (p20-p80)": "2.00 (2.00-2.00)",
        "warm: GB/s": "1,700",
        "warm: copy GB/s": "3,400",
        "warm: % of copy": "50",
        "cold: us (p20-p80)": "4.00 (4.00-4.00)",
        "cold: GB/s": "850",
        "cold: copy GB/s": "3,400",
        "cold: % of copy": "25",
    }
    assert len(evaluation) == 6
    assert evaluation[0]["TFLOP/s"] == "5000.00"
    assert evaluation[0]["images/s"] == "2,048,000,000"


def test_plot_has_a_line_for_everything_and_the_paper():
    found = []
    for net, sizes in NETS.items():
        for i, name in enumerate(bench_plots.STYLES, start=1):
            one = net_measurement(name, 100.0 * i, net=net, weights=count_weights(sizes))
            found.append(timing_report.row(one) | {"device": "Some GPU"})
        copy = {"group": "net", "net": net, "name": "scaled copy", "us": np.ones(7)}
        found.append(timing_report.row(copy) | {"device": "Some GPU"})
    (axes,) = bench_plots.draw_times(found).axes
    lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    paper = lines.pop("paper, 2012, GTX 480:\n7.5e9 updates/s")
    assert set(lines) == set(bench_plots.STYLES)
    assert lines["engine cpu"][:, 0] == pytest.approx(
        [1.34751, 3.26951, 6.69201, 8.86001, 12.11501]
    )
    assert paper[-1] == pytest.approx([12.11501, 1e6 * 12_115_010 / 7.5e9])
    markers = {(line.get_marker(), line.get_markerfacecolor()) for line in axes.lines}
    assert len(markers) == len(axes.lines)
    assert "microseconds" in axes.get_ylabel()
    assert "millions" in axes.get_xlabel()


# --- the README


def test_readme_table_of_records():
    assert readme.table1([], "MNIST") == readme.NOT_MEASURED
    runs = [make_run(net=4), make_run(net=1, name="load_digits"), make_run(net=2)]
    text = readme.table1(runs, "MNIST")
    assert [line.split("|")[1].strip() for line in text.splitlines()[2:4]] == ["2", "4"]
    assert "2,300 epochs: not measured yet" in text
    assert text.count("commit 0123456789ab") == 2
    whole = make_run(epochs=2300, wrong=[35] * 2300, validation=[60] * 2300)
    assert "not measured yet" not in readme.table1([whole], "MNIST")
    digits = readme.table1(runs, "load_digits")
    assert "paper" not in digits
    assert digits.count("\n|") == 2  # under the header
    assert digits.count("commit") == 1


def test_readme_shows_the_benchmarks_of_every_device(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    assert readme.benchmarks(readme.read_benchmarks()) == readme.NOT_MEASURED
    assert readme.kernels(readme.read_benchmarks()) == readme.NOT_MEASURED

    on_cpu = SOURCE | {"device": "Some CPU", "driver": ""}
    written([net_measurement("engine cpu", 300.0)], on_cpu, tmp_path / "results/cpu/bench.csv")
    text = readme.benchmarks(readme.read_benchmarks())
    assert text.startswith("Some CPU; a 1; today; commit cccccccccccc; medians of 7 repeats:\n\n|")
    assert "| engine cpu " in text
    assert text.endswith("\n\nOn a GPU: not measured yet.")
    assert readme.kernels(readme.read_benchmarks()) == readme.NOT_MEASURED

    written(gpu_measurements(), SOURCE, tmp_path / "results/gpu/bench.csv")
    text = readme.benchmarks(readme.read_benchmarks())
    assert "Some CPU" in text
    assert "Some GPU; driver 1.2; a 1; today" in text
    assert "not measured" not in text
    assert "forward_partial" not in text
    text = readme.kernels(readme.read_benchmarks())
    assert text.startswith("Some GPU; driver 1.2; a 1; today; commit cccccccccccc; medians")
    assert re.findall(r"^\| (\d) .*forward_partial", text, re.MULTILINE) == ["1", "4"]
    assert "Some CPU" not in text


PARTS = ("table1", "digits", "bench", "kernels", "deformation")
PARTS += ("committee", "committee-digits", "scaling")


@pytest.mark.parametrize("name", PARTS)
def test_readme_needs_the_markers_of_the_benchmark(name, monkeypatch):
    monkeypatch.setattr(readme, "read_records", list)
    monkeypatch.setattr(readme, "read_benchmarks", list)
    monkeypatch.setattr(readme, "read_committees", list)
    monkeypatch.setattr(readme, "scalings", lambda found: readme.NOT_MEASURED)
    parts = {part: f"{readme.begin(part)}\n{readme.end(part)}\n" for part in PARTS}
    text = readme.render("".join(parts.values()))
    assert text.count(readme.NOT_MEASURED) == len(PARTS)
    parts.pop(name)
    with pytest.raises(Problem, match=f"lacks the line .*{name}"):
        readme.render("".join(parts.values()))


def test_several_sessions_show_all_their_commits():
    run = make_run()
    other = replace(run, provenance=[run.provenance[0] | {"commit": "f" * 40}, *run.provenance])
    assert "commit ffffffffffff, 0123456789ab" in tables.provenance_line(other)
