"""`python -m experiments.scaling`: several workers against one, and what clusters would take."""

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest
from measurements import SOURCE
from msgspec.structs import replace
from test_record_committee import committee_rows

from experiments import scaling
from experiments.running import provenance, runs, workers
from experiments.running.errors import Problem
from experiments.timing import clusters


def test_speedup_is_the_median_of_ratios_within_a_repeat(tmp_path, monkeypatch, capsys):
    seconds = {1: iter([10.0, 30.0, 20.0]), 3: iter([5.0, 10.0, 20.0])}

    def measure_once(workers, gpus, trainings):
        assert len(trainings) == 6  # two for each of three workers, whoever trains them
        assert len({job.config.seed for job in trainings}) == 6
        return {"start": 7.0 + workers, "train": next(seconds[workers]), "bytes": 1000}

    monkeypatch.setattr(scaling, "measure_once", measure_once)
    options = ["--data", "digits", "--engine", "cpu", "--workers", "3", "--repeats", "3"]
    scaling.main([*options, "--out", str(tmp_path)])
    with (tmp_path / "scaling.csv").open(newline="") as file:
        alone, three = csv.DictReader(file)
    assert (alone["workers"], float(alone["seconds"]), float(alone["speedup"])) == ("1", 20, 1)
    # 10/5, 30/10, 20/20; the ratio of the medians would be 20/10 = 2 too, of the means 1.71
    assert (three["workers"], float(three["seconds"]), float(three["speedup"])) == ("3", 10, 2)
    assert float(three["start_seconds"]) == 10
    assert three["runs"] == "6"
    assert three["device"] == provenance.device()
    printed = capsys.readouterr().out
    assert "| 3       | 6         | 10.0 (7.0-16.0)   | 2.00 " in printed


@pytest.mark.slow
def test_a_measurement_trains_every_net_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(scaling, "MAX_IMAGES", 50)
    dataset = scaling.jobs.load("digits", None)
    arguments = scaling.argparse.Namespace(data_dir=None, schedule=None)
    trainings = scaling.make_jobs(tmp_path, 3, dataset, "cpu", arguments)
    found = scaling.measure_once(2, 0, trainings)
    for training in trainings:
        assert runs.epochs_done(training.path, training.config) == scaling.EPOCHS
    assert found["train"] > 0
    assert found["start"] > 0
    own = [path.stat().st_size for path in tmp_path.glob("0.*h5")]
    assert found["bytes"] == sum(own)
    assert len(own) == 2


def test_a_training_that_fails_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(scaling, "LocalProcesses", lambda n, n_gpus: workers.InProcess())
    dataset = scaling.jobs.load("digits", None)
    arguments = scaling.argparse.Namespace(data_dir=None, schedule=None)
    trainings = scaling.make_jobs(tmp_path, 2, dataset, "cpu", arguments)
    trainings[0].path.write_text("something else")
    with pytest.raises(Problem, match=r"a training failed: .*0\.h5"):
        scaling.measure_once(1, 0, trainings)


def test_an_estimated_cluster_trains_in_rounds():
    lines = clusters.cluster_table(100, 20, 39)
    assert [list(line.values()) for line in lines] == [
        ["1", "39", "1:05:20", "1.0"],
        ["2", "20", "0:33:40", "1.9"],
        ["7", "6", "0:10:20", "6.3"],
        ["13", "3", "0:05:20", "12.2"],
        ["39", "1", "0:02:00", "32.7"],
    ]


def recorded(found, folder="committee"):
    return {Path(f"{folder}-{rows[-1].experiment}.csv"): rows for rows in found}


def test_a_run_of_two_experiments_counts_once():
    source = replace(SOURCE, device="Some CPU, 2 cores")
    rows = [SimpleNamespace(source=source, start_seconds=10, bytes_an_epoch=8e6)]
    said, table = clusters.estimate_clusters(rows, recorded(committee_rows()))
    assert "the 2 recorded runs of `make committee`, 75 s each" in said
    assert "8.0 MB per epoch" in said
    assert table == clusters.cluster_table(75, 10, 2)
    said, none = clusters.estimate_clusters(rows, recorded(committee_rows(data="load_digits")))
    assert "not measured yet" in said
    assert none == []
    longer = recorded(committee_rows(seconds=9000.0), "committee100")
    assert "not measured yet" in clusters.estimate_clusters(rows, longer)[0]
    said, none = clusters.estimate_clusters(rows, recorded(committee_rows(device="Another")))
    assert "not measured yet" in said
    assert none == []
