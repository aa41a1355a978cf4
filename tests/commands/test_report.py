"""`python -m experiments.report`: the page of your runs and of all records."""
# ruff: noqa: F401, F811 - fixtures are imported

import base64
import csv
import html
import io
import json
import re

import numpy as np
import pytest
from factories import changed
from matplotlib.figure import Figure
from msgspec import structs
from PIL import Image
from report_pages import (
    SESSION,
    caption,
    fixed,
    folder,
    make_run,
    plain,
    results,
    sections,
    sources_in,
    tables_in,
    text,
    write_committee,
    written,
)

from deepbig_runtime.errors import Problem
from experiments import report
from experiments.datasets import data
from experiments.drawing import report_sections
from experiments.drawing.page import Html, Page
from experiments.drawing.page import html as to_html
from experiments.drawing.report_sections import OWN_TITLE, Report
from experiments.results import tables, voting
from experiments.results.records import Results, read_results
from experiments.results.rows import ScalingRow, read_rows
from experiments.training import store
from experiments.training.provenance import REPOSITORY

DIGITS = "load_digits, which is NOT MNIST"

# Runs and records


def test_on_top_each_run_stands_beside_the_record_of_its_net_and_the_paper(results, tmp_path):
    own = make_run(name="mine", classes=tuple("0123456789"))
    for name, run in (("own", own), ("net1-seed0", make_run(n_wrong=30))):
        store.write_run(tmp_path / f"{name}.h5", run)
    write_committee(tmp_path)
    (results / "one.json").write_text(json.dumps(make_run(epochs=9).to_builtins()))
    parts = sections(Report(tmp_path).build())
    ((row,),) = tables_in(parts[OWN_TITLE, "MNIST"])
    record, paper = "worse than 8.00 after 3 of 9 epochs", "worse than 0.49 after 2,300 epochs"
    paper += " on 60,000 images"
    assert list(row.values())[:4] == ["net1-seed0", "15.00", record, paper]
    lines = [line.partition(":")[0] for line in sources_in(parts[OWN_TITLE, "MNIST"])]
    assert lines == ["net1-seed0", "results/some/one.json"]
    committee = f"experiment6-load_digits, runs in {tmp_path.name}"  # instead of its members
    titles = {"mine, data of your own": "own", "load_digits, which is NOT MNIST": committee}
    for title, name in titles.items():
        ((row,),) = tables_in(parts[OWN_TITLE, title])
        assert list(row)[:3] == ["run", "error %", "95 % interval"]
        assert row["run"] == name
        assert "no record of such a net; the papers have no figure" in parts[OWN_TITLE, title]


def test_records_have_the_tables_of_the_papers(text):
    parts, results = sections(text), read_results()
    assert ("Records: CIFAR-10, a JPEG copy", "The convolutional nets of 2011") in parts
    convolutional = {path: run for path, run in results.runs.items() if run.config.is_convolutional}
    perceptrons = {path: run for path, run in results.runs.items() if tables.is_table1(run)}
    for title, records in (
        ("Table 1, the paper beside ours", perceptrons),
        ("The convolutional nets of 2011", convolutional),
    ):
        part = parts["Records: MNIST", title]
        (rows,) = tables_in(part)
        expected = [
            path.relative_to(REPOSITORY).as_posix()
            for path, run in records.items()
            if run.config.data.name == "MNIST"
        ]
        found = [line.partition(":")[0] for line in sources_in(part)]
        assert (sorted(found), len(rows)) == (sorted(expected), len(expected))


def test_a_run_that_is_not_at_its_end_says_why(text):
    ((*_, own),) = [tables_in(sections(text)[OWN_TITLE, "MNIST"])[0]]
    assert own["run"] == "table1/net2-seed1, 2 of 5 epochs, still training, or killed"
    run = make_run(epochs=5, done=2)
    run.provenance = [structs.replace(SESSION, why="SIGINT")]
    assert report_sections.state(run) == ", 2 of 5 epochs, stopped: SIGINT"


