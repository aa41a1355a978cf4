"""`python -m experiments.report`: what is on the page of all runs and records."""
# ruff: noqa: F401, F811 - fixtures are imported

import base64
import csv
import html
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from factories import changed
from matplotlib.figure import Figure
from msgspec import structs
from PIL import Image
from report_pages import (
    HOSTILE,
    SESSION,
    caption,
    captions,
    fixed,
    folder,
    make_run,
    plain,
    results,
    sections,
    source_of,
    sources_of,
    tables_in,
    text,
    written,
)

from experiments import report
from experiments.drawing import report_sections, run_plots
from experiments.drawing.page import Page
from experiments.drawing.report_files import collect
from experiments.running import data, store
from experiments.running.provenance import REPOSITORY
from experiments.scoring import cnn_tables, records, voting
from experiments.scoring.rows import ScalingRow, read_rows

SCALING = REPOSITORY / "results" / "amd-epyc-2-cores" / "scaling.csv"

# Runs and records


def test_table_1_has_runs_and_records_beside_the_paper(text):
    (table,) = tables_in(sections(text)["MNIST", "Table 1, the paper beside ours"])
    (own,) = [row for row in table if row["from"] == "run table1/net1-seed0"]
    # 9 of 200 at the epoch with the fewest validation errors, 7 at best.
    assert (own["net"], own["paper TEfBV %"], own["paper BTE %"]) == ("1", "0.49", "0.44")
    assert (own["TEfBV %"], own["wrong"]) == ("4.50", "9 of 200")
    assert (own["BTE %"], own["wrong (BTE)"]) == ("3.50", "7")
    assert source_of(text, own).startswith(
        "table1/net1-seed0: net 1, seed 0: Some <GPU> & more, engine cpu; python 3.11; 2026-01-02T"
    )
    records = [row for row in table if row["from"] == "record"]
    paths = sorted((REPOSITORY / "results").glob("*/*seed?*.json"))
    paths = [path for path in paths if "load_digits" not in path.name and "gpu" not in path.name]
    (convolutional,) = tables_in(sections(text)["MNIST", "The convolutional nets of 2011"])
    for rows, of_cnn in ((convolutional, True), (records, False)):
        assert {source_of(text, row).partition(":")[0] for row in rows} == {
            path.relative_to(REPOSITORY).as_posix()
            for path in paths
            if ("layers" in json.loads(path.read_text())["config"]) == of_cnn
        }
    for row in records:
        name, line = source_of(text, row).split(": ", 1)
        content = json.loads((REPOSITORY / name).read_text())
        assert row["seed"] == str(content["config"]["seed"])
        assert content["provenance"][-1]["commit"][:12] in line


def test_a_run_that_is_not_at_its_end_is_marked(text):
    (table,) = tables_in(sections(text)["MNIST", "Table 1, the paper beside ours"])
    (own,) = [row for row in table if "net2-seed1" in row["from"]]
    assert own["from"] == ("run table1/net2-seed1, 2 of 5 epochs, still training, or killed")


def test_a_stopped_run_says_why():
    run = make_run(epochs=5, done=2)
    run.provenance = [structs.replace(SESSION, why="SIGINT")]
    assert report_sections.state(run) == ", 2 of 5 epochs, stopped: SIGINT"
    assert report_sections.state(make_run()) == ""


def test_table_1_is_sorted_by_net_distortion_and_work(text):
    (table,) = tables_in(sections(text)["MNIST", "Table 1, the paper beside ours"])
    nets = [row["net"] for row in table]
    assert nets == sorted(nets)
    work = [row["epochs x images"].replace(",", "") for row in table if row["net"] == "1"]
    # A run that is not finished says "818 of 2300 x 60000" and is sorted by the 2300.
    images = [np.prod([int(part.split(" of ")[-1]) for part in cell.split(" x ")]) for cell in work]
    assert len(images) > 2
    assert images == sorted(images, reverse=True)


