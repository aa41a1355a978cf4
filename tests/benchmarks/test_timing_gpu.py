"""What is timed on a GPU, how, and how many bytes it moves: gpu_, cnn_ and deform_times.py."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from executed import ENGINE_DEVICES, HAS_GPU, on_device

from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime import gpu
from deepbig_runtime.errors import Problem
from deform_gpu import deform
from deform_gpu.batches import BATCH
from experiments.benchmarks import baselines, cnn_times, deform_times, gpu_times, host
from experiments.benchmarks.baselines import numpy_convolutional
from experiments.benchmarks.gpu_times import Work, block_work, sweep_work, window_kernels
from mlp_gpu import cuda as mlp_cuda
from mlp_gpu.network import Network, count_weights
from mlp_gpu.tensor_cores import KERNELS

SIZES = (33, 21, 17, 10)


def test_kernel_bytes():
    # Layer 1 of net 1: 842 x 1000 weights, 27 blocks of 32 inputs, 32 of 32 neurons.
    assert gpu_times.kernel_bytes(841, 1000) == {
        "pick_image": 4 * 2 * 841,
        "forward_partial": 4 * (842_000 + 841 + 27 * 1000),
        "forward_reduce": 4 * (27 * 1000 + 1000),
        "output_delta": 4 * (27 * 1000 + 1000),
        "delta_partial": 4 * (842_000 + 1000 + 32 * 841),
        "delta_reduce": 4 * (32 * 841 + 2 * 841),
        "update_weights": 4 * (2 * 842_000 + 841 + 1000),
    }
    # The bias makes 32 inputs take two blocks.
    assert gpu_times.kernel_bytes(32, 10)["output_delta"] == 4 * (2 * 10 + 10)


@pytest.fixture
def timer_on_fake(monkeypatch):
    """A timer whose events are 3 ms apart, what it did, and whether the host is late, in turn."""
    log, lates = [], []
    event = SimpleNamespace(
        record=lambda stream: log.append("event"),
        synchronize=lambda: log.append("wait"),
        query=lambda: bool(lates) and lates.pop(),
        elapsed_time=lambda end: 3.0,
    )
    cuda = MagicMock(event=lambda: event)
    cuda.get_current_device().L2_CACHE_SIZE = 500
    cuda.cudadrv.driver.device_memset = lambda buffer, value, n, stream: log.append((n, stream))
    monkeypatch.setattr(gpu, "cuda", cuda)
    monkeypatch.setattr(gpu, "new_stream", lambda: "stream")
    monkeypatch.setattr(gpu, "device_array", np.empty)
    monkeypatch.setattr(gpu_times, "MIN_MEMSET_BYTES", 100)  # less than twice the L2
    return gpu_times.Timer(), log, lates


@pytest.mark.parametrize(("state", "n_late"), [("warm", 0), ("cold", 0), ("cold", 2)])
def test_timer_sets_the_cache_and_hides_the_host(state, n_late, timer_on_fake):
    """The later the host, the longer the memsets; those of attempts that were late count too."""
    timer, log, lates = timer_on_fake
    lates += [True] * n_late
    assert timer(lambda stream: log.append(f"work on {stream}"), state) == 3000
    work, memset = "work on stream", (1000, "stream")
    again = [work] if state == "warm" else []
    last = 4**n_late * [memset] + [*again, "event", work, "event", "wait"]
    assert (log[0], log[-len(last) :]) == (work, last)
    assert log.count(memset) == sum(4**i for i in range(n_late + 1))


def test_timer_gives_up_on_a_host_that_is_always_late(timer_on_fake):
    timer, _, lates = timer_on_fake
    lates += [True] * len(gpu_times.MEMSET_COUNTS)
    with pytest.raises(Problem, match="CUDA_LAUNCH_BLOCKING"):
        timer(lambda stream: None, "warm")


def test_kernels_and_copies_take_turns():
    said = []

    def timer(work, state):
        said.append((work, state))
        return len(said)

    fields = {"group": "kernel", "name": "k", "n_bytes": 60}
    warm, cold = gpu_times.measure_states("kernel", timer, 2, "copy", **fields)
    assert said[:4] == [(w, s) for s in ("warm", "cold") for w in ("kernel", "copy")]
    # The kernel takes 1 and 5, or 3 and 7 microseconds, the copy 2 and 6, or 4 and 8.
    assert (warm.state, warm.us, warm.bytes, warm.copy_gb_a_second) == ("warm", 3, 60, 60 / 4 / 1e3)
    assert (cold.state, cold.us, cold.bytes, cold.copy_gb_a_second) == ("cold", 5, 60, 60 / 6 / 1e3)


def test_copies_move_as_many_bytes_as_asked(monkeypatch):
    monkeypatch.setattr(gpu, "cuda", MagicMock())
    monkeypatch.setattr(gpu, "device_array", lambda shape, dtype: MagicMock(shape=shape))
    monkeypatch.setattr(gpu, "fill", lambda pairs, stream: None)
    gpu_times.make_copier(1000, "one stream")(600)("another")
    (call,) = gpu.cuda.cudadrv.driver.device_to_device.mock_calls
    target, source, n_bytes = call.args
    assert (target.shape, source.shape, target is source) == ((500,), (500,), False)
    assert (n_bytes, call.kwargs) == (300, {"stream": "another"})


def test_engine_is_timed_between_ticks(monkeypatch):
    now, epochs, nets = [0.0], [], []
    monkeypatch.setattr(gpu_times.time, "perf_counter", lambda: now[0])

    def train(images, labels, order, eta, tick):
        epochs.append(None)
        assert images.shape == (60_000, 33)
        assert list(order) == list(range(1000 * (2 if len(epochs) == 1 else 8)))
        now[0] += 50  # the upload
        for chunk in range(engine.chunks):
            now[0] += 1 + chunk + 100 * (len(epochs) == 1)
            tick(1000, 0.5)

    engine = SimpleNamespace(name="cuda", schedule="graph", chunks=8, train=train)
    engine.images_per_tick, engine.n_inputs = 1000, 33
    engine.set_network = nets.append
    network = Network.initial(SIZES, 0)
    row = gpu_times.measure_engine(engine, network, 7, lambda: Work(77.4, 5))
    assert (row.us, row.repeats) == (pytest.approx(5e3), 7)  # 2, 3, 4, 5, 6, 7 and 8 ms
    assert (row.us_p20, row.us_p80) == pytest.approx((3.2e3, 6.8e3))
    assert (row.name, row.bytes, row.flops, row.images) == ("engine cuda graph", 77, 5, 1)
    assert len(nets) == 3  # so the timed epoch begins as the one before it
    epochs.clear()
    engine.chunks = 1
    with pytest.raises(Problem, match="cuda graph ended before it could be timed"):
        gpu_times.measure_engine(engine, network, 7, Work)


def test_measurement_that_fails_costs_no_other(capsys):
    def late():
        raise Problem("the host is too slow")

    assert list(host.attempts([late, lambda: [1, 2], late, lambda: [3]])) == [1, 2, 3]
    assert capsys.readouterr().err.count("are left out: the host is too slow") == 2


def named(layer, names):
    """Names of kernels, each with its layer."""
    return [(name, layer) for name in names.split()]


@pytest.fixture(params=ENGINE_DEVICES)
def device(request):
    return request.param


class LaunchOnce:
    """A timer for what is executed without a GPU, whose time says nothing: it only launches."""

    def __init__(self):
        self.stream = gpu.new_stream()

    def wake(self):
        pass

    def __call__(self, enqueue, state):
        enqueue(self.stream)
        return 1.0


def copy_bytes(target, source, n_bytes, stream):
    target[:n_bytes].copy_to_device(source[:n_bytes])


@pytest.fixture
def timer(device, monkeypatch):
    """Copies on the GPU are made by the host where there is none."""
    with on_device(device) as executor:
        if executor:
            known = executor.signatures | {gpu_times.empty_kernel: "void()"}
            monkeypatch.setattr(executor, "signatures", known)
            monkeypatch.setattr(gpu.cuda.cudadrv.driver, "device_to_device", copy_bytes)
        yield gpu_times.Timer() if HAS_GPU else LaunchOnce()


def test_everything_on_the_gpu_is_measured(timer, monkeypatch):
    monkeypatch.setattr(gpu_times.engine, "IMAGES_PER_TICK", 1)
    monkeypatch.setattr(gpu_times.engine, "PREDICT_BATCH", 3)
    monkeypatch.setattr(gpu_times, "WINDOW_IMAGES_PER_BLOCK", 1)
    network = Network.initial((37, 21, 33, 10), 0)
    kernels = gpu_times.training_kernels(network)
    for name in ("window_kernels", "sweep_kernels"):  # see below
        monkeypatch.setattr(gpu_times, name, lambda *_: kernels[:1])
    assert [(kernel.name, kernel.layer) for kernel in kernels] == [
        *named(1, "pick_image forward_partial forward_reduce update_weights"),
        *named(2, "forward_partial forward_reduce delta_partial delta_reduce update_weights"),
        *named(3, "forward_partial output_delta delta_partial delta_reduce update_weights"),
    ]
    found = list(gpu_times.measure_net(network, timer, 1))
    assert all(one.us > 0 for one in found)
    groups = [one.group for one in found]
    assert groups.count("kernel") == 2 * (1 + len(kernels) + 1)
    assert groups.count("window kernel") == 2 * 2
    evaluation, _ = (one for one in found if one.group == "evaluation")
    assert evaluation.flops == 2 * 3 * count_weights(network.sizes)
    graph, launch, window = (one for one in found if one.group == "net")
    assert [one.name for one in (graph, launch, window)] == [
        f"engine cuda {schedule}" for schedule in ("graph", "launch", "window")
    ]
    assert graph.bytes == sum(kernel.n_bytes for kernel in kernels)
    # Forward, back but for layer 1, and the update.
    assert graph.flops == 2 * (3 * count_weights(network.sizes) - 38 * 21)
    # An image in a block of its own has one sweep.
    work = sweep_work(network.sizes, 1, 1, 1) + block_work(network.sizes, 1)
    assert (window.bytes, window.flops) == (work.n_bytes, work.flops)


def test_deformations_that_cannot_be_timed_cost_nothing_else(monkeypatch, capsys):
    def late(enqueue, state):
        if enqueue == "stage" or (enqueue == "listing" and next(calls) > 1):
            raise Problem("the host is too slow")
        return 120.0

    calls = iter(range(100))
    whole, fields = {"tile": "tile", "stage": "stage"}, {"listing": "listing"}
    monkeypatch.setattr(deform_times, "whole_deformations", lambda *arguments: whole)
    monkeypatch.setattr(deform_times, "field_convolutions", lambda *arguments: fields)
    monkeypatch.setattr(gpu, "device_array", lambda shape, dtype: None)
    late.wake, late.stream = lambda: None, None
    (found,) = deform_times.measure_on_gpu(np.empty((60, 29, 29)), None, late, 4)
    assert (found.name, found.us, found.repeats) == ("tile", 2.0, 4)
    assert capsys.readouterr().err.count("is left out: the host is too slow") == 2


def test_the_deformation_on_the_gpu_is_measured(timer, monkeypatch):
    n = 950 if HAS_GPU else 12
    monkeypatch.setattr(deform_times, "IMAGES_PER_STAGE", BATCH)
    images, labels = host.random_examples(n, 29 * 29)
    images = images.reshape(n, 29, 29)
    expected = deform(images, labels, epoch=deform_times.EPOCH)
    out = gpu.device_array(images.shape, np.float32)
    for enqueue in deform_times.whole_deformations(out, images, labels, timer.stream).values():
        out.copy_to_device(np.full(images.shape, np.nan, np.float32), stream=timer.stream)
        enqueue(timer.stream)
        gpu.synchronize(timer.stream)
        assert (abs(out.copy_to_host() - expected) < 1e-5).all()
    found = deform_times.measure_on_gpu(images[:3], labels[:3], timer, 1)
    ways = "kernel a tile", "a kernel a stage", "convolution by Listing 1", "convolution separable"
    assert ", ".join(row.name for row in found) == "GPU, a " + ", GPU, ".join(ways)
    if not HAS_GPU:  # the timer says 1 us for everything
        assert [row.us for row in found] == [1 / 3, 1 / 3, 1 / BATCH, 1 / BATCH]


def test_the_windows_kernels_are_found_half_way_through_a_block(timer):
    """Each has something to do, again and again: none returns at once or moves the window."""
    network = Network.initial((37, 21, 33, 10), 0)
    kernels = list(window_kernels(network, timer.stream))
    n, end, n_block = 256, 384, 512
    largest = gpu_times.sweep_kernels(network, timer.stream, 512)
    assert sum(one.n_bytes for one in largest) == pytest.approx(
        sweep_work(network.sizes, 512, 512, 512).n_bytes
    )
    assert sum(one.n_bytes for one in kernels[2:-3]) == pytest.approx(
        sweep_work(network.sizes, n, end, n_block).n_bytes
    )
    plain = {fast.py_func.__name__: slow.py_func.__name__ for slow, fast in KERNELS.items()}
    assert [(plain.get(one.name, one.name), one.layer) for one in kernels] == [
        *(("gather_images", 1), ("forward_products", 1), ("forward_states", 1)),
        *(("forward_products", 2), ("forward_states", 2)),
        *(("forward_products", 3), ("forward_states", 3), ("output_deltas", 3)),
        *(("backward_products", 3), ("backward_deltas", 3)),
        *(("backward_products", 2), ("backward_deltas", 2)),
        *(("update_weights_of_block", layer) for layer in (1, 2, 3)),
    ]
    for one in kernels + largest:
        changed = one.launch.arguments[0]
        gpu.fill([(changed, np.full(changed.shape, 7, np.float32))], timer.stream)
        gpu.play([one.launch], timer.stream)
        (found,) = gpu.read([changed], timer.stream)
        assert (found != 7).any(), one.name


def test_cublas_follows_each_product_of_the_window(monkeypatch):
    makers = {"cuBLAS": lambda *shape: shape}
    monkeypatch.setattr(baselines, "available", lambda *asked: makers)
    names = ["gather_images", "forward_products", "backward_products", "update_weights_of_block"]
    layers = [(name, 1, 37, 21) for name in names[:2]] + [(name, 2, 21, 10) for name in names[1:]]
    kernels = [gpu_times.Kernel(*layer, "ours", 8000, 99) for layer in layers]
    ours, *others = gpu_times.with_baselines(kernels)
    assert [ours, *others[::2]] == kernels
    # Images, and the last one, as in `window_kernels`; a matrix and rows of the block are read,
    # products with both written.
    assert [(one.name, one.launch, one.n_bytes / 4) for one in others[1::2]] == [
        (f"cuBLAS, {product}", (product, *shape), n_words)
        for product, shape, n_words in (
            ("forward", (37, 21, 512, 512, 512), 38 * 21 + 38 * 512 + 512 * (21 + 512)),
            ("forward", (21, 10, 256, 384, 512), 22 * 10 + 22 * 384 + 256 * (10 + 384)),
            ("backward", (21, 10, 256, 384, 512), 22 * 10 + 10 * 384 + 256 * (22 + 384)),
            ("update", (21, 10, 256, 384, 512), 2000),
        )
    ]


# --- convolutional nets


@pytest.fixture
def small():
    """Two convolutions and two fully connected layers."""
    return ConvNetwork.initial("3M3s1-4M2c2-5N", Maps(1, 9, 7), 10, 0)


def test_operations_of_convolutional_nets(small):
    # 3 maps of 4x3 by 3x3 kernels; 4 of 3x2 by 2x2, each from two maps; 24 x 5; 5 x 10.
    forward = [3 * 12 * 9, 4 * 6 * 2 * 4, 24 * 5, 5 * 10]
    assert cnn_times.training_flops(small) == 2 * (3 * sum(forward) - forward[0])
    # Net 3 of the paper: 84,500 + 375,000 + 243,000 + 900 x 150 + 1,500.
    net3 = 84_500 + 375_000 + 243_000 + 135_000 + 1_500
    assert cnn_times.training_flops(cnn_times.initial(3)) == 2 * (3 * net3 - 84_500)
    network = ConvNetwork.initial("IP(sobel)-3M3", Maps(1, 9, 9), 10, 0)
    first, last = (layer.n_multiply_adds for layer in network.layers[1:])  # image processing apart
    assert cnn_times.training_flops(network) == 2 * (2 * first + 3 * last)


def test_convolutional_engine_baselines_and_peak_are_measured(small, monkeypatch):
    monkeypatch.setattr(host, "CALL_FLOPS", 10_000)
    monkeypatch.setattr(host, "MIN_REPEAT_SECONDS", 0)
    monkeypatch.setattr(cnn_times, "ENGINE_IMAGES", 5)
    monkeypatch.setattr(baselines, "available", lambda *_: {"loops": numpy_convolutional})
    engine, peak, loops = cnn_times.measure_on_cpu(small, 7)
    for row, name in (engine, "engine cpu"), (peak, "multiply-adds"), (loops, "loops"):
        assert (row.name, row.group, row.repeats) == (name, "cnn", 7)
        assert row.percent_of_peak is not None
    assert engine.flops == loops.flops == cnn_times.training_flops(small)
    assert (engine.images, peak.images, loops.images) == (1, None, 1)
    assert peak.percent_of_peak == pytest.approx(100)


def test_convolution_bytes(small):
    # Layer 2: 36 neurons to 24, 4 maps that read two of 3, kernels of 4.
    weights, tables = 8 * 4, 8
    assert cnn_times.convolution_bytes(small.layers[1]) == {
        "convolve_maps": 4 * (36 + weights + 4 + tables + 2 * 4 + 24),
        "pull_deltas": 4 * (24 + 36 + 36 + weights + 2 * tables + 3),
        "adjust_weights": 4 * (36 + 24 + 2 * (weights + 4) + 3 * tables),
    }


def test_convolutional_net_on_the_gpu_is_measured(timer, small, monkeypatch):
    monkeypatch.setattr(mlp_cuda, "IMAGES_PER_TICK", 1)
    monkeypatch.setattr(host, "MIN_REPEAT_SECONDS", 0)
    monkeypatch.setattr(baselines, "available", lambda *_: {"baseline": numpy_convolutional})
    monkeypatch.setattr(cnn_times, "GPU_BASELINE_IMAGES", 5)
    kernels = cnn_times.training_kernels(small)
    assert [(kernel.name, kernel.layer) for kernel in kernels] == [
        *named(1, "pick_image rows_to_maps convolve_maps adjust_weights"),
        *named(2, "convolve_maps maps_to_rows rows_to_maps pull_deltas adjust_weights"),
        *named(3, "forward_partial forward_reduce delta_partial delta_reduce update_weights"),
        *named(4, "forward_partial output_delta delta_partial delta_reduce update_weights"),
    ]
    sizes = {kernel.layer: (kernel.n_in, kernel.n_out) for kernel in (kernels[2], kernels[4])}
    assert sizes == {1: (63, 36), 2: (36, 24)}
    copies = [kernels[k] for k in (0, 1, 5, 6)]
    assert [kernel.n_bytes for kernel in copies] == [8 * 63, 8 * 63, 8 * 24, 8 * 24]
    assert kernels[9].flops == 2 * 25 * 5

    found = list(cnn_times.measure_on_gpu(small, timer, 1, kernel_by_kernel=True))
    assert all(one.us > 0 for one in found)
    whole = [one for one in found if one.group == "cnn"]
    assert [one.name for one in whole] == ["engine cuda graph", "engine cuda launch", "baseline"]
    assert {one.flops for one in whole} == {cnn_times.training_flops(small)}
    assert whole[0].bytes == sum(kernel.n_bytes for kernel in kernels)
    by_kernel = [one for one in found if one.group == "cnn kernel"]
    assert len(by_kernel) == 2 * len(kernels)
    convolution = next(one for one in by_kernel if (one.name, one.layer) == ("convolve_maps", 2))
    assert convolution.flops == 2 * 192
    assert convolution.percent_of_copy is not None
