"""`python -m experiments.report`: the page of your runs and of all records, in a browser too."""

import base64
import html
import io
import json
import re
from itertools import pairwise

import factories
import numpy as np
import pytest
from browser import check_page
from factories import changed
from matplotlib.figure import Figure
from msgspec.structs import replace
from PIL import Image

from experiments import report
from experiments.datasets import data, download
from experiments.drawing import report_sections
from experiments.drawing.page import Page
from experiments.drawing.page import html as to_html
from experiments.drawing.report_sections import OWN_TITLE, Report
from experiments.results import committees, tables, voting
from experiments.results.committees import EXPERIMENTS
from experiments.results.records import read_results
from experiments.training import provenance, store
from experiments.training.provenance import REPOSITORY
from mlp_gpu.network import NETS

DIGITS = "load_digits, which is NOT MNIST"
HOSTILE = '<b>&"x'  # in the names of a run file and its folder
SESSION = replace(factories.SESSION, device="Some <GPU> & more")
COMMIT = {"commit": "fedcba9876543210", "dirty": False}


def make_run(name="MNIST", sizes=NETS[1], epochs=3, done=None, seed=0, n_wrong=9, **of_data):
    """A run with n_wrong wrong digits, whose chosen epoch is the last but one."""
    labels = np.arange(200, dtype=np.uint8) % 10
    if name == "load_digits":
        digits = data.load("digits")
        labels = digits.test_labels
        of_data["sha256"] = digits.sha256
    of_data |= {"name": name, "n_train": 1000, "n_test": len(labels)}
    done = done or epochs
    validation = list(range(90, 90 - done, -1))
    validation[-2] = 1
    tests = list(range(n_wrong + done, n_wrong, -1))
    tests[-2], tests[-1] = n_wrong, n_wrong - 2
    metrics = {"validation_errors": validation, "test_errors": tests}
    for part in ("deform", "train", "evaluate"):
        metrics[f"{part}_seconds"] = [0.5 + seed] * done
    session = {"device": SESSION.device}
    session |= {} if done == epochs else {"end": None, "why": "running"}
    config = {"data": of_data, "sizes": sizes, "epochs": epochs, "seed": seed}
    return factories.make_run(done, metrics, session, labels=labels, **config)


def write_committee(folder, done=None):
    """The runs of experiment 6, the k-th with 10 + k wrong digits."""
    for seed, member in enumerate(EXPERIMENTS[6].members):
        stem = committees.run_name(EXPERIMENTS[6], member, seed, "load_digits")
        fields = {"done": done, "seed": seed, "n_wrong": 10 + seed, "width": member.width}
        store.write_run(folder / f"{stem}.h5", make_run("load_digits", (841, 800, 10), **fields))


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
    write_committee(folder / "committee", done=2)
    (folder / "damaged.h5").write_bytes(b"nothing of ours")
    (folder / "table1" / "net1-seed0.weights.h5").write_bytes(b"no run file")
    return folder


@pytest.fixture(autouse=True, scope="module")
def fixed(tmp_path_factory):
    """A time and a commit that stay, and no MNIST."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "now", lambda: "2026-02-03T04:05:06+00:00")
        patch.setattr(provenance, "commit", lambda: COMMIT)
        patch.setattr(download, "_paths", lambda files, folder: None)
        patch.delenv("MNIST_DIR", raising=False)
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


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty results/ instead of the committed one."""
    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    folder = tmp_path / "results" / "some"
    folder.mkdir(parents=True)
    return folder


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


def sources_in(part):
    """The lines that say where the numbers of a part come from."""
    return [plain(line) for line in re.findall("<li>(.*?)</li>", part)]


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
    run.provenance = [replace(SESSION, why="SIGINT")]
    assert report_sections.state(run) == ", 2 of 5 epochs, stopped: SIGINT"