def test_digits_stand_apart_and_say_that_they_are_no_mnist(text):
    apart = sections(text)
    digits = {key: part for key, part in apart.items() if "load_digits" in "".join(key)}
    assert 'class="warning"' in digits["load_digits, which is NOT MNIST"]
    assert "must not be compared" in digits["load_digits, which is NOT MNIST"]
    for part in digits.values():
        for table in tables_in(part):
            assert not [name for name in table[0] if name.startswith("paper")]
            for row in table:
                if row.get("source") and "committee" not in row:
                    assert "load_digits" in source_of(text, row) + row.get("net", "")
    for key, part in apart.items():
        if key[0] == "MNIST":
            for table in tables_in(part):
                for row in table:
                    assert "load_digits" not in "".join(row.values())
                    if row.get("source"):
                        assert "load_digits" not in source_of(text, row)


def test_a_committee_is_formed_of_the_runs(text, folder):
    part = sections(text)["load_digits, which is NOT MNIST", "The committees of 2012"]
    names = [f"WN{width}" for width in range(10, 21, 2)] + ["original"]
    summary = next(t for t in tables_in(part) if list(t[0]) == ["net", "exp. 6"])
    # 10 to 16 of 360 wrong.
    expected = [f"{name}: {100 * (10 + k) / 360:.2f}" for k, name in enumerate(names)]
    assert [row["exp. 6"] for row in summary[:7]] == expected
    (row,) = [r for t in tables_in(part) for r in t if r.get("from") == "runs in committee"]
    runs = [store.read_run(path) for path in store.run_files(folder / "committee")]
    mean = voting.average([run.outputs for run in runs])
    assert row["wrong"] == f"{voting.find_wrong(mean, runs[0].labels).sum()} of 360"
    assert row["best member %"] == "2.78, WN10"
    assert source_of(text, row).startswith(
        "runs in committee: experiment6-load_digits, seeds 0, 1, 2, 3, 4, 5, 6: Some <GPU> & more"
    )
    assert summary[-1] == {"net": "source", "exp. 6": row["source"]}
    assert "average 3.61 %" not in part
    assert "members 3.61 % on average" in part  # of the picture: 13 of 360


