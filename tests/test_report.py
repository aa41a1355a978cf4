"""`python -m experiments.report`: the page of all runs and records; and what browser.py notices."""

import base64
import csv
import html
import io
import json
import re
import shutil
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from browser import A4, browser, check_page, print_page
from matplotlib.figure import Figure
from PIL import Image

from deform_gpu import TABLE1
from experiments import readme, report
from experiments.drawing import page
from experiments.running import data, provenance, store
from experiments.running.formatting import csv_text
from experiments.running.provenance import REPOSITORY
from experiments.scoring import committees, voting
from experiments.scoring.committees import EXPERIMENTS
from experiments.timing import clusters
from mlp_gpu.network import NETS

SCALING = "results/amd-epyc-2-cores/scaling.csv"
HOSTILE = '<b>&"x'
SESSION = {
    "commit": "0123456789abcdef",
    "dirty": False,
    "device": "Some <GPU> & more",
    "versions": {"python": "3.11"},
    "start": "2026-01-01T00:00:00+00:00",
    "end": "2026-01-02T00:00:00+00:00",
    "why": "finished",
}
COMMIT = {"commit": "fedcba9876543210", "dirty": False}


def make_run(name="MNIST", sizes=NETS[1], epochs=3, done=None, seed=0, n_wrong=9, **what):
    """A run that was never trained; its chosen epoch is the last but one."""
    rng = np.random.default_rng([seed, n_wrong])
    if name == "load_digits":
        digits = data.load("digits")
        labels, sha256 = digits.test_labels, digits.sha256
    else:
        labels, sha256 = np.arange(200, dtype=np.uint8) % 10, "0" * 64
    done = done or epochs
    outputs = rng.uniform(0, 0.05, (len(labels), 10)).astype(np.float32)
    outputs[np.arange(len(labels)), labels] = 0.5
    wrong = rng.permutation(len(labels))[:n_wrong]
    outputs[wrong, (labels[wrong] + 1 + seed) % 10] = 0.9
    config = {
        "data": {"name": name, "sha256": sha256, "n_train": 1000, "n_test": len(labels)},
        "sizes": list(sizes),
        "epochs": epochs,
        "eta": 1e-3,
        "decay": 0.9,
        "eta_min": 1e-6,
        "seed": seed,
        "deformation": asdict(TABLE1),
        "engine": "cpu",
    }
    config["data"] |= what
    validation = list(range(90, 90 - done, -1))
    validation[-2] = 1
    tests = list(range(n_wrong + done, n_wrong, -1))
    tests[-2], tests[-1] = n_wrong, n_wrong - 2
    metrics = {name: [0.5 + seed] * done for name in store.METRICS}
    metrics |= {
        "epoch": list(range(1, done + 1)),
        "train_loss": [2 / k for k in range(1, done + 1)],
    }
    metrics |= {"validation_errors": validation, "test_errors": tests}
    session = SESSION if done == epochs else SESSION | {"end": None, "why": "running"}
    return store.Run(config, [session], metrics, outputs, labels)


def write_committee(folder, number=6, name="load_digits"):
    """The runs of an experiment, the k-th with 10 + k wrong digits."""
    for seed, member in enumerate(EXPERIMENTS[number].members):
        stem = committees.run_name(EXPERIMENTS[number], member, seed, name)
        run = make_run(name, (841, 800, 10), seed=seed, n_wrong=10 + seed, width=member.width)
        store.write_run(folder / f"{stem}.h5", run)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of all kinds, and a file that is none."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("table1", "committee", HOSTILE):
        (folder / name).mkdir()
    store.write_run(folder / "table1" / "net1-seed0.h5", make_run())
    unfinished = make_run(sizes=NETS[2], epochs=5, done=2, seed=1, n_wrong=20)
    store.write_run(folder / "table1" / "net2-seed1.h5", unfinished)
    store.write_run(folder / HOSTILE / f"{HOSTILE}.h5", make_run(sizes=(841, 20, 10), n_wrong=7))
    write_committee(folder / "committee")
    (folder / "damaged.h5").write_bytes(b"nothing of ours")
    (folder / "table1" / "net1-seed0.weights.h5").write_bytes(b"no run file")
    return folder


