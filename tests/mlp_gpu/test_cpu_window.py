"""The CPU engine: on-line back-propagation by windows, for any window and team.

See also test_engines.py.
"""

import hashlib
import inspect
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import nets
import numba
import numpy as np
import pytest
from narrow_vectors import NARROWER, needs_avx2, printed_by

from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from experiments.benchmarks import window as oracle
from mlp_gpu import cpu, cpu_window, team
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network
from mlp_gpu.window_rule import CPU_ROUNDING, Limits, Rounding

ETA = float(np.float32(0.05))  # large, so that each step shows
EXACT = Rounding(np.float32(0), np.float32(0))  # nothing is tolerated
# Widths around a panel of 64, fewer panels than threads of a team, no hidden layer, nine of them.
SIZES = [
    (9, 4),
    (70, 19),
    (7, 1, 3),
    (33, 97, 10),
    (64, 64, 65, 11),
    (20, 130, 31, 33, 70),
    (33, 700, 7),
    (12, *[17] * 9, 10),
]
DIGEST = "445d25b16a1c922f3f98ccd435ef27f051a5b9252938d825539257df1309efa9"
N_BARRIERS = 6


def set_threads(monkeypatch, n):
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n)


def set_windows(monkeypatch, n_block, smallest, largest, few=2.5, many=5.0):
    monkeypatch.setattr(cpu, "FEW_BLOCK", n_block)
    monkeypatch.setattr(cpu, "LIMITS", Limits(smallest, largest, few, many))
    monkeypatch.setattr(cpu, "SINGLE_ETA", math.inf)


def steps(images, n=41):
    """An order with repeated images, the same one several times in a row too."""
    order = np.random.default_rng(1).integers(0, len(images), n)
    order[5:8] = order[4]
    return order


def trained(sizes, order=None, eta=ETA):
    """The network after the steps as bytes, and the mean loss."""
    engine, _, images, labels = nets.make(CpuEngine(), sizes)
    loss = engine.train(images, labels, steps(images) if order is None else order, eta)
    return [W.tobytes() for W in engine.get_network().weights], loss


@pytest.mark.parametrize("window", [(1, 1, 1), (2, 1, 1), (7, 3, 3), (32, 5, 20), (100, 40, 40)])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_windows_of_any_size_match_the_reference(sizes, window, monkeypatch):
    """The last block is shorter. Without a tolerance all that is left is rounding."""
    set_windows(monkeypatch, *window)
    monkeypatch.setattr(cpu, "CPU_ROUNDING", EXACT)
    engine, weights, images, labels = nets.make(CpuEngine(), sizes)
    order = steps(images)
    loss = engine.train(images, labels, order, ETA)
    nets.assert_trained(engine.get_network(), loss, weights, images, labels, order, ETA)
    nets.assert_padding_is_zero(engine.get_network())


@pytest.mark.parametrize("eta", [0.02, 5e-3, 1e-3])
def test_sweeps_are_those_of_the_numpy_program(eta, monkeypatch):
    """The same windows in the same blocks, growing and shrinking by the same rule."""
    sizes, n_block = (31, 97, 70, 10), 12
    set_windows(monkeypatch, n_block, 2, 8, few=1.5, many=3.0)
    engine, weights, images, labels = nets.make(CpuEngine(), sizes, n=60)
    engine.train(images, labels, np.arange(60), eta)
    plain = [W.astype(np.float32) for W in weights]
    sweeps = oracle.train_in_windows(
        plain, images, labels, eta, 2, n_block, cpu.LIMITS, CPU_ROUNDING
    )
    passes = sum(end - first for first, end in sweeps)
    assert engine.count_sweeps() == (len(sweeps), passes)


