"""`python -m experiments.cnn`: what it describes, trains, resumes, leaves behind and refuses."""

import csv
from dataclasses import replace

import pytest
from factories import changed
from run_bits import bits
from small_runs import DATASET, AtEpoch

from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.network import ConvNetwork
from deform_gpu import TABLE1
from experiments import cnn, readme, record
from experiments.datasets.dataset import DIGIT
from experiments.results import cnn_tables, records
from experiments.training import runs, store
from experiments.training.configs import make_config
from mlp_gpu.training import Schedule

NET = "3M5s1-MP2-4M2c2-12N"
TINY = ["--data", "digits", "--net", NET, "--epochs", "2", "--limit", "60", "--workers", "1"]
TINY += ["--engine", "cpu"]
CONFIG = make_config(DATASET, NET, Schedule(4, 0.05, 0.9), 2, TABLE1, "cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a tiny run leaves behind."""
    folder = tmp_path_factory.mktemp("cnn")
    assert cnn.main([*TINY, "--seeds", "0,7", "--out", str(folder)]) == 0
    return folder


def test_describe_prints_each_layer(tmp_path, capsys):
    assert cnn.main(["--describe", "--nets", "3", "--out", str(tmp_path / "none")]) == 0
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()
    ]
    second = ["convolution", "60", "5x5", "5x5", "1x1", "600", "15,060", "375,000"]
    assert second in lines
    assert ["all", "", "", "", "", "", "179,340", "839,000"] in lines
    assert not (tmp_path / "none").exists()


def test_nets_of_the_paper_have_its_layers():
    for paper in cnn_tables.PAPER.values():
        found = ConvNetwork.initial(paper.layers, DIGIT, 10, 0)
        hidden = [
            f"{layer.maps.n}{'N' if layer.kind == 'fully connected' else 'M'}"
            for layer in found.layers[:-1]
        ]
        assert "-".join(hidden) == paper.name


def test_table_of_digits_has_no_figures_of_the_paper(folder):
    text = (folder / "cnn.md").read_text()
    assert "load_digits, which is NOT MNIST" in text
    assert "must not be compared" in text
    assert "| paper" not in text
    assert f"- {NET}, seed 7: " in text
    with (folder / "cnn.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["0", "7"]
    assert rows[0]["weights"] == "1456"
    assert float(rows[0]["error_after_1"]) > 0
    assert rows[0]["error_after_3"] == ""


def test_finished_run_is_recorded_and_in_the_readme(folder, tmp_path, monkeypatch):
    run = store.read_run(store.run_files(folder)[0])
    run.provenance[-1].dirty, run.provenance[-1].device = False, "Some CPU"
    path = tmp_path / "cnn" / "net-seed0.h5"
    path.parent.mkdir()
    store.write_run(path, run)
    monkeypatch.setattr(record.provenance, "REPOSITORY", tmp_path)
    target = record.write_record(path)
    assert target.name == "cnn-net-seed0.json"
    kept = records.read_record(target)
    assert cnn_tables.row(kept) == cnn_tables.row(run)
    text = readme.cnn({target: kept}, "load_digits")
    assert f"| ours | {NET} | 1,456   |" in text
    assert f"- `cnn-net-seed0.json`: {NET}, seed 0: Some CPU" in text
    net = replace(kept, config=changed(kept.config, layers=cnn_tables.PAPER[1].layers))
    both = readme.cnn({target: kept, target.with_name("of-the-paper.json"): net}, "load_digits")
    assert both.index("`of-the-paper.json`") < both.index("`cnn-net-seed0.json`")
    assert readme.cnn({target: kept}, "MNIST") == readme.NOT_MEASURED


def test_run_resumes_bit_identically(tmp_path):
    whole, parts = tmp_path / "whole.h5", tmp_path / "parts.h5"

    def train(path, callbacks):
        return runs.train_run(path, CONFIG, DATASET, ConvCpuEngine(), callbacks)

    def stop():
        raise KeyboardInterrupt

    train(whole, runs.Callbacks())
    with pytest.raises(KeyboardInterrupt):
        train(parts, AtEpoch(2, stop))
    assert store.read_run(parts).epochs == 2
    train(parts, runs.Callbacks())
    assert bits(parts) == bits(whole)


def test_long_descriptions_have_short_distinct_file_names(tmp_path):
    nets = ["-".join(["20M5x3s1x0c10"] * 29 + [last]) for last in ("1N", "2N")]
    paths = [cnn.run_path(tmp_path, net, 0, "MNIST", 0) for net in nets]
    assert all(len(path.name) < 200 for path in paths)
    assert paths[0] != paths[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--net", "20M4s1"], "a kernel of 4 that skips 1 does not divide a map of 29"),
        (["--net", "20M5s1-"], "expected layers such as 20M5"),
        (["--nets", "5"], "--nets"),
    ],
)
def test_bad_arguments_are_user_errors(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        cnn.main(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
