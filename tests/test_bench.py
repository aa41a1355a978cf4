"""The benchmark's peers train the same net, and its figures are what their names say."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from test_table1 import columns, make_run

from experiments import bench, readme, tables
from experiments.bench import Work
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import NETS, Network

SIZES = (33, 21, 17, 10)


def test_engine_bytes():
    # (1,347,510 weights: read and written once, read again but for the 842,000 of layer 1)
    assert bench.engine_bytes(Network.initial(NETS[1], 0)) == 4 * (3 * 1_347_510 - 842_000)


@pytest.mark.parametrize("peer", ["numpy_work", "torch_work"])
def test_peers_train_the_same_net(peer, monkeypatch):
    if peer == "torch_work":
        pytest.importorskip("torch", reason="PyTorch, an optional peer, is not installed")
    monkeypatch.setattr(bench, "ETA", 0.05)
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (10, 33)).astype(np.float32)
    labels = rng.integers(0, 10, 10).astype(np.uint8)
    network = Network.initial(SIZES, 0)
    engine = CpuEngine()
    engine.set_network(network)
    engine.train(images, labels, np.arange(10), 0.05)
    trained = engine.get_network().weights
    for W, V, before in zip(
        getattr(bench, peer)(network, images, labels)(), trained, network.weights, strict=True
    ):
        V, before = V[: W.shape[0], : W.shape[1]], before[: W.shape[0], : W.shape[1]]
        assert abs(W - V).max() < 1e-4 * abs(V - before).max()


def test_rows_are_medians_and_ratios(monkeypatch):
    seconds = {
        "first": np.array([1.0, 2, 3, 4, 5, 6, 7]),
        "twice": np.array([2.0, 4, 6, 8, 10, 12, 14]),
        "copy": np.array([0.5, 1, 1.5, 2, 2.5, 3, 3.5]),
    }
    monkeypatch.setattr(bench, "measure", lambda works, repeats: seconds)
    works = {
        "first": Work(None, n_images=10, n_bytes=8e9),
        "twice": Work(None, n_images=10),
        "copy": Work(None, n_bytes=1e9),
    }
    first, twice, copy = bench.rows("a net", works, 7, compare="copy")
    spread = [first[name] for name in ("seconds_p20", "seconds", "seconds_p80")]
    assert spread == pytest.approx([2.2, 4, 5.8])
    assert first["us_an_image"] == pytest.approx(400_000)
    assert first["images_a_second"] == pytest.approx(2.5)
    assert first["gb_a_second"] == pytest.approx(2)
    assert first["of_copy"] == pytest.approx(0.5 * 8)
    assert (first["times_first"], twice["times_first"]) == (1, 2)
    assert twice["gb_a_second"] is twice["of_copy"] is None
    assert copy["us_an_image"] is copy["times_first"] is None
    assert copy["of_copy"] == 1
    lines = bench.table([first, twice, copy]).splitlines()
    cells = dict(zip(columns(lines[0]), columns(lines[2]), strict=True))
    assert cells["what"] == "first"
    assert cells["us an image"] == "4e+05"
    assert cells["of the copy's"] == "4.00"


def test_measure_takes_turns():
    calls = []
    works = {name: Work(lambda name=name: calls.append(name)) for name in "ab"}
    seconds = bench.measure(works, 7)
    assert all(times.shape == (7,) and (times > 0).all() for times in seconds.values())
    assert sum(a != b for a, b in pairwise(calls)) >= 13


def test_readme_table_of_records():
    assert readme.table1([], "MNIST") == readme.NOT_MEASURED
    runs = [make_run(net=4), make_run(net=1, name="load_digits"), make_run(net=2)]
    text = readme.table1(runs, "MNIST")
    assert [line.split("|")[1].strip() for line in text.splitlines()[2:4]] == ["2", "4"]
    assert "2,300 epochs: not measured yet" in text
    assert text.count("commit 0123456789ab") == 2
    whole = make_run(epochs=2300, wrong=[35] * 2300, validation=[60] * 2300)
    assert "not measured yet" not in readme.table1([whole], "MNIST")
    digits = readme.table1(runs, "load_digits")
    assert "paper" not in digits
    assert digits.count("\n|") == 2  # under the header
    assert digits.count("commit") == 1


def test_readme_shows_the_benchmarks_of_every_device(tmp_path, monkeypatch):
    monkeypatch.setattr(readme, "REPOSITORY", tmp_path)
    assert readme.benchmarks() == readme.NOT_MEASURED
    works = {"thing": Work(lambda: None, n_images=1)}
    source = {"device": "Some CPU", "versions": "a=1", "date": "today", "commit": "c" * 40}
    rows = [row | source for row in bench.rows("group", works, 7)]
    path = tmp_path / "results" / "some-cpu" / "bench.csv"
    path.parent.mkdir(parents=True)
    path.write_text(tables.csv_text(rows))
    text = readme.benchmarks()
    assert text.startswith("Some CPU; a 1; today; commit cccccccccccc; medians of 7 repeats:")
    assert "| thing |" in text


def test_several_sessions_show_all_their_commits():
    run = make_run()
    other = replace(run, provenance=[run.provenance[0] | {"commit": "f" * 40}, *run.provenance])
    assert "commit ffffffffffff, 0123456789ab" in tables.provenance_line(other)
