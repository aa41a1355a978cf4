"""The GPU engine's schedule `window`: what is its own; see also tests/mlp_gpu/test_engines.py."""
# ruff: noqa: F401 - fixtures are imported

from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import nets
import numpy as np
import pytest
import reference
from executed import HAS_GPU, device, on_all_devices
from test_window import distance

from deepbig_runtime import gpu
from deepbig_runtime.faults import GpuFault
from experiments.benchmarks import window as oracle
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.cuda import CudaEngine
from mlp_gpu.network import NETS, Network
from mlp_gpu.window import engine as window_engine
from mlp_gpu.window import progress
from mlp_gpu.window.engine import WindowCudaEngine
from mlp_gpu.window.progress import LIMITS

ETA = float(np.float32(0.05))  # large, so that corrections and steps show


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(window_engine, "CHUNK", 2)


def make(sizes, n_block, n):
    """The engine with random weights, images, labels, and an order that repeats some images."""
    engine, weights, images, labels = nets.make(WindowCudaEngine(n_block), sizes, n=n)
    order = np.random.default_rng(0).integers(0, n, n)
    return engine, weights, images, labels, order


def count_sweeps(engine):
    (state,) = gpu.read([engine._workspace.progress], engine.stream)
    return int(state[progress.SWEEPS]), int(state[progress.WINDOW])


@on_all_devices
@pytest.mark.parametrize(
    ("sizes", "n_block", "n"),
    [
        ((13, 7), 1, 24),
        ((31, 33, 10), 7, 24),
        ((31, 33, 10), 128, 40),
        ((97, 1, 5), 19, 40),
        ((50, 37, 64, 33, 10), 50, 50),
        ((17, 19, 19, 19, 3), 7, 24),
    ],
    ids=str,
)
def test_training_in_windows_matches_the_numpy_program_and_float64(sizes, n_block, n):
    # Of n images none is so near to being done that the rounding of a product decides, which in
    # NumPy depends on the processor: relative noise of 3e-6 in all inputs adds no sweep.
    engine, weights, images, labels, order = make(sizes, n_block, n)
    loss = engine.train(images, labels, order, ETA)
    found = engine.get_network()
    nets.assert_trained(found, loss, weights, images, labels, order, ETA)
    nets.assert_padding_is_zero(found)
    known = [W.astype(np.float32) for W in weights]
    first = progress.FIRST_WINDOW
    sweeps = oracle.train_in_windows(
        known, images[order], labels[order], ETA, first, n_block, LIMITS
    )
    n_sweeps, last_window = count_sweeps(engine)
    if not HAS_GPU:  # there rounding may decide whether a delta has changed
        assert n_sweeps == len(sweeps)
    assert last_window >= max(end - start for start, end in sweeps[-1:])
    exact, _ = reference.train(weights, images, labels, order, ETA)
    assert distance(found.unpadded(), known, weights) < 2 * distance(known, exact, weights)


def test_windows_adapt_to_how_many_sweeps_images_need():
    windows = {}
    for eta in (1e-4, 0.6):
        engine, _, images, labels, _ = make((31, 33, 10), 40, 80)
        engine.train(images, labels, np.arange(80), eta)
        windows[eta] = count_sweeps(engine)[1]
    assert windows[0.6] < progress.FIRST_WINDOW < windows[1e-4] == progress.MAX_WINDOW


def results(n, sizes=(31, 33, 10)):
    """Losses, bits, and what tick heard, of two epochs of n images in blocks of 7."""
    engine, _, images, labels, order = make(sizes, 7, n)
    heard = []
    losses = [
        engine.train(images, labels, order, eta, lambda n, loss: heard.append(n))
        for eta in (ETA, ETA / 2)
    ]
    assert sum(heard) == 2 * n
    return losses, [W.tobytes() for W in engine.get_network().weights], heard


