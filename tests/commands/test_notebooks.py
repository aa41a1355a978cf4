"""The notebooks, as `make notebooks` executes them, and the runs that they read."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from browser import browser, check_page  # noqa: F401, a fixture
from factories import changed, make_run

from cnn_gpu.network import ConvNetwork
from deepbig_runtime.errors import Problem
from experiments import notebooks
from experiments.datasets.dataset import DIGIT
from experiments.training import examples, store
from experiments.training.provenance import REPOSITORY
from mlp_gpu import network

FIGURES = {  # on the embedded digits, with the small runs that are made where there are none
    "committee": 3,
    "convolution": 11,
    "deformations": 4,
    "kernels": 15,
    "ladder": 7,
    "misclassified_digits": 6,
    "training": 3,
}
MAX_START_SECONDS = 300  # until a notebook trains; a busy machine is no fault of it


@pytest.fixture(scope="module")
def jupyter():
    """What executes notebooks; where it is not installed the test is skipped, and says so."""
    for package in ("ipykernel", "nbclient", "nbconvert"):
        pytest.importorskip(package, reason=f"{package} is not installed")


@pytest.fixture(scope="module")
def pages(jupyter, tmp_path_factory):
    """All notebooks, executed where no runs are; the folders of the pages and of the runs."""
    folder = tmp_path_factory.mktemp("notebooks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNS_DIR", str(folder / "runs"))
        assert notebooks.main(["--out", str(folder / "pages")]) == 0
    return folder / "pages", folder / "runs"


def test_notebooks_as_committed_begin_with_a_command_and_define_nothing():
    assert notebooks.names() == sorted(FIGURES)
    for path in notebooks.FOLDER.glob("*.ipynb"):
        first, *cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "".join(first["source"])
        assert first["cell_type"] == "markdown"
        assert text.startswith("# ")
        assert re.search(r"`make [a-z]", text)
        for cell in (cell for cell in cells if cell["cell_type"] == "code"):
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            assert len(cell["source"]) <= 10
            assert not re.search(r"^\s*(def|class)\b", "".join(cell["source"]), re.MULTILINE)


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_on_the_page_and_nothing_overflows(name, width, pages, browser, tmp_path):  # noqa: F811
    facts = check_page(
        browser, pages[0] / f"{name}.html", width, screenshot=tmp_path / f"{name}.png"
    )
    assert facts["figures"] == FIGURES[name]


def test_small_runs_are_made_once_and_said_to_be_no_mnist(pages):
    written, runs = pages
    assert len(store.run_files(runs)) == 7 + 1  # with the convolutional net's
    said = [name for name in FIGURES if "NOT MNIST" in (written / f"{name}.html").read_text()]
    assert said[0] == "committee"  # the first notebook that needs runs


def test_a_notebook_that_fails_is_named_and_the_others_go_on(
    jupyter, monkeypatch, tmp_path, capsys
):
    for name, source in {"bad": "x = 1\nx.y", "good": "1 + 1"}.items():
        code = {"cell_type": "code", "source": source, "metadata": {}, "id": "a"}
        first = {**code, "source": "0", "id": "b"}
        cells = [{**cell, "outputs": [], "execution_count": None} for cell in (first, code)]
        text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
        (tmp_path / f"{name}.ipynb").write_text(text)
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    assert notebooks.main(["--out", str(tmp_path / "pages")]) == 1
    said = capsys.readouterr()
    assert "error: bad: code cell 2: AttributeError: 'int' object has no attribute 'y'" in said.err
    assert [path.name for path in (tmp_path / "pages").iterdir()] == ["good.html"]
    assert "good.html" in said.out


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_ends_it_and_what_it_has_started(jupyter, tmp_path):
    command = [sys.executable, "-m", "experiments.notebooks", "training", "--out", str(tmp_path)]
    environment = os.environ | {"RUNS_DIR": str(tmp_path / "runs")}
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + MAX_START_SECONDS
        while not (tmp_path / "runs" / "example").exists():  # made by a child of the kernel
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert said.splitlines()[1:] == ["stopped by SIGINT"]
    left = subprocess.run(["pgrep", "-f", str(tmp_path / "runs")], capture_output=True, text=True)
    assert left.stdout == ""


def test_unknown_notebooks_are_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        notebooks.main(["training", "nonsense"])
    assert ended.value.code == 2
    assert "no notebook nonsense; there are committee, convolution" in capsys.readouterr().err


def test_says_what_to_install(jupyter, monkeypatch):
    monkeypatch.setitem(sys.modules, "nbclient", None)
    with pytest.raises(Problem, match=r"nbclient, which is not installed: pip install -e '\.\[no"):
        notebooks.execute("training")


def run_on(name):
    """A run of one epoch that was never trained."""
    return make_run(epochs=1, data={"name": name, "n_test": 2})


def test_runs_on_mnist_come_before_others_and_what_cannot_be_read_is_named(tmp_path, capsys):
    (tmp_path / "some").mkdir()
    store.write_run(tmp_path / "a.h5", run_on("load_digits"))
    assert list(examples.load_runs(tmp_path)) == ["a"]
    store.write_run(tmp_path / "some" / "b.h5", run_on("MNIST"))
    (tmp_path / "c.h5").write_bytes(b"no run")
    capsys.readouterr()
    found = examples.load_runs(tmp_path)
    assert list(found) == ["some/b"]
    assert found["some/b"].config.data.name == "MNIST"
    said = capsys.readouterr().out
    assert re.search(r"left out: .*c\.h5", said)
    assert "runs on MNIST below" in said
    assert said.endswith(": 1; on other data, left out: 1\n")


@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_small_runs_that_were_not_finished_are_made_whole(tmp_path, monkeypatch, epochs):
    made = []

    def make(folder):
        made.append(folder)
        for name in "abcdefg":
            write(folder / f"{name}.h5", 2)

    def write(path, epochs):
        path.parent.mkdir(exist_ok=True)
        run = make_run(epochs, data={"name": "load_digits", "n_test": 2}, epochs=2)
        store.write_run(path, run)

    monkeypatch.setattr(examples, "_make", make)
    for name in "abcdefg":
        if name != "g" or epochs:
            write(tmp_path / "example" / f"{name}.h5", epochs if name == "g" else 2)
    assert list(examples.load_runs(tmp_path)) == [f"example/{name}" for name in "abcdefg"]
    assert made == ([] if epochs == 2 else [tmp_path / "example"])
    # Where there are others they stay as they are.
    (tmp_path / "example" / "a.h5").unlink()
    write(tmp_path / "other.h5", 1)
    assert len(examples.load_runs(tmp_path)) == 7
    assert len(made) == (0 if epochs == 2 else 1)


def test_a_convolutional_nets_run_is_none_of_the_seven(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(examples, "_make", made.append)
    (tmp_path / "example").mkdir()
    for name in "abcdefg":
        run = run_on("load_digits")
        if name == "g":
            run.config = changed(run.config, layers="3M5")
        store.write_run(tmp_path / "example" / f"{name}.h5", run)
    assert len(examples.load_runs(tmp_path)) == 7
    assert made == [tmp_path / "example"]
    store.write_run(tmp_path / "example" / "h.h5", run_on("load_digits"))
    assert len(examples.load_runs(tmp_path)) == 8
    assert len(made) == 1


def test_a_net_is_that_of_the_chosen_epoch(tmp_path):
    path, run = tmp_path / "a.h5", run_on("MNIST")
    run.config = changed(run.config, layers="3M5")
    store.write_run(path, run)
    latest, chosen = (ConvNetwork.initial("3M5", DIGIT, 10, seed) for seed in (0, 1))
    networks = {"latest": latest, "chosen": chosen}
    network.save(store.weights_path(path), networks, {"config": run.config.to_json(), "epoch": 1})
    found = examples.load_convolutional(path)
    assert np.array_equal(found.weights[0], chosen.weights[0])


def test_load_runs_without_a_run_or_a_folder_is_refused(tmp_path, monkeypatch):
    with pytest.raises(Problem, match=r"there is no folder .*runz: name one that has run files"):
        examples.load_runs(tmp_path / "runz")
    monkeypatch.setattr(examples, "COMMITTEE_OPTIONS", ("--experiment", "9"))
    with pytest.raises(Problem, match=r"cannot make runs to look at: .*from 1 to 6"):
        examples.load_runs(tmp_path)
    (tmp_path / "a.h5").write_bytes(b"no run")
    with pytest.raises(Problem, match=r"no run below .* can be read"):
        examples.load_runs(tmp_path)
