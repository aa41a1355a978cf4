"""The contract of all engines. A new one is a line in ENGINES.

Exactness is measured against float64, with the tolerance of tests/references/reference.py.
"""

from functools import partial

import nets
import numpy as np
import pytest
from executed import on_device, places
from gpu_arrays import capture_small_graphs

from deepbig_runtime import gpu
from mlp_gpu import cpu, cuda, engines
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.cuda import CudaEngine
from mlp_gpu.engine import ENGINE_NAMES
from mlp_gpu.window import engine as window_engine
from mlp_gpu.window import progress
from mlp_gpu.window.engine import WindowCudaEngine

ENGINES = {
    "cpu": CpuEngine,
    **{f"cuda {schedule}": partial(CudaEngine, schedule) for schedule in cuda.SCHEDULES},
    "cuda window": partial(WindowCudaEngine, 4),
}

ORDER = np.array([3, 1, 4, 1, 5, 9, 2, 6, 11, 0])
ETA = float(np.float32(0.05))  # large, so that each step shows
SMALL = (13, 7)

SIZES = [SMALL, (33, 21, 17, 10), (31, 33, 10), (97, 1, 5), (50, 37, 64, 33, 10), (33, 501, 97, 10)]


@pytest.fixture(params=places(ENGINES), ids=" on ".join)
def new_engine(request):
    name, device = request.param
    with on_device(device):
        yield ENGINES[name]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    capture_small_graphs(monkeypatch)
    for module in (cpu, cuda):
        monkeypatch.setattr(module, "PREDICT_BATCH", 5)


@pytest.fixture
def _small_chunks(monkeypatch):
    """Engines call tick several times in ten images."""
    monkeypatch.setattr(cpu, "FEW_BLOCK", 4)
    monkeypatch.setattr(cpu, "WEIGHTS_PER_TICK", 0)
    monkeypatch.setattr(cuda, "IMAGES_PER_TICK", 4)
    monkeypatch.setattr(window_engine, "CHUNK", 2)


def bits(engine):
    return [W.tobytes() for W in engine.get_network().weights]


def test_an_engine_says_what_it_is(new_engine):
    engine = new_engine()
    assert engine.name in ENGINE_NAMES
    made = engines.make_engine(engine.name, engine.schedule or "graph")
    assert (type(made), made.schedule) == (type(engine), engine.schedule)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_ten_steps_match_the_reference(new_engine, sizes):
    engine, weights, images, labels = nets.make(new_engine(), sizes)
    loss = engine.train(images, labels, ORDER, ETA)
    network = engine.get_network()
    assert network.sizes == sizes
    nets.assert_trained(network, loss, weights, images, labels, ORDER, ETA)
    nets.assert_padding_is_zero(network)
    # Of twelve images, five at a time.
    nets.assert_predicts(engine.predict(images), network.unpadded(), images)


def test_images_may_have_rows_and_any_layout(new_engine):
    flat, _, images, labels = nets.make(new_engine(), (6, 5))
    square, *_ = nets.make(new_engine(), (6, 5))
    as_squares = np.asfortranarray(images.reshape(12, 3, 2))
    assert flat.train(images, labels, ORDER, ETA) == square.train(as_squares, labels, ORDER, ETA)
    assert bits(flat) == bits(square)
    assert flat.predict(images[:5]).tobytes() == square.predict(as_squares[:5]).tobytes()


def test_same_input_gives_the_same_bits(new_engine):
    sizes = (97, 65, 33, 10)
    results = []
    for _ in range(3):
        engine, _, images, labels = nets.make(new_engine(), sizes)
        loss = engine.train(images, labels, ORDER, ETA)
        results.append((loss, bits(engine), engine.predict(images[:5]).tobytes()))
    assert all(result == results[0] for result in results)


def test_each_training_has_its_own_network_images_order_and_eta(new_engine):
    engine, _, others, other_labels = nets.make(new_engine(), (33, 17, 7), n=5)
    engine.train(others, other_labels, np.arange(5), 0.0)
    _, weights, images, labels = nets.make(engine, SMALL)
    loss = engine.train(images, labels, ORDER[:6], ETA)
    network = engine.get_network()
    nets.assert_trained(network, loss, weights, images, labels, ORDER[:6], ETA)


