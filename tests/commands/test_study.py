"""`python -m experiments.study`: no test image is looked at, and every setting is named."""

import csv

import h5py
import numpy as np
import pytest

from deepbig_runtime.files import FileFault
from deform_gpu import COMMITTEE
from experiments import study
from experiments.results import studies
from experiments.training import configs, jobs, store

TINY = ["--data", "digits", "--validation", "200", "--hidden", "20", "--epochs", "2"]
TINY += ["--factors", "strength,shear", "--workers", "1"]
NAME = "841-20-10-asnow-2epochs-seed0.study.h5"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a tiny study leaves behind."""
    folder = tmp_path_factory.mktemp("study")
    assert study.main([*TINY, "--out", str(folder)]) == 0
    return folder


def test_tables_have_a_row_for_each_setting_of_each_factor(folder):
    rows = list(csv.DictReader((folder / "study.csv").open()))
    strengths = ["as now", *(f"alpha x {x}" for x in ("0", "0.25", "0.5", "0.75", "1.5"))]
    names = [("strength", name) for name in strengths]
    names += [("shear", name) for name in ("as now", "shear 0.5", "shear 1")]
    assert [(row["factor"], row["setting"]) for row in rows] == names
    assert [row["deformation"].split()[1] for row in rows[:6]] == [
        f"alpha={x}" for x in ("36", "0", "9", "18", "27", "54")
    ]
    # Factors share the training of today's setting.
    assert len(list(folder.glob("*.study.h5"))) == 8
    run = store.read_run(folder / NAME, is_study=True)
    assert int(rows[0]["held_out_errors"]) == min(run.metrics.validation_errors)
    assert int(rows[0]["training_errors"]) == run.chosen_errors
    text = (folder / "study.md").read_text()
    assert text.count("| strength |") == 5  # a line for each setting, today's once
    assert text.count("as now") == 1
    assert "test error" not in text
    assert {path.name for path in folder.glob("study.*")} == {
        f"study.{end}" for end in ("md", "csv", "png", "pdf")
    }


def test_run_is_evaluated_on_training_images_and_names_them(folder):
    run = store.read_run(folder / NAME, is_study=True)
    whole = jobs.load("digits", None)
    dataset = configs.prepare(whole, run.config)
    assert (run.config.data.n_train, run.config.data.n_test) == (1237, 1237)
    np.testing.assert_array_equal(run.labels, dataset.train_labels)
    assert dataset.test_images is dataset.train_images
    with h5py.File(folder / NAME) as file:
        assert "test_errors" not in file["metrics"]
        long_name = file["metrics/training_errors"].attrs["long_name"]
        assert long_name == "wrong among the undeformed training images"


def test_nothing_else_reads_a_run_of_a_study(folder):
    assert store.run_files(folder) == []
    with pytest.raises(FileFault, match="'deepbig study run' version 1, expected 'deepbig run'"):
        store.read_run(folder / NAME)


def test_same_command_resumes_and_other_parts_are_other_runs(folder, tmp_path):
    before = (folder / NAME).read_bytes()
    assert study.main([*TINY, "--out", str(folder)]) == 0
    assert (folder / NAME).read_bytes() == before
    arguments = study.parse_arguments([*TINY, "--validation-part", "2", "--out", str(tmp_path)])
    made = study.make_jobs(arguments, jobs.load("digits", None), "cpu")
    job = made["shear", "as now", 0]
    assert job.path.name == "841-20-10-asnow-2epochs-part2-seed0.study.h5"
    assert job.config.data.validation_part == 2


def test_number_of_epochs_and_the_factor_that_varies_it_exclude_each_other(capsys):
    with pytest.raises(SystemExit):
        study.parse_arguments(["--epochs", "2", "--factors", "length"])
    assert "not allowed with the factor length" in capsys.readouterr().err
    assert "length" in study.parse_arguments([]).factors
    assert "length" not in study.parse_arguments(["--epochs", "2"]).factors


def test_sigma_varies_at_equal_spread_of_the_displacement():
    spreads = [
        setting.deformation.alpha * studies.spread(setting.deformation.sigma)
        for setting in studies.factors()["sigma"].settings
    ]
    assert spreads == pytest.approx([spreads[0]] * 5)
    assert studies.spread(2) == pytest.approx(1 / (4 * np.pi**0.5), abs=1e-4)


def test_every_schedule_ends_at_the_same_rate_and_every_factor_begins_with_today():
    for factor in studies.factors().values():
        usual, *others = factor.settings
        assert usual == studies.Setting("as now", COMMITTEE, 100, 3e-3)
        assert all(other != usual for other in others)
        for setting in factor.settings:
            schedule = setting.schedule
            assert schedule.eta_of(schedule.epochs) == pytest.approx(1e-4, rel=0.01)
