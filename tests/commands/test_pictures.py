"""`make pictures`: which figures of which runs, and the files they end in."""

import factories
import numpy as np
import pytest
from matplotlib.figure import Figure

from deepbig_runtime.errors import Problem
from deform_gpu import COMMITTEE
from experiments import cnn, pictures
from experiments.datasets import data
from experiments.drawing import conv_plots, error_plots, examples, run_plots, thread_maps
from experiments.drawing.thread_maps import DRAWINGS
from experiments.results import committees
from experiments.results.committees import EXPERIMENTS, run_name
from experiments.training import store
from experiments.training.configs import make_config
from mlp_gpu.training import Schedule

OF_RUNS = "misclassified", "confusion", "hardest", "learning_curves"
STUDIES = "study", "study-1000-500", "study-part2"
OF_RECORDS = "times", "roofline", "ladder", *STUDIES, "error_against_hours"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven runs of two epochs that were never trained: experiment 3 on load_digits."""
    folder = tmp_path_factory.mktemp("runs")
    dataset = data.load("digits")
    labels = dataset.test_labels
    for seed, member in enumerate(EXPERIMENTS[3].members):
        config = make_config(dataset, (841, 5, 10), Schedule(2), seed, COMMITTEE, "cpu")
        rng = np.random.default_rng(seed)
        metrics = {name: rng.uniform(1, 9, 2).tolist() for name in store.METRICS}
        metrics |= {"epoch": [1, 2], "validation_errors": [20, 10], "test_errors": [9, 30 - seed]}
        name = run_name(EXPERIMENTS[3], member, seed, "load_digits")
        run = factories.make_run(metrics=metrics, labels=labels, base=config)
        store.write_run(folder / f"{name}.h5", run)
    return folder


@pytest.mark.slow
def test_every_figure_is_saved_as_png_and_pdf(folder, tmp_path, capsys, monkeypatch):
    some = dict(list(DRAWINGS.items())[:2])  # tests of drawings have them all
    monkeypatch.setattr(thread_maps, "DRAWINGS", some)
    pictures.main(["--runs", str(folder), "--out", str(tmp_path)])
    names = [*OF_RUNS]
    names += [f"experiment3-load_digits_{what}" for what in ("misclassified", "members", "shared")]
    names += [*OF_RECORDS, *some, "pulling"]
    written = {tmp_path / f"{name}.{form}" for name in names for form in ("png", "pdf")}
    assert set(tmp_path.iterdir()) == written
    said = capsys.readouterr().out
    for path in written:
        assert path.read_bytes().startswith({".png": b"\x89PNG", ".pdf": b"%PDF-"}[path.suffix])
        assert f"written to {path}\n" in said


def test_named_pictures_are_saved_and_an_unknown_name_is_refused(folder, tmp_path):
    pictures.main(["hardest", "widths", "--runs", str(folder), "--out", str(tmp_path)])
    assert {path.stem for path in tmp_path.iterdir()} == {"hardest", "widths"}
    with pytest.raises(Problem, match="no picture nonsense; these runs give misclassified, conf"):
        pictures.main(["hardest", "nonsense", "--runs", str(folder), "--out", str(tmp_path / "x")])
    assert not (tmp_path / "x").exists()


def test_what_needs_no_runs_asks_for_none(tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "load_runs", lambda folder: pytest.fail("asked for runs"))
    pictures.main(["pulling", "--png-only", "--out", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["pulling.png"]


def keep(monkeypatch, drawn, *functions):
    """Have functions keep what they get, in a dictionary by their names, instead of drawing."""
    for module, name in functions:

        def draw(*given, name=name):
            drawn[name] = given
            return Figure()

        monkeypatch.setattr(module, f"plot_{name}", draw)


def test_figures_are_of_the_best_run_and_of_all_runs(folder, monkeypatch, capsys):
    runs = {path.stem: store.read_run(path) for path in store.run_files(folder)}
    images, drawn = data.load("digits").test_images, {}
    of_errors = [(error_plots, name) for name in ("confusion", "hardest")]
    keep(monkeypatch, drawn, *of_errors, (run_plots, "members"))
    found = pictures.run_pictures(runs, images)
    for name in ("confusion", "hardest", "experiment3-load_digits_members"):
        found[name]()
    assert drawn["confusion"][0] is runs["original-seed6-load_digits"].outputs
    assert drawn["hardest"] == (runs, images)
    rows, title = drawn["members"]
    assert title == committees.find_committees(runs)[0].title
    assert examples.load_committees(runs) == {title: rows}
    again = runs | {f"again/{name}": run for name, run in runs.items()}
    drawn = pictures.run_pictures(again, images)
    assert {"experiment3-load_digits_members", "experiment3-load_digits_2_members"} < drawn.keys()
    # Without one of its members there is no committee, and none is recorded.
    runs.popitem()
    assert list(pictures.run_pictures(runs, images)) == [*OF_RUNS]
    assert examples.load_committees(runs) == {}
    assert "among these runs\n'make committee' trains them\n" in capsys.readouterr().out


def test_convolutional_figures_are_of_the_best_net_with_weights(tmp_path, monkeypatch):
    tiny = ["--data", "digits", "--epochs", "1", "--limit", "50", "--workers", "1"]
    cnn.main([*tiny, "--net", "3M5s1-MP2-7N", "--seeds", "0,1,2", "--out", str(tmp_path)])
    (path, _, lost), drawn = store.run_files(tmp_path), {}
    for best, errors in ((path, 1), (lost, 0)):
        run = store.read_run(best)
        run.metrics.test_errors = [errors]
        store.write_run(best, run)
    store.weights_path(lost).unlink()
    keep(monkeypatch, drawn, (conv_plots, "kernels"), (conv_plots, "maps"))
    names = ["convolution_kernels", "convolution_maps"]
    out = tmp_path / "out"
    pictures.main([*names, "--runs", str(tmp_path), "--out", str(out), "--png-only"])
    assert {written.stem for written in out.iterdir()} == set(names)
    assert pictures.net_pictures({lost.stem: run}, tmp_path, None) == {}
    run, net = store.read_run(path), examples.load_convolutional(path)
    for found, *_ in drawn.values():
        for W, V in zip(found.weights, net.weights, strict=True):
            assert W is None or np.array_equal(W, V)
    assert drawn["kernels"][1] == run.config.title
    _, states, label, heading, _ = drawn["maps"]
    digits = data.load("digits")
    assert np.array_equal(states[0][:, :, 0], digits.test_images[0])
    np.testing.assert_allclose(states[-1].ravel(), run.outputs[0], rtol=1e-5)
    assert label == digits.test_labels[0]
    assert heading.startswith(run.config.title)


def test_there_are_no_figures_of_records_without_records(empty, monkeypatch):
    assert pictures.record_pictures() == {}
    monkeypatch.undo()
    assert list(pictures.record_pictures()) == [*OF_RECORDS]