def test_a_committee_is_formed_of_the_runs(text, folder):
    ((row,),) = tables_in(sections(text)[OWN_TITLE, DIGITS])
    runs = [store.read_run(path) for path in store.run_files(folder / "committee")]
    mean = voting.average([run.outputs for run in runs])
    assert row["wrong"] == f"{voting.find_wrong(mean, runs[0].labels).sum()} of 360"
    own, record = sources_in(sections(text)[OWN_TITLE, DIGITS])
    expected = "runs in committee: experiment6-load_digits, seeds 0, 1, 2, 3, 4, 5, 6: Some <GPU>"
    assert own.startswith(expected)
    assert re.match("records of runs in .*: experiment6-load_digits, seeds 0", record)


def test_digits_stand_apart_and_say_that_they_are_no_mnist(text):
    apart = sections(text)
    digits = {key: part for key, part in apart.items() if "load_digits" in "".join(key)}
    for warned in (digits[OWN_TITLE, DIGITS], digits[f"Records: {DIGITS}"]):
        assert 'class="warning"' in warned
        assert "must not be compared" in warned
    for part in digits.values():
        for table in tables_in(part):
            assert not [name for name in table[0] if name.startswith("paper")]
    for key in apart.keys() - digits.keys():
        for row in (row for table in tables_in(apart[key]) for row in table):
            assert "load_digits" not in "".join(row.values())
        assert "load_digits" not in "".join(sources_in(apart[key]))


def test_it_counts_what_there_is(text):
    head = plain(sections(text)["About this page"])
    found = read_results()
    names = [run.config.data.name for run in found.runs.values()]
    names += [rows[-1].data for rows in found.committees.values()]
    counts = [f"{names.count(name)} records on {name}" for name in ("MNIST", "load_digits")]
    assert f"Found: 3 runs and {counts[0]}, 7 runs and {counts[1]}" in head
    assert "Written 2026-02-03T04:05:06+00:00; commit fedcba987654." in head
    assert "Draw a digit" not in text


def test_one_run_is_no_plural(results, tmp_path):
    store.write_run(tmp_path / "net1-seed0.h5", make_run())
    (tmp_path / "draw.html").write_text("a page")
    report.main(["--runs", str(tmp_path), "--out", str(tmp_path / "report.html")])
    text = (tmp_path / "report.html").read_text()
    assert '<a href="draw.html">Draw a digit</a>' in text
    assert "Found: 1 run and 0 records on MNIST, 0 runs and 0 records on load_digits." in text
    assert 'validation and test error of 1 run against epochs."' in text


# Pictures


def test_pictures_show_something_and_say_what(text):
    wanted = r'<img width="(\d+)" height="(\d+)" alt="(.*?)" src="data:image/png;base64,(.*?)"'
    found = re.findall(wanted, text)
    assert len(found) == text.count("<img") == 3
    for width, height, alt, content in found:
        image = Image.open(io.BytesIO(base64.b64decode(content)))
        assert image.size == pytest.approx((int(width) * 200 / 96, int(height) * 200 / 96), abs=2)
        assert len(image.getcolors()) > 5, alt
    best = "NAME, the run with the lowest TEfBV: committee/WN10-seed0-load_digits."
    assert caption(text, best.replace("NAME", "841-800-10 on load_digits, WN10, seed 0"))


def test_images_are_those_of_the_run():
    digits = data.load("digits")
    run = make_run("load_digits")
    assert (report_sections.find_test_images(run) == digits.test_images).all()
    run.config = changed(run.config, data={"sha256": "1" * 64})
    assert report_sections.find_test_images(run) is None
    assert report_sections.find_test_images(make_run()) is None  # no MNIST, and no download


def test_photographs_stay_light_on_a_dark_page(results, tmp_path, monkeypatch):
    images = np.zeros((200, 29, 29), np.float32)
    monkeypatch.setattr(report_sections, "find_test_images", lambda run: images)
    store.write_run(tmp_path / "own.h5", make_run("mine", classes=tuple("0123456789")))
    assert Report(tmp_path).build().count('<img class="photographs"') == 1


