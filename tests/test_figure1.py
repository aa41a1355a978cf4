"""`python -m experiments.figure1`: the digits that a run gets wrong."""

import subprocess
import sys

import numpy as np
import pytest
from factories import changed, make_run

from experiments import figure1
from experiments.drawing import error_plots
from experiments.running import store
from experiments.running.errors import Problem
from experiments.running.provenance import REPOSITORY
from experiments.scoring import voting


@pytest.fixture(scope="module")
def path(tmp_path_factory, digits):
    """A run file."""
    data = {"name": digits.name, "sha256": digits.sha256, "n_train": 70, "n_test": 360}
    path = tmp_path_factory.mktemp("figure1") / "net1-seed0-load_digits.h5"
    metrics = {"test_errors": [14, 11]}
    store.write_run(path, make_run(data=data, labels=digits.test_labels, metrics=metrics))
    return path


def test_figure1(path, digits, capsys):
    figure1.main([str(path)])
    run = store.read_run(path)
    wrong = [i for i in range(360) if run.outputs[i].argmax() != run.labels[i]]
    second = sum(np.argsort(run.outputs[i])[-2] == run.labels[i] for i in wrong)
    counted = f"{len(wrong)} of 360 wrong; second guess right for {second}"
    said = capsys.readouterr().out
    assert counted in said
    for form, begin in (("png", b"\x89PNG"), ("pdf", b"%PDF-")):
        picture = path.with_suffix(f".figure1.{form}")
        assert picture.read_bytes().startswith(begin)
        assert str(picture) in said

    images = digits.test_images
    figure = error_plots.draw_wrong(run.outputs, run.labels, images, "the run")
    assert figure.texts[0].get_text() == f"the run:\n{counted}"
    assert run.config.title == "841-1000-500-10 on load_digits, seed 0"
    (axes,) = figure.axes
    (mosaic,) = axes.images
    assert len(axes.texts) == 3 * len(wrong)
    for k, i in enumerate(wrong):
        label, first, second = axes.texts[3 * k : 3 * k + 3]
        order = np.argsort(run.outputs[i])
        expected = [str(run.labels[i]), str(order[-1]), str(order[-2])]
        assert [text.get_text() for text in (label, first, second)] == expected
        # The digit stands between its label, above its right side, and its guesses below.
        left, bottom = (round(value) for value in first.get_position())
        shown = mosaic.get_array()[bottom - 30 : bottom - 1, left : left + 29]
        assert (shown == images[i]).all()
        assert abs(label.get_position()[0] - (left + 27)) < 2
        assert abs(label.get_position()[1] - (bottom - 30)) < 2
    # Nothing sticks out of the picture.
    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    for text in [*figure.texts, *axes.texts]:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height


def test_figure1_of_a_perfect_run(path):
    run = store.read_run(path)
    outputs = np.eye(10, dtype=np.float32)[run.labels]
    assert voting.count_sentence(outputs, run.labels) == "0 of 360 wrong; second guess right for 0"
    figure = error_plots.draw_wrong(outputs, run.labels, np.zeros((360, 29, 29)), "x")
    assert not figure.axes[0].texts


def test_figure1_takes_the_best_run(path, tmp_path):
    def put(name, wrong, data_name):
        data = {"name": data_name, "n_test": 360}
        run = make_run(data=data, metrics={"test_errors": [wrong, wrong]})
        store.write_run(tmp_path / name, run)

    put("a.h5", 5, "load_digits")
    put("b.h5", 3, "load_digits")
    assert figure1.find_best(tmp_path).name == "b.h5"
    put("c.h5", 50, "MNIST")
    put("d.h5", 40, "MNIST")
    assert figure1.find_best(tmp_path).name == "d.h5"


def test_figure1_without_a_run(tmp_path):
    with pytest.raises(Problem, match="there is no run in"):
        figure1.find_best(tmp_path)


def test_figure1_of_other_data(path, tmp_path):
    run = store.read_run(path)
    run.config = changed(run.config, data={"sha256": "0" * 64})
    store.write_run(tmp_path / "x.h5", run)
    with pytest.raises(Problem, match="trained on other data"):
        figure1.main([str(tmp_path / "x.h5")])


def test_figures_have_the_name_asked_for_and_the_same_bytes_each_time(path, tmp_path):
    for out in ("new/v1.0", "again"):
        figure1.main([str(path), "--out", str(tmp_path / out)])
    for form in ("png", "pdf"):
        bytes_of = (tmp_path / f"new/v1.0.{form}").read_bytes()
        assert bytes_of == (tmp_path / f"again.{form}").read_bytes()
    assert len(list(tmp_path.rglob("*.*"))) == 4


def test_scripts_end_with_status_2_and_one_sentence(tmp_path):
    command = [sys.executable, "-m", "experiments.figure1", str(tmp_path / "no.h5")]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == f"error: cannot read {tmp_path}/no.h5: No such file or directory\n"