def test_a_committee_is_formed_of_the_runs(text, folder):
    ((row,),) = tables_in(sections(text)[OWN_TITLE, DIGITS])
    runs = [store.read_run(path) for path in store.run_files(folder / "committee")]
    mean = voting.average([run.outputs for run in runs])
    assert row["wrong"] == f"{voting.find_wrong(mean, runs[0].labels).sum()} of 360"
    assert row["run"] == "experiment6-load_digits, runs in committee, not trained to the end"
    assert "must not be compared" in sections(text)[OWN_TITLE, DIGITS]
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


# Pictures


def test_pictures_show_something_and_say_what(text):
    wanted = r'<img width="(\d+)" height="(\d+)" alt="(.*?)" src="data:image/png;base64,(.*?)"'
    found = re.findall(wanted, text)
    assert len(found) == text.count("<img") == 3
    for width, height, alt, content in found:
        image = Image.open(io.BytesIO(base64.b64decode(content)))
        assert image.size == pytest.approx((int(width) * 200 / 96, int(height) * 200 / 96), abs=2)
        assert len(image.getcolors()) > 5, alt
    best = "the run with the lowest TEfBV: committee/WN10-seed0-load_digits."
    assert f"<figcaption>841-800-10 on load_digits, WN10, seed 0, {best}</figcaption>" in text


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
    (results / "whole.json").write_bytes((own / "whole-net4-seed0.json").read_bytes())
    (results / "bench.csv").write_bytes((own / "bench.csv").read_bytes()[:-150])
    (results / "binary.json").write_bytes(b"\xff\xfe")
    path = tmp_path / "report.html"
    assert report.main(["--runs", str(runs), "--out", str(path)]) is None
    said = capsys.readouterr().err
    warned = plain(re.search("<header>.*</header>", path.read_text(), re.DOTALL)[0])
    for name in ("a<b.h5", "bench.csv", "binary.json"):
        assert re.search(f"left out: .*{name}", said), name
        assert name in warned
    found = Report(runs)
    assert list(found.records) == ["results/some/whole.json"]
    assert len(found.faults) == said.count("left out: ") == 3
    (table,) = tables_in(path.read_text())
    assert [row["net"] for row in table] == ["4"]


# The page itself


def test_markdown_of_cells_becomes_html():
    assert to_html("**a<b**, `c&d`") == "<strong>a&lt;b</strong>, <code>c&amp;d</code>"


def test_only_long_text_may_be_broken_into_lines():
    page = Page()
    page.table("", [{"a": "x" * 15, "b": "y" * 16}])
    kinds = re.findall("<td(.*?)>(.)", page.render(""))
    assert kinds == [("", "x"), (' class="long"', "y")]


def test_all_text_is_escaped():
    page = Page()
    page.heading(2, "<1>")
    page.say("<2>")
    page.warn("<3>")
    page.table("<4>", [{"<5>": "<6>"}], ["<7>"])
    page.figure(Figure(figsize=(0.1, 0.1)), "<8>", '<9>"')
    text = page.render("<10>", ["<11>"])
    for k in range(1, 12):
        assert f"<{k}>" not in text
        assert f"&lt;{k}&gt;" in text
    assert 'alt="&lt;9&gt;&quot;"' in text


# In a browser


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (768, "dark"), (1280, "light")])
def test_the_page_is_whole_in_a_browser(browser, written, tmp_path, width, scheme):
    shot = tmp_path / "page.png"
    facts = check_page(browser, written, width, shot, scheme=scheme)
    assert facts["figures"] == 3
    first, *levels = [level for level, _ in facts["headings"]]
    assert first == 1
    assert all(1 < b <= a + 1 for a, b in pairwise([first, *levels]))
    assert HOSTILE in facts["text"]
    with Image.open(shot) as shown:
        assert shown.size[0] == width
        bright = np.mean(np.asarray(shown.convert("L")) > 200)
    assert bright > 0.8 if scheme == "light" else bright < 0.1  # figures, too, are dark