@pytest.fixture(autouse=True, scope="module")
def fixed(tmp_path_factory):
    """A time and a commit that stay, and no MNIST."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "now", lambda: "2026-02-03T04:05:06+00:00")
        patch.setattr(provenance, "commit", lambda: COMMIT)
        patch.setattr(data, "_find", lambda _: None)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def written(folder, tmp_path_factory):
    """The page of these runs and of the committed records."""
    path = tmp_path_factory.mktemp("page") / "new" / "report.html"
    report.main(["--runs", str(folder), "--out", str(path)])
    return path


@pytest.fixture(scope="module")
def text(written):
    return written.read_text(encoding="utf-8")


def plain(fragment):
    return html.unescape(re.sub("<[^>]+>", "", fragment)).strip()


def sections(text):
    """The parts of a page by their headings; those of h3 by both."""
    found, above = {}, ""
    for level, title, part in re.findall(
        r"<h([23])[^>]*>(.*?)</h\1>(.*?)(?=<h[23]|</main>)", text, re.DOTALL
    ):
        above = plain(title) if level == "2" else above
        found[(above, plain(title)) if level == "3" else above] = part
    return found


def tables_in(text):
    """Tables as lists of rows, which are dicts."""
    found = []
    for table in re.findall("<table>.*?</table>", text, re.DOTALL):
        rows = re.findall("<tr>(.*?)</tr>", table, re.DOTALL)
        head, *rows = ([plain(cell) for cell in re.findall("<t[hd].*?</t[hd]>", r)] for r in rows)
        found.append([dict(zip(head, row, strict=True)) for row in rows])
    return found


def source_of(text, row):
    """The line that a row's source leads to."""
    (line,) = sources_of(text, row["source"])
    return line


def sources_of(text, cited):
    """The lines that [1] [2] ... in a cell or a caption lead to."""
    numbers = re.findall(r"\[(\d+)\]", plain(cited))
    return [plain(re.search(f'<li id="source-{n}">(.*?)</li>', text)[1]) for n in numbers]


def captions(text):
    """Those of tables and of pictures, as HTML."""
    return re.findall(r"<(?:fig)?caption>(.*?)</(?:fig)?caption>", text)


def caption(text, beginning):
    (found,) = [one for one in captions(text) if plain(one).startswith(beginning)]
    return found


# What is on the page


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
    paths = sorted((REPOSITORY / "results").glob("*/*.json"))
    paths = [path for path in paths if "load_digits" not in path.name and "gpu" not in path.name]
    cited = {source_of(text, row).partition(":")[0] for row in records}
    assert cited == {path.relative_to(REPOSITORY).as_posix() for path in paths}
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
    run.provenance = [SESSION | {"why": "SIGINT"}]
    assert report.state(run) == ", 2 of 5 epochs, stopped: SIGINT"
    assert report.state(make_run()) == ""


