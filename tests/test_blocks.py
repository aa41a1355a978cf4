"""Training in blocks: the steps of on-line back-propagation, whatever a block or a team is."""

import inspect
import threading

import nets
import numba
import numpy as np
import pytest
import reference
from threadpoolctl import threadpool_info

from mlp_gpu import blocks, team
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network

ETA = float(np.float32(0.05))  # large, so that each step shows
# Widths around a panel of 64, fewer neurons than members of a team, no hidden layer, nine of them.
SIZES = [
    (9, 4),
    (7, 1, 3),
    (33, 97, 10),
    (64, 64, 65, 11),
    (20, 130, 31, 33, 5),
    (33, 501, 7),
    (12, *[17] * 9, 10),
]
BARRIER, N_BARRIERS = "wait(meeting, members, times)", 5


def set_threads(monkeypatch, n):
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n)


def steps(images, n=41):
    """An order with repeated images, the same one several times in a row too."""
    order = np.random.default_rng(1).integers(0, len(images), n)
    order[5:8] = order[4]
    return order


def trained(sizes, images_per_block, order=None, eta=ETA):
    """The network after the steps as bytes, and the mean loss."""
    engine, _, images, labels = nets.make(CpuEngine(images_per_block), sizes)
    loss = engine.train(images, labels, steps(images) if order is None else order, eta)
    return [W.tobytes() for W in engine.get_network().weights], loss


@pytest.mark.parametrize("images_per_block", [1, 2, 7, 32, 100])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_blocks_of_any_length_are_the_steps_of_the_reference(sizes, images_per_block):
    """The last block is shorter, or the only one."""
    engine, weights, images, labels = nets.make(CpuEngine(images_per_block), sizes)
    order = steps(images)
    loss = engine.train(images, labels, order, ETA)
    nets.assert_trained(engine.get_network(), loss, weights, images, labels, order, ETA)
    nets.assert_padding_is_zero(engine.get_network())


def test_one_image_is_one_step():
    sizes = (33, 97, 70, 10)
    engine, weights, images, labels = nets.make(CpuEngine(), sizes)
    loss = engine.train(images, labels, np.array([3]), ETA)
    nets.assert_trained(engine.get_network(), loss, weights, images, labels, [3], ETA)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(841, 800, 10), (841, 300, 200, 10)], ids=str)
def test_the_weights_end_no_farther_from_float64_than_those_of_a_plain_float32_loop(sizes):
    """500 steps, so that rounding adds up. Distances are parts of the way that the weights went."""
    engine, weights, images, labels = nets.make(CpuEngine(), sizes, n=100)
    order, eta = np.random.default_rng(2).integers(0, 100, 500), 0.005
    expected, _ = reference.train(weights, images.astype(float), labels, order, eta)
    way = np.sqrt(sum(((W - V) ** 2).sum() for W, V in zip(weights, expected, strict=True)))

    def distance(found):
        squares = (((W - V) ** 2).sum() for W, V in zip(found, expected, strict=True))
        return np.sqrt(sum(squares)) / way

    engine.train(images, labels, order, eta)
    plain = [W.astype(np.float32) for W in weights]
    for image in order:
        changes = reference.gradients(plain, images[image], labels[image])
        for W, change in zip(plain, changes, strict=True):
            W -= (eta * change).astype(np.float32)
    assert distance(engine.get_network().unpadded()) <= distance(plain)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_bits_do_not_depend_on_the_number_of_threads(sizes, monkeypatch):
    results = []
    for threads in (1, 2, 3, 5, 16):
        set_threads(monkeypatch, threads)
        results.append(trained(sizes, 16))
    assert all(result == results[0] for result in results)


def test_a_block_leaves_nothing_behind_for_the_next_training():
    """A run that was stopped and resumed has the bits of one that was not."""
    sizes = (20, 130, 70, 10)
    engine, _, images, labels = nets.make(CpuEngine(), sizes)
    order = steps(images)
    for part in (order, order[::-1]):
        engine.train(images, labels, part, ETA)
    resumed, *_ = nets.make(CpuEngine(), sizes)
    for part in (order, order[::-1]):
        network = resumed.get_network()
        resumed = CpuEngine()
        resumed.set_network(network)
        resumed.train(images, labels, part, ETA)
    found = zip(engine.get_network().weights, resumed.get_network().weights, strict=True)
    assert all(W.tobytes() == V.tobytes() for W, V in found)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_weights_go_into_panels_and_back(sizes):
    network = Network.initial(sizes, seed=3)
    weights = blocks.to_weights(network)
    back = blocks.to_network(sizes, weights)
    assert all((W == V).all() for W, V in zip(network.weights, back.weights, strict=True))
    weights.outputs[:] = 7
    assert (network.weights[-1] != 7).all()  # a copy


def test_other_libraries_have_their_threads_back():
    before = threadpool_info()
    trained((9, 4), 8)
    assert threadpool_info() == before


@numba.njit(nogil=True)
def idle():
    """Do nothing for up to some 100 microseconds, seldom for longer than others take."""
    x = np.random.random()  # noqa: NPY002 - the one that is compiled
    for _ in range(int(40_000 * max(0.0, x - 0.6))):
        x += np.sqrt(x)
    return x


@numba.njit(nogil=True)
def wait_unevenly(meeting, members, times):
    idle()
    times = team.wait(meeting, members, times)
    idle()
    return times


def with_dawdlers(left_out=None):
    """`blocks.train_blocks` with members that dawdle, without the barrier of that number."""
    first, *rest = inspect.getsource(blocks).split(BARRIER)
    assert len(rest) == N_BARRIERS
    calls = ["times" if number == left_out else BARRIER for number in range(N_BARRIERS)]
    text = first + "".join(call + part for call, part in zip(calls, rest, strict=True))
    text = text.replace("from mlp_gpu.team import wait", "")
    namespace = {"__name__": "dawdling", "wait": wait_unevenly}
    exec(compile(text, "dawdling", "exec"), namespace)
    return namespace["train_blocks"]


def trained_by(train_blocks, monkeypatch):
    """As `trained`, by two members and several blocks, none of which begins like the one before."""
    monkeypatch.setattr(blocks, "train_blocks", train_blocks)
    return trained((33, 97, 130, 10), 6, order=np.random.default_rng(4).integers(0, 12, 26))


@pytest.mark.slow
def test_members_that_dawdle_change_nothing(monkeypatch):
    set_threads(monkeypatch, 2)
    expected = trained_by(blocks.train_blocks, monkeypatch)
    train_blocks = with_dawdlers()
    assert all(trained_by(train_blocks, monkeypatch) == expected for _ in range(50))


@pytest.mark.slow
@pytest.mark.parametrize("barrier", range(N_BARRIERS))
def test_without_any_of_its_barriers_a_team_that_dawdles_goes_wrong(barrier, monkeypatch):
    set_threads(monkeypatch, 2)
    expected = trained_by(blocks.train_blocks, monkeypatch)
    train_blocks = with_dawdlers(left_out=barrier)
    found = (trained_by(train_blocks, monkeypatch) for _ in range(500))
    assert any(result != expected for result in found)


def test_what_a_tick_raises_leaves_no_thread_behind(monkeypatch):
    set_threads(monkeypatch, 3)

    class Stop(BaseException):
        pass

    def stop(n_images, loss):
        raise Stop

    engine, _, images, labels = nets.make(CpuEngine(), (33, 200, 10))
    before = threading.active_count()
    with pytest.raises(Stop):
        engine.train(images, labels, steps(images), ETA, stop)
    assert threading.active_count() == before
