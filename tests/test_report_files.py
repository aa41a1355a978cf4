"""`python -m experiments.report` where files are there twice, or not at all, or damaged."""
# ruff: noqa: F401, F811 - fixtures are imported

import json
import re
from pathlib import Path

import pytest
from report_pages import (
    caption,
    fixed,
    make_run,
    plain,
    results,
    sections,
    tables_in,
    write_committee,
)

from deepbig_runtime.files import FileFault
from experiments import report
from experiments.drawing import report_sections
from experiments.drawing.page import Page
from experiments.drawing.report_files import collect
from experiments.running import store
from experiments.running.errors import Problem
from experiments.running.formatting import csv_text
from experiments.running.provenance import REPOSITORY
from experiments.scoring import committee_report, committees
from experiments.scoring.rows import read_cells, rows_text


def test_a_folder_that_is_named_must_be_there(results, tmp_path):
    path = tmp_path / "report.html"
    (tmp_path / "file").write_text("")
    for name in "none", "file":
        with pytest.raises(Problem, match=f"there is no folder .*{name}: name one with"):
            report.main(["--runs", str(tmp_path / name), "--out", str(path)])
    assert not path.exists()


def test_nothing_there(results, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "report.html"
    report.main(["--out", str(path)])
    assert capsys.readouterr().out == f"written to {path}\n"
    apart = {key: plain(part) for key, part in sections(path.read_text()).items()}
    assert apart["MNIST", "Table 1, the paper beside ours"] == "No run yet: make table1."
    assert apart["MNIST", "The committees of 2012"] == "No committee yet: make committee."
    digits = "load_digits, which is NOT MNIST"
    assert apart[digits, "Table 1's nets"] == 'No run yet: make table1 ARGS="--data digits".'
    assert apart["MNIST", "Learning curves"] == "No run yet: make table1."
    assert apart["MNIST", "Misclassified digits"] == "No run yet."
    for title in ("Engines and baselines", "The deformation", "The kernels", "Several workers"):
        assert apart["Benchmarks", title] == "Not measured yet."
    assert apart["Where the numbers come from"] == "No number yet."
    assert "<table" not in path.read_text()
    assert ("MNIST", "The other runs") not in apart


def write_record(path, run):
    path.write_text(json.dumps(run.to_builtins()))


def test_a_recorded_run_stands_there_once(results, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    for seed in 0, 1:
        store.write_run(runs / f"net1-seed{seed}.h5", make_run(seed=seed))
    write_record(results / "one.json", make_run(seed=1))
    found = collect(runs)
    page = Page()
    report_sections.add_table1(page, found, found.runs, "MNIST")
    (table,) = tables_in(page.render("", []))
    assert [(row["seed"], row["from"]) for row in table] == [
        ("0", "run net1-seed0"),
        ("1", "record, and run net1-seed1"),
    ]


def test_a_recorded_committee_stands_there_once(results, tmp_path):
    runs = tmp_path / "runs"
    (runs / "two").mkdir(parents=True)
    (runs / "one").mkdir()
    write_committee(runs / "one")
    write_committee(runs / "two")
    found = collect(runs)
    one = committees.find_committees(found.runs)[0]
    rows = rows_text(committee_report.tidy_rows(one))
    (results / "committee-experiment6-load_digits.csv").write_text(rows)
    found = collect(runs)
    page = Page()
    report_sections.add_committees(page, found, found.runs, "load_digits")
    results_ = [table for table in tables_in(page.render("", [])) if "from" in table[0]]
    origins = [row["from"] for table in results_ for row in table]
    assert origins == ["record, and runs in one, and runs in two"]


def test_an_unfinished_committee_is_marked(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_committee(tmp_path)
    path = next(path for path in store.run_files(tmp_path) if "WN14" in path.name)
    run = make_run("load_digits", (841, 800, 10), epochs=9, done=3, seed=2, width=14)
    store.write_run(path, run)
    found = collect(Path())
    page = Page()
    report_sections.add_committees(page, found, found.runs, "load_digits")
    text = page.render("", [])
    (row,) = [row for table in tables_in(text) for row in table if "from" in row]
    # The folder itself has a name, too.
    assert row["from"] == f"runs in {tmp_path.name}, not trained to the end"
    own = plain(caption(text, "Experiment 6 of 2012: "))
    assert f", not trained to the end; runs in {tmp_path.name}. [" in own


def test_damaged_files_are_named_and_the_rest_goes_on(results, tmp_path, capsys):
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "a<b.h5").write_bytes(b"nothing of ours")
    own = REPOSITORY / "results" / "amd-epyc-2-cores"
    names = ("bench.csv", "committee-experiment3.csv", "scaling.csv", "table1-net1-seed0.json")
    for name in names:
        content = (own / name).read_bytes() if (own / name).exists() else b"a,b\n1,2\n"
        (results / name).write_bytes(content[: len(content) - 150])
    (results / "whole.json").write_bytes((own / "whole-net4-seed0.json").read_bytes())
    (results / "gpu-check.json").write_text("[]")
    (results / "lacks.json").write_text('{"config": {}, "provenance": [], "metrics": {}}')
    (results / "binary.json").write_bytes(b"\xff\xfe")
    (results / "committee-experiment1.csv").write_text("")
    found = collect(runs)
    path = tmp_path / "report.html"
    assert report.main(["--runs", str(runs), "--out", str(path)]) is None
    said = capsys.readouterr().err
    warned = plain(re.search("<header>.*</header>", path.read_text(), re.DOTALL)[0])
    for name in (*names, "a<b.h5", "lacks.json", "binary.json", "committee-experiment1.csv"):
        assert re.search(f"left out: .*{name}", said), name
        assert name in warned
    assert list(found.records) == ["results/some/whole.json"]
    assert len(found.faults) == said.count("left out: ") == 8
    (table,) = tables_in(path.read_text())
    assert [row["net"] for row in table] == ["4"]


def test_a_benchmark_whose_bytes_are_none_is_named(results, tmp_path):
    rows = read_cells(REPOSITORY / "results" / "amd-epyc-2-cores" / "bench.csv")
    rows = [row | {"bytes": row["bytes"] and "many"} for row in rows]
    (results / "bench.csv").write_text(csv_text(rows))
    found = collect(tmp_path)
    assert not found.benches
    assert re.search("bench.csv is damaged .*row 1.bytes is 'many'", *found.faults)


def test_a_page_that_cannot_be_written_is_a_fault(results, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileFault, match="cannot make the folder"):
        report.main(["--runs", str(tmp_path), "--out", str(tmp_path / "file" / "report.html")])