def test_recorded_committees_are_there(text):
    part = sections(text)["MNIST", "The committees of 2012"]
    with (REPOSITORY / "results" / "amd-epyc-2-cores" / "committee-experiment3.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    rows = [row for table in tables_in(part) for row in table if row.get("from") == "record"]
    rows = [row for row in rows if "runs in committee, " in source_of(text, row)]
    (row,) = [row for row in rows if row["committee"] == "exp. 3"]
    assert row["wrong"] == f"{last['errors']} of 10,000"
    assert last["commit"][:12] in source_of(text, row)


def test_other_runs_have_a_table(text):
    (table,) = tables_in(sections(text)["MNIST", "The other runs"])
    (row,) = table
    assert row["run"] == f"{HOSTILE}/{HOSTILE}"
    assert (row["net"], row["TEfBV %"]) == ("841-20-10 on MNIST, seed 0", "3.50")
    assert (row["wrong"], row["BTE %"], row["time"]) == ("7 of 200", "2.50", "0:00:04")
    assert f"{HOSTILE}/{HOSTILE}: 841-20-10 on MNIST, seed 0; Some <GPU> & more" in (
        source_of(text, row)
    )
    (table,) = tables_in(sections(text)["load_digits, which is NOT MNIST", "The other runs"])
    assert [row["wrong"] for row in table] == [f"{n} of 360" for n in range(10, 17)]


def test_text_from_files_is_escaped(text):
    assert "<b>" not in text
    assert "&lt;b&gt;&amp;&quot;x" in text
    assert "Some &lt;GPU&gt; &amp; more" in text


def test_the_head_counts_what_there_is(text):
    head = plain(re.search("<header>.*</header>", text, re.DOTALL)[0])
    records = sorted((REPOSITORY / "results").glob("*/*"))
    names = r"seed\d.*\.json$|-(experiment\d|table4|committee).*csv$"
    kept = [path for path in records if re.search(names, path.name)]
    digits = sum("load_digits" in path.name for path in kept)
    timings = sum(path.name in ("bench.csv", "scaling.csv") for path in records)
    mnist = len(kept) - digits
    assert f"3 runs and {mnist} records on MNIST, 7 runs and {digits} records on load_dig" in head
    assert f"and {timings} records of timings." in head
    assert "Written 2026-02-03T04:05:06+00:00 by commit fedcba987654." in head


def test_the_same_runs_make_the_same_bytes(folder, written, tmp_path):
    report.main(["--runs", str(folder), "--out", str(tmp_path / "again.html")])
    assert (tmp_path / "again.html").read_bytes() == written.read_bytes()
    assert list(tmp_path.iterdir()) == [tmp_path / "again.html"]


def test_one_of_a_kind_is_no_plural(results, tmp_path):
    store.write_run(tmp_path / "net1-seed0.h5", make_run())
    text = report_sections.build(collect(tmp_path))
    counts = (
        "Found: 1 run and 0 records on MNIST, 0 runs and 0 records on load_digits, and 0 records"
    )
    assert f"{counts} of timings." in text
    assert 'validation and test error of 1 run against epochs."' in text
    assert plain(caption(text, "1 run on MNIST, against epochs.")).endswith(". [1]")


# Sources


def test_every_source_is_cited_and_leads_back(text):
    numbers = re.findall('<li id="source-([0-9]+)">', text)
    assert numbers == [str(k) for k in range(1, len(numbers) + 1)]
    for number in numbers:
        assert text.count(f'id="cited-{number}"') == 1
        assert f'href="#cited-{number}"' in text
    assert set(re.findall('href="#source-([0-9]+)"', text)) == set(numbers)


def test_every_table_and_every_picture_leads_to_a_source(text):
    for one in re.findall("<table>.*?</table>|<figure>.*?</figure>", text, re.DOTALL):
        assert "#source-" in one, plain(one)[:80]


def test_curves_and_members_lead_to_the_sources_of_all_their_runs(text, folder):
    found = collect(folder).runs
    for name in "MNIST", "load_digits":
        own = {key: run for key, run in found.items() if run.config.data.name == name}
        for against in "epochs", "the time that they took":
            cited = caption(text, f"{len(own)} runs on {name}, against {against}.")
            lines = [line.removesuffix(" back") for line in sources_of(text, cited)]
            assert lines == [report_sections.source(key, run) for key, run in own.items()]
    (line,) = sources_of(text, caption(text, "Experiment 6 of 2012: "))
    assert line.startswith("runs in committee: experiment6-load_digits, seeds 0, 1, 2, 3, 4, 5, 6")


def test_what_is_derived_leads_to_the_committees_it_is_derived_from(text):
    part = sections(text)["MNIST", "The committees of 2012"]
    summaries = [t for t in tables_in(part) if list(t[0])[:2] == ["net", "exp. 1"]]
    claims = [one for one in captions(part) if plain(one).startswith("What the paper shows, and")]
    found = []
    for summary, claim in zip(summaries, claims, strict=True):  # of each folder of runs
        found.append([sources_of(text, cell)[0] for cell in list(summary[-1].values())[1:]])
        assert len(found[-1]) == 6
        assert sources_of(text, claim) == found[-1]
    lines = found[0]  # of `make committee`
    part = sections(text)["Benchmarks", "Several workers"]
    timings, *others = sources_of(text, caption(part, "Clusters on paper."))
    source = read_rows(SCALING, ScalingRow)[-1].source
    assert source.commit[:12] in timings
    assert source.date in timings
    assert others == lines


def test_benchmarks_lead_to_their_source(text):
    part = sections(text)["Benchmarks", "Engines and baselines"]
    (bench,) = records.read_benchmarks()[:1]
    table = tables_in(part)[0]
    (row,) = [row for row in table if (row["net"], row["engine"]) == ("1", "engine cpu")]
    own = next(one for one in bench if one.net == "1" and one.name == "engine cpu")
    assert row["images/s"] == f"{own.images_a_second:,.0f}"
    number = re.search(r'href="#source-(\d+)"', part)[1]
    line = plain(re.search(f'<li id="source-{number}">(.*?)</li>', text)[1])
    assert own.source.commit[:12] in line
    assert own.source.date in line
    assert sources_of(text, caption(part, f"Time per image, on {own.source.device}.")) == [line]
    assert sources_of(
        text, caption(part, f"Against the ceiling that copies set, on {own.source.device}.")
    ) == [line]


# Pictures


def pictures(text):
    """Alternative text and pixels of every picture."""
    found = re.findall(r'<img width="(\d+)" height="(\d+)" alt="(.*?)" src="(.*?)"', text)
    for width, height, alt, source in found:
        kind, content = source.split(",")
        assert kind == "data:image/png;base64"
        image = Image.open(io.BytesIO(base64.b64decode(content)))
        assert image.size == pytest.approx((int(width) * 200 / 96, int(height) * 200 / 96), abs=2)
        yield html.unescape(alt), np.asarray(image.convert("L"))


def test_pictures_show_something_and_say_what(text):
    found = dict(pictures(text))
    assert len(found) == text.count("<img") == 1 + 2 + 1 + 1 + 2 + 2 + 2
    for alt, pixels in found.items():
        assert alt
        assert len(np.unique(pixels)) > 5
    assert "Training loss, validation and test error of 3 runs against epochs." in found
    assert (
        "Training loss, validation and test error of 7 runs against the time that they took."
        in found
    )


def test_error_curves_are_of_records_and_of_the_runs_that_are_not_recorded(folder, monkeypatch):
    found = collect(folder)
    recorded = cnn_tables.convolutional_runs(found.records, "MNIST")
    copied = next(iter(recorded.values()))
    digits = make_run("load_digits")
    digits.config = changed(digits.config, layers="3M5")
    own = replace(copied, config=changed(copied.config, seed=77))
    runs = {"copy": copied, "own": own, "mlp": make_run(), "small": digits}
    seen = []
    monkeypatch.setattr(
        run_plots, "draw_error_curves", lambda runs: seen.append(list(runs)) or Figure()
    )
    for name, expected in (("MNIST", [*recorded, "own"]), ("load_digits", ["small"])):
        page = Page()
        of_data = {key: run for key, run in runs.items() if run.config.data.name == name}
        report_sections.add_convolutional(page, found, of_data, name)
        text = page.render("", [])
        assert seen.pop() == expected
        n = f"{len(expected)} convolutional net{'s' * (len(expected) > 1)} on {name}, from records"
        lines = [line.removesuffix(" back") for line in sources_of(text, caption(text, n))]
        everything = found.records | runs
        assert lines == [report_sections.source(key, everything[key]) for key in expected]
        assert ("with the paper's figures" in plain(caption(text, n))) == (name == "MNIST")
        assert len(tables_in(text)) == (name == "MNIST")
    page = Page()
    report_sections.add_convolutional(
        page, replace(found, records={}), {"mlp": make_run()}, "MNIST"
    )
    assert "convolutional" not in page.render("", [])


def test_the_best_run_of_each_data_is_shown(text):
    apart = sections(text)
    own = plain(apart["MNIST", "Misclassified digits"])
    assert f"the run with the lowest TEfBV: {HOSTILE}/{HOSTILE}." in own
    assert "MNIST as the run has it is not on this machine" in own
    own = plain(apart["load_digits, which is NOT MNIST", "Misclassified digits"])
    assert "the run with the lowest TEfBV: committee/WN10-seed0-load_digits." in own
    assert "not on this machine" not in own


def test_the_drawing_functions_get_the_runs_of_one_data_set(folder, monkeypatch):
    seen = []

    def note(name, runs):
        seen.append((name, sorted(runs)))
        raise InterruptedError

    found = collect(folder)
    monkeypatch.setattr(run_plots, "draw_learning_curves", lambda runs, x: note(x, runs))
    with pytest.raises(InterruptedError):
        report_sections.build(replace(found, records={}, committees={}, benches={}))
    assert seen == [("epochs", sorted(key for key in found.runs if "load_digits" not in key))]


def test_images_are_those_of_the_run():
    digits = data.load("digits")
    run = make_run("load_digits")
    assert (report_sections.find_test_images(run) == digits.test_images).all()
    run.config = changed(run.config, data={"sha256": "1" * 64})
    assert report_sections.find_test_images(run) is None
    assert report_sections.find_test_images(make_run()) is None  # no MNIST, and no download


def test_the_page_to_draw_on_is_linked_where_it_is_beside(folder, tmp_path):
    out = tmp_path / "report.html"
    options = ["--runs", str(folder), "--out", str(out)]
    report.main(options)
    assert "Draw a digit" not in out.read_text()
    (tmp_path / "draw.html").write_text("a page")
    report.main(options)
    assert '<a href="draw.html">Draw a digit</a>' in out.read_text()
