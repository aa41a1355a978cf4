"""The race: mini-batches step as they should, settings are chosen without test digits."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import reference
from measurements import SOURCE

from experiments.benchmarks import processes, race
from experiments.benchmarks.race import NUMPY, ONLINE, TORCH, Setting
from experiments.datasets import data
from experiments.datasets.dataset import Dataset
from experiments.drawing import bench_plots
from experiments.results.rows import RaceRow, read_rows, rows_text
from mlp_gpu.network import Network


@pytest.fixture
def dataset(monkeypatch):
    monkeypatch.setattr(race, "WARM_UP_IMAGES", 3)
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (20, 29, 29)).astype(np.float32)
    labels = (np.arange(20) % 10).astype(np.uint8)
    whole = Dataset("MNIST", images[:15], labels[:15], images[15:], labels[15:], "", "here")
    return data.split(whole, 4, 0)


def with_momentum(network, images, labels, order, batch, etas):
    """Float64: the mean gradient of a batch, momentum 0.9."""
    weights = [W.astype(float) for W in network.unpadded()]
    steps = [np.zeros_like(W) for W in weights]
    for eta in etas:
        for start in range(0, len(order), batch):
            now = order[start : start + batch]
            each = [reference.gradients(weights, images[k].astype(float), labels[k]) for k in now]
            for W, step, own in zip(weights, steps, zip(*each, strict=True), strict=True):
                step *= 0.9
                step += sum(own) / len(now)
                W -= eta * step
    return weights


@pytest.mark.parametrize("way", [NUMPY, TORCH])
def test_mini_batches_with_momentum(way):
    """The last batch is shorter; the second training goes on with the momentum of the first."""
    if way == TORCH:
        pytest.importorskip("torch", reason="PyTorch, an optional baseline, is not installed")
    network, rng = Network.initial((7, 5, 6, 4), 0), np.random.default_rng(0)
    images = rng.uniform(-1, 1, (11, 7)).astype(np.float32)
    labels, order = rng.integers(0, 4, 11).astype(np.uint8), rng.permutation(11)
    net = race.LEARNERS[way](network, 4)
    for eta in (0.5, 0.1):
        net.train(images, labels, order, eta)
    expected = with_momentum(network, images, labels, order, 4, (0.5, 0.1))
    for W, V in zip(net.weights(), expected, strict=True):
        np.testing.assert_allclose(W, V, rtol=0, atol=1e-5)


def test_learn_counts_what_is_wrong_after_each_epoch(dataset, monkeypatch):
    etas = []

    def noted(network, batch):
        train, weights = race.online(network, batch)
        return race.Learner(
            lambda *given: etas.append((len(given[2]), given[3])) or train(*given), weights
        )

    clock = iter(np.cumsum([0, 3] * 50))  # each epoch takes 3 seconds, each evaluation none
    # Not time's own: Numba looks at it while it compiles.
    monkeypatch.setattr(race, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    monkeypatch.setitem(race.LEARNERS, ONLINE, noted)
    monkeypatch.setattr(race, "SECONDS", 11.5)
    found = race.learn(dataset, Setting(ONLINE, 0.03), 1)
    n = len(dataset.train_labels)
    assert [seconds for seconds, *_ in found] == [3, 6, 9, 12]
    rates = [0.03 * 30 ** (-3 * i / 11.5) for i in range(4)]
    assert etas == [(3, 0.03), *((n, pytest.approx(eta)) for eta in rates)]
    assert all(
        0 <= apart <= 4 and 0 <= test <= len(dataset.test_labels) for _, apart, test in found
    )


def test_the_setting_is_taken_that_has_the_fewest_wrong_of_the_images_set_aside(
    dataset, monkeypatch, tmp_path
):
    settings = [Setting(ONLINE, 0.1), Setting(ONLINE, 0.2), Setting(ONLINE, 0.3)]
    monkeypatch.setattr(race, "CHOICES", {ONLINE: settings})
    monkeypatch.setattr(race, "N_APART", 3)
    asked, closed = [], []

    def call(function, given, setting, seed):
        assert function is race.learn
        assert len(given.validation[1]) == 3
        asked.append((setting, seed))
        return [(1.0, 50, 50), (2.0, {0.1: 7, 0.2: 5, 0.3: 6}[setting.eta], seed + 10)]

    process = SimpleNamespace(call=call, close=lambda: closed.append(True))
    monkeypatch.setattr(processes, "ConfiguredProcess", lambda environment: process)
    points = race.measure(replace(dataset, validation=None), SOURCE)
    assert [(setting.eta, seed) for setting, seed in asked] == [
        *((0.1, 0), (0.2, 0), (0.3, 0)),
        *((0.2, 1), (0.2, 2)),
    ]
    assert len(closed) == 1
    assert {point.setting for point in points if point.taken} == {"rate 0.2"}
    assert sum(point.taken for point in points) == 6
    (tmp_path / "race.csv").write_text(rows_text(points))
    assert read_rows(tmp_path / "race.csv", RaceRow) == points
    monkeypatch.setattr(race, "SECONDS", 2.0)
    (line,) = race.table(points)
    assert line["wrong after 2 s"] == "11 (10-12)"
    assert line["wrong after 1 s"] == "50 (50-50)"
    (axes,) = bench_plots.plot_race(points).axes
    assert [list(curve.get_ydata()) for curve in axes.get_lines()] == [[50, 10], [50, 11], [50, 12]]
