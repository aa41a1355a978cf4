"""`python -m experiments.scaling`: several workers against one, and clusters on paper."""

import csv

import numpy as np
import pytest

from experiments import record, scaling
from experiments.running import pools, provenance, runs, store
from experiments.running.errors import Problem
from experiments.running.formatting import csv_text
from experiments.scoring import records
from experiments.timing import clusters
from mlp_gpu.network import NETS


def test_speedup_is_the_median_of_ratios_within_a_repeat(tmp_path, monkeypatch, capsys):
    seconds = {1: iter([10.0, 30.0, 20.0]), 3: iter([5.0, 10.0, 20.0])}

    def measure_once(workers, gpus, trainings):
        assert len(trainings) == 6  # two for each of three workers, whoever trains them
        assert len({job.config["seed"] for job in trainings}) == 6
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
    monkeypatch.setattr(scaling, "IMAGES", 50)
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
    monkeypatch.setattr(scaling.pools, "Local", lambda workers, gpus: pools.Here())
    dataset = scaling.jobs.load("digits", None)
    arguments = scaling.argparse.Namespace(data_dir=None, schedule=None)
    trainings = scaling.make_jobs(tmp_path, 2, dataset, "cpu", arguments)
    trainings[0].path.write_text("something else")
    with pytest.raises(Problem, match=r"a training failed: .*0\.h5"):
        scaling.measure_once(1, 0, trainings)


def test_a_cluster_on_paper_trains_in_rounds():
    lines = clusters.cluster_table(100, 20, 39)
    assert [list(line.values()) for line in lines] == [
        ["1", "39", "1:05:20", "1.0"],
        ["2", "20", "0:33:40", "1.9"],
        ["7", "6", "0:10:20", "6.3"],
        ["13", "3", "0:05:20", "12.2"],
        ["39", "1", "0:02:00", "32.7"],
    ]


def committee_rows(**changes):
    """Two experiments that share a net, as CSV gives them back."""
    row = {"experiment": "experiment1", "net": "1", "member": "init 1", "finished": "True"}
    row |= {"data": "MNIST", "device": "Some CPU, 2 cores", "commit": "0" * 40, "seconds": "60"}
    row |= {"seed": "0", "epochs": "9", "images_an_epoch": "60000", "eta": "0.1"}
    row |= {"eta_decay": "0.9", "date": "2026-01-01", **changes}
    other = row | {"net": "2", "member": "init 2", "seconds": "90", "date": "2026-01-02"}
    return [row, other], [row | {"experiment": "experiment2"}, other | {"net": ""}]


def test_a_run_of_two_experiments_counts_once():
    rows = [{"device": "Some CPU, 2 cores", "start_seconds": "10", "bytes_an_epoch": "8e6"}]
    rows[0]["workers"] = "2"
    said, table = clusters.estimate_clusters(rows, list(committee_rows()))
    assert "the 2 runs of experiments 1 to 6 as recorded above, 75 s each" in said
    assert "8.0 MB an epoch" in said
    assert table == clusters.cluster_table(75, 10, 2)
    said, none = clusters.estimate_clusters(rows, list(committee_rows(data="load_digits")))
    assert "not measured yet" in said
    assert none == []
    said, none = clusters.estimate_clusters(rows, list(committee_rows(device="Another")))
    assert "not measured yet" in said
    assert none == []


def write_csv(path, rows):
    path.write_text(csv_text(rows))
    return path


def test_a_committee_is_recorded_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(record.provenance, "REPOSITORY", tmp_path)
    path = write_csv(tmp_path / "renamed.csv", committee_rows()[0])
    target = record.write_committee(path)
    assert target == tmp_path / "results" / "some-cpu-2-cores" / "experiment1.csv"
    assert target.read_bytes() == path.read_bytes()
    (target.parent / "bench.csv").write_text("group,net\nnet,1\n")
    assert records.read_committees() == [committee_rows()[0]]

    # The same again, with other results, replaces it; another committee does not.
    record.write_committee(write_csv(path, committee_rows(seconds="61")[0]))
    assert target.read_bytes() == path.read_bytes()
    for changes in ({"seed": "7"}, {"epochs": "10"}, {"eta": "0.2"}, {"eta_decay": "1"}):
        other = write_csv(tmp_path / "other.csv", committee_rows(**changes)[0])
        with pytest.raises(
            Problem, match=r"experiment1\.csv is the record of a committee with oth"
        ):
            record.write_committee(other)
    assert target.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["committee", "experiment7", "experiment1-other", "table4x"])
def test_a_committee_that_the_readme_does_not_show_is_not_recorded(tmp_path, monkeypatch, name):
    monkeypatch.setattr(record.provenance, "REPOSITORY", tmp_path)
    path = write_csv(tmp_path / "experiment1.csv", committee_rows(experiment=name)[0])
    with pytest.raises(Problem, match=f"is of a committee called {name}, which the README"):
        record.write_committee(path)
    assert not (tmp_path / "results").exists()


def make_member():
    """A finished run of net 1 that was never trained."""
    data = {"name": "MNIST", "sha256": "", "n_train": 6, "n_test": 1, "width": None}
    config = {"data": data, "sizes": list(NETS[1]), "epochs": 1, "seed": 0}
    session = {"dirty": False, "device": "Some CPU", "end": "2026-01-01"}
    metrics = {name: [1] for name in store.METRICS}
    return store.Run(config, [session], metrics, np.zeros((1, 10), np.float32), np.zeros(1))


def test_a_member_of_a_committee_is_no_row_of_table_1(tmp_path, monkeypatch):
    monkeypatch.setattr(record.provenance, "REPOSITORY", tmp_path)
    for changes in ({"sizes": [841, 800, 10]}, {"width": 10}, {"n_validation": 5}):
        run = make_member()
        run.config["sizes"] = changes.get("sizes", run.config["sizes"])
        run.config["data"] |= {k: v for k, v in changes.items() if k != "sizes"}
        store.write_run(tmp_path / "a.h5", run)
        with pytest.raises(Problem, match="is no net of Table 1"):
            record.write_record(tmp_path / "a.h5")
    store.write_run(tmp_path / "a.h5", make_member())
    assert record.write_record(tmp_path / "a.h5").exists()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"finished": "False"}, "init 1 is not trained to its end"),
        ({"commit": "0" * 40 + "-dirty"}, "init 1 was trained by a source tree with uncommitted"),
        ({"commit": "0" * 40 + "-dirty and 1"}, "uncommitted changes"),
    ],
)
def test_a_committee_that_does_not_count_is_not_recorded(tmp_path, monkeypatch, changes, complaint):
    monkeypatch.setattr(record.provenance, "REPOSITORY", tmp_path)
    with pytest.raises(Problem, match=complaint):
        record.write_committee(write_csv(tmp_path / "a.csv", committee_rows(**changes)[0]))
    assert not (tmp_path / "results").exists()


def test_other_files_are_no_committees(tmp_path):
    with pytest.raises(Problem, match="is not a committee's table"):
        record.write_committee(write_csv(tmp_path / "a.csv", [{"a": 1}]))
    (tmp_path / "empty.csv").touch()
    with pytest.raises(Problem, match="is not a committee's table"):
        record.write_committee(tmp_path / "empty.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(record.files.FileFault, match=r"cannot read .*bytes\.csv: it is not text"):
        record.write_committee(tmp_path / "bytes.csv")
    with pytest.raises(record.files.FileFault, match=r"cannot read .*no\.csv: No such file"):
        record.write_committee(tmp_path / "no.csv")