def test_bits_do_not_depend_on_how_many_sweeps_and_blocks_are_launched(monkeypatch):
    expected = results(26)
    heard = set()
    for first, spare, blocks in ((1, 0, 2), (3, 1, 3), (64, 64, 16)):
        monkeypatch.setattr(window_engine, "FIRST_SWEEPS", first)
        monkeypatch.setattr(window_engine, "SPARE_SWEEPS", spare)
        monkeypatch.setattr(window_engine, "CHUNK", blocks)
        found = results(26)
        assert found[:2] == expected[:2]
        heard.add(tuple(found[2]))
    assert len(heard) > 1  # they were different indeed


def test_epoch_loss_is_the_mean_of_all_losses(monkeypatch):
    """Sums over the chunks that ticks tell of would round by where those end."""
    engine, _, images, labels, order = make((31, 33, 10), 7, 40)
    monkeypatch.setattr(engine, "_tell_losses", lambda *_: None)
    loss = engine.train(images, labels, order, ETA)
    (losses,) = gpu.read([engine.epoch["losses"]], engine.stream)
    assert loss == losses.mean(dtype=np.float64) > 0


def test_the_next_chunk_is_launched_before_the_host_looks_at_the_last(monkeypatch):
    """So the GPU does not wait for the host."""
    engine, _, images, labels, _ = make((13, 7), 16, 96)
    engine.train(images, labels, np.arange(96), ETA)  # captures the graphs
    done = []
    launch, read = engine._launch_blocks, gpu.read

    def count_launches(blocks, n_images):
        done.append(f"{blocks} blocks")
        launch(blocks, n_images)

    def count_reads(arrays, stream):
        n = arrays[0].shape[0]
        done.append("look" if n == progress.FIELDS else f"{n} losses")
        assert stream is (engine.stream if n == 96 else engine._reader)
        return read(arrays, stream)

    engine._n_sweeps = 64  # enough for a block
    engine._ended = Mock(record=lambda _: done.append("mark"))
    engine._ended.synchronize = lambda: done.append("wait")
    monkeypatch.setattr(window_engine, "SPARE_SWEEPS", 64)
    monkeypatch.setattr(engine, "_launch_blocks", count_launches)
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "read", count_reads)
        engine.train(images, labels, np.arange(96), ETA)
    looks = ["wait", "look", "32 losses", "mark"]
    launches = ["2 blocks", "mark", "2 blocks", *looks, "2 blocks", *looks, *looks]
    assert done == [*launches, "96 losses"]


def test_a_block_is_a_begin_as_many_sweeps_as_it_may_need_and_an_end(monkeypatch):
    engine, _, images, labels, _ = make((13, 7), 8, 32)
    monkeypatch.setattr(window_engine, "SPARE_SWEEPS", 9)
    engine.train(images, labels, np.arange(32), ETA)
    assert engine._n_sweeps == 8  # of 8 images: no more can be needed
    launched = []
    for key in engine._graphs:
        graph = SimpleNamespace(launch=lambda stream, part=key[-1]: launched.append(part))
        monkeypatch.setitem(engine._graphs, key, graph)
    engine._n_sweeps = 3
    engine._launch_blocks(2, 32)
    assert launched == ["begin", "sweep", "sweep", "sweep", "end"] * 2


def test_a_block_gets_a_sweep_more_than_blocks_of_the_last_chunk_took(monkeypatch):
    engine, _, images, labels, _ = make((13, 7), 16, 96)
    launched, launch = [], engine._launch_blocks

    def note(blocks, n_images):
        launched.append(engine._n_sweeps)
        launch(blocks, n_images)

    monkeypatch.setattr(engine, "_launch_blocks", note)
    engine.train(images, labels, np.arange(96), ETA)
    n_sweeps, blocks = count_sweeps(engine)[0], 6
    assert launched[:2] == [window_engine.FIRST_SWEEPS] * 2
    assert abs(launched[-1] - 1 - n_sweeps / blocks) < 1


