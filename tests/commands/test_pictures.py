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

OF_RUNS = ("misclassified", "confusion", "second_guesses", "hardest", "learning_curves")
OF_RUNS += ("learning_curves_hours", "learning_rates", "parameters")
OF_RECORDS = "times", "roofline", "ladder", "study", "error_against_hours"


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

        def draw(*given, name=name, **options):
            drawn[name] = given, options
            return Figure()

        monkeypatch.setattr(module, f"plot_{name}", draw)


def test_figures_are_of_the_best_run_and_of_all_runs(folder, monkeypatch, capsys):
    runs = {path.stem: store.read_run(path) for path in store.run_files(folder)}
    images, drawn = data.load("digits").test_images, {}
    of_errors = [(error_plots, name) for name in ("confusion", "ranks", "hardest")]
    of_runs = [(run_plots, name) for name in ("learning_curves", "parameters", "members")]
    keep(monkeypatch, drawn, *of_errors, *of_runs)
    found = pictures.run_pictures(runs, images)
    for name in ("confusion", "second_guesses", "hardest", "learning_curves_hours", "parameters"):
        found[name]()
    found["experiment3-load_digits_members"]()
    assert drawn["confusion"][0][0] is runs["original-seed6-load_digits"].outputs
    assert drawn["ranks"] == drawn["parameters"] == ((runs,), {})
    assert drawn["hardest"] == ((runs, images), {})
    assert drawn["learning_curves"] == ((runs,), {"against": "hours"})
    ((rows, title), _) = drawn["members"]
    assert title == committees.find_committees(runs)[0].title
    assert examples.load_committees(runs) == {title: rows}
    # Without one of its members there is no committee, and none is recorded.
    runs.popitem()
    assert list(pictures.run_pictures(runs, images)) == [*OF_RUNS]
    assert examples.load_committees(runs) == {}
    assert "among these runs\n'make committee' trains them\n" in capsys.readouterr().out


@pytest.fixture(scope="module")
def convolutional(tmp_path_factory):
    """Three tiny convolutional nets, trained for an epoch; the weights of the best are gone."""
    folder = tmp_path_factory.mktemp("convolutional")
    tiny = ["--data", "digits", "--epochs", "1", "--limit", "50", "--workers", "1"]
    for net, seeds in (("3M5s1-MP2-7N", "0,1"), ("4M5s2-6N", "0")):
        cnn.main([*tiny, "--net", net, "--seeds", seeds, "--out", str(folder)])
    path = folder / "4M5s2-6N-seed0-load_digits.h5"
    best = store.read_run(path)
    best.metrics.test_errors = [0]
    best.outputs = np.eye(10, dtype=np.float32)[best.labels]
    store.write_run(path, best)
    store.weights_path(path).unlink()
    return folder


def test_convolutional_nets_have_figures_of_their_own(convolutional, tmp_path, monkeypatch):
    drawn = {}
    of_net = [(conv_plots, name) for name in ("kernels", "maps")]
    keep(monkeypatch, drawn, (run_plots, "error_curves"), *of_net)
    names = [f"convolution_{name}" for name in ("errors", "kernels", "maps")]
    pictures.main([*names, "--runs", str(convolutional), "--out", str(tmp_path), "--png-only"])
    assert {path.stem for path in tmp_path.iterdir()} == set(names)
    runs = examples.load_runs(convolutional)
    ((of_curves,), _) = drawn["error_curves"]
    assert list(of_curves) == list(runs)
    assert len(runs) == 3
    # Of those whose weights are there the best one.
    best = min(
        (name for name in runs if name.startswith("3M5")), key=lambda name: runs[name].chosen_errors
    )
    net = examples.load_convolutional(convolutional / f"{best}.h5")
    heading = runs[best].config.title
    (kernels, _), (maps, _) = drawn["kernels"], drawn["maps"]
    for found in kernels, maps:
        for W, V in zip(found[0].weights, net.weights, strict=True):
            assert W is None or np.array_equal(W, V)
    assert kernels[1] == heading
    _, states, label, said, _ = maps
    digits = data.load("digits")
    assert np.array_equal(states[0][:, :, 0], digits.test_images[0])
    np.testing.assert_allclose(states[-1].ravel(), runs[best].outputs[0], rtol=1e-5)
    assert label == digits.test_labels[0]
    assert said.startswith(heading)
    runs = {name: run for name, run in runs.items() if name.startswith("4M5")}  # without weights
    found = pictures.net_pictures(runs, convolutional, digits.test_images)
    assert list(found) == ["convolution_errors"]
    assert pictures.net_pictures({}, convolutional, digits.test_images) == {}


def test_there_are_no_figures_of_records_without_records(empty, monkeypatch):
    assert pictures.record_pictures() == {}
    monkeypatch.undo()
    assert list(pictures.record_pictures()) == [*OF_RECORDS]
