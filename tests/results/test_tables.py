"""results/tables.py and sentences on runs, beside the papers' figures."""

from dataclasses import replace

import pytest
from committee_cases import tables_of
from factories import changed, make_run
from scipy.stats import beta

from deform_gpu import TABLE1
from experiments import table1
from experiments.results import cnn_tables, tables
from experiments.training.formatting import hundredths
from mlp_gpu.network import NETS


@pytest.mark.parametrize(("errors", "n"), [(35, 10_000), (0, 360), (360, 360), (7, 360)])
def test_interval_is_clopper_pearsons(errors, n):
    low, high = tables.interval(errors, n)
    assert low == pytest.approx(100 * (beta.ppf(0.025, errors, n - errors + 1) if errors else 0))
    top = 1 if errors == n else beta.ppf(0.975, errors + 1, n - errors)
    assert high == pytest.approx(100 * top)
    assert type(low) is type(high) is float  # no table row can hold NumPy's


def test_without_distortion_the_papers_other_column():
    text = table1.report([make_run(sizes=NETS[2], deformation=None)])
    assert text.startswith("# Table 3 on MNIST, column 'no distortion', the paper beside ours\n")
    assert "Trained without distortion" in text


@pytest.mark.parametrize(
    ("values", "allowed"),
    [
        ({}, True),
        ({"sigma": 5, "alpha": 36, "gamma_x": 15, "gamma_y": 20, "shear_probability": 0.1}, True),
        ({"sigma": 6, "alpha": 38, "gamma_x": 20, "gamma_y": 15, "shear_probability": 0.9}, True),
        *(({"sigma": value}, False) for value in (4.9, 6.1)),
        *(({"alpha": value}, False) for value in (35, 39)),
        *(({"gamma_x": value}, False) for value in (14, 21)),
        ({"gamma_y": 14}, False),
        *(({"shear_probability": value}, False) for value in (0, 1)),
        ({"beta": (15.0,) * 10}, False),
        ({"background": 0.0}, False),
        ({"translation": 5.0}, False),
    ],
)
def test_only_what_the_papers_words_allow_stands_beside_their_figures(values, allowed):
    run = make_run(deformation=replace(TABLE1, **values))
    assert tables.is_table1(run) == allowed
    (line,) = tables.table1_table([run])
    assert ("paper TEfBV %" in line) == allowed


def test_nets_of_ones_own_and_images_held_out_stand_beside_no_figure():
    own, apart = make_run(sizes=(841, 30, 10)), make_run(data={"n_validation": 100})
    assert not tables.is_table1(own)
    assert not tables.is_table1(apart)
    assert not tables.is_table1(make_run(data={"width": 10}))
    text = table1.report([own, apart])
    assert text.startswith("# Perceptrons on MNIST\n")
    assert "paper TEfBV" not in text
    (lines,) = tables_of(text)
    assert [line["net"] for line in lines] == ["own", "1, 100 images held out"]
    mixed = table1.report([own, make_run()])
    (lines,) = tables_of(mixed)
    assert [line["paper TEfBV %"] for line in lines] == ["-", "0.49"]
    assert "no figure for other nets" in mixed
    assert "no figure for other nets" not in table1.report([make_run()])


def test_several_seeds_of_one_training_have_a_mean():
    def trained(wrong, **config):
        metrics = {"test_errors": [wrong, 99], "validation_errors": [1, 2]}
        return make_run(metrics=metrics, **config)

    runs = [trained(81), trained(91, seed=1), trained(70, eta=2e-3, seed=2), trained(83, seed=2)]
    twice = trained(81)  # on another machine
    again = trained(79, seed=5)
    again.config = changed(again.config, epochs=9)  # it was stopped
    (sentence,) = tables.means([*runs, again, twice])
    # The deviations from 85 are -4, 6 and -2; their squares come to 56.
    assert sentence == (
        "Net 1, 2 x 60,000 images, eta and decay 0.001, 0.997; 3 seeds: test error 0.85 % "
        f"on average, standard deviation {(56 / 2) ** 0.5 / 100:.2f}, from 0.81 to 0.91 %."
    )
    assert tables.means([runs[0], twice]) == []
    behind = make_run(done=1, epochs=2, seed=1)  # the same training, not as far
    assert tables.means([make_run(epochs=2), behind]) == []


@pytest.mark.parametrize(("value", "text"), [(0.555, "0.56"), (0.645, "0.65"), (1.005, "1.01")])
def test_halves_are_rounded_up_however_they_are_stored(value, text):
    assert hundredths(value) == text


def test_longest_run_of_a_net_is_on_deformed_mnist():
    run, undeformed = make_run(), make_run(epochs=9, deformation=None)
    digits = make_run(epochs=9, data={"name": "load_digits"})
    assert cnn_tables.longest_runs([undeformed, digits, run]) == {"net 1": run}