def test_table_1_is_sorted_by_net_distortion_and_work(text):
    (table,) = tables_in(sections(text)["MNIST", "Table 1, the paper beside ours"])
    nets = [row["net"] for row in table]
    assert nets == sorted(nets)
    images = [
        np.prod([int(part.replace(",", "")) for part in row["epochs x images"].split(" x ")])
        for row in table
        if row["net"] == "1"
    ]
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
    with (REPOSITORY / "results" / "amd-epyc-2-cores" / "experiment3.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    rows = [row for table in tables_in(part) for row in table if row.get("from") == "record"]
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


def test_every_source_is_cited_and_leads_back(text):
    numbers = re.findall('<li id="source-([0-9]+)">', text)
    assert numbers == [str(k) for k in range(1, len(numbers) + 1)]
    for number in numbers:
        assert text.count(f'id="cited-{number}"') == 1
        assert f'href="#cited-{number}"' in text
    assert set(re.findall('href="#source-([0-9]+)"', text)) == set(numbers)


def test_the_head_counts_what_there_is(text):
    head = plain(re.search("<header>.*</header>", text, re.DOTALL)[0])
    records = sorted((REPOSITORY / "results").glob("*/*"))
    kept = [p for p in records if re.search(r"\.json$|/experiment\d.*csv$|table4.*csv$", str(p))]
    digits = sum("load_digits" in path.name for path in kept)
    timings = sum(path.name in ("bench.csv", "scaling.csv") for path in records)
    mnist = len(kept) - digits - sum(path.name == "gpu-check.json" for path in kept)
    assert f"3 runs and {mnist} records on MNIST, 7 runs and {digits} records on load_dig" in head
    assert f"and {timings} records of timings." in head
    assert "Written 2026-02-03T04:05:06+00:00 by commit fedcba987654." in head


def test_one_of_a_kind_is_no_plural(results, tmp_path):
    store.write_run(tmp_path / "net1-seed0.h5", make_run())
    text = report.build(report.collect(tmp_path))
    counts = (
        "Found: 1 run and 0 records on MNIST, 0 runs and 0 records on load_digits, and 0 records"
    )
    assert f"{counts} of timings." in text
    assert 'validation and test error of 1 run against epochs."' in text
    assert plain(caption(text, "1 run on MNIST, against epochs.")).endswith(". [1]")


def test_every_table_and_every_picture_leads_to_a_source(text):
    for one in re.findall("<table>.*?</table>|<figure>.*?</figure>", text, re.DOTALL):
        assert "#source-" in one, plain(one)[:80]


def test_curves_and_members_lead_to_the_sources_of_all_their_runs(text, folder):
    found = report.collect(folder).runs
    for name in "MNIST", "load_digits":
        own = {key: run for key, run in found.items() if run.config["data"]["name"] == name}
        for against in "epochs", "the time that they took":
            cited = caption(text, f"{len(own)} runs on {name}, against {against}.")
            lines = [line.removesuffix(" back") for line in sources_of(text, cited)]
            assert lines == [report.source(key, run) for key, run in own.items()]
    (line,) = sources_of(text, caption(text, "Experiment 6 of 2012: "))
    assert line.startswith("runs in committee: experiment6-load_digits, seeds 0, 1, 2, 3, 4, 5, 6")


def test_what_is_derived_leads_to_the_committees_it_is_derived_from(text):
    part = sections(text)["MNIST", "The committees of 2012"]
    summary = next(t for t in tables_in(part) if list(t[0])[:2] == ["net", "exp. 1"])
    lines = [sources_of(text, cell)[0] for cell in list(summary[-1].values())[1:]]
    assert len(lines) == 6
    assert sources_of(text, caption(part, "What the paper shows, and whether")) == lines
    part = sections(text)["Benchmarks", "Several workers"]
    timings, *others = sources_of(text, caption(part, "Clusters on paper."))
    row = report.read_rows(REPOSITORY / SCALING)[-1]
    assert row["commit"][:12] in timings
    assert row["date"] in timings
    assert others == lines


def test_clusters_are_estimated_from_experiments_on_mnist_on_such_workers(monkeypatch):
    def rows(name, data, device):
        member = {"experiment": name, "net": "1", "data": data, "device": device}
        return [member, member | {"net": "", "device": "several"}]

    found = report.Found(REPOSITORY)
    timed = report.read_rows(REPOSITORY / SCALING)
    found.scalings["timed"] = timed
    device = timed[-1]["device"]
    found.committees = {
        "own": rows("experiment1", "MNIST", device),
        "table": rows("table4", "MNIST", device),
        "digits": rows("experiment1-load_digits", "load_digits", device),
        "elsewhere": rows("experiment2", "MNIST", "another"),
    }
    monkeypatch.setattr(clusters, "estimate_clusters", lambda *_: ("So.", [{"a": "1"}]))
    monkeypatch.setattr(
        report, "_committee_source", lambda where, own: f"{where}: {own[0]['experiment']}"
    )
    page_ = report.Page()
    report.add_benchmarks(page_, found)
    text = page_.render("", [])
    _, *others = sources_of(text, caption(text, "Clusters on paper."))
    assert others == ["records of several: experiment1 back"]


def test_benchmarks_lead_to_their_source(text):
    part = sections(text)["Benchmarks", "Engines and their peers"]
    (bench,) = readme.read_benchmarks()[:1]
    table = tables_in(part)[0]
    (row,) = [row for row in table if (row["net"], row["engine"]) == ("1", "engine cpu")]
    own = next(one for one in bench if one["net"] == "1" and one["name"] == "engine cpu")
    assert row["images/s"] == f"{float(own['images_a_second']):,.0f}"
    number = re.search(r'href="#source-(\d+)"', part)[1]
    line = plain(re.search(f'<li id="source-{number}">(.*?)</li>', text)[1])
    assert own["commit"][:12] in line
    assert own["date"] in line
    assert sources_of(text, caption(part, f"Time for an image, on {own['device']}.")) == [line]
    assert sources_of(
        text, caption(part, f"Against the ceiling that copies set, on {own['device']}.")
    ) == [line]


def test_the_ceiling_is_drawn_where_copies_were_timed(monkeypatch):
    (rows,) = readme.read_benchmarks()[:1]
    seen = []
    monkeypatch.setattr(
        report.bench_plots, "draw_roofline", lambda one: seen.append(one) or Figure()
    )
    page_ = report.Page()
    report.add_benchmarks(page_, report.Found(REPOSITORY, benches={"own": rows}))
    assert seen == [rows]
    assert "bars and as a roofline" in page_.render("", [])
    monkeypatch.undo()
    without = [row | {"percent_of_copy": ""} for row in rows]
    page_ = report.Page()
    report.add_benchmarks(page_, report.Found(REPOSITORY, benches={"own": without}))
    text = page_.render("", [])
    assert "a line an engine" in text
    assert "bars and as a roofline" not in text


def test_a_benchmark_whose_bytes_are_none_is_named(results, tmp_path):
    rows = report.read_rows(REPOSITORY / "results" / "amd-epyc-2-cores" / "bench.csv")
    rows = [row | {"bytes": row["bytes"] and "many"} for row in rows]
    (results / "bench.csv").write_text(csv_text(rows))
    found = report.collect(tmp_path)
    assert not found.benches
    assert re.search("bench.csv is damaged: .*'many'", *found.faults)


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
    assert len(found) == text.count("<img") == 2 + 1 + 1 + 2 + 2 + 2
    for alt, pixels in found.items():
        assert alt
        assert len(np.unique(pixels)) > 5
    assert "Training loss, validation and test error of 3 runs against epochs." in found
    assert (
        "Training loss, validation and test error of 7 runs against the time that they took."
        in found
    )


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

    found = report.collect(folder)
    monkeypatch.setattr(report.run_plots, "draw_learning_curves", lambda runs, x: note(x, runs))
    with pytest.raises(InterruptedError):
        report.build(replace(found, records={}, committees={}, benches={}))
    assert seen == [("epochs", sorted(key for key in found.runs if "load_digits" not in key))]


def test_images_are_those_of_the_run():
    digits = data.load("digits")
    run = make_run("load_digits")
    assert (report.find_test_images(run) == digits.test_images).all()
    run.config["data"]["sha256"] = "1" * 64
    assert report.find_test_images(run) is None
    assert report.find_test_images(make_run()) is None  # no MNIST, and no download


# What is there twice, or not at all, or damaged


def test_the_same_runs_make_the_same_bytes(folder, written, tmp_path):
    report.main(["--runs", str(folder), "--out", str(tmp_path / "again.html")])
    assert (tmp_path / "again.html").read_bytes() == written.read_bytes()
    assert list(tmp_path.iterdir()) == [tmp_path / "again.html"]


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty results/ instead of the committed one."""
    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    folder = tmp_path / "results" / "some"
    folder.mkdir(parents=True)
    return folder


def test_a_folder_that_is_named_must_be_there(results, tmp_path):
    path = tmp_path / "report.html"
    (tmp_path / "file").write_text("")
    for name in "none", "file":
        with pytest.raises(report.Problem, match=f"there is no folder .*{name}: name one with"):
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
    for title in ("Engines and their peers", "The deformation", "The kernels", "Several workers"):
        assert apart["Benchmarks", title] == "Not measured yet."
    assert apart["Where the numbers come from"] == "No number yet."
    assert "<table" not in path.read_text()
    assert ("MNIST", "The other runs") not in apart


def write_record(path, run):
    content = {"config": run.config, "provenance": run.provenance, "metrics": run.metrics}
    path.write_text(json.dumps(content))


def test_a_recorded_run_stands_there_once(results, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    for seed in 0, 1:
        store.write_run(runs / f"net1-seed{seed}.h5", make_run(seed=seed))
    write_record(results / "one.json", make_run(seed=1))
    found = report.collect(runs)
    page_ = report.Page()
    report.add_table1(page_, found, found.runs, "MNIST")
    (table,) = tables_in(page_.render("", []))
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
    found = report.collect(runs)
    one = report.find_committees(found.runs)[0]
    rows = csv_text(report.committee_report.tidy_rows(one))
    (results / "experiment6-load_digits.csv").write_text(rows)
    found = report.collect(runs)
    page_ = report.Page()
    report.add_committees(page_, found, found.runs, "load_digits")
    results_ = [table for table in tables_in(page_.render("", [])) if "from" in table[0]]
    origins = [row["from"] for table in results_ for row in table]
    assert origins == ["record, and runs in one, and runs in two"]


def test_an_unfinished_committee_is_marked(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_committee(tmp_path)
    path = next(path for path in store.run_files(tmp_path) if "WN14" in path.name)
    run = make_run("load_digits", (841, 800, 10), epochs=9, done=3, seed=2, width=14)
    store.write_run(path, run)
    found = report.collect(Path())
    page_ = report.Page()
    report.add_committees(page_, found, found.runs, "load_digits")
    text = page_.render("", [])
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
    names = ("bench.csv", "experiment3.csv", "scaling.csv", "table1-net1-seed0.json")
    for name in names:
        content = (own / name).read_bytes() if (own / name).exists() else b"a,b\n1,2\n"
        (results / name).write_bytes(content[: len(content) - 150])
    (results / "whole.json").write_bytes((own / "whole-net4-seed0.json").read_bytes())
    (results / "gpu-check.json").write_text("[]")
    (results / "lacks.json").write_text('{"config": {}, "provenance": [], "metrics": {}}')
    (results / "binary.json").write_bytes(b"\xff\xfe")
    (results / "experiment1.csv").write_text("")
    found = report.collect(runs)
    path = tmp_path / "report.html"
    assert report.main(["--runs", str(runs), "--out", str(path)]) is None
    said = capsys.readouterr().err
    warned = plain(re.search("<header>.*</header>", path.read_text(), re.DOTALL)[0])
    for name in (*names, "a<b.h5", "lacks.json", "binary.json", "experiment1.csv"):
        assert re.search(f"left out: .*{name}", said), name
        assert name in warned
    assert list(found.records) == ["results/some/whole.json"]
    assert len(found.faults) == said.count("left out: ") == 8
    (table,) = tables_in(path.read_text())
    assert [row["net"] for row in table] == ["4"]


def test_a_page_that_cannot_be_written_is_a_fault(results, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(report.FileFault, match="cannot make the folder"):
        report.main(["--runs", str(tmp_path), "--out", str(tmp_path / "file" / "report.html")])


def test_markdown_of_cells_becomes_html():
    assert page.html("**a<b**, `c&d`") == "<strong>a&lt;b</strong>, <code>c&amp;d</code>"
    assert page.html(page.Html("<a>")) == "<a>"


def test_only_long_text_may_be_broken_into_lines():
    page_ = page.Page()
    cells = "x" * 24, "y" * 25, page.Html("<b>z</b>" * 9)
    page_.table("", [dict(zip("abc", cells, strict=True))])
    kinds = re.findall("<td(.*?)>(?:<b>)?(.)", page_.render("", []))
    assert kinds == [("", "x"), (' class="long"', "y"), ("", "z")]


# In a browser


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_is_whole_in_a_browser(browser, written, tmp_path, width):
    shot = tmp_path / "page.png"
    facts = check_page(browser, written, width, shot)
    assert facts["figures"] == 10
    assert facts["tables"] == written.read_text().count("<table>")
    levels = [level for level, _ in facts["headings"]]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert len(set(facts["ids"])) == len(facts["ids"])
    assert HOSTILE in facts["text"]
    assert Image.open(shot).size[0] == width


# Of Table 1: where its box ends, how far it could be scrolled, and where its columns end.
LOOK_AT_TABLE1 = """() => {
  const box = document.querySelector(".scroll");
  const right = (e) => e.getBoundingClientRect().right;
  const heads = [...box.querySelectorAll("th")].map((e) => [e.textContent, right(e)]);
  return [right(box), box.scrollWidth - box.clientWidth, Object.fromEntries(heads)];
}"""


@pytest.mark.parametrize(("width", "scrolled"), [(1280, None), (1440, 0), (1920, 0)])
def test_what_a_row_did_is_in_view_with_what_came_of_it(browser, written, width, scrolled):
    def look(shown, _):
        return shown.evaluate(LOOK_AT_TABLE1)

    right, hidden, columns = browser.visit(written, width, "screen", look)
    names = list(columns)
    assert names.index("epochs x images") == names.index("TEfBV %") - 1
    assert columns["BTE %"] < right
    assert scrolled is None or hidden == scrolled


def test_the_page_is_whole_with_nothing_there(browser, results, tmp_path):
    path = tmp_path / "report.html"
    report.main(["--runs", str(tmp_path), "--out", str(path)])
    assert check_page(browser, path, 360)["figures"] == 0


def test_the_page_fits_on_paper(browser, written, tmp_path):
    facts = check_page(browser, written, A4, media="print")
    assert "[1]" in facts["text"]
    assert "back" not in facts["text"].splitlines()[-1]
    sheets = print_page(browser, written, tmp_path / "page.pdf")
    assert 6 <= sheets <= 20
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF-")


WIDE = '<div style="width: 2000px">wide</div>'
LONG = '<p style="width: 50px; white-space: nowrap">a text that is much longer than its box</p>'


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (WIDE, "20.. pixels wide"),
        ('<img alt="gone" src="gone.png">', "failed|not loaded"),
        ('<img alt="empty" src="data:image/png;base64,AAAA">', "not loaded"),
        ('<svg width="0" height="0"></svg>', "nothing to see"),
        ('<a href="#nowhere">there</a>', "leads nowhere: #nowhere"),
        ("<script>console.error('so')</script>", "console: so"),
        ("<script>undefined.f()</script>", "script: "),
        ('<img src="https://example.org/a.png">', "asks the network for https://example.org"),
        (LONG, "text leaves its box: <p> a text that"),
        (LONG.replace("width", "overflow: hidden; width"), "text is cut off|leaves its box"),
        ('<p style="height: 9px; overflow: hidden">a<br>b</p>', "text is cut off"),
    ],
)
def test_the_browser_notices(browser, tmp_path, body, reason):
    path = tmp_path / "page.html"
    path.write_text(f"{HEAD}{body}")
    with pytest.raises(AssertionError, match=reason):
        check_page(browser, path, 360)


HEAD = (
    '<!DOCTYPE html><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><h1>A page</h1>'
)


def test_the_browser_lets_boxes_scroll(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(
        f'{HEAD}<h2 id="a">b</h2><a href="#a">c</a><div style="overflow-x: auto">{WIDE}{LONG}</div>'
    )
    facts = check_page(browser, path, 360)
    assert facts["headings"] == [[1, "A page"], [2, "b"]]
    assert (facts["figures"], facts["tables"], facts["links"]) == (0, 0, 1)


def test_without_a_browser_the_test_is_skipped_and_says_so(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(pytest.skip.Exception, match="no browser: none of chromium"):
        next(browser.__wrapped__())
