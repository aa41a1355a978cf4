"""The GPU engine alone; see also tests/mlp_gpu/test_engines.py."""
# ruff: noqa: F401 - fixtures are imported

import weakref

import nets
import numpy as np
import pytest
from executed import ENGINE_DEVICES, HAS_GPU, device
from gpu_arrays import capture_small_graphs, count_bytes

from deepbig_runtime import gpu
from deepbig_runtime.faults import GpuFault
from mlp_gpu import cuda
from mlp_gpu.cuda import CudaEngine
from mlp_gpu.network import Network
from mlp_gpu.window import engine as window_engine
from mlp_gpu.window.engine import WindowCudaEngine

pytestmark = pytest.mark.parametrize("device", ENGINE_DEVICES, indirect=True)

ORDER = np.array([3, 1, 4, 1, 5, 9, 2, 6, 11, 0])
ETA = float(np.float32(0.05))  # large, so that each step shows


@pytest.fixture(autouse=True)
def _small_graphs(monkeypatch):
    capture_small_graphs(monkeypatch)


def make(sizes, schedule="graph", n=12):
    return nets.make(CudaEngine(schedule), sizes, n=n)


def test_schedules_give_the_same_bits(monkeypatch):
    monkeypatch.setattr(cuda, "IMAGES_PER_TICK", 4)  # a graph and one image, twice, then two images
    graphs, trained = [], []
    capture = gpu.capture
    monkeypatch.setattr(gpu, "capture", lambda work: graphs.append(capture(work)) or graphs[-1])
    for schedule in cuda.SCHEDULES:
        engine, _, images, labels = make((33, 21, 17, 10), schedule)
        heard = []
        loss = engine.train(images, labels, ORDER, ETA, lambda *told, to=heard: to.append(told))
        assert [n for n, _ in heard] == [4, 4, 2]
        trained.append((loss, heard, [W.tobytes() for W in engine.get_network().weights]))
    assert trained[0] == trained[1]
    assert len(graphs) == 1


def test_every_kernel_is_launched_before_it_is_captured(monkeypatch):
    """A driver may refuse to load code while a graph is captured."""
    launched, captures = set(), []
    launch, capture = gpu.Launch.__call__, gpu.capture

    def noted_launch(self, stream):
        launched.add(self.kernel)
        launch(self, stream)

    def noted_capture(work):
        before = set(launched)
        graph = capture(work)
        captures.append((before, launched - before))
        return graph

    monkeypatch.setattr(gpu.Launch, "__call__", noted_launch)
    monkeypatch.setattr(gpu, "capture", noted_capture)
    for n in (1, 3, 4):  # a graph is of three images: only four are one before it, and a graph
        engine, _, images, labels = make((13, 7, 5))
        engine.train(images, labels, ORDER[:n], ETA)
        launched.clear()
    ((before, more),) = captures
    assert len(before) > 5
    assert not more


def test_a_graph_serves_all_epochs_whose_images_are_in_its_place(monkeypatch):
    captures = []
    capture = gpu.capture
    monkeypatch.setattr(gpu, "capture", lambda work: captures.append(None) or capture(work))
    trained = {}
    for schedule in cuda.SCHEDULES:
        engine, _, images, labels = make((13, 7, 5), schedule)
        buffers = [gpu.device_array(images.shape, np.float32) for _ in range(2)]
        stream = gpu.new_stream()
        # An epoch fills one buffer, the next the other; then there are more steps; then a new net.
        epochs = [(0, ORDER), (1, ORDER), (0, ORDER[::-1]), (1, ORDER), (1, ORDER[:8]), (1, ORDER)]
        found = trained[schedule] = []
        for number, (buffer, order) in enumerate(epochs):
            if number == len(epochs) - 1:
                engine.set_network(Network.initial((13, 7, 5), 3))
            gpu.fill([(buffers[buffer], np.roll(images, number, axis=0))], stream)
            found.append(engine.train(buffers[buffer], labels, order, ETA / (1 + number)))
            found += [W.tobytes() for W in engine.get_network().weights]
            if schedule == "graph":
                assert len(captures) == (1, 2, 2, 2, 3, 4)[number]
    assert trained["graph"] == trained["launch"]


def test_images_on_the_gpu_are_taken_as_they_are(monkeypatch):
    whole, _, images, labels = make((13, 7))
    loss = whole.train(images, labels, ORDER, ETA)
    engine, *_ = make((13, 7))
    there = gpu.device_array(images.shape, np.float32)
    there.copy_to_device(images)
    taken = count_bytes(monkeypatch)
    assert engine.train(there, labels, ORDER, ETA) == loss
    assert images.nbytes not in taken
    for W, V in zip(whole.get_network().weights, engine.get_network().weights, strict=True):
        assert (W.view(np.uint32) == V.view(np.uint32)).all()
    # Images of the host that come next are not copied over them.
    engine.train(images[::-1], labels, ORDER, ETA)
    assert there.copy_to_host().tobytes() == images.tobytes()
    for bad in (there.reshape(13, 12), there[:11]):
        with pytest.raises(ValueError, match="expected"):
            engine.train(bad, labels, ORDER, ETA)


def test_images_that_are_kept_are_evaluated_on_the_gpu_where_there_is_room(monkeypatch):
    engine, _, images, _ = make((13, 7))
    outputs = engine.predict(images)
    monkeypatch.setattr(gpu, "free_bytes", lambda: 2 * images.nbytes)
    kept = engine.keep(images)
    assert gpu.on_gpu(kept)
    assert engine.predict(kept[3:]).tobytes() == outputs[3:].tobytes()
    monkeypatch.setattr(gpu, "free_bytes", lambda: 2 * images.nbytes - 1)
    assert engine.keep(images) is images


@pytest.mark.parametrize(
    ("new_engine", "device_bytes"),
    [(CudaEngine, cuda.device_bytes), (WindowCudaEngine, window_engine.device_bytes)],
)
def test_memory_is_what_device_bytes_says(new_engine, device_bytes, monkeypatch):
    taken = count_bytes(monkeypatch)
    monkeypatch.setattr(cuda, "PREDICT_BATCH", 5)
    engine, _, images, labels = nets.make(new_engine(), (13, 7, 5), n=2)
    for _ in range(2):  # the second epoch takes no more
        engine.train(images, labels, np.arange(2), 0.0)
    engine.predict(images)
    assert sum(taken) == device_bytes((13, 7, 5), 2)


def test_a_new_network_comes_after_the_old_one_is_freed(monkeypatch):
    arrays, alive = [], []
    allocate = gpu.device_array

    def watch(shape, dtype):
        alive.append(sum(array() is not None for array in arrays))
        array = allocate(shape, dtype)
        arrays.append(weakref.ref(array))
        return array

    monkeypatch.setattr(gpu, "device_array", watch)
    engine, *_ = make((13, 7))
    before = len(alive)
    engine.set_network(engine.get_network())
    assert alive[before] == 2  # the step and the learning rate, which stay


def test_unknown_schedule_is_refused():
    with pytest.raises(ValueError, match="expected a schedule"):
        CudaEngine("fast")


@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU whose memory ends")
def test_too_little_memory_is_told():
    with pytest.raises(GpuFault, match=r"too little free memory: .* MB are needed"):
        gpu.device_array((2**44,), np.float32)
