"""The CPU engine against the float64 reference, on odd sizes."""

import os
import subprocess
import sys
from pathlib import Path

import nets
import numpy as np
import pytest
import reference

from mlp_gpu.cpu import CHUNK, CpuEngine

SIZES = [(13, 7), (31, 33, 10), (97, 1, 5), (50, 37, 64, 33, 10), (33, 501, 97, 10)]


def make(sizes, n=12):
    return nets.make(CpuEngine(), sizes, n=n)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_ten_steps_match_the_reference(sizes):
    engine, weights, images, labels = make(sizes)
    order = np.array([3, 1, 4, 1, 5, 9, 2, 6, 11, 0])
    eta = float(np.float32(0.05))  # large, so that each step shows
    loss = engine.train(images, labels, order, eta)
    nets.assert_trained(engine.get_network(), loss, weights, images, labels, order, eta)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_padding_stays_zero(sizes):
    engine, _, images, labels = make(sizes)
    engine.train(images, labels, np.arange(12), 0.05)
    nets.assert_padding_is_zero(engine.get_network())


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_prediction_matches_the_reference(sizes):
    engine, weights, images, _ = make(sizes, n=1003)  # more than a batch
    nets.assert_predicts(engine.predict(images), weights, images)


def test_tick_hears_of_every_image():
    engine, _, images, labels = make((13, 7))
    order, heard = np.arange(2 * CHUNK + 7) % 12, []
    loss = engine.train(images, labels, order, 0.05, lambda *told: heard.append(told))
    assert [n for n, _ in heard] == [CHUNK, CHUNK, 7]
    assert sum(n * part for n, part in heard) / len(order) == pytest.approx(loss, rel=1e-12)
    other, *_ = make((13, 7))
    parts = [
        other.train(images, labels, part, 0.05)
        for part in (order[:CHUNK], order[CHUNK : 2 * CHUNK], order[2 * CHUNK :])
    ]
    assert parts == [part for _, part in heard]


def test_training_goes_on_where_it_stopped():
    sizes = (33, 21, 10)
    whole, weights, images, labels = make(sizes)
    parts, *_ = make(sizes)
    order = np.arange(12)
    whole.train(images, labels, order, 0.05)
    for start in (0, 5, 6):
        parts.train(images, labels, order[start : {0: 5, 5: 6, 6: 12}[start]], 0.05)
    bounds, _ = reference.train_bounds(weights, images, labels, order, 0.05)
    for W, V, bound in zip(
        whole.get_network().unpadded(), parts.get_network().unpadded(), bounds, strict=True
    ):
        assert (abs(W - V) <= 4 * bound).all()


def test_same_input_gives_the_same_bits():
    results = []
    for _ in range(3):
        engine, _, images, labels = make((97, 65, 33, 10))
        loss = engine.train(images, labels, np.arange(12), 0.05)
        weights = [W.tobytes() for W in engine.get_network().weights]
        results.append((loss, weights, engine.predict(images).tobytes()))
    assert results[0] == results[1] == results[2]


PREDICT = """
import hashlib
import nets
from mlp_gpu.cpu import PREDICT_IMAGES, CpuEngine
engine, _, images, _ = nets.make(CpuEngine(), (97, 300, 10), n=2 * PREDICT_IMAGES + 203)
print(hashlib.sha256(engine.predict(images).tobytes()).hexdigest())
"""


def test_outputs_do_not_depend_on_how_many_threads_there_are():
    """The workers that share a machine have fewer than a process that has it alone."""

    def predict(n_numba, n_blas):
        environment = {"NUMBA_NUM_THREADS": n_numba, "OPENBLAS_NUM_THREADS": n_blas}
        environment |= {"OMP_NUM_THREADS": n_blas, "MKL_NUM_THREADS": n_blas}
        return subprocess.Popen(
            [sys.executable, "-c", PREDICT],
            env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            text=True,
        )

    processes = [predict("1", "1"), predict("2", "2")]
    one, two = [process.communicate()[0] for process in processes]
    assert len(one.strip()) == 64
    assert one == two


def test_network_is_copied_in_and_out():
    engine, _, images, labels = make((13, 7))
    before = engine.get_network()
    kept = [W.copy() for W in before.weights]
    engine.set_network(before)
    engine.train(images, labels, np.arange(12), 0.05)
    assert all((W == V).all() for W, V in zip(before.weights, kept, strict=True))
    assert not all((W == V).all() for W, V in zip(engine.get_network().weights, kept, strict=True))


@pytest.mark.parametrize(
    "bad", ["label", "int64", "labels", "index", "negative", "empty", "floats", "pixels", "float64"]
)
def test_bad_input_is_refused(bad):
    engine, _, images, labels = make((13, 7))
    order = np.arange(12)
    if bad == "label":
        labels[3] = 7
    elif bad == "int64":
        labels = labels.astype(np.int64) - 1
    elif bad == "labels":
        labels = labels[:-1]
    elif bad == "floats":
        order = order.astype(float)
    elif bad == "index":
        order[2] = 12
    elif bad == "negative":
        order[2] = -1
    elif bad == "empty":
        order = order[:0]
    elif bad == "pixels":
        images = images[:, 1:].copy()
    elif bad == "float64":
        images = images.astype(np.float64)
    with pytest.raises(ValueError, match="expected"):
        engine.train(images, labels, order, 0.1)


def test_nan_is_seen_in_the_loss():
    engine, _, images, labels = make((13, 9, 7))
    images[4, 2] = np.nan
    assert np.isnan(engine.train(images, labels, np.arange(12), 0.1))
