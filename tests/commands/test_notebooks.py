"""The notebooks, their outputs, `make notebooks`, which executes them, and what they show."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from browser import check_page
from factories import changed, make_run
from mnist_files import REAL, needs_mnist
from waiting import HANG_SECONDS, wait_until

from cnn_gpu.network import ConvNetwork
from deepbig.pretrained import PRETRAINED
from deepbig_runtime.errors import Problem
from experiments import notebooks
from experiments.datasets.dataset import DIGIT
from experiments.drawing import examples
from experiments.training import store
from experiments.training.provenance import REPOSITORY
from mlp_gpu import network

FIGURES = {  # of the pretrained nets, and of records
    "committee": 8,
    "convolution": 9,
    "deformations": 3,
    "kernels": 19,
    "ladder": 5,
    "misclassified_digits": 4,
    "training": 1,
}
MAX_BYTES = 4_000_000  # of all notebooks
VARIES = "nbval-ignore-output"  # the tag of a cell whose text depends on processor or compiler


@pytest.fixture(scope="module")
def jupyter():
    """What executes notebooks; where it is not installed the test is skipped, and says so."""
    for package in ("ipykernel", "nbclient", "nbconvert"):
        pytest.importorskip(package, reason=f"{package} is not installed")


@pytest.fixture(scope="module")
def written(jupyter, tmp_path_factory):
    """A folder with copies of the notebooks, executed and saved, and with their pages."""
    folder = tmp_path_factory.mktemp("notebooks")
    for path in notebooks.FOLDER.glob("*.ipynb"):
        shutil.copy(path, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notebooks, "FOLDER", folder)
        patch.setenv("MNIST_DIR", str(REAL))
        assert notebooks.main(["--save", "--out", str(folder)]) == 0
    return folder


def code_cells(folder, name):
    """The cells with code of a notebook in a folder."""
    text = (folder / f"{name}.ipynb").read_text(encoding="utf-8")
    return [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]


def texts(cell):
    """All that a cell has printed or displayed, but for pictures."""
    for output in cell["outputs"]:
        shown = output.get("data", {"text": output.get("text")})
        if "image/png" not in shown:
            yield from map("".join, shown.values())


@pytest.mark.parametrize("name", FIGURES)
def test_committed_outputs_are_whole_and_show_no_error_and_no_path(name):
    cells = code_cells(notebooks.FOLDER, name)
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert sum("image/png" in output.get("data", ()) for output in outputs) == FIGURES[name]
    assert all(output.get("name") != "stderr" for output in outputs)
    assert all(cell["metadata"] in ({}, {"tags": [VARIES]}) for cell in cells)
    for text in (text for cell in cells for text in texts(cell)):
        assert not re.search(r"""(^|[\s"'(=:])/\w+/""", text), text


def test_notebooks_are_known_and_small_enough_to_be_committed():
    assert notebooks.names() == sorted(FIGURES)
    assert sum(path.stat().st_size for path in notebooks.FOLDER.iterdir()) <= MAX_BYTES


@needs_mnist
@pytest.mark.parametrize("name", FIGURES)
def test_committed_texts_are_those_of_a_new_execution(name, written):
    """Records and nets have not changed since; else `make notebooks ARGS=--save`."""
    pairs = zip(code_cells(notebooks.FOLDER, name), code_cells(written, name), strict=True)
    for committed, executed in pairs:
        if VARIES not in committed["metadata"].get("tags", ()):
            assert [*texts(committed)] == [*texts(executed)]


@needs_mnist
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_on_the_page_and_nothing_overflows(name, width, written, browser, tmp_path):
    facts = check_page(
        browser, written / f"{name}.html", width, screenshot=tmp_path / f"{name}.png"
    )
    assert facts["figures"] == FIGURES[name]


def write_notebook(path, *sources):
    cells = [
        {"cell_type": "code", "source": source, "metadata": {}, "id": f"{k}", "outputs": []}
        for k, source in enumerate(sources)
    ]
    cells = [{**cell, "execution_count": 1} for cell in cells]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))


def test_a_notebook_that_fails_is_named_and_the_others_go_on(
    jupyter, monkeypatch, tmp_path, capsys
):
    write_notebook(tmp_path / "bad.ipynb", "0", "x = 1\nx.y", "2")
    write_notebook(tmp_path / "good.ipynb", "0", "1 + 1")
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    assert notebooks.main(["--out", str(tmp_path / "pages")]) == 1
    said = capsys.readouterr()
    assert "error: bad: code cell 2: AttributeError: 'int' object has no attribute 'y'" in said.err
    assert [path.name for path in (tmp_path / "pages").iterdir()] == ["good.html"]
    assert "good.html" in said.out


