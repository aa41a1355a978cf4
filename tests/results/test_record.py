"""`python -m experiments.record`, of runs and of committees; the newest benchmarks on record."""

import dataclasses
import json

import pytest
from bench_rows import on_cpu
from committee_cases import committee_rows
from factories import changed, make_run
from measurements import SOURCE
from msgspec.structs import replace

from deepbig_runtime.errors import Problem
from experiments import record
from experiments.results import cnn_tables, records, tables
from experiments.results.rows import rows_text
from experiments.training import store


def write_csv(path, rows):
    path.write_text(rows_text(rows))
    return path


def test_runs_are_recorded_finished_or_as_unfinished(empty):
    path = empty / "long" / "net1-seed0.h5"
    path.parent.mkdir()
    run = make_run(session={"device": "Some CPU, 2 cores"})
    stopped = dataclasses.replace(run, config=changed(run.config, epochs=9))
    dirty = make_run(session={"dirty": True})
    for other, complaint in (
        (stopped, "2 of 9 epochs: only a finished run counts"),
        (dirty, "uncommitted changes"),
        (dataclasses.replace(run, provenance=[*dirty.provenance, *run.provenance]), "uncommitted"),
        (make_run(session={"commit": "unknown", "dirty": True}), "git did not know the commit"),
        (make_run(session={"commit": "installed, version 1.2"}), "or by an installed package"),
    ):
        store.write_run(path, other)
        with pytest.raises(Problem, match=complaint):
            record.write_record(path)
    store.write_run(path, run)
    target = record.write_record(path)
    assert target == empty / "results" / "some-cpu-2-cores" / "long-net1-seed0.json"
    assert json.loads(target.read_text()) == json.loads(json.dumps(run.to_builtins()))
    (again,) = records.read_results().runs.values()
    assert tables.table1_row(again) == tables.table1_row(run)
    before = target.read_bytes()
    store.write_run(path, dataclasses.replace(run, config=changed(run.config, eta=0.5)))
    with pytest.raises(Problem, match=r"net1-seed0\.json is .* another configuration"):
        record.write_record(path)
    assert target.read_bytes() == before
    target.unlink()

    store.write_run(path, stopped)
    record.main([str(path), "--unfinished"])
    (again,) = records.read_results().runs.values()
    assert tables.result_cells(tables.table1_row(again))["epochs x images"].startswith("2 of 9 x ")
    (line, *_) = cnn_tables.longest_table([again])
    assert line["epochs x images"].startswith("2 of 9 x ")
    store.write_run(path, dataclasses.replace(stopped, metrics=run.metrics.first(1)))
    with pytest.raises(Problem, match=r"has 2 epochs of the same run, .* only 1: train on"):
        record.write_record(path, unfinished=True)


def test_a_committee_is_recorded_as_it_is(empty):
    (empty / "night").mkdir()
    path = write_csv(empty / "night" / "renamed.csv", committee_rows()[0])
    target = record.write_committee(path)
    assert target == empty / "results" / "some-cpu-2-cores" / "night-experiment1.csv"
    assert target.read_bytes() == path.read_bytes()
    (target.parent / "notes.csv").write_text("group,net\nnet,1\n")
    assert records.read_results().committees == {target: committee_rows()[0]}

    # The same again, with other results, replaces it; another committee does not, which in another
    # folder has a record of its own.
    record.write_committee(write_csv(path, committee_rows(seconds=61.0)[0]))
    assert target.read_bytes() == path.read_bytes()
    for changes in ({"seed": 7}, {"epochs": "10"}, {"eta": "0.2"}, {"eta_decay": "1"}):
        other = write_csv(empty / "night" / "other.csv", committee_rows(**changes)[0])
        with pytest.raises(Problem, match=r"night-experiment1\.csv is .* rename the folder"):
            record.write_committee(other)
    assert target.read_bytes() == path.read_bytes()
    (empty / "longer").mkdir()
    other = record.write_committee(other.rename(empty / "longer" / "experiment1.csv"))
    assert other == target.with_name("longer-experiment1.csv")
    assert list(records.read_results().committees) == [other, target]


def test_a_committee_is_not_recorded_under_the_name_of_a_study(empty):
    (empty / "study-widths").mkdir()
    with pytest.raises(Problem, match="named as those of studies; rename the folder"):
        record.write_committee(write_csv(empty / "study-widths" / "a.csv", committee_rows()[0]))


def test_a_committee_of_given_runs_is_recorded_with_what_is_wrong_for_all(empty):
    rows = committee_rows(experiment="committee", wrong_digits=[3, 7])[0]
    rows[0] = replace(rows[0], errors=0, wrong_digits=[])
    (empty / "mixed").mkdir()
    target = record.write_committee(write_csv(empty / "mixed" / "committee.csv", rows))
    assert target.name == "mixed-committee.csv"
    assert records.read_results().committees == {target: rows}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda rows: rows.pop(), "not those of members and, last, of their committee"),
        (lambda rows: setattr(rows[-1], "best_member", "init 9"), "of several committees"),
        (lambda rows: setattr(rows[0], "experiment", "experiment2"), "of several committees"),
        (lambda rows: [row.shared.pop() for row in rows], "lacks columns shared_1, shared_2"),
    ],
)
def test_rows_that_are_no_committee_are_refused(tmp_path, change, complaint):
    rows = committee_rows()[0]
    change(rows)
    with pytest.raises(record.files.FileFault, match=complaint):
        records.read_committee(write_csv(tmp_path / "a.csv", rows))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"finished": False}, "init 1 is not trained to its end"),
        ({"commit": "0" * 40 + "-dirty"}, "init 1 was trained by a source tree with uncommitted"),
        ({"commit": "0" * 40 + "-dirty and 1"}, "uncommitted changes"),
        *(
            ({"experiment": name}, f"is of a committee called {name}, which the README")
            for name in ("committee-load_digits", "experiment7", "experiment1-other", "table4x")
        ),
    ],
)
def test_a_committee_that_does_not_count_is_not_recorded(empty, changes, complaint):
    with pytest.raises(Problem, match=complaint):
        record.write_committee(write_csv(empty / "a.csv", committee_rows(**changes)[0]))
    assert not (empty / "results").exists()


def test_newest_benchmarks_are_those_of_all_nets_the_newest_first():
    found = {}
    for device, date, net in (
        ("of some nets", "2026-05-01", "4"),
        ("an old chip", "2026-01-02", "841-800-10"),
        ("new", "2026-03-01", "841-800-10"),
        ("a", "2025-12-31", "841-800-10"),
    ):
        source = replace(SOURCE, device=device, date=date)
        found[device] = [replace(one, source=source, net=net) for one in on_cpu()]
    newest = records.Results(benches=found).newest_benches
    assert list(newest) == ["new", "an old chip", "a", "of some nets"]
    assert newest["a"] == found["a"]
