"""Ticks, texts, files and refusals of figures; test_kept_figures.py has the numbers they show."""

import numpy as np
import pytest
from bench_rows import on_gpu, row
from drawn import IMAGES, LABELS, draw, make_run, make_runs, tick_labels
from factories import changed

from cnn_gpu.layers import Maps, parse
from cnn_gpu.network import ConvNetwork
from experiments.drawing import bench_plots, conv_plots, error_plots, figures, run_plots


def test_logarithmic_axes_have_plain_numbers():
    run = make_run(0, epochs=3)
    run.metrics.train_loss = [6.0, 1.0, 0.08]
    run.metrics.test_errors = [4, 5, 6]
    loss, _, test = draw(run_plots.plot_learning_curves({"a": run})).axes
    assert tick_labels(loss.yaxis) == ["0.1", "0.2", "0.3", "0.5", "1", "2", "3", "5"]
    assert len(tick_labels(test.yaxis)) >= 3  # less than from 2 to 5 too
    run.metrics.train_loss = [500.0, 1.0, 0.5]
    loss, _, _ = draw(run_plots.plot_learning_curves({"a": run})).axes
    assert tick_labels(loss.yaxis) == ["1", "10", "100"]


@pytest.mark.parametrize("epochs", [1, 3])
def test_only_whole_epochs_have_ticks(epochs):
    axes = draw(run_plots.plot_learning_curves(make_runs(2, epochs=epochs))).axes[-1]
    assert tick_labels(axes.xaxis) == [str(epoch + 1) for epoch in range(epochs)]


def test_long_lines_are_folded_at_spaces_and_behind_hyphens():
    text = "20M5s1-60M5s1c50%-150N on MNIST:\n7 wrong"
    assert figures.fold(text, 0.9) == "20M5s1-\n60M5s1c50%-\n150N on\nMNIST:\n7 wrong"
    assert figures.fold(text, 0.9, 4.5) == "20M5s1-60M5s1c50%-150N\non MNIST:\n7 wrong"
    assert figures.fold(text, 9) == text


def test_dollars_in_names_are_no_mathematics_and_names_after_underscores_are_in_legends(tmp_path):
    run = make_run(0, epochs=3)
    *_, axes = draw(run_plots.plot_learning_curves({"_old/a": run})).axes
    assert axes.get_legend_handles_labels()[1][0] == " _old/a"
    figure = draw(run_plots.plot_learning_curves({"lr$1e-3^$": run}))
    figures.save_figure(figures.finish(figure, "lr$1e-3^$"), tmp_path / "a", ["png"])
    config = changed(run.config, data={"name": "mine", "classes": ("1$^", "5$_", *"23456789")})
    chances = np.eye(10)[:2]
    draw(error_plots.plot_confusion(chances, np.arange(2), "1$^ and 5$_", config))


def test_a_figure_is_saved_with_the_same_bytes_each_time(tmp_path):
    first, again = (
        figures.save_figure(run_plots.plot_learning_curves(make_runs(2)), tmp_path / name / "a")
        for name in ("first", "again")
    )
    assert [path.name for path in first] == ["a.png", "a.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_runs_that_were_tested_on_different_images_are_refused():
    runs = make_runs(2)
    runs["net 1"].labels = LABELS[::-1]
    with pytest.raises(ValueError, match="different images"):
        error_plots.plot_hardest(runs, IMAGES)


def test_nets_without_what_is_drawn_are_refused():
    with pytest.raises(ValueError, match="expected a convolution after the first layer"):
        conv_plots.plot_connections(ConvNetwork.initial("5M5-9N", Maps(1, 29, 29), 10, 3))
    layer = parse("1M2s2", Maps(1, 11, 11), 10)[0]
    for outside in ((11, 0), (0, 11), (-1, 3)):
        with pytest.raises(ValueError, match="within 11 rows and 11 columns, got"):
            conv_plots.plot_pulling(layer, outside)


def test_benchmarks_of_convolutional_nets_are_not_drawn():
    more = {"group": "cnn", "n_bytes": 5000, "images": 1, "weights": 7, "net": "3"}
    rows = [*on_gpu(), row("engine cpu", 1.0, 10, **more)]
    rows.append(row("convolve_maps", 1.0, 10, **more | {"group": "cnn kernel"}))
    assert repr(bench_plots.works(rows)) == repr(bench_plots.works(on_gpu()))
    n_lines = [len(bench_plots.plot_times(some).axes[0].lines) for some in (rows, on_gpu())]
    assert n_lines[0] == n_lines[1]