@pytest.mark.parametrize("kernel", ["{", '{"argv": ["/bin/false"], "language": "python"}'])
def test_execute_with_foreign_kernels_runs_cells_on_its_own_interpreter(
    kernel, jupyter, monkeypatch, tmp_path
):
    (tmp_path / "kernels" / "python3").mkdir(parents=True)
    (tmp_path / "kernels" / "python3" / "kernel.json").write_text(kernel)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    write_notebook(tmp_path / "a.ipynb", "import os, sys\nprint(sys.executable, os.getpid())")
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    (cell,) = notebooks.execute("a", {}).cells
    executable, pid = cell.outputs[0].text.split()
    assert executable == sys.executable
    assert not os.path.exists(f"/proc/{pid}")  # the kernel has ended, too


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_ends_it_and_what_it_has_started(jupyter, tmp_path):
    started = tmp_path / "started"
    child = f"import time; open({str(started)!r}, 'w'); time.sleep(9999)"
    source = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"
    write_notebook(tmp_path / "slow.ipynb", source)
    code = "from pathlib import Path\nfrom experiments import notebooks\n"
    code += f"notebooks.FOLDER = Path({str(tmp_path)!r})\nnotebooks.cli.run(notebooks.main)"
    command = [sys.executable, "-c", code, "--out", str(tmp_path / "pages")]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: started.exists() or process.poll() is not None, "a cell")
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=HANG_SECONDS)[1]
    assert process.returncode == 130
    assert said.splitlines()[1:] == ["stopped by SIGINT"]
    left = subprocess.run(["pgrep", "-f", str(started)], capture_output=True, text=True)
    assert left.stdout == ""


def test_says_what_to_install(jupyter, monkeypatch):
    monkeypatch.setitem(sys.modules, "nbclient", None)
    with pytest.raises(Problem, match=r"nbclient, which is not installed: pip install -e '\.\[no"):
        notebooks.execute("training", {})


def run_on(name, **of_data):
    """A run of one epoch that was never trained."""
    return make_run(epochs=1, data={"name": name, "n_test": 2} | of_data)


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


def test_runs_on_data_of_ones_own_need_its_folder_and_are_on_the_same(
    tmp_path, monkeypatch, capsys
):
    own = {"name": "mine", "classes": tuple("0123456789")}
    for name, sha256 in (("a", "1" * 64), ("b", "2" * 64), ("c", "2" * 64)):
        store.write_run(tmp_path / f"{name}.h5", run_on(**own, sha256=sha256))
    assert list(examples.load_runs(tmp_path, tmp_path)) == ["b", "c"]
    assert ": 2; on other data, left out: 1\n" in capsys.readouterr().out
    monkeypatch.setattr(examples, "_pretrained_runs", lambda data_dir: {"net1": None})
    assert list(examples.load_runs(tmp_path)) == ["net1"]
    assert "runs on data of your own" in capsys.readouterr().out


@needs_mnist
def test_without_runs_nets_that_come_along_are_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MNIST_DIR", str(REAL))
    found = examples.load_runs(tmp_path)
    assert list(found) == [net.name for net in PRETRAINED]
    said = capsys.readouterr().out
    for name, run in found.items():
        assert name in said
        assert run.epochs == run.config.epochs
        assert 0 < np.count_nonzero(run.outputs.argmax(axis=1) != run.labels) < 150
    assert "'make table1', 'make cnn' and 'make committee' train others\n" in said
    net = examples.load_convolutional(examples.net_path(PRETRAINED[0].name, tmp_path))
    assert net.description == found[PRETRAINED[0].name].config.layers


def test_a_net_is_that_of_the_chosen_epoch(tmp_path):
    path, run = tmp_path / "a.h5", run_on("MNIST")
    run.config = changed(run.config, layers="3M5")
    store.write_run(path, run)
    latest, chosen = (ConvNetwork.initial("3M5", DIGIT, 10, seed) for seed in (0, 1))
    networks = {"latest": latest, "chosen": chosen}
    network.save(store.weights_path(path), networks, {"config": run.config.to_json(), "epoch": 1})
    found = examples.load_convolutional(path)
    assert np.array_equal(found.weights[0], chosen.weights[0])


def test_load_runs_without_a_run_or_a_folder_is_refused(tmp_path):
    with pytest.raises(Problem, match=r"there is no folder .*runz: name one with run files"):
        examples.load_runs(tmp_path / "runz")
    (tmp_path / "a.h5").write_bytes(b"no run")
    with pytest.raises(Problem, match=r"no run below .* can be read"):
        examples.load_runs(tmp_path)
