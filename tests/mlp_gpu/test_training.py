"""Epochs: schedule, order, choice, evaluation and divergence."""

import numpy as np
import pytest

from mlp_gpu import training
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network
from mlp_gpu.training import Diverged, Schedule


def test_default_schedule_is_the_papers():
    schedule = Schedule()
    assert schedule.eta_of(1) == 1e-3
    assert schedule.eta_of(2) == pytest.approx(0.997e-3)
    assert schedule.epochs == 2300
    # 2,300 epochs is what it takes from 1e-3 to 1e-6: the last is the last above it.
    assert schedule.eta_of(2300) > 1e-6
    assert schedule.eta_of(2300) * 0.997 < 1e-6
    assert schedule.eta_of(2301) == schedule.eta_of(9999) == 1e-6


def test_order_is_a_fresh_permutation():
    first = training.image_order(1000, seed=1, epoch=1)
    assert sorted(first) == list(range(1000))
    assert training.image_order(10, 1, 2).tolist() == [0, 3, 2, 8, 9, 6, 4, 7, 5, 1]  # for ever
    assert (training.image_order(1000, 1, 1) == first).all()
    assert not (training.image_order(1000, 1, 2) == first).all()
    assert not (training.image_order(1000, 2, 1) == first).all()
    assert np.count_nonzero(training.image_order(1000, 1, 2) == first) < 10


@pytest.mark.parametrize(
    ("errors", "epoch"), [([5], 1), ([5, 3, 4], 2), ([5, 3, 3, 4, 3], 2), ([9, 8, 7], 3)]
)
def test_chosen_epoch_is_the_first_with_fewest_errors(errors, epoch):
    assert training.chosen_epoch(errors) == epoch


SIZES = (9, 8, 3)
RNG = np.random.default_rng(0)
TRAINING = RNG.uniform(-1, 1, (600, 9)).astype(np.float32), RNG.integers(0, 3, 600).astype("u1")
TEST = RNG.uniform(-1, 1, (50, 9)).astype(np.float32), RNG.integers(0, 3, 50).astype("u1")
APART = RNG.uniform(-1, 1, (70, 9)).astype(np.float32), RNG.integers(0, 3, 70).astype("u1")
SCHEDULE = Schedule(epochs=4, eta=0.05, decay=0.5)


def deform(epoch):
    """A deformation that tells epochs apart."""
    return TRAINING[0] * np.float32(1 + epoch / 10)


def new_engine(seed=0):
    engine = CpuEngine()
    engine.set_network(Network.initial(SIZES, seed))
    return engine


def test_epochs_are_what_they_say():
    engine, ticks = new_engine(), []
    rows = list(
        training.train(engine, TRAINING, APART, TEST, SCHEDULE, 7, deform, tick=ticks.append)
    )
    assert [row.epoch for row in rows] == [1, 2, 3, 4]
    assert [row.eta for row in rows] == [0.05, 0.025, 0.0125, 0.00625]
    assert sum(ticks) == 4 * 600

    # The same by hand: one call an epoch instead of one a chunk.
    expected = new_engine()
    for row in rows:
        order = training.image_order(600, 7, row.epoch)
        loss = expected.train(deform(row.epoch), TRAINING[1], order, row.eta)
        assert row.train_loss == pytest.approx(loss, rel=1e-5)
        outputs = expected.predict(APART[0])
        assert row.validation_errors == (outputs.argmax(1) != APART[1]).sum()
        assert row.test_errors == (row.outputs.argmax(1) != TEST[1]).sum()
        np.testing.assert_allclose(row.outputs, expected.predict(TEST[0]), atol=1e-5)


def test_images_to_evaluate_are_kept_once_after_training_took_its_memory():
    engine, done = new_engine(), []
    train, predict = engine.train, engine.predict
    engine.train = lambda *arguments: done.append("train") or train(*arguments)
    engine.keep = lambda images: done.append("keep") or images.view(Kept)
    engine.predict = lambda images: done.append(type(images)) or predict(images)
    list(training.train(engine, TRAINING, APART, TEST, Schedule(2, 0.05, 0.5), 7, deform))
    evaluated = [Kept, Kept]
    assert done == ["train", "keep", "keep", *evaluated, "train", *evaluated]


class Kept(np.ndarray):
    """Images that an engine keeps."""


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # also of other threads
def test_outputs_that_are_not_finite_are_refused():
    engine = new_engine()
    net = engine.get_network()
    net.weights[1][1, 1] = np.inf
    engine.set_network(net)
    with pytest.raises(Diverged, match="outputs"):
        training.count_errors(engine, *TEST, lambda n: None)


def test_errors_are_counted_over_all_chunks(monkeypatch):
    engine = new_engine()
    expected, outputs = training.count_errors(engine, *TRAINING, lambda n: None)
    monkeypatch.setattr(training, "IMAGES_PER_PREDICT", 7)
    found, same = training.count_errors(engine, *TRAINING, lambda n: None)
    assert found == expected == (outputs.argmax(1) != TRAINING[1]).sum()
    np.testing.assert_allclose(outputs, same, atol=1e-6)
    assert 0 < found < 600