def test_an_epoch_shorter_than_a_block_does_not_ask_for_more_sweeps():
    engine, _, images, labels, _ = make((13, 7), 64, 8)
    for _ in range(2):
        engine.train(images, labels, np.arange(8), ETA)
    assert engine._n_sweeps <= 8 + window_engine.SPARE_SWEEPS


def test_graphs_of_two_places_of_images_are_cached(monkeypatch):
    engine, _, images, labels, order = make((13, 7), 20, 40)
    captured, capture = [], gpu.capture
    monkeypatch.setattr(gpu, "capture", lambda work: captured.append(work) or capture(work))
    places = [gpu.device_array(images.shape, np.float32) for _ in range(3)]
    gpu.fill([(place, images) for place in places], engine.stream)
    for place, n in ((0, 3), (1, 6), (0, 6), (1, 6), (2, 9)):
        engine.train(places[place], labels, order, ETA)
        assert len(captured) == n
    assert len(engine._graphs) == 3


@on_all_devices
def test_repeats_are_bit_equal():
    """Without a GPU, threads and blocks run in another order each time."""
    sizes = (50, 37, 33, 10)
    assert results(16, sizes) == results(16, sizes)


def test_an_epoch_begins_anew_whatever_was_before():
    """Windows too: so a run that is resumed has the same bits. An epoch may have been cut short."""
    whole, _, images, labels, order = make((31, 33, 10), 20, 61)
    whole.train(images, labels, order, 1e-3)
    assert count_sweeps(whole)[1] != progress.FIRST_WINDOW
    noted = whole._workspace._changes  # of a sweep that was not ended
    gpu.fill([(noted, np.full(noted.shape, 1e9, np.float32).view(np.int32))], whole.stream)
    again = WindowCudaEngine(20)
    again.set_network(whole.get_network())
    losses = [engine.train(images, labels, order, ETA) for engine in (whole, again)]
    assert losses[0] == losses[1]
    for W, V in zip(whole.get_network().weights, again.get_network().weights, strict=True):
        assert (W.view(np.uint32) == V.view(np.uint32)).all()


@pytest.mark.parametrize("n_block", [0, 513])
def test_blocks_that_have_no_room_are_refused(n_block):
    with pytest.raises(ValueError, match=f"expected 1 to 512 images per block, got {n_block}"):
        WindowCudaEngine(n_block)


def test_a_gpu_that_does_nothing_is_told(monkeypatch):
    engine, _, images, labels, order = make((13, 7), 20, 61)
    monkeypatch.setattr(gpu.Launch, "__call__", lambda self, stream: None)
    monkeypatch.setattr(gpu, "capture", lambda work: SimpleNamespace(launch=lambda stream: None))
    with pytest.raises(GpuFault, match="came to a standstill after 0 of 61 images"):
        engine.train(images, labels, order, ETA)


@pytest.mark.slow
@pytest.mark.parametrize("new_engine", [CudaEngine, partial(WindowCudaEngine, 200)])
@pytest.mark.parametrize(("net", "n"), [(1, 500), (4, 500)] if HAS_GPU else [(1, 6)])
def test_gpu_and_cpu_agree_on_nets_of_table_1(net, n, new_engine):
    """Digits would be better examples; random images have the same sizes and a harder error."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (n, 841)).astype(np.float32)
    labels = rng.integers(0, 10, n).astype(np.uint8)
    network, outputs, weights = Network.initial(NETS[net], 0), [], []
    for engine in (CpuEngine(), new_engine()):
        engine.set_network(network)
        engine.train(images, labels, np.arange(n), 1e-3)
        outputs.append(engine.predict(images))
        weights.append(engine.get_network().unpadded())
    assert abs(outputs[0] - outputs[1]).max() < 1e-4
    assert distance(weights[1], weights[0], network.unpadded()) < 1e-4