@pytest.mark.parametrize(
    ("layer", "image", "change", "square", "done"),
    [
        (0, 0, 9.0, 1, 1),  # itself is exact, the others used what it was
        (0, 2, 3.01e-3, 1, 3),  # of the largest delta of its own layer, which is 10
        (1, 3, 3.01e-4, 1, 4),
        (1, 3, 2.99e-4, 1, 5),
        (1, 1, np.nan, 1, 2),
        (0, 4, 9.0, 1, 5),  # no image follows
        (0, 2, 5.05e-6, 1e4, 3),  # 1e-7 sqrt(25) / (eta^2 |h|^3) of the largest delta
        (0, 2, 4.95e-6, 1e4, 5),
        (1, 2, 2.99e-4, 1e4, 5),
    ],
)
def test_count_done_ends_with_the_first_image_whose_deltas_changed(
    layer, image, change, square, done
):
    sizes, n = (24, 3, 2), 5
    weights, layers = cpu_window.to_weights(Network.blank(sizes)), np.array(sizes)
    block, private = cpu_window.make_block(sizes, n, n, threads=2)
    net = cpu_window.net_of(layers, weights, block, private)
    settings = cpu_window.Settings(np.float32(1e-3), n, CPU_ROUNDING, cpu.LIMITS)
    arrays = cpu_window.views(block)
    arrays[cpu_window.CHANGES][1, layer, image] = change
    arrays[cpu_window.LARGEST][0, 0] = 10, 1
    arrays[cpu_window.SQUARES][0, 0, 3], arrays[cpu_window.SQUARES][0, 0, n] = square, np.inf
    assert cpu_window.count_done(net, 2, n, n, settings) == done


@pytest.mark.parametrize(
    ("many", "eta", "block", "window"),
    [(False, 3e-4, 48, 1), (False, 1e-4, 48, 6), (True, 3e-4, 96, 6)],
)
def test_windows_have_one_image_only_for_few_weights_at_large_rates(
    many, eta, block, window, monkeypatch
):
    """A sweep over fewer images than a window finishes them all, or is the last of the block."""
    monkeypatch.setattr(cpu, "MANY_WEIGHTS", 0 if many else 10**9)
    engine, _, images, labels = nets.make(CpuEngine(), (20, 70, 10), n=block)
    engine.train(images, labels, np.arange(block), eta)
    sweeps, passes = engine.count_sweeps()
    assert engine.images_per_block == block
    assert sweeps == block if window == 1 else passes > block
    assert math.ceil(passes / window) <= sweeps <= block


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_bits_do_not_depend_on_the_number_of_threads(sizes, monkeypatch):
    set_windows(monkeypatch, 16, 5, 5)
    results = []
    for threads in (1, 2, 3, 5, 16):
        set_threads(monkeypatch, threads)
        results.append(trained(sizes))
    assert all(result == results[0] for result in results)


def numbers(*shape):
    """Numbers from -1 to 1, float32, made by whole numbers alone: the same everywhere."""
    n = np.arange(math.prod(shape)).reshape(shape)
    return ((n * n * 7919 + n * 104_729) % 4093 / 2046 - 1).astype(np.float32)


def digests():
    """SHA-256 of short trainings, their losses and the outputs after them, of both CPU engines."""
    sizes, results = (169, 130, 70, 10), []
    network = Network.blank(sizes)
    for W in network.unpadded():
        W[:] = numbers(*W.shape) / 8
    source = Maps(1, 13, 13)
    conv = ConvNetwork.initial("4M3s1-MP2-9M3c50%-20N", source, n_classes=10, seed=0)
    images, labels = numbers(70, 169), (np.arange(70) % 10).astype(np.uint8)
    for engine, start in ((CpuEngine(), network), (ConvCpuEngine(), conv)):
        result = hashlib.sha256()
        engine.set_network(start)
        for eta in (0.01, 1e-4):
            loss = engine.train(images, labels, np.arange(150) % 70, eta)
            result.update(np.float64(loss).tobytes())
        result.update(engine.predict(images).tobytes())
        for W in engine.get_network().weights:
            result.update(b"" if W is None else W.tobytes())
        results.append(result.hexdigest())
    return results


def test_the_bits_of_a_training_are_those_of_every_machine():
    """Another constant means another CPU_ARITHMETIC: runs of before cannot be resumed then."""
    assert digests()[0] == DIGEST


@needs_avx2
@pytest.mark.parametrize(("processor", "lanes"), NARROWER[1:])  # the narrowest
def test_trainings_with_narrower_vectors_have_the_same_bits(processor, lanes):
    code = "import mlp_gpu.vector_kernel, test_cpu_window as test\n"
    code += "print(mlp_gpu.vector_kernel.LANES, *test.digests())"
    assert printed_by(processor, code) == [str(lanes), *digests()]


