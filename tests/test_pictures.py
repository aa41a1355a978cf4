"""`make pictures`: which figures of which runs, and the files they end in."""

import numpy as np
import pytest

from deform_gpu import COMMITTEE
from experiments import pictures
from experiments.drawing import bench_plots, error_plots, run_plots
from experiments.drawing.thread_maps import DRAWINGS
from experiments.running import data, examples, store
from experiments.running.configs import make_config
from experiments.running.errors import Problem
from experiments.scoring import committees
from experiments.scoring.committees import EXPERIMENTS, run_name
from mlp_gpu.training import Schedule

OF_RUNS = ("misclassified", "confusion", "second_guesses", "hardest", "learning_curves")
OF_RUNS += ("learning_curves_hours", "learning_rates", "parameters")


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
        outputs = (rng.random((len(labels), 10)) + np.eye(10)[labels]).astype(np.float32)
        name = run_name(EXPERIMENTS[3], member, seed, "load_digits")
        store.write_run(folder / f"{name}.h5", store.Run(config, [], metrics, outputs, labels))
    return folder


@pytest.mark.slow
def test_every_figure_is_saved_as_png_and_pdf(folder, tmp_path, capsys):
    pictures.main(["--runs", str(folder), "--out", str(tmp_path)])
    names = [*OF_RUNS]
    names += [f"experiment3-load_digits_{what}" for what in ("misclassified", "members", "shared")]
    names += ["times", "roofline", *DRAWINGS]
    written = {tmp_path / f"{name}.{form}" for name in names for form in ("png", "pdf")}
    assert set(tmp_path.iterdir()) == written
    said = capsys.readouterr().out
    for path in written:
        assert path.read_bytes().startswith({".png": b"\x89PNG", ".pdf": b"%PDF-"}[path.suffix])
        assert f"written to {path}\n" in said


def test_those_asked_for(folder, tmp_path):
    pictures.main(["hardest", "learning_rates", "--runs", str(folder), "--out", str(tmp_path)])
    assert {path.stem for path in tmp_path.iterdir()} == {"hardest", "learning_rates"}
    with pytest.raises(Problem, match="no picture nonsense; these runs give misclassified, conf"):
        pictures.main(["hardest", "nonsense", "--runs", str(folder), "--out", str(tmp_path / "x")])
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_what_needs_no_runs_asks_for_none(tmp_path, monkeypatch):
    """And is small enough to be committed, for docs/kernels.md."""
    monkeypatch.setattr(examples, "load_runs", lambda folder: pytest.fail("asked for runs"))
    pictures.main([*DRAWINGS, "--png-only", "--out", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.png" for name in DRAWINGS}
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 100_000


def test_figures_are_of_the_best_run_and_of_all_runs(folder, monkeypatch):
    runs = {path.stem: store.read_run(path) for path in store.run_files(folder)}
    images = data.load("digits").test_images
    drawn = {}

    def keep(name):
        def draw(*given, **options):
            drawn[name] = given, options

        return draw

    for name in ("confusion", "ranks", "hardest"):
        monkeypatch.setattr(error_plots, f"draw_{name}", keep(name))
    for name in ("learning_curves", "parameters", "members"):
        monkeypatch.setattr(run_plots, f"draw_{name}", keep(name))
    found = pictures.run_pictures(runs, images)
    best = runs["original-seed6-load_digits"]
    for name in ("confusion", "second_guesses", "hardest", "learning_curves_hours", "parameters"):
        found[name]()
    found["experiment3-load_digits_members"]()
    assert drawn["confusion"][0][0] is best.outputs
    assert drawn["ranks"] == drawn["parameters"] == ((runs,), {})
    assert drawn["hardest"] == ((runs, images), {})
    assert drawn["learning_curves"] == ((runs,), {"against": "hours"})
    ((one,), _) = drawn["members"]
    assert one.title == committees.find_committees(runs)[0].title
    # Without one of its members there is no committee.
    runs.popitem()
    assert list(pictures.run_pictures(runs, images)) == [*OF_RUNS]


def test_there_is_no_figure_of_a_benchmark_without_records(monkeypatch):
    assert list(pictures.benchmark_pictures()) == ["times", "roofline"]
    monkeypatch.setattr(bench_plots, "read_benchmarks", list)
    assert pictures.benchmark_pictures() == {}
