"""The figure of errors against hours says what the records say."""

import numpy as np
import pytest
from factories import make_run

from experiments.drawing import record_plots
from experiments.scoring import cnn_tables, records, tables
from mlp_gpu.network import NETS


def runs():
    return [
        make_run(sizes=NETS[1], epochs=3),
        make_run(sizes=NETS[1], epochs=9, done=5),
        make_run(sizes=NETS[4], epochs=2, session={"device": "a GPU"}),
        make_run(sizes=NETS[2], deformation=None),
        make_run(sizes=NETS[3], data={"name": "load_digits"}),
        make_run(sizes=(841, 800, 10)),
    ]


def test_the_longest_of_each_net_of_the_papers_is_drawn():
    found = record_plots.longest_records(runs())
    errors = {name: run.chosen_errors for name, run in found.items()}
    assert list(errors.items()) == [("net 4", 37), ("net 1", 40)]
    assert found["net 1"].epochs == 5


def test_points_are_the_runs_and_the_papers():
    figure = record_plots.draw_error_against_hours(runs())
    (axes,) = figure.axes
    lines = {len(line.get_xdata()): line for line in axes.lines if line.get_color() != "None"}
    hours = np.cumsum(runs()[1].epoch_seconds) / 3600
    np.testing.assert_allclose(lines[5].get_xdata(), hours)
    np.testing.assert_allclose(lines[5].get_ydata(), [0.4, 0.39, 0.38, 0.37, 0.36])
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "net 1, 5 of 9 epochs: 0.40 %" in texts
    assert "net 4, 2 epochs: 0.37 %" in texts
    stars = {
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in axes.lines
        if line.get_marker() == "*" and len(line.get_xdata())
    }
    assert stars == {(paper.hours, paper.tefbv) for paper in tables.PAPER.values()}
    assert {text.get_text() for text in axes.texts} == {str(net) for net in NETS}
    assert "Some CPU" in figure.get_suptitle()
    assert "a GPU" in figure.get_suptitle()


def test_a_run_that_was_stopped_says_so():
    figure = record_plots.draw_error_against_hours(runs()[1:2])
    assert "net 1, 5 of 9 epochs: 0.40 %" in [t.get_text() for t in figure.legends[0].get_texts()]


def test_without_such_runs_there_is_nothing_to_draw():
    with pytest.raises(ValueError, match="no runs of the papers' nets"):
        record_plots.draw_error_against_hours(runs()[3:])


def test_every_net_of_the_papers_has_its_own_line():
    assert len(set(record_plots.STYLES.values())) == len(NETS) + len(cnn_tables.PAPER)
    recorded = records.read_records()
    (axes,) = record_plots.draw_error_against_hours(recorded).axes
    names = record_plots.longest_records(recorded)
    assert names.keys() == record_plots.STYLES.keys()
    labels = [label.partition(", ")[0] for label in axes.get_legend_handles_labels()[1]]
    assert set(names) < set(labels)


def test_convolutional_nets_have_the_papers_names():
    own = [run for run in records.read_records() if run.config.is_convolutional]
    assert own
    names = record_plots.longest_records(own)
    assert names.keys() <= {paper.name for paper in cnn_tables.PAPER.values()}
    best = min(run.chosen_errors for run in own)
    assert next(iter(names.values())).chosen_errors == best