@pytest.mark.parametrize("size", [200.0, 800.0])
def test_large_activations_have_a_finite_loss(size):
    """Without the largest one taken off, their exponential would be infinite."""
    sizes = (9, 12, 5)
    engine, weights, images, labels = nets.make(CpuEngine(), sizes)
    weights[1] *= size / abs(weights[1]).max() / 6
    network = Network.blank(sizes)
    for W, V in zip(network.unpadded(), weights, strict=True):
        W[:] = V
    engine.set_network(network)
    weights = [W.astype(float) for W in network.unpadded()]
    images = images / 40
    loss = engine.train(images, labels, np.arange(12), 0.0)
    h = np.insert(images.astype(float), 0, 1, axis=1) @ weights[0]
    h = np.insert(nets.reference.A * np.tanh(nets.reference.B * h), 0, 1, axis=1)
    a = h @ weights[1]
    assert abs(a).max() > size / 12
    a -= a.max(axis=1, keepdims=True)
    expected = np.mean(np.log(np.exp(a).sum(axis=1)) - a[np.arange(12), labels])
    assert abs(loss - expected) <= 1e-4 * expected


@pytest.mark.parametrize("threads", [0, -3])
def test_fewer_threads_than_one_are_refused(threads):
    with pytest.raises(ValueError, match=f"expected at least 1 thread, got {threads}"):
        CpuEngine(threads)


@numba.njit(nogil=True)
def idle():
    """Do nothing for up to some 100 microseconds, seldom for longer than others take."""
    x = np.random.random()  # noqa: NPY002 - the one that is compiled
    for _ in range(int(40_000 * max(0.0, x - 0.6))):
        x += np.sqrt(x)
    return x


@numba.njit(nogil=True)
def wait_unevenly(barrier, threads, times):
    idle()
    times = team.wait(barrier, threads, times)
    idle()
    return times


@pytest.mark.slow
def test_train_blocks_with_threads_of_uneven_speed_has_the_same_bits(monkeypatch):
    """Two threads and several blocks, none of which begins like the one before."""
    set_threads(monkeypatch, 2)
    set_windows(monkeypatch, 6, 3, 3)
    monkeypatch.setattr(team, "HAS_CORE", 0.0)  # two threads, although they dawdle
    source = inspect.getsource(cpu_window).replace("from mlp_gpu.team import wait", "")
    assert source.count("wait(barrier, thread.team, times)") == N_BARRIERS
    uneven = {"__name__": "uneven", "wait": wait_unevenly}
    exec(compile(source, "uneven", "exec"), uneven)
    order, sizes = np.random.default_rng(4).integers(0, 12, 26), (33, 97, 130, 10)
    expected = trained(sizes, order)
    monkeypatch.setattr(cpu_window, "train_blocks", uneven["train_blocks"])
    assert all(trained(sizes, order) == expected for _ in range(50))


def test_an_exception_of_a_tick_leaves_no_thread_behind(monkeypatch):
    set_threads(monkeypatch, 3)

    def stop(n_images, loss):
        raise SystemExit

    engine, _, images, labels = nets.make(CpuEngine(), (33, 200, 10))
    before = threading.active_count()
    with pytest.raises(SystemExit):
        engine.train(images, labels, steps(images), ETA, stop)
    assert threading.active_count() == before


def test_outputs_do_not_depend_on_how_many_threads_there_are(monkeypatch):
    """The workers that share a machine have fewer than a process that has it alone."""
    outputs, n = [], 2 * cpu.PREDICT_BATCH + 203
    engine, _, images, _ = nets.make(CpuEngine(), (97, 300, 10), n=n)
    for threads in (1, 2):
        set_threads(monkeypatch, threads)
        outputs.append(engine.predict(images).tobytes())
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("asked", [None, 1, 2, 5])
def test_as_many_threads_as_asked_for(asked, monkeypatch):
    monkeypatch.setattr(cpu.numba.config, "NUMBA_NUM_THREADS", 3)
    members, run = [], team.run

    class Executor(ThreadPoolExecutor):
        def __init__(self, workers):
            super().__init__(workers)
            members.append(workers)

    def noted(executor, n, work):
        members.append(n)
        return run(executor, n, work)

    monkeypatch.setattr(team, "run", noted)
    engine, _, images, labels = nets.make(CpuEngine(threads=asked), (13, 200, 10))
    engine.train(images, labels, np.arange(12), 0.1)
    monkeypatch.setattr(team, "ThreadPoolExecutor", Executor)
    engine.predict(images)
    assert members == [asked or 3, *([] if asked == 1 else [asked or 3])]
