"""`python -m experiments.blocks`: what it compares, and what it writes."""

import numpy as np
import pytest

from experiments import blocks
from experiments.benchmarks import window
from experiments.results import record_tables, records
from experiments.results.records import BlockRecord, read_json
from mlp_gpu import cpu
from mlp_gpu.network import Network

WAYS = {records.PLAIN, records.ENGINE, *records.WINDOWS}
SMALL = (((841, 20, 10), 70, 90), ((841, 13, 9, 10), 40, 2000))


def test_a_row_for_each_net_stage_and_learning_rate(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(blocks, "CASES", SMALL)
    blocks.main(["--data", "digits", "--out", str(tmp_path / "new")])
    record = read_json(tmp_path / "new" / "blocks.json", BlockRecord)
    assert record_tables.block_table(record) in capsys.readouterr().out
    rows = record.rows
    found = [(row.trained_on, row.eta, row.steps) for row in rows]
    # Of load_digits' 1,437 training images as many as are not those of the steps.
    few, all_others = [(90, 1e-3, 70), (90, 1e-4, 70)], [(1397, 1e-3, 40), (1397, 1e-4, 40)]
    assert found == [(0, 1e-3, 70), *few, (0, 1e-3, 40), *all_others]
    assert [row.sizes for row in rows] == 3 * [(841, 20, 10)] + 3 * [(841, 13, 9, 10)]
    for row in rows:
        assert set(row.distances) == WAYS
        assert all(0 < distance < 1e-3 for distance in row.distances.values())
        assert set(row.sweeps_per_image) == set(records.WINDOWS)
        for name, (per_window, _) in records.WINDOWS.items():
            assert 1 < row.sweeps_per_image[name] < per_window
    assert record.data == "load_digits"
    assert record.provenance.end


def examples(n=40):
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (n, 17)).astype(np.float32), rng.integers(0, 10, n).astype(np.uint8)


def test_distances_are_parts_of_the_way(monkeypatch):
    """Who does not move at all is as far away as the way is long."""
    train = window.train_plainly

    def only_exactly(weights, *more):
        if weights[0].dtype == np.float64:
            train(weights, *more)

    monkeypatch.setattr(blocks, "after_training", lambda network, *_: network)
    monkeypatch.setattr(window, "train_plainly", only_exactly)
    monkeypatch.setattr(window, "train_in_windows", lambda *_: [])
    distances, _ = blocks.compare(Network.initial((17, 9, 10), 0), *examples(), 0.01)
    assert distances == pytest.approx(dict.fromkeys(WAYS, 1))


def test_sweeps_are_counted_image_by_image(monkeypatch):
    monkeypatch.setattr(window, "train_in_windows", lambda *_: [(0, 16), (10, 26), (20, 40)])
    _, sweeps = blocks.compare(Network.initial((17, 9, 10), 0), *examples(), 0.01)
    assert set(sweeps.values()) == {(16 + 16 + 20) / 40}


def test_nets_are_trained_by_the_engine_on_other_images(digits, monkeypatch):
    trained = []

    class Engine(cpu.CpuEngine):
        def train(self, images, labels, order, eta):
            trained.append((images[order], eta))
            return super().train(images, labels, order, eta)

    monkeypatch.setattr(cpu, "CpuEngine", Engine)
    monkeypatch.setattr(blocks, "CASES", SMALL[:1])
    blocks.measure(digits)
    (steps, _), (before, eta), *after = trained
    assert (len(before), eta) == (90, blocks.ETA)
    assert [eta for _, eta in after] == [1e-3, 1e-4]
    assert all((images == steps).all() for images, _ in after)
    # Deformed ones, which do not come twice.
    both = np.concatenate([steps, before])
    assert len(np.unique(both, axis=0)) == 70 + 90
    originals = digits.train_images.reshape(len(digits.train_images), -1)
    assert not (both[:, np.newaxis] == originals).all(axis=2).any()
