"""`python -m experiments.table1`: its options, what it leaves behind, and how it ends."""

import csv
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from deepbig_runtime.errors import Problem
from deform_gpu import TABLE1
from experiments import table1
from experiments.training import plans, provenance, store
from mlp_gpu.network import HIDDEN, NETS
from mlp_gpu.training import Schedule

TINY = ["--data", "digits", "--nets", "1", "--epochs", "2", "--limit", "60"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a tiny run leaves behind."""
    folder = tmp_path_factory.mktemp("table1")
    table1.main([*TINY, "--seeds", "0,7", "--out", str(folder)])
    return folder


def test_folder_has_runs_and_tables_that_name_the_data(folder):
    runs = [f"net1-seed{seed}-load_digits" for seed in (0, 7)]
    assert {path.name for path in folder.iterdir() if path.suffix != ".lock"} == {
        *("table1-load_digits.md", "table1-load_digits.csv"),
        *(name + end for name in runs for end in (".h5", ".weights.h5")),
    }
    text = (folder / "table1-load_digits.md").read_text()
    assert "load_digits, which is NOT MNIST" in text
    assert "must not be compared" in text
    assert "| paper" not in text
    assert "0.49" not in text
    assert "; 2 seeds: test error" in text
    for name, row in zip(
        runs, csv.DictReader((folder / "table1-load_digits.csv").open()), strict=True
    ):
        run = store.read_run(folder / f"{name}.h5")
        assert (row["seed"], row["weights"], row["distortion"]) == (name[9], "1347510", "True")
        assert (int(row["tefbv_errors"]), int(row["bte_errors"])) == (
            run.chosen_errors,
            run.best_errors,
        )
        assert float(row["tefbv"]) == pytest.approx(run.chosen_errors / 3.60)
        assert run.config.deformation == TABLE1


def test_sources_with_changes_are_told(folder, monkeypatch, capsys):
    monkeypatch.setattr(provenance, "commit", lambda: {"commit": 40 * "a", "dirty": True})
    table1.main([*TINY, "--out", str(folder)])
    assert (
        "uncommitted changes, so what is trained now cannot be recorded" in capsys.readouterr().err
    )


def test_other_options_are_refused_before_anything_is_trained(folder):
    with pytest.raises(Problem, match=r"eta is 0\.002 there and 0\.5 here"):
        table1.main([*TINY, "--eta", "0.5", "--seeds", "9,0", "--out", str(folder)])
    assert not (folder / "net1-seed9-load_digits.h5").exists()


def test_no_distortion_has_its_own_run_and_table(tmp_path, capsys):
    assert table1.main([*TINY, "--no-distortion", "--out", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.iterdir() if path.suffix in (".md", ".csv")}
    assert names == {"table3-load_digits.md", "table3-load_digits.csv"}
    (row,) = csv.DictReader((tmp_path / "table3-load_digits.csv").read_text().splitlines())
    assert row["distortion"] == "False"
    run = store.read_run(tmp_path / "net1-seed0-no-distortion-load_digits.h5")
    assert run.config.deformation is None
    printed = capsys.readouterr().out
    assert "Trained without distortion" in printed
    assert printed == (tmp_path / "table3-load_digits.md").read_text() + "\n"
    assert "Table 3" not in printed  # the paper has no figures for these digits


def test_nets_and_deformations_of_ones_own_are_named(tmp_path):
    own = [
        "--hidden",
        "30,20",
        "--sigma",
        "4",
        "--alpha",
        "20",
        "--beta",
        "10",
        "--gamma",
        "10,12",
        "--shear",
        "0",
    ]
    own += ["--validation", "20", "--validation-part", "2"]
    tiny = ["--data", "digits", "--epochs", "1", "--limit", "90"]
    assert table1.main([*tiny, *own, "--out", str(tmp_path)]) == 0
    name = "hidden30-20-seed0-sigma4-alpha20-beta10-gamma10,12-shear0-validation20-part2"
    run = store.read_run(tmp_path / f"{name}-load_digits.h5")
    assert run.config.sizes == (841, 30, 20, 10)
    changed = {
        "sigma": 4,
        "alpha": 20,
        "beta": (10,) * 10,
        "gamma_x": 10,
        "gamma_y": 12,
        "shear_probability": 0,
    }
    assert run.config.deformation == replace(TABLE1, **changed)
    data = run.config.data
    assert (data.n_train, data.n_validation, data.validation_part) == (70, 20, 2)
    assert run.config.title == (
        "841-30-20-10 on load_digits, sigma 4, alpha 20, beta 10, gamma 10,12, shear 0, "
        "20 images held out, the second part, seed 0"
    )
    name = (
        "table1-hidden30-20-sigma4-alpha20-beta10-gamma10,12-shear0-validation20-part2-load_digits"
    )
    (row,) = csv.DictReader((tmp_path / f"{name}.csv").open())
    settings = "sigma=4 alpha=20 beta=10 gamma=10,12 shear=0"
    assert (row["deformation"], row["n_validation"], row["validation_part"]) == (
        settings,
        "20",
        "2",
    )
    assert "own, sigma 4, alpha 20, beta 10" in (tmp_path / f"{name}.md").read_text()


@pytest.mark.parametrize(
    ("options", "deadline"), [([], math.inf), (["--minutes", "5"], 100 + 5 * 60)]
)
def test_jobs_end_after_the_minutes(options, deadline, digits, tmp_path, monkeypatch):
    monkeypatch.setattr(table1, "time", SimpleNamespace(monotonic=lambda: 100))
    arguments = table1.parse_arguments([*TINY, *options, "--out", str(tmp_path)])
    arguments.windows = False
    (job,) = table1.make_jobs(arguments, digits, "cpu")
    assert job.deadline == deadline


def test_hidden_layers_of_a_net_of_table_1_are_that_net():
    arguments = table1.parse_arguments(["--hidden", "1000,500", "--nets", "1,4"])
    assert table1.chosen_nets(arguments) == {"net1": HIDDEN[1], "net4": HIDDEN[4]}
    assert table1.chosen_nets(table1.parse_arguments(["--hidden", "7"])) == {"hidden7": (7,)}


def test_plan_of_a_net_of_ones_own_is_that_of_the_nearest_in_size():
    assert [plans.nearest(HIDDEN[net]) for net in NETS] == list(NETS)
    assert (plans.nearest((800,)), plans.nearest((4000, 4000))) == (1, 4)


# Plans

PAPERS = Schedule(2300, 1e-3, 0.997)


@pytest.mark.parametrize(
    ("options", "schedule", "n_images"),
    [
        (["--profile", "paper"], PAPERS, None),
        (["--profile", "paper", "--epochs", "90"], replace(PAPERS, epochs=90), None),
        (["--eta-decay", "0.997", "--epochs", "90"], Schedule(90, 1e-3, 0.997), None),
        (
            ["--epochs", "3", "--eta", "0.01", "--eta-decay", "0.5", "--limit", "77"],
            Schedule(3, 0.01, 0.5),
            77,
        ),
    ],
)
def test_options_go_before_the_profile(options, schedule, n_images):
    arguments = table1.parse_arguments(options)
    for net in NETS:
        plan = plans.choose(arguments, "cpu", 60_000, plans.QUICK_TABLE1["MNIST"][net])
        assert plan == plans.Plan(schedule, n_images)


def test_a_profile_takes_no_more_images_than_there_are():
    quick = plans.QUICK_TABLE1["MNIST"][3]
    for n_train, n in ((12_000, 12_000), (60_000, 50_000)):
        plan = plans.choose(table1.parse_arguments([]), "cpu", n_train, quick)
        assert plan.n_images == n


@pytest.mark.parametrize(
    ("options", "engine", "profile"),
    [
        (["--epochs", "5"], "cpu", plans.QUICK_TABLE1["MNIST"][1]),
        (["--epochs", "30"], "cpu", plans.SHORT),  # the quick one has 15
        (["--epochs", "30"], "cuda", plans.SHORT),
        (["--epochs", "100"], "cuda", plans.PAPER),
        (["--epochs", "5", "--profile", "short"], "cpu", plans.SHORT),
    ],
)
def test_few_epochs_end_at_the_last_learning_rate_of_a_profile(options, engine, profile):
    arguments = table1.parse_arguments(options)
    plan = plans.choose(arguments, engine, 60_000, plans.QUICK_TABLE1["MNIST"][1])
    schedule, whole = plan.schedule, profile.schedule
    assert schedule.epochs == arguments.epochs
    assert schedule.eta_of(1) == whole.eta_of(1)
    assert schedule.eta_of(schedule.epochs) == pytest.approx(whole.eta_of(whole.epochs), rel=0.02)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("", "table1"),
        ("--profile paper --epochs 300", "table1-paper"),  # more epochs extend it
        ("--epochs 30 --eta 1e-3 --eta-decay 0.9", "table1-eta0.001-decay0.9"),
        ("--profile short --epochs 7", "table1-short-epochs7"),
        ("--schedule graph", "table1-graph"),  # which rounds otherwise than window
        ("--epochs 7 --out elsewhere", "elsewhere"),
    ],
)
def test_options_of_the_schedule_are_in_the_name_of_the_folder(options, name):
    assert table1.parse_arguments(options.split()).out.name == name
