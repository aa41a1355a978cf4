"""`python -m experiments.study`: no test image is looked at, and every setting is named."""

import csv
import shutil
import signal
from pathlib import Path

import h5py
import numpy as np
import pytest
from msgspec.structs import replace

from deepbig_runtime.errors import Interrupted, Problem
from deepbig_runtime.files import FileFault
from deform_gpu import COMMITTEE
from experiments import record, study
from experiments.datasets import data
from experiments.drawing import run_plots
from experiments.results import studies
from experiments.results.records import read_results
from experiments.results.rows import StudyRow, read_rows, rows_text
from experiments.training import configs, jobs, store
from mlp_gpu.training import Schedule

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
    found = [(row["factor"], row["setting"]) for row in rows]
    assert [name for name in found if name in names] == names
    assert {setting for name, setting in found if name not in ("strength", "shear")} == {"as now"}
    strengths = [row for row in rows if row["factor"] == "strength"]
    assert [row["deformation"].split()[1] for row in strengths] == [
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
    whole = data.cached("digits", None)
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
    job, *_ = study.make_jobs(arguments, data.cached("digits", None), "cpu")
    assert job.path.name == "841-20-10-asnow-2epochs-part2-seed0.study.h5"
    assert job.config.data.validation_part == 2


def test_a_damaged_run_is_named_and_left_out_of_the_table(folder, tmp_path, capsys):
    shutil.copy(folder / NAME, tmp_path)
    (tmp_path / "other.study.h5").write_bytes(b"damaged")
    run = store.read_run(folder / NAME, is_study=True)
    study._write(study.parse_arguments([*TINY, "--out", str(tmp_path)]), run.config)
    assert f"left out: {tmp_path}/other.study.h5 is damaged" in capsys.readouterr().err
    assert (tmp_path / "study.csv").exists()


def test_every_training_has_a_name_of_its_own():
    arguments = study.parse_arguments(["--data", "digits", "--validation", "200"])
    queue = study.make_jobs(arguments, data.cached("digits", None), "cpu")
    assert len({job.label for job in queue}) == len({job.path for job in queue}) == len(queue)


def test_number_of_epochs_and_the_factor_that_varies_it_exclude_each_other(capsys):
    with pytest.raises(SystemExit):
        study.parse_arguments(["--epochs", "2", "--factors", "length"])
    assert "not allowed with the factor length" in capsys.readouterr().err
    assert "length" in study.parse_arguments([]).factors
    factors = study.parse_arguments(["--epochs", "2"]).factors
    assert not {"length", "strength-300"} & set(factors)


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
            assert schedule.eta_of(schedule.epochs) == pytest.approx(setting.last_eta, rel=0.01)
    of_2010 = studies.factors()["length"].settings[-1].schedule
    assert of_2010 == Schedule()  # the paper's


def test_stopped_study_leaves_the_table_of_all_that_is_finished_in_its_folder(
    folder, tmp_path, monkeypatch
):
    def stop(queue, pool):
        for path in (
            *(job.path for job in queue[:2]),
            folder / "841-20-10-shear1-2epochs-seed0.study.h5",
        ):
            (tmp_path / path.name).write_bytes((folder / path.name).read_bytes())
        other = store.read_run(folder / NAME, is_study=True)
        other.config = replace(other.config, sizes=(841, 21, 10))
        store.write_run(tmp_path / "other.study.h5", other)
        raise Interrupted(signal.SIGINT, "all finished epochs are safe")

    monkeypatch.setattr(jobs, "train_all", stop)
    with pytest.raises(Interrupted):
        study.main([*TINY, "--factors", "strength", "--out", str(tmp_path)])
    rows = list(csv.DictReader((tmp_path / "study.csv").open()))
    found = [(row["factor"], row["setting"]) for row in rows]
    # All factors have today's setting; another net's run is not among them.
    assert {setting for _, setting in found} == {"as now", "alpha x 0", "shear 1"}
    assert ("strength", "alpha x 0") in found
    assert ("shear", "shear 1") in found
    assert {row["layers"] for row in rows} == {"841-20-10"}


def test_study_is_recorded_and_what_it_had_is_never_lost(folder, tmp_path, empty):
    rows = read_rows(folder / "study.csv", StudyRow)
    source = replace(rows[0].source, commit="0123456789ab", device="Some CPU")
    traced = [replace(row, source=source) for row in rows]
    path = tmp_path / "study-net1" / "study.csv"
    path.parent.mkdir()
    path.write_text(rows_text(traced))
    record.main([str(path)])
    target = empty / "results" / "some-cpu" / "study-net1.csv"
    assert read_results().studies == {target: traced}
    changed = [replace(row, seconds=7.0) for row in traced[1:]]
    path.write_text(rows_text(changed))
    record.main([str(path)])
    assert read_results().studies == {target: [traced[0], *changed]}
    for row, complaint in (
        (
            replace(traced[0], source=replace(source, commit="installed, version 1.2")),
            "cannot be traced",
        ),
        (replace(traced[0], layers=""), "row 1: Object missing required field `layers`"),
        (replace(traced[0], layers="841-9-10"), "nets of several sizes, .* rename the fol"),
        (replace(traced[0], n_validation=7), "or with other images held out"),
    ):
        path.write_text(rows_text([row]))
        with pytest.raises((Problem, FileFault), match=complaint):
            record.main([str(path)])


def test_rows_of_several_machines_are_joined_in_the_order_of_the_list(folder):
    rows = read_rows(folder / "study.csv", StudyRow)
    later, earlier = rows[1::2], rows[::2]
    joined = studies.joined({Path("b/study.csv"): later, Path("a/study.csv"): earlier})
    assert list(joined) == ["study"]
    assert studies.groups(joined["study"]) == studies.groups(rows)


def test_seeds_of_a_setting_are_one_line_of_means(folder):
    rows = read_rows(folder / "study.csv", StudyRow)
    other = replace(rows[1], seed=1, held_out_errors=rows[1].held_out_errors + 4)
    usual, weakest, *_ = studies.study_table([rows[1], other, rows[0], rows[0]])
    assert (usual["setting"], usual["factor"], usual["seeds"]) == ("as now", "", "1")
    assert (weakest["setting"], weakest["seeds"]) == ("alpha x 0", "2")
    percent = 100 * (rows[1].held_out_errors + 2) / 200
    assert weakest["held out: wrong, %"].startswith(f"{percent:.2f} (")
    halves = [replace(rows[1], seed=n, held_out_errors=n, n_validation=10_000) for n in (109, 112)]
    ((*_, line),) = [studies.study_table(halves)]
    assert line["held out: wrong, %"] == "1.11 (0.91-1.34)"  # of 110.5, as tables round halves


def test_nets_of_a_machine_share_a_line_with_their_days_and_commits(folder):
    first, second, *_ = read_rows(folder / "study.csv", StudyRow)
    of_first = {"date": "2026-11-30T10:00:00+00:00", "commit": "b" * 12}
    of_second = {"date": "2026-11-28T10:00:00+00:00", "commit": f"{'a' * 12} and {'b' * 12}"}
    rows = [
        replace(row, source=replace(row.source, **values))
        for row, values in ((first, of_first), (second, of_second))
    ]
    *_, line = studies.report(rows).splitlines()
    assert line.endswith(f"; 2026-11-28 to 2026-11-30; commit {'b' * 12}, {'a' * 12}.")
    assert line.count(first.source.device) == 1


def test_a_setting_of_unusual_length_is_labelled_with_it(folder):
    row = read_rows(folder / "study.csv", StudyRow)[1]
    rows = [
        replace(row, factor=factor, setting=setting, epochs=epochs)
        for factor, setting, epochs in (
            ("rate", "eta 0.001", 100),
            ("rate-long", "eta 0.001", 1000),
            ("length", "1000 epochs", 1000),
        )
    ]
    (axes,) = run_plots.plot_study(rows).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        *("rate: eta 0.001", "rate-long: eta 0.001, 1,000 epochs", "length: 1000 epochs")
    ]


def test_unusual_nets_images_and_epochs_have_a_folder_of_their_own():
    for options, name in (
        ([], "study"),
        (["--validation-part", "2", "--seeds", "3,4"], "study-part2"),
        (["--hidden", "1000,500", "--epochs", "30"], "study-1000-500-epochs30"),
        (["--data", "digits", "--out", "mine"], "mine"),
    ):
        assert study.parse_arguments(options).out.name == name