# Files that are there twice, or not at all, or damaged


def test_without_files_it_says_how_to_make_some(results, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "report.html"
    report.main(["--out", str(path)])
    assert capsys.readouterr().out == f"written to {path}\n"
    apart = {key: plain(part) for key, part in sections(path.read_text()).items()}
    expected = {
        OWN_TITLE: 'No run yet. make table1 ARGS="--data digits --nets 1 --epochs 2" trains a net '
        "in seconds, make table1 five on MNIST in minutes.",
    }
    assert expected.items() <= apart.items()
    assert "<table" not in path.read_text()


def test_damaged_files_are_named_and_the_rest_goes_on(results, tmp_path, capsys):
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "a<b.h5").write_bytes(b"nothing of ours")
    own = REPOSITORY / "results" / "amd-epyc-2-cores"
    names = (
        "bench.csv",
        "committee-experiment3.csv",
        "scaling.csv",
        "table1-longer-net1-seed0.json",
    )
    for name in names:
        content = (own / name).read_bytes() if (own / name).exists() else b"a,b\n1,2\n"
        (results / name).write_bytes(content[: len(content) - 150])
    (results / "whole.json").write_bytes((own / "whole-net4-seed0.json").read_bytes())
    (results / "gpu-check.json").write_text("[]")
    (results / "lacks.json").write_text('{"config": {}, "provenance": [], "metrics": {}}')
    (results / "binary.json").write_bytes(b"\xff\xfe")
    (results / "committee-experiment1.csv").write_text("")
    path = tmp_path / "report.html"
    assert report.main(["--runs", str(runs), "--out", str(path)]) is None
    said = capsys.readouterr().err
    warned = plain(re.search("<header>.*</header>", path.read_text(), re.DOTALL)[0])
    others = "a<b.h5", "lacks.json", "binary.json", "gpu-check.json", "committee-experiment1.csv"
    for name in (*names, *others):
        assert re.search(f"left out: .*{name}", said), name
        assert name in warned
    found = Report(runs)
    assert list(found.records) == ["results/some/whole.json"]
    assert len(found.faults) == said.count("left out: ") == 9
    (table,) = tables_in(path.read_text())
    assert [row["net"] for row in table] == ["4"]


def test_an_unfinished_committee_is_marked(results, tmp_path):
    write_committee(tmp_path)
    path = next(path for path in store.run_files(tmp_path) if "WN14" in path.name)
    run = make_run("load_digits", (841, 800, 10), epochs=9, done=3, seed=2, width=14)
    store.write_run(path, run)
    ((row,),) = tables_in(sections(Report(tmp_path).build())[OWN_TITLE, DIGITS])
    assert row["run"].endswith(f"runs in {tmp_path.name}, not trained to the end")


# The page itself


def test_markdown_of_cells_becomes_html():
    assert to_html("**a<b**, `c&d`") == "<strong>a&lt;b</strong>, <code>c&amp;d</code>"
    assert to_html(Html("<a>")) == "<a>"


def test_only_long_text_may_be_broken_into_lines():
    page = Page()
    page.table("", [{"a": "x" * 15, "b": "y" * 16}])
    kinds = re.findall("<td(.*?)>(.)", page.render("", []))
    assert kinds == [("", "x"), (' class="long"', "y")]


def test_all_text_is_escaped():
    page = Page()
    page.heading(2, "<1>")
    page.say("<2>")
    page.warn("<3>")
    page.table("<4>", [{"<5>": "<6>"}], ["<7>"])
    page.figure(Figure(figsize=(0.1, 0.1)), "<8>", '<9>"')
    text = page.render("<10>", ["<11>"], ["<12>"])
    for k in range(1, 13):
        assert f"<{k}>" not in text
        assert f"&lt;{k}&gt;" in text
    assert 'alt="&lt;9&gt;&quot;"' in text
