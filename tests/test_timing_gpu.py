"""timing/gpu.py and timing/deform.py: what is timed on a GPU, how, and how many bytes it moves."""

from types import SimpleNamespace

import numpy as np
import pytest
from executed import ENGINE_DEVICES, HAS_GPU
from timers import new_timer

from deepbig_runtime import gpu
from deform_gpu import deform
from experiments.running.errors import Problem
from experiments.timing import deform as deform_timing
from experiments.timing import gpu as gpu_timing
from experiments.timing.window_kernels import window_kernels
from experiments.timing.window_work import block_work, sweep_work
from mlp_gpu.network import Network, count_weights

SIZES = (33, 21, 17, 10)


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
    monkeypatch.setattr(gpu_timing, "MIN_MEMSET_BYTES", 100)  # less than twice the L2
    return fake, gpu_timing.Timer()


@pytest.mark.parametrize("state", gpu_timing.CACHE_STATES)
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
    _, timer = fake_timer(monkeypatch, lates=[True] * len(gpu_timing.MEMSET_COUNTS))
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

    us = gpu_timing.time_in_turn(timer, ["kernel", "copy"], 2)
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
    gpu_timing.make_copier(1000, "one stream")(600)("another")
    assert moved == [(500, 500, 300, "another", False)]


def test_a_schedule_is_timed_between_ticks(monkeypatch):
    now, epochs = [0.0], []
    monkeypatch.setattr(gpu_timing.time, "perf_counter", lambda: now[0])

    class Engine:
        def set_network(self, network):
            now[0] += 100

        def train(self, images, labels, order, eta, tick):
            assert images.shape == (6000, 33)
            assert len(order) == 8 * 1000
            now[0] += 50  # the upload
            epochs.append(None)
            for chunk in range(8):
                now[0] += 1 + chunk + 100 * (len(epochs) == 1)
                tick(1000, 0.5)

    monkeypatch.setattr(gpu_timing.engines, "make_engine", lambda name, schedule: Engine())
    (one,) = gpu_timing.measure_schedule(Network.initial(SIZES, 0), "graph", 77, 7)
    assert one.us == pytest.approx([2e3, 3e3, 4e3, 5e3, 6e3, 7e3, 8e3])
    assert (one.name, one.n_bytes, one.n_images) == ("engine cuda graph", 77, 1)


def test_kernels_that_cannot_be_timed_cost_nothing_else(monkeypatch, capsys):
    def late(*_arguments):
        raise Problem("the host is too slow")

    monkeypatch.setattr(gpu_timing, "training_kernels", lambda network, stream: [])
    monkeypatch.setattr(gpu_timing, "measure_schedule", lambda *arguments: [arguments[1]])
    monkeypatch.setattr(gpu_timing, "measure_window", lambda *arguments: ["window"])
    monkeypatch.setattr(gpu_timing, "measure_empty_kernel", late)
    monkeypatch.setattr(gpu_timing, "measure_kernels", late)
    monkeypatch.setattr(gpu_timing, "measure_evaluation", lambda *arguments: ["evaluation"])
    timer = SimpleNamespace(wake=lambda: None, stream=None)
    found = list(gpu_timing.measure_net(None, timer, 7))
    assert found == ["graph", "launch", "window", "evaluation"]
    assert capsys.readouterr().err.count("the host is too slow") == 2


@pytest.fixture(params=ENGINE_DEVICES)
def timer(request):
    with new_timer(request.param) as timer:
        yield timer


def test_everything_on_the_gpu_is_measured(timer, monkeypatch):
    monkeypatch.setattr(gpu_timing.engine, "IMAGES_PER_TICK", 1)
    monkeypatch.setattr(gpu_timing.engine, "PREDICT_BATCH", 3)
    monkeypatch.setattr(gpu_timing, "WINDOW_IMAGES_PER_BLOCK", 1)
    network = Network.initial((37, 21, 33, 10), 0)
    kernels = list(gpu_timing.training_kernels(network, timer.stream))
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
    found = list(gpu_timing.measure_net(network, timer, 1))
    assert all((one.us > 0).all() for one in found)
    by_group = {}
    for one in found:
        by_group.setdefault(one.group, []).append(one)
    assert len(by_group["kernel"]) == 2 * (1 + len(kernels))
    assert len(by_group["evaluation"]) == 2
    assert by_group["evaluation"][0].flops == 2 * 3 * count_weights(network.sizes)
    assert by_group["net"][0].n_bytes == sum(kernel.n_bytes for kernel in kernels)
    # Forward, back but for layer 1, and the update.
    assert by_group["net"][0].flops == 2 * (3 * count_weights(network.sizes) - 38 * 21)
    names = [f"engine cuda {schedule}" for schedule in ("graph", "launch", "window")]
    assert [one.name for one in by_group["net"]] == names
    # An image in a block of its own has one sweep.
    work = sweep_work(network.sizes, 1, 1, 1) + block_work(network.sizes, 1)
    assert by_group["net"][2].n_bytes == work.n_bytes
    assert by_group["net"][2].flops == work.flops


