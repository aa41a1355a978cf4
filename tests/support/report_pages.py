"""What the tests of `make report` share: runs and records to report, and how a page is read.

A test file imports the fixtures that it or another fixture names, and `fixed` always.
"""

import html
import re

import factories
import numpy as np
import pytest
from msgspec.structs import replace

from experiments import report
from experiments.datasets import data, download
from experiments.results import committees
from experiments.results.committees import EXPERIMENTS
from experiments.training import provenance, store
from mlp_gpu.network import NETS

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


def captions(text):
    """Those of tables and of pictures, as HTML."""
    return re.findall(r"<(?:fig)?caption>(.*?)</(?:fig)?caption>", text)


def caption(text, beginning):
    (found,) = [one for one in captions(text) if plain(one).startswith(beginning)]
    return found