@pytest.mark.usefixtures("_small_chunks")
def test_tick_hears_of_every_image_and_training_resumed_there_has_the_same_bits(new_engine):
    engine, _, images, labels = nets.make(new_engine(), SMALL)
    heard = []
    loss = engine.train(images, labels, ORDER, ETA, lambda *told: heard.append(told))
    assert len(heard) > 1
    # Of Python: records cannot be written with numbers of NumPy.
    assert {type(number) for told in [(0, loss), *heard] for number in told} == {int, float}
    assert sum(n for n, _ in heard) == len(ORDER)
    assert sum(n * part for n, part in heard) / len(ORDER) == pytest.approx(loss, rel=1e-12)
    # What it hears is what has been trained: stopped and resumed there, by the same engine or by
    # another, the training has the same bits.
    ends = np.cumsum([n for n, _ in heard])
    same, *_ = nets.make(new_engine(), SMALL)
    other, *_ = nets.make(new_engine(), SMALL)
    for part, (_, loss) in zip(np.split(ORDER, ends[:-1]), heard, strict=True):
        network, other = other.get_network(), new_engine()
        other.set_network(network)
        assert same.train(images, labels, part, ETA) == loss
        assert other.train(images, labels, part, ETA) == loss
    assert bits(same) == bits(other) == bits(engine)


@pytest.mark.usefixtures("_small_chunks")
def test_what_tick_raises_ends_the_training_after_a_whole_image(new_engine):
    engine, _, images, labels = nets.make(new_engine(), SMALL)
    heard = []

    def interrupt(n_images, loss):
        heard.append(n_images)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.train(images, labels, ORDER, ETA, interrupt)
    (n_trained,) = heard
    if isinstance(engine, WindowCudaEngine):  # its GPU is ahead of what the host hears of
        (state,) = gpu.read([engine._workspace.progress], engine.stream)
        assert n_trained < state[progress.START]
        n_trained = int(state[progress.START])
    assert n_trained < len(ORDER)
    expected, *_ = nets.make(new_engine(), SMALL)
    expected.train(images, labels, ORDER[:n_trained], ETA)
    assert bits(engine) == bits(expected)
    # Both go on as if nothing had been.
    losses = [e.train(images, labels, ORDER[n_trained:], ETA) for e in (engine, expected)]
    assert losses[0] == losses[1]
    assert bits(engine) == bits(expected)


def test_network_is_copied_in_and_out(new_engine):
    engine, _, images, labels = nets.make(new_engine(), SMALL)
    given = engine.get_network()
    engine.set_network(given)
    taken, before = engine.get_network(), bits(engine)
    engine.train(images, labels, ORDER, ETA)
    for network in (given, taken):
        assert [W.tobytes() for W in network.weights] == before
    assert bits(engine) != before


BAD = {
    "a label beyond the classes": (
        "labels",
        lambda y: np.where(np.arange(12) == 3, np.uint8(7), y),
    ),
    "labels of another type": ("labels", lambda labels: labels.astype(np.int64)),
    "too few labels": ("labels", lambda labels: labels[:-1]),
    "an index beyond the images": ("order", lambda order: order + 1),
    "a negative index": ("order", lambda order: order - 1),
    "no index": ("order", lambda order: order[:0]),
    "indices in rows": ("order", lambda order: order.reshape(2, 5)),
    "indices that are no integers": ("order", lambda order: order.astype(float)),
    "too few pixels": ("images", lambda images: images[:, 1:]),
    "pixels of another type": ("images", lambda images: images.astype(np.float64)),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_refused_before_anything_is_trained(new_engine, bad):
    engine, _, images, labels = nets.make(new_engine(), SMALL)
    before = bits(engine)
    given = {"images": images, "labels": labels, "order": ORDER}
    name, spoil = BAD[bad]
    given[name] = spoil(given[name])
    with pytest.raises(ValueError, match="expected"):
        engine.train(**given, eta=0.1)
    if name == "images":
        with pytest.raises(ValueError, match="expected"):
            engine.predict(given["images"])
    assert bits(engine) == before


def test_a_loss_that_is_no_number_is_told(new_engine):
    engine, _, images, labels = nets.make(new_engine(), (13, 9, 7), n=3)
    images[2, 2] = np.nan
    heard = []
    assert np.isnan(
        engine.train(images, labels, np.arange(3), 0.1, lambda *told: heard.append(told))
    )
    assert np.isnan(heard[-1][1])