def test_deformations_that_cannot_be_timed_cost_nothing_else(monkeypatch, capsys):
    def late(enqueue, state):
        if enqueue == "stage" or (enqueue == "listing" and next(calls) > 1):
            raise Problem("the host is too slow")
        return 120.0

    calls = iter(range(100))
    whole, fields = {"tile": "tile", "stage": "stage"}, {"listing": "listing"}
    monkeypatch.setattr(deform_timing, "whole_deformations", lambda *arguments: whole)
    monkeypatch.setattr(deform_timing, "field_convolutions", lambda *arguments: fields)
    monkeypatch.setattr(gpu, "device_array", lambda shape, dtype: None)
    late.wake, late.stream = lambda: None, None
    (found,) = deform_timing.measure(np.empty((60, 29, 29)), None, late, 4)
    assert (found.name, list(found.us)) == ("tile", [2.0] * 4)
    assert capsys.readouterr().err.count("is left out: the host is too slow") == 2


def test_the_deformation_on_the_gpu_is_measured(timer, monkeypatch):
    n, side = (950, 29) if HAS_GPU else (60, 29)
    monkeypatch.setattr(deform_timing, "IMAGES_PER_STAGE", 100)
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (n, side, side)).astype(np.float32)
    labels = rng.integers(0, 10, n).astype(np.uint8)
    expected = deform(images, labels, epoch=deform_timing.EPOCH)
    out = gpu.device_array(images.shape, np.float32)
    for enqueue in deform_timing.whole_deformations(out, images, labels, timer.stream).values():
        out.copy_to_device(np.full(images.shape, np.nan, np.float32), stream=timer.stream)
        enqueue(timer.stream)
        gpu.synchronize(timer.stream)
        assert (abs(out.copy_to_host() - expected) < 1e-5).all()
    found = deform_timing.measure(images, labels, timer, 2)
    assert [one.name for one in found] == [
        "GPU, a kernel a tile",
        "GPU, a kernel a stage",
        "GPU, convolution by Listing 1",
        "GPU, convolution separable",
    ]
    assert all(one.us.shape == (2,) and (one.us > 0).all() for one in found)
    if not HAS_GPU:  # the timer says 1 us for everything
        assert [one.us[0] for one in found] == [1 / 60, 1 / 60, 1 / 100, 1 / 100]


def test_the_windows_kernels_are_found_half_way_through_a_block(timer):
    """Each has something to do, again and again: none returns at once or moves the window."""
    network = Network.initial((37, 21, 33, 10), 0)
    kernels = list(window_kernels(network, timer.stream))
    n, end, n_block = 32, 80, 128
    assert sum(one.n_bytes for one in kernels[2:-3]) == pytest.approx(
        sweep_work(network.sizes, n, end, n_block).n_bytes
    )
    assert [(one.name, one.layer) for one in kernels] == [
        *(("gather_images", 1), ("forward_products", 1), ("forward_states", 1)),
        *(("forward_products", 2), ("forward_states", 2)),
        *(("forward_products", 3), ("forward_states", 3), ("output_deltas", 3)),
        *(("backward_products", 3), ("backward_deltas", 3)),
        *(("backward_products", 2), ("backward_deltas", 2)),
        *(("update_weights_of_block", layer) for layer in (1, 2, 3)),
    ]
    for one in kernels:
        changed = one.launch.arguments[0]
        gpu.fill([(changed, np.full(changed.shape, 7, np.float32))], timer.stream)
        gpu.play([one.launch], timer.stream)
        (found,) = gpu.read([changed], timer.stream)
        assert (found != 7).any(), one.name
