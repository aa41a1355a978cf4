"""`python -m experiments.committee`: what it trains, what it prints, what it refuses."""

import csv
import json
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import reference
from scipy.stats import beta

from deform_gpu import TABLE1, Deformation, is_narrow, normalize_width
from experiments import committee
from experiments.running import configs, data, jobs, plans, pools, runs, store
from experiments.running.cli import FileFault
from experiments.running.errors import Problem
from experiments.running.formatting import csv_text
from experiments.running.plans import PAPER, Plan
from experiments.running.provenance import REPOSITORY
from experiments.scoring import committee_report, committees, records
from experiments.scoring.committee_report import Committee
from experiments.scoring.committees import EXPERIMENTS, TABLE4
from mlp_gpu import network
from mlp_gpu.training import Schedule

HERE = ["--engine", "cpu", "--workers", "1"]
TINY = ["--data", "digits", *HERE, "--epochs", "2", "--limit", "120"]
ENDS = (
    "md",
    "csv",
    "best.png",
    "best.pdf",
    "committee.png",
    "committee.pdf",
)  # of a committee's files

# Tables 1 and 2 of 2012: the seven nets of each experiment, then its committee, percent.
ERRORS = {
    1: (1.79, 1.80, 1.77, 1.72, 1.91, 1.86, 1.75, 1.70),
    2: (1.62, 1.37, 1.48, 1.53, 1.56, 1.49, 1.79, 1.31),
    3: (0.72, 0.71, 0.72, 0.71, 0.62, 0.65, 0.69, 0.56),
    4: (0.68, 0.82, 0.73, 0.69, 0.71, 0.70, 0.75, 0.53),
    5: (0.69, 0.94, 0.55, 0.72, 0.60, 0.86, 0.79, 0.49),
    6: (0.64, 0.78, 0.70, 0.60, 0.59, 0.70, 0.71, 0.43),
}
AVERAGES = {1: "1.80", 2: "1.55", 3: "0.69", 4: "0.73", 5: "0.74", 6: "0.67"}
TABLE4_ERRORS = (0.52, 0.45, 0.44, 0.49, 0.36, 0.38, 0.35, 0.31)
WIDTHS = [10, 12, 14, 16, 18, 20, None]
STRENGTHS = [(4.5, 36), (4.5, 42), (6.0, 30), (6.0, 36), (6.0, 42), (7.5, 30), (7.5, 36)]


def paper_deformation(sigma=6.0, alpha=36.0):
    """Section 5: scaling of 12.5 % at most, rotation of 12.5 degrees, no word of a shear."""
    return Deformation(sigma, alpha, (12.5,) * 10, 12.5, 12.5, shear_probability=0.0)


# What the experiments are


@pytest.mark.parametrize("number", range(1, 7))
def test_errors_are_those_of_tables_1_and_2(number):
    experiment = EXPERIMENTS[number]
    found = *(member.paper for member in experiment.members), experiment.paper
    assert found == ERRORS[number]
    assert experiment.table == ("Table 1" if number < 3 else "Table 2")
    assert experiment.sizes == (841, 800, 10)
    assert f"{np.mean(found[:-1]):.2f}" == AVERAGES[number]


def test_table_4_is_net_4_as_table_3_deforms_it():
    found = *(member.paper for member in TABLE4.members), TABLE4.paper
    assert found == TABLE4_ERRORS
    assert TABLE4.table == "Table 4"
    assert TABLE4.sizes == (841, 2500, 2000, 1500, 1000, 500, 10)
    assert [member.deformation for member in TABLE4.members] == [TABLE1] * 7
    assert [member.width for member in TABLE4.members] == WIDTHS
    assert not any(member.resample for member in TABLE4.members)


def test_there_are_six_experiments():
    assert list(EXPERIMENTS) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("number", range(1, 7))
def test_members_differ_in_what_the_paper_says(number):
    members = EXPERIMENTS[number].members
    assert [member.width for member in members] == (WIDTHS if number in (2, 6) else [None] * 7)
    assert [member.resample for member in members] == [number == 4] * 7
    deformations = {
        1: [None] * 7,
        2: [None] * 7,
        5: [paper_deformation(*strength) for strength in STRENGTHS],
    }
    expected = deformations.get(number, [paper_deformation()] * 7)
    assert [member.deformation for member in members] == expected


@pytest.mark.parametrize("experiment", [EXPERIMENTS[2], EXPERIMENTS[6], TABLE4])
def test_members_of_other_widths_are_named_as_in_the_paper(experiment):
    names = [member.name for member in experiment.members]
    assert names == ["WN10", "WN12", "WN14", "WN16", "WN18", "WN20", "original"]


def test_the_other_members_are_named_as_in_the_paper():
    for number in (1, 3, 4):
        names = [member.name for member in EXPERIMENTS[number].members]
        assert names == [f"init {k}" for k in range(1, 8)]
    names = [member.name for member in EXPERIMENTS[5].members]
    assert names == ["4.5/36", "4.5/42", "6.0/30", "6.0/36", "6.0/42", "7.5/30", "7.5/36"]


# Their trainings


def numbered(n=66, name="load_digits"):
    """A data set whose images are known by their values; labels 0 to 9 in turn."""
    images = np.repeat(np.arange(n, dtype=np.float32), 29 * 29).reshape(n, 29, 29)
    labels = np.arange(n, dtype=np.uint8) % 10
    return data.Dataset(name, images, labels, images[:4] + 0.5, labels[:4], "ab" * 32, "here")


def make_jobs(experiment, *options, dataset=None, engine="cpu"):
    arguments = committee.parse_arguments([*options, "--out", "some"])
    return committee.make_jobs(arguments, experiment, dataset or numbered(), engine)


def test_equal_trainings_have_one_name_and_different_ones_have_different_names():
    by_name, by_config = {}, {}
    for experiment in (*EXPERIMENTS.values(), TABLE4):
        made = make_jobs(experiment)
        assert len({job.label for job in made}) == 7
        for job in made:
            config = json.dumps(job.config, sort_keys=True)
            assert by_name.setdefault(job.label, config) == config
            assert by_config.setdefault(config, job.label) == job.label
            assert str(job.path) == f"some/{job.label}.h5"
    assert len(by_name) == 39 + 7  # three of the 42 are the same; Table 4 shares none with them


def test_three_nets_belong_to_two_experiments():
    names = {n: [job.label for job in make_jobs(e)] for n, e in EXPERIMENTS.items()}
    shared = {
        (a, i + 1, b, j + 1)
        for a in names
        for b in names
        if a < b
        for i, first in enumerate(names[a])
        for j, second in enumerate(names[b])
        if first == second
    }
    assert shared == {(1, 7, 2, 7), (3, 4, 5, 4), (3, 7, 6, 7)}


def test_names_of_run_files():
    def names(experiment, name="MNIST"):
        return [job.label for job in make_jobs(experiment, dataset=numbered(12_000, name))]

    assert names(EXPERIMENTS[1])[0] == "original-undeformed-seed0"
    assert names(EXPERIMENTS[2])[1] == "WN12-undeformed-seed1"
    assert names(EXPERIMENTS[3])[2] == "original-seed2"
    assert names(EXPERIMENTS[4])[3] == "original-resampled-seed3"
    assert names(EXPERIMENTS[5])[4] == "original-sigma6-alpha42-seed4"
    assert names(EXPERIMENTS[6])[5] == "WN20-seed5"
    assert names(TABLE4)[6] == "net4-original-seed6"
    assert names(TABLE4, "load_digits")[0] == "net4-WN10-seed0-load_digits"


@pytest.mark.parametrize("number", range(1, 7))
def test_jobs_train_what_the_experiment_says(number):
    experiment = EXPERIMENTS[number]
    made = make_jobs(experiment, "--seed", "40", "--epochs", "3", "--limit", "61")
    for k, (job, member) in enumerate(zip(made, experiment.members, strict=True)):
        config = job.config
        assert config["seed"] == 40 + k
        assert config["sizes"] == [841, 800, 10]
        assert (config["epochs"], config["eta"], config["decay"]) == (3, 1e-3, 0.997)
        # One of six is for validation, rounded down.
        expected = {
            "name": "load_digits",
            "sha256": "ab" * 32,
            "n_train": 51 if number == 4 else 61,
            "n_validation": 10 if number == 4 else None,
            "n_test": 4,
            "width": member.width,
        }
        assert config["data"] == expected
        if member.deformation:
            assert Deformation(**config["deformation"]) == member.deformation
            assert config["deformed_on"] == "cpu"
        else:
            assert config["deformation"] is config["deformed_on"] is None
        assert config == json.loads(json.dumps(config))


def test_jobs_of_table_4_have_net_4s_shape_and_quick_schedule():
    made = make_jobs(TABLE4)
    quick = plans.QUICK_TABLE1["load_digits"][4].schedule
    assert len(made) == 7
    for k, job in enumerate(made):
        assert job.config["sizes"] == [841, 2500, 2000, 1500, 1000, 500, 10]
        assert Deformation(**job.config["deformation"]) == TABLE1
        assert job.config["data"]["width"] == WIDTHS[k]
        assert job.config["seed"] == k
        assert configs.schedule_of(job.config) == quick
    for job in make_jobs(TABLE4, dataset=numbered(12_001, "MNIST")):
        assert job.config["data"]["n_train"] == 12_000 == plans.QUICK_TABLE1["MNIST"][4].n_images


def test_the_command_line_chooses_the_experiments():
    def chosen(*options):
        return committee.chosen_experiments(committee.parse_arguments(options))

    assert chosen() == {f"experiment{n}": EXPERIMENTS[n] for n in range(1, 7)}
    assert list(chosen("--experiment", "6,2").items()) == [
        ("experiment6", EXPERIMENTS[6]),
        ("experiment2", EXPERIMENTS[2]),
    ]
    assert chosen("--table4") == {"table4": TABLE4}


def test_titles_tell_members_apart():
    dataset = numbered(60_000, "MNIST")
    for experiment in (*EXPERIMENTS.values(), TABLE4):
        made = make_jobs(experiment, "--profile", "paper", dataset=dataset)
        assert len({configs.title(job.config) for job in made}) == 7

    def title(number, k):
        job = make_jobs(EXPERIMENTS[number], "--profile", "paper", dataset=dataset)[k]
        return configs.title(job.config)

    assert title(2, 0) == "841-800-10 on MNIST, WN10, undeformed, seed 0"
    assert title(3, 2) == "841-800-10 on MNIST, seed 2"
    assert title(4, 2) == "841-800-10 on MNIST, 10,000 images kept apart, seed 2"
    assert title(5, 1) == "841-800-10 on MNIST, sigma 4.5, alpha 42, seed 1"


def test_committees_are_found_among_runs():
    dataset = numbered(name="MNIST")

    def runs_of(*experiments, dataset=dataset, folder="some"):
        return {
            f"{folder}/{job.label}": store.Run.new(job.config, dataset.test_labels)
            for experiment in experiments
            for job in make_jobs(experiment, "--profile", "paper", dataset=dataset)
        }

    def found(runs):
        return [one.name for one in committees.find_committees(runs)]

    runs = runs_of(EXPERIMENTS[6])
    assert found(runs) == ["experiment6"]
    one = committees.find_committees(runs)[0]
    assert one.runs == tuple(runs.values())
    assert one.members[0] == "WN10"
    assert one.paper == (0.64, 0.78, 0.70, 0.60, 0.59, 0.70, 0.71, 0.43)
    assert one.title.endswith("seven widths, on MNIST, not trained to the end")
    for run in runs.values():
        run.metrics["epoch"] = list(range(run.config["epochs"]))
    assert committees.find_committees(runs)[0].title.endswith("seven widths, on MNIST")
    last = runs.popitem()  # the original, which is experiment 3's too
    assert found(runs) == []
    assert found({**runs, **runs_of(EXPERIMENTS[3]), **runs_of(TABLE4)}) == [
        "experiment3",
        "experiment6",
        "table4",
    ]
    assert found({**runs, last[0].replace("some", "other"): last[1]}) == []
    digits = committees.find_committees(runs_of(EXPERIMENTS[2], dataset=numbered(), folder="x/y"))
    assert [one.name for one in digits] == ["experiment2-load_digits"]
    assert digits[0].paper is None
    assert found({}) == []


@pytest.mark.parametrize("name", data.CHOICES)
def test_every_data_set_has_a_quick_plan(name):
    quick = plans.QUICK_COMMITTEE[name]
    assert quick.n_images is None
    for experiment in EXPERIMENTS.values():
        for job in make_jobs(experiment, dataset=numbered(name=name)):
            assert configs.schedule_of(job.config) == quick.schedule
    # It ends before the learning rate has come down to its least.
    assert quick.schedule.eta_of(quick.schedule.epochs) > quick.schedule.eta_min


def test_paper_profile_is_the_papers_schedule_with_all_images():
    assert Plan(Schedule(epochs=2300, eta=1e-3, decay=0.997, eta_min=1e-6)) == PAPER
    profiles = [("cpu", "--profile", "paper"), ("cuda",)]  # the default on a GPU
    for experiment in (*EXPERIMENTS.values(), TABLE4):
        for engine, *options in profiles:
            for job in make_jobs(
                experiment, *options, dataset=numbered(name="MNIST"), engine=engine
            ):
                assert configs.schedule_of(job.config) == Schedule()
                assert configs.count_validation(job.config) == (11 if "resam" in job.label else 66)
                n_apart = job.config["data"]["n_validation"] or 0
                assert job.config["data"]["n_train"] + n_apart == 66


# What a training has of the data


def numbers(images):
    return images[:, 0, 0].astype(int).tolist()


def test_each_net_of_experiment_4_has_sets_of_its_own():
    whole, apart = numbered(70), []
    for job in make_jobs(EXPERIMENTS[4], "--limit", "66", dataset=whole):
        found = configs.prepare(whole, job.config)
        validation = numbers(found.validation[0])
        assert len(validation) == 11 == configs.count_validation(job.config)
        assert len(found.train_labels) == 55 == job.config["data"]["n_train"]
        assert sorted(numbers(found.train_images) + validation) == list(range(66))
        assert found.validation[1].tolist() == [i % 10 for i in validation]
        assert found.train_labels.tolist() == [i % 10 for i in numbers(found.train_images)]
        again = configs.prepare(whole, job.config)
        assert numbers(again.validation[0]) == validation
        apart.append(frozenset(validation))
    assert len(set(apart)) == 7
    # Moved on by one seed, all but one of the sets are the same.
    moved = [
        frozenset(numbers(configs.prepare(whole, job.config).validation[0]))
        for job in make_jobs(EXPERIMENTS[4], "--limit", "66", "--seed", "1", dataset=whole)
    ]
    assert moved[:-1] == apart[1:]


@pytest.mark.parametrize("limit", [2, 5])
def test_few_images_are_not_all_trained_on_by_a_resampled_net(limit):
    for job in make_jobs(EXPERIMENTS[4], "--limit", str(limit)):
        found = configs.prepare(numbered(), job.config)
        assert len(found.validation[0]) == configs.count_validation(job.config) == 1
        assert len(found.train_labels) == limit - 1


def test_the_other_nets_are_validated_on_all_training_images():
    for number in (1, 2, 3, 5, 6):
        for job in make_jobs(EXPERIMENTS[number], "--limit", "20"):
            assert configs.count_validation(job.config) == 20
            assert configs.prepare(numbered(), job.config).validation is None


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def make_config(dataset, **options):
    return configs.make_config(dataset, (841, 800, 10), Schedule(3), 5, None, "cpu", **options)


def test_limit_split_and_width_go_together(digits):
    config = make_config(data.limit(digits, 100), width=12, n_validation=30)
    found = configs.prepare(digits, config)

    parts = data.split(data.limit(digits, 100), 30, seed=5)
    expected = {
        "train": (parts.train_images, found.train_images),
        "validation": (parts.validation[0], found.validation[0]),
        "test": (digits.test_images, found.test_images),
    }
    for before, after in expected.values():
        assert (after == normalize_width(before, 12, is_narrow(before))).all()
        assert (after != before).any()
    assert [len(part[1]) for part in expected.values()] == [70, 30, 360]
    assert found.train_labels.tolist() == parts.train_labels.tolist()
    assert found.validation[1].tolist() == parts.validation[1].tolist()
    assert found.test_labels.tolist() == digits.test_labels.tolist()


def test_other_data_are_refused(digits):
    config = make_config(digits)
    assert configs.prepare(digits, config).train_images.shape == (1437, 29, 29)
    with pytest.raises(Problem, match=f"SHA-256 {digits.sha256}, found {'0' * 64} in nowhere"):
        configs.prepare(replace(digits, sha256="0" * 64, source="nowhere"), config)
    with pytest.raises(Problem, match="limit is 1437, expected 1 to 50"):
        configs.prepare(data.limit(digits, 50), config)


def test_configurations_from_before_there_were_committees_are_as_good(digits):
    config = make_config(data.limit(digits, 40))
    old = json.loads(json.dumps(config))
    del old["data"]["width"], old["data"]["n_validation"]
    store.check_config("x.h5", old, config)
    store.check_config("x.h5", config, old)
    assert configs.count_validation(old) == 40
    assert len(configs.prepare(digits, old).train_labels) == 40
    assert configs.prepare(digits, old).validation is None

    for change, complaint in (
        ({"width": 10}, "data.width is None there and 10 here"),
        ({"n_validation": 4}, "data.n_validation is None there and 4 here"),
        ({"n_train": 39}, "data.n_train is 40 there and 39 here"),
    ):
        other = config | {"data": config["data"] | change}
        with pytest.raises(Problem, match=f"^x.h5 holds another run .*: {complaint}; choose"):
            store.check_config("x.h5", old, other)
    with pytest.raises(Problem, match=r"eta is 0\.001 there and 0\.1 here"):
        store.check_config("x.h5", old, config | {"eta": 0.1})


def test_records_are_those_of_the_same_trainings_today(digits):
    found = [run for run in records.read_records() if run.config["data"]["name"] == "load_digits"]
    assert found
    for run in found:
        config = run.config
        today = configs.make_config(
            data.limit(digits, config["data"]["n_train"]),
            tuple(config["sizes"]),
            configs.schedule_of(config),
            config["seed"],
            config["deformation"] and Deformation(**config["deformation"]),
            config["engine"],
        )
        store.check_config("x.h5", config, today)
        assert configs.count_validation(config) == config["data"]["n_train"]


# Tables of made-up runs

LABELS = np.array([0, 1, 2, 3, 4, 5], np.uint8)
A = [{0: 0.9, 1: 0.1}, {2: 0.6, 1: 0.4}, {3: 0.9, 2: 0.1}, {4: 0.6, 5: 0.4}, {4: 1}, {5: 1}]
B = [{0: 0.9, 1: 0.1}, {2: 0.6, 1: 0.4}, {3: 0.9, 2: 0.1}, {3: 0.9, 5: 0.1}, {4: 1}, {5: 1}]
C = [{1: 0.6, 0: 0.4}, {1: 0.6, 2: 0.4}, {3: 0.9, 2: 0.1}, {3: 0.9, 5: 0.1}, {4: 1}, {0: 1}]
B[5] = A[5] = {5: 0.6, 0: 0.4}
# A is wrong for digits 1, 2, 3; B for 1, 2; C for 0, 2, 5; together 1, 2 and 5.


def probabilities(rows):
    outputs = np.zeros((len(rows), 10), np.float32)
    for output, row in zip(outputs, rows, strict=True):
        output[list(row)] = list(row.values())
    return outputs


def make_run(config, outputs, labels, seconds=4.0, **session):
    """A finished run that was never trained, with the outputs given."""
    epochs = config["epochs"]
    metrics = {name: [0.0] * epochs for name in store.METRICS}
    metrics |= {"epoch": list(range(1, epochs + 1)), "train_seconds": [seconds / epochs] * epochs}
    # Of equal validation errors the earliest epoch is chosen: the second.
    metrics["validation_errors"] = [9] + [4] * (epochs - 1)
    session = {
        "commit": "0123456789abcdef",
        "dirty": False,
        "device": "Some CPU",
        "versions": {"python": "3.11", "numpy": "2.4"},
        "start": "2026-01-01T00:00:00",
        "end": "2026-01-02T00:00:00",
    } | session
    return store.Run(config, [session], metrics, outputs, labels)


def small_committee(**changes):
    dataset = replace(numbered(name="MNIST"), test_labels=LABELS)
    made = []
    for seed, votes in enumerate((A, B, C)):
        config = make_config(dataset) | {"seed": seed}
        made.append(make_run(config, probabilities(votes), LABELS, seconds=100.0 * (seed + 1)))
    fields = {"name": "experiment9", "title": "Some", "members": ("a", "b", "c"), "runs": made}
    return Committee(**fields | {"paper": (9.0, 8.0, 7.0, 6.5), "note": "Mind this."} | changes)


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def tables_of(text):
    """Every Markdown table of a text, a list of dictionaries each."""
    found = []
    for part in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE):
        header, rule, *lines = part.splitlines()
        assert set(rule) <= set("|- ")
        found.append([dict(zip(cells(header), cells(line), strict=True)) for line in lines])
    return found


def test_rows_of_a_committee_counted_by_hand():
    rows = committee_report.tidy_rows(small_committee())
    assert [row["member"] for row in rows] == ["a", "b", "c", "committee"]
    assert [row["net"] for row in rows] == [1, 2, 3, ""]
    assert [row["errors"] for row in rows] == [3, 2, 3, 3]
    assert {row["n_test"] for row in rows} == {6}
    assert [row["paper"] for row in rows] == [9.0, 8.0, 7.0, 6.5]
    assert [row["second_guesses"] for row in rows] == [2, 2, 2, 3]
    shared = [[row[f"shared_{k}"] for k in (1, 2, 3)] for row in rows]
    assert shared == [[3, 2, 1], [2, 2, 1], [1, 1, 3], [2, 2, 2]]
    assert [name for name in rows[0] if name.startswith("shared")] == [
        "shared_1",
        "shared_2",
        "shared_3",
    ]
    for row in rows:
        k = row["errors"]
        assert row["percent"] == pytest.approx(100 * k / 6)
        assert row["low"] == pytest.approx(100 * beta.ppf(0.025, k, 6 - k + 1))
        assert row["high"] == pytest.approx(100 * beta.ppf(0.975, k + 1, 6 - k))
        assert row["experiment"] == "experiment9"
    of_members = ("mean_percent", "best_member", "only_committee", "only_best", "mcnemar_p")
    assert {row[name] for row in rows[:-1] for name in of_members} == {""}
    assert rows[-1]["mean_percent"] == pytest.approx(100 * 8 / 18)
    assert rows[-1]["best_member"] == "b"
    # Digit 5, of which b has no part.
    assert (rows[-1]["only_committee"], rows[-1]["only_best"]) == (1, 0)
    assert rows[-1]["mcnemar_p"] == 1


def test_a_committee_may_know_what_none_of_its_members_knows():
    votes = [{2: 0.5, 1: 0.4}, {3: 0.5, 1: 0.4}, {4: 0.5, 1: 0.4}]
    dataset = replace(numbered(name="MNIST"), test_labels=LABELS[1:2])
    made = [make_run(make_config(dataset), probabilities([v]), LABELS[1:2]) for v in votes]
    odd = small_committee(runs=made)
    assert [int(wrong.sum()) for wrong in odd.wrong] == [1, 1, 1, 0]
    text = committee_report.committee_markdown(odd)
    assert "The committee gets 0 of 1 wrong, 0.00 %; its average member 100.00 %.\n" in text
    assert "Wrong for every member: 1 digit.\n" in text


def test_comparison_has_the_committee_first():
    dataset = replace(numbered(name="MNIST"), test_labels=LABELS)
    right, wrong = np.eye(10, dtype=np.float32)[LABELS], np.eye(10, dtype=np.float32)[LABELS + 1]
    mixed = [np.concatenate([right[:k], 0.6 * wrong[k:]]) for k in (3, 5)]
    made = [make_run(make_config(dataset), outputs, LABELS) for outputs in (*mixed, right)]
    last = committee_report.tidy_rows(small_committee(runs=made))[-1]
    assert last["best_member"] == "c"
    assert (last["errors"], last["only_committee"], last["only_best"]) == (1, 1, 0)


def test_of_equal_members_the_first_is_the_best():
    runs = [small_committee().runs[k] for k in (2, 0)]
    assert small_committee(members=("c", "a"), runs=runs, paper=None).best == 0


def test_rows_have_the_provenance_of_their_runs():
    odd = small_committee()
    _, second, third = odd.runs
    second.config |= {"engine": "cuda"}
    second.provenance.append(
        second.provenance[0]
        | {"schedule": "graph", "driver": "580.1", "device": "Some GPU", "dirty": True}
        | {"end": "2026-02-03T00:00:00"}
    )
    third.config["epochs"] += 1
    rows = committee_report.tidy_rows(odd)
    assert [row["engine"] for row in rows] == ["cpu", "cuda graph", "cpu", "cpu and cuda graph"]
    assert [row["device"] for row in rows][1:] == ["Some GPU", "Some CPU", "Some CPU and Some GPU"]
    assert [row["seed"] for row in rows] == [0, 1, 2, ""]
    assert [row["chosen_epoch"] for row in rows] == [2, 2, 2, ""]
    assert [row["finished"] for row in rows] == [True, True, False, False]
    assert [row["seconds"] for row in rows] == pytest.approx([100, 200, 300, 600])
    assert [row["date"][:10] for row in rows][1:] == ["2026-02-03", "2026-01-02", "2026-02-03"]
    assert [row["commit"] for row in rows][:2] == [
        "0123456789abcdef",
        "0123456789abcdef and 0123456789abcdef-dirty",
    ]
    assert {row["layers"] for row in rows} == {"841-800-10"}
    assert {row["data"] for row in rows} == {"MNIST"}
    assert [row["images_an_epoch"] for row in rows] == [66, 66, 66, "66"]
    assert [(row["eta"], row["eta_decay"]) for row in rows[:-1]] == [(1e-3, 0.997)] * 3

    lines = [committee_report.source_line(row) for row in rows]
    versions = "python 3.11 numpy 2.4"
    assert lines[0] == f"Some CPU, engine cpu; {versions}; 2026-01-02; commit 0123456789ab"
    assert lines[1] == (
        f"Some GPU, driver 580.1, engine cuda graph; {versions}; 2026-02-03; commit 0123456789ab, "
        "0123456789ab with changes"
    )
    # Once for all that have it in common.
    text = committee_report.committee_markdown(odd)
    assert [text.count(f"- {line}\n") for line in lines[:2]] == [1, 1]
    assert text.count("\n- ") == 2


def test_markdown_of_a_committee_counted_by_hand():
    text = committee_report.committee_markdown(small_committee())
    assert text.startswith("# Some\n\nMind this.\n\n|")
    assert "The committee gets 3 of 6 wrong, 50.00 %; its average member 44.44 %.\n" in text
    assert "Second guess of the committee: right for 3 of these 3.\n" in text
    assert "Against its best member, b (best on these test digits, which favours it): 1 digit " in (
        text
    )
    assert "wrong for the committee alone, 0 for the member alone; p = 1 (McNemar" in text
    assert "Wrong for every member: 1 digit.\n" in text
    members, shared = tables_of(text)
    assert [line["net"] for line in members] == ["1", "2", "3", ""]
    assert [line[""] for line in members] == ["a", "b", "c", "**committee**"]
    assert [line["paper %"] for line in members] == ["9.00", "8.00", "7.00", "6.50"]
    assert [line["error %"] for line in members] == ["50.00", "33.33", "50.00", "50.00"]
    assert [line["wrong"] for line in members] == ["3 of 6", "2 of 6", "3 of 6", "3 of 6"]
    assert [line["second guess right"] for line in members] == ["2", "2", "2", "3"]
    assert members[1]["95 % interval"] == "4.33-77.72"
    assert [line["epochs x images"] for line in members] == ["3 x 66"] * 3 + [""]
    assert [line["eta, decay"] for line in members] == ["0.001, 0.997"] * 3 + [""]
    assert [line["seed"] for line in members] == ["0", "1", "2", ""]
    assert [line["time"] for line in members] == ["0:01:40", "0:03:20", "0:05:00", "0:10:00"]
    assert [list(line.values()) for line in shared] == [
        ["a", "3", "2", "1"],
        ["b", "2", "2", "1"],
        ["c", "1", "1", "3"],
        ["committee", "2", "2", "2"],
    ]
    assert list(shared[0]) == ["", "a", "b", "c"]


def test_a_committee_without_the_papers_figures():
    bare = small_committee(paper=None)
    assert {row["paper"] for row in committee_report.tidy_rows(bare)} == {""}
    assert "paper" not in committee_report.committee_markdown(bare)
    two = [bare, replace(bare, name="experiment8")]
    rows = [row for one in two for row in committee_report.tidy_rows(one)]
    assert "/" not in str(committee_report.summary_table(rows))


def through_csv(rows):
    return list(csv.DictReader(csv_text(rows).splitlines()))


@pytest.mark.parametrize("back", [list, through_csv])
def test_a_member_may_have_any_name(back):
    odd = small_committee(members=("committee", "x", "y"))
    members, shared = tables_of(committee_report.committee_markdown(odd))
    assert [line[""] for line in members] == ["committee", "x", "y", "**committee**"]
    assert members[0]["seed"] == "0"
    assert list(shared[0]) == ["", "committee", "x", "y"]
    lines = committee_report.summary_table(back(committee_report.tidy_rows(odd)))
    assert [line["net"] for line in lines] == ["1", "2", "3", "average member", "**committee**"]


# The script, with trainings that are made up


def bars(*widths):
    """Images of digits 20 high with bounding boxes of these widths."""
    images = np.full((len(widths), 29, 29), -1, np.float32)
    for image, width in zip(images, widths, strict=True):
        image[4:24, 3 : 3 + width] = 0.5
    return images


# Of the 40 test digits 4 are ones, 3 of these narrow, as are 2 of the 36 others.
MNIST = data.Dataset(
    "MNIST",
    bars(*[12] * 66),
    (np.arange(66) % 10).astype(np.uint8),
    bars(5, 3, *[11] * 8, 5, 5, *[12] * 8, 13, 4, *[12] * 8, 14, 15, *[11] * 8),
    (np.arange(40) % 10).astype(np.uint8),
    "cd" * 32,
    "nowhere",
)


@pytest.fixture
def made_up(monkeypatch):
    """MNIST in small, and trainings that take no time; `broken` holds labels of those that fail."""
    found = SimpleNamespace(dataset=MNIST, broken=(), trained=[], pictures={})

    def train_all(queue, pool):
        found.trained = [job.label for job in queue]
        made, failures = [], []
        for job in queue:
            if job.label in found.broken:
                made.append(None)
                failures.append(f"{job.label}: it was not to be")
                continue
            labels = found.dataset.test_labels
            rng = np.random.default_rng(list(job.label.encode()))
            outputs = rng.uniform(size=(len(labels), 10)) + 0.7 * np.eye(10)[labels]
            outputs = (outputs / outputs.sum(axis=1, keepdims=True)).astype(np.float32)
            made.append(make_run(job.config, outputs, labels))
        return made, failures

    def keep(figure, path):
        found.pictures[path.name] = figure

    monkeypatch.setattr(jobs, "load", lambda choice, data_dir: found.dataset)
    monkeypatch.setattr(jobs, "train_all", train_all)
    monkeypatch.setattr(committee, "save_figure", keep)
    return found


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_mnist_stands_beside_the_papers_figures(made_up, tmp_path, capsys):
    assert committee.main([*HERE, "--out", str(tmp_path)]) == 0
    assert len(made_up.trained) == len(set(made_up.trained)) == 39
    names = [f"experiment{number}" for number in range(1, 7)]
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {
        "committees.md",
        *(f"{name}.{end}" for name in names for end in ("md", "csv")),
    }
    pictures = {f"{name}.{which}" for name in names for which in ("best", "committee")}
    assert set(made_up.pictures) == pictures
    for number, name in enumerate(names, 1):
        rows = read_csv(tmp_path / f"{name}.csv")
        assert [float(row["paper"]) for row in rows] == list(ERRORS[number])
        text = (tmp_path / f"{name}.md").read_text()
        assert text.startswith(f"# Experiment {number} of 2012: {EXPERIMENTS[number].title}, on MN")
        assert f"The paper's figures are from its Table {1 if number < 3 else 2};" in text
        assert "it does not say how long" in text
        assert ("NOT MNIST" in text) is False
        narrow = "by at most 0.08 of their height: 3 of the 4 ones and 2 of the 36 others among the"
        assert (narrow in text) == (number in (2, 6))
        members = tables_of(text)[0]
        assert [line["paper %"] for line in members] == [f"{e:.2f}" for e in ERRORS[number]]
        assert [line["error %"] for line in members] == [f"{float(r['percent']):.2f}" for r in rows]
    said = capsys.readouterr()
    whole = (tmp_path / "committees.md").read_text()
    assert said.out.endswith(whole + "\n")
    for name in names:
        assert (tmp_path / f"{name}.md").read_text() in said.out


def test_all_committees_stand_side_by_side(made_up, tmp_path):
    committee.main([*HERE, "--out", str(tmp_path)])
    text = (tmp_path / "committees.md").read_text()
    assert text.startswith("# 6 committees on MNIST, errors in percent, the paper / ours\n\n|")
    summary, lines, order = tables_of(text)
    assert [line["net"] for line in summary] == [*"1234567", "average member", "**committee**"]
    rows = {n: read_csv(tmp_path / f"experiment{n}.csv") for n in range(1, 7)}
    for number, line in zip(range(1, 7), lines, strict=True):
        column = [line[f"exp. {number}"] for line in summary]
        percents = [float(row["percent"]) for row in rows[number]]
        cells = [f"{p:.2f} / {q:.2f}" for p, q in zip(ERRORS[number], percents, strict=True)]
        members = [member.name for member in EXPERIMENTS[number].members]
        assert column[:7] == [f"{m}: {c}" for m, c in zip(members, cells[:-1], strict=True)]
        assert column[7] == f"{AVERAGES[number]} / {np.mean(percents[:-1]):.2f}"
        assert column[8] == f"**{cells[-1]}**"

        last, best = rows[number][-1], int(np.argmin(percents[:-1]))
        assert line["committee"] == f"exp. {number}"
        assert line["error %"] == f"{percents[-1]:.2f}"
        assert line["wrong"] == f"{last['errors']} of 40"
        assert line["second guess right"] == last["second_guesses"]
        assert line["average member %"] == f"{np.mean(percents[:-1]):.2f}"
        assert line["best member %"] == f"{percents[best]:.2f}, {members[best]}"
        assert line["only committee / only best wrong"] == (
            f"{last['only_committee']} / {last['only_best']}"
        )
        assert line["p"] == f"{float(last['mcnemar_p']):.2g}"
        assert line["time"] == "0:00:28"  # seven times 4 s
        assert line["95 % interval"] == f"{float(last['low']):.2f}-{float(last['high']):.2f}"

    ours = {n: float(found[-1]["percent"]) for n, found in rows.items()}
    for line, (better, worse) in zip(order, [(3, 1), (2, 1), (6, 3)], strict=False):
        assert line["committees"] == f"{better} against {worse}"
        assert line["paper %"] == f"{ERRORS[better][-1]:.2f} against {ERRORS[worse][-1]:.2f}"
        assert line["ours %"] == f"{ours[better]:.2f} against {ours[worse]:.2f}"
        assert line["shows"] == ("yes" if ours[better] < ours[worse] else "no")
    # The same from the rows that CSV gives back.
    back = [row for found in rows.values() for row in found]
    assert committee_report.summary_table(back) == summary
    assert committee_report.committee_table(back) == lines
    assert committee_report.order_table(back) == order
    beaten = sum(ours[n] < float(found[-1]["mean_percent"]) for n, found in rows.items())
    assert order[3]["ours %"] == f"in {beaten} of 6"
    assert order[3]["shows"] == ("yes" if beaten == 6 else "no")


@pytest.mark.parametrize(
    ("errors", "shows"),
    [((9, 8, 8, 7, 7, 5), ["yes"] * 4), ((9, 9, 9, 1, 1, 9), ["no"] * 3 + ["yes"])],
)
def test_order_of_the_papers_committees(errors, shows):
    rows = []
    for number, wrong in enumerate(errors, 1):
        own = {"experiment": f"experiment{number}-load_digits", "paper": "", "percent": str(wrong)}
        members = [own | {"net": str(k), "errors": str(9 + k % 2)} for k in (1, 2)]
        rows += [*members, own | {"net": "", "errors": str(wrong)}]
    assert committee_report.has_order(rows)
    lines = committee_report.order_table(rows)
    assert [line["shows"] for line in lines] == shows
    assert "paper %" not in lines[0]
    assert lines[3]["ours %"] == "in 6 of 6"
    for k in (2, 3):  # no worse is not better
        first, second, last = rows[3 * k : 3 * k + 3]
        first["errors"] = str(int(last["errors"]) - 1)
        second["errors"] = str(int(last["errors"]) + 1)
    assert committee_report.order_table(rows)[3]["ours %"] == "in 4 of 6"
    assert committee_report.order_table(rows)[3]["shows"] == "no"
    assert not committee_report.has_order(rows[3:])


def test_table_4_of_mnist(made_up, tmp_path, monkeypatch):
    n = plans.QUICK_TABLE1["MNIST"][4].n_images
    images = np.broadcast_to(np.float32(-1), (n, 29, 29))
    made_up.dataset = replace(MNIST, train_images=images, train_labels=np.zeros(n, np.uint8))
    assert committee.main([*HERE, "--table4", "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"table4.md", "table4.csv"}
    rows = read_csv(tmp_path / "table4.csv")
    assert [float(row["paper"]) for row in rows] == list(TABLE4_ERRORS)
    assert rows[0]["layers"] == "841-2500-2000-1500-1000-500-10"
    text = (tmp_path / "table4.md").read_text()
    assert text.startswith("# Table 4 of 2012: net 4 of Table 3, deformed, seven widths, on MNIST")
    assert "from its Table 4;" in text
    assert "3 of the 4 ones" in text
    assert made_up.trained[0] == "net4-WN10-seed0"


def test_pictures_are_of_the_best_member_and_of_the_committee(made_up, tmp_path):
    committee.main([*HERE, "--experiment", "6", "--seed", "1", "--out", str(tmp_path)])
    rows = read_csv(tmp_path / "experiment6.csv")
    best = min(rows[:-1], key=lambda row: int(row["errors"]))
    for which, row, who in (
        ("best", best, f"Best net, {best['member']}"),
        ("committee", rows[-1], "Committee"),
    ):
        figure = made_up.pictures[f"experiment6.{which}"]
        (text,) = figure.texts
        title, count = text.get_text().split("\n")
        assert title == f"{who}. Experiment 6 of 2012: deformed, seven widths, on MNIST:"
        assert count == (
            f"{row['errors']} of 40 wrong; second guess right for {row['second_guesses']}"
        )
        assert len(figure.axes[0].texts) == 3 * int(row["errors"])
    assert best != rows[0]
    assert best["errors"] != rows[-1]["errors"]


def test_one_committee_needs_no_summary(made_up, tmp_path):
    assert committee.main([*HERE, "--experiment", "3", "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"experiment3.md", "experiment3.csv"}
    committee.main([*HERE, "--experiment", "3,1", "--out", str(tmp_path)])
    assert len(tables_of((tmp_path / "committees.md").read_text())) == 2  # no order of two


def test_a_net_that_fails_spoils_only_its_own_committees(made_up, tmp_path, capsys):
    # Net 4 of experiment 3 is also net 4 of experiment 5; net 2 of experiment 6 is of one only.
    made_up.broken = ("original-seed3", "WN12-seed1", "WN14-seed2")
    assert committee.main([*HERE, "--experiment", "3,4,5,6", "--out", str(tmp_path)]) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"experiment4.md", "experiment4.csv"}
    said = capsys.readouterr()
    assert said.out.startswith("# Experiment 4 of 2012")
    for sentence in (
        "experiment3: no committee, because 1 of its nets failed",
        "experiment5: no committee, because 1 of its nets failed",
        "experiment6: no committee, because 2 of its nets failed",
    ):
        assert f"{sentence}\n" in said.err
    assert "experiment4: no" not in said.err


def test_nothing_is_written_if_every_committee_fails(made_up, tmp_path, capsys):
    made_up.broken = ("original-seed6",)
    assert committee.main([*HERE, "--experiment", "3,6", "--out", str(tmp_path)]) == 1
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


# The script, with trainings of load_digits


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What tiny trainings of experiments 1 and 2 leave behind."""
    folder = tmp_path_factory.mktemp("committee")
    assert committee.main([*TINY, "--experiment", "1,2", "--out", str(folder)]) == 0
    return folder


UNDEFORMED = [f"original-undeformed-seed{seed}-load_digits" for seed in range(7)]
NORMALIZED = [f"WN{w}-undeformed-seed{k}-load_digits" for k, w in enumerate(WIDTHS[:-1])]
MEMBERS = {1: UNDEFORMED, 2: [*NORMALIZED, UNDEFORMED[6]]}


def run_files(folder, number):
    return [folder / f"{name}.h5" for name in MEMBERS[number]]


def test_folder_has_runs_tables_and_pictures(folder):
    names = {path.name for path in folder.iterdir() if path.suffix != ".lock"}
    expected = {"committees-load_digits.md"}
    for name in {*UNDEFORMED, *NORMALIZED}:
        expected |= {f"{name}.h5", f"{name}.weights.h5"}
    for number in (1, 2):
        expected |= {f"experiment{number}-load_digits.{end}" for end in ENDS}
    assert names == expected
    for path in folder.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("number", [1, 2])
def test_csv_agrees_with_the_run_files(folder, number):
    rows = read_csv(folder / f"experiment{number}-load_digits.csv")
    found = [store.read_run(path) for path in run_files(folder, number)]
    labels = found[0].labels.astype(int)
    outputs = [run.outputs.astype(np.float64) for run in found]
    outputs.append(sum(outputs) / 7)
    order = [np.argsort(o, axis=1) for o in outputs]
    wrong = np.array([o[:, -1] != labels for o in order])
    counts = [int(w.sum()) for w in wrong]
    assert [int(row["errors"]) for row in rows] == counts
    assert [float(row["percent"]) for row in rows] == pytest.approx([c / 3.6 for c in counts])
    second = [int((w & (o[:, -2] == labels)).sum()) for w, o in zip(wrong, order, strict=True)]
    assert [int(row["second_guesses"]) for row in rows] == second
    for row, w in zip(rows, wrong, strict=True):
        shared = [int((w & other).sum()) for other in wrong[:7]]
        assert [int(row[f"shared_{k}"]) for k in range(1, 8)] == shared
    last, best = rows[-1], counts.index(min(counts[:7]))
    assert last["best_member"] == rows[best]["member"]
    assert float(last["mean_percent"]) == pytest.approx(sum(counts[:7]) / 7 / 3.6)
    assert int(last["only_committee"]) == (wrong[7] & ~wrong[best]).sum()
    assert int(last["only_best"]) == (wrong[best] & ~wrong[7]).sum()
    few = sorted([int(last["only_committee"]), int(last["only_best"])])
    n = sum(few)
    p = min(1, 2 * sum(math.comb(n, k) for k in range(few[0] + 1)) / 2**n)
    assert float(last["mcnemar_p"]) == pytest.approx(p)

    for row, run in zip(rows[:-1], found, strict=True):
        # Its own test errors, at the epoch with the fewest validation errors.
        chosen = int(np.argmin(run.metrics["validation_errors"]))
        assert int(row["errors"]) == run.metrics["test_errors"][chosen]
        assert int(row["chosen_epoch"]) == chosen + 1
        assert int(row["seed"]) == run.config["seed"]
        assert (row["epochs"], row["images_an_epoch"], row["finished"]) == ("2", "120", "True")
    seconds = [float(row["seconds"]) for row in rows]
    assert seconds[-1] == pytest.approx(sum(seconds[:-1]))
    assert [int(row["seed"]) for row in rows[:-1]] == list(range(7))


def test_digits_never_stand_beside_the_papers_figures(folder):
    for number in (1, 2):
        text = (folder / f"experiment{number}-load_digits.md").read_text()
        assert "load_digits is NOT MNIST: these figures must not be compared" in text
        assert "paper %" not in text
        rows = read_csv(folder / f"experiment{number}-load_digits.csv")
        assert {row["paper"] for row in rows} == {""}
    text = (folder / "committees-load_digits.md").read_text()
    assert text.startswith(
        "# 2 committees on load_digits, errors in percent (NOT MNIST: not to be "
    )
    summary, lines = tables_of(text)
    assert list(summary[0]) == ["net", "exp. 1", "exp. 2"]
    assert "/" not in "".join("".join(line.values()) for line in summary)
    assert [line["committee"] for line in lines] == ["exp. 1", "exp. 2"]


def predictions(path, images):
    """Class probabilities of a run's chosen net, computed again in float64."""
    networks, _ = network.load(store.weights_path(path))
    weights = [W.astype(np.float64) for W in networks["chosen"].unpadded()]
    rows = images.reshape(len(images), -1).astype(np.float64)
    return np.array([reference.forward(weights, row)[1] for row in rows])


def test_members_are_tested_on_digits_of_their_own_width(folder, digits):
    for path, width in list(zip(run_files(folder, 2), WIDTHS, strict=True))[2::4]:
        outputs = store.read_run(path).outputs
        images = digits.test_images
        if width:
            images = normalize_width(images, width, is_narrow(images))
            assert abs(outputs - predictions(path, digits.test_images)).max() > 1e-2
        assert abs(outputs - predictions(path, images)).max() <= 1e-4


def test_finished_members_are_not_trained_again(folder, tmp_path, capsys):
    for path in run_files(folder, 2):
        shutil.copy(path, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert committee.main([*TINY, "--experiment", "2", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "epoch 1/2" not in said.err
    assert f"and 6 like it: finished, in {tmp_path}" in said.err
    assert all((tmp_path / name).read_bytes() == content for name, content in before.items())
    for end in ("csv", "md"):
        name = f"experiment2-load_digits.{end}"
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_other_options_are_refused_before_anything_is_trained(folder, tmp_path):
    shutil.copy(run_files(folder, 1)[6], tmp_path)
    with pytest.raises(Problem, match=r"eta is 0\.001 there and 0\.5 here"):
        committee.main([*TINY, "--experiment", "1", "--eta", "0.5", "--out", str(tmp_path)])
    assert [path.name for path in tmp_path.glob("*.h5")] == [f"{UNDEFORMED[6]}.h5"]


def test_a_member_that_another_process_trains_is_named(folder, tmp_path, capsys):
    for path in {*run_files(folder, 1), *run_files(folder, 2)}:
        shutil.copy(path, tmp_path)
    busy = tmp_path / f"{NORMALIZED[2]}.h5"
    busy.unlink()
    with runs.lock(busy):
        assert committee.main([*TINY, "--experiment", "1,2", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert f"failed: {NORMALIZED[2]}: another process is training {busy}" in said.err
    assert "experiment2: no committee, because 1 of its nets failed\n" in said.err
    assert said.out.startswith("# Experiment 1 of 2012")
    written = {path.name for path in tmp_path.iterdir() if path.suffix not in (".h5", ".lock")}
    assert written == {f"experiment1-load_digits.{end}" for end in ENDS}


def test_a_resampled_net_is_validated_on_its_own_set(digits, tmp_path, capsys):
    options = ["--epochs", "2", "--limit", "120", "--eta", "0.003", "--out", str(tmp_path)]
    job = committee.make_jobs(committee.parse_arguments(options), EXPERIMENTS[4], digits, "cpu")[3]
    assert configs.count_validation(job.config) == 20
    # Undeformed: that takes no compiling.
    job = replace(job, config=job.config | {"deformation": None, "deformed_on": None})
    (run,), failures = jobs.train_all([job], pools.Here())
    assert failures == []
    said = capsys.readouterr().err
    for epoch, errors in enumerate(run.metrics["validation_errors"], 1):
        assert f"epoch {epoch}/2, " in said
        assert re.search(rf"epoch {epoch}/2, .*, validation {5 * errors:.2f} %, test", said)
    parts = data.split(data.limit(digits, 120), 20, job.config["seed"])
    wrong = predictions(job.path, parts.validation[0]).argmax(axis=1) != parts.validation[1]
    assert wrong.sum() == run.metrics["validation_errors"][run.chosen - 1]


# Committees of run files


def test_run_files_form_the_same_committee(folder, tmp_path, capsys):
    paths = [str(path) for path in run_files(folder, 2)]
    assert committee.main([*paths, "--out", str(tmp_path)]) == 0
    names = {f"committee.{end}" for end in ENDS}
    assert {path.name for path in tmp_path.iterdir()} == names
    rows = read_csv(tmp_path / "committee.csv")
    expected = read_csv(folder / "experiment2-load_digits.csv")
    best = MEMBERS[2][[row["member"] for row in expected].index(expected[-1]["best_member"])]
    for row, other in zip(rows, expected, strict=True):
        changed = {"experiment": "committee"}
        changed["member"] = MEMBERS[2][int(row["net"]) - 1] if row["net"] else "committee"
        if not row["net"]:
            changed["best_member"] = best
        assert row == other | changed
    text = (tmp_path / "committee.md").read_text()
    assert text.startswith("# A committee of 7 nets on load_digits\n\nEach net as it was at the ep")
    assert "Not trained to the end" not in text
    assert tables_of(text)[1][0].keys() == {"", *MEMBERS[2]}
    said = capsys.readouterr()
    assert said.out == text + "\n"
    assert said.err.startswith(f"written to {tmp_path}: committee,")


def change(path, target, config=None, **fields):
    """A copy of a run file with another configuration or other fields."""
    run = store.read_run(path)
    run.config |= config or {}
    store.write_run(target, replace(run, **fields))
    return target


def test_members_that_are_not_finished_are_named(folder, tmp_path):
    first, second, third, *_ = run_files(folder, 1)
    open_ended = change(second, tmp_path / "mine.h5", {"epochs": 9})
    committee.main([str(first), str(open_ended), str(third), "--out", str(tmp_path / "out")])
    text = (tmp_path / "out" / "committee.md").read_text()
    assert "\nNot trained to the end: mine.\n" in text
    rows = read_csv(tmp_path / "out" / "committee.csv")
    assert [row["finished"] for row in rows] == ["True", "False", "True", "False"]


def test_runs_of_equal_names_are_told_apart_by_their_folders(folder, tmp_path):
    first, second, *_ = run_files(folder, 1)
    paths = []
    for name, path in (("x", first), ("y", second)):
        (tmp_path / name).mkdir()
        paths.append(shutil.copy(path, tmp_path / name / "run.h5"))
    found = committee.form_committee(paths)
    assert found.members == tuple(str(path) for path in paths)
    shared = tables_of(committee_report.committee_markdown(found))[1]
    assert list(shared[0]) == ["", *map(str, paths)]
    assert shared[0][str(paths[1])] == shared[1][str(paths[0])]


def refused(*arguments):
    """The sentence with which the script refuses run files."""
    with pytest.raises((Problem, FileFault)) as reason:
        committee.main([str(argument) for argument in arguments])
    sentence = str(reason.value)
    assert "\n" not in sentence
    return sentence


def test_bad_run_files_are_refused_and_nothing_is_written(folder, digits, tmp_path):
    first, second, *_ = run_files(folder, 1)
    out = "--out", tmp_path / "out"
    assert refused(first, *out).startswith(f"a committee needs two runs at least, only {first}")
    assert refused(first, second, first, *out).startswith(f"{first} is named twice")
    round_about = folder / ".." / folder.name / first.name
    assert "is named twice" in refused(first, round_about, *out)

    other = store.read_run(second).config["data"] | {"sha256": "12" * 32}
    alien = change(second, tmp_path / "alien.h5", {"data": other})
    sentence = refused(first, alien, *out)
    assert sentence.startswith(f"{alien} and {first} were tested on different sets: 360 digits of")
    assert "SHA-256 12121212" in sentence
    assert f"SHA-256 {digits.sha256[:8]}" in sentence

    labels = np.roll(digits.test_labels, 1)
    alien = change(second, tmp_path / "labels.h5", labels=labels)
    assert refused(first, alien, *out).startswith(f"{alien} and {first} were tested on different")

    assert refused(first, tmp_path / "no.h5", *out) == (
        f"cannot read {tmp_path}/no.h5: No such file or directory"
    )
    damaged = tmp_path / "damaged.h5"
    content = bytearray(second.read_bytes())
    content[-1000] ^= 1
    damaged.write_bytes(content)
    assert refused(first, damaged, *out).startswith(f"{damaged} is damaged: expected SHA-256")
    weights = store.weights_path(second)
    assert refused(first, weights, *out).startswith(f"{weights} holds deepbig")
    assert not (tmp_path / "out").exists()


def test_runs_of_other_data_than_there_are_now_write_nothing(folder, tmp_path):
    paths = []
    for k, path in enumerate(run_files(folder, 1)[:2]):
        other = store.read_run(path).config["data"] | {"sha256": "12" * 32}
        paths.append(change(path, tmp_path / f"{k}.h5", {"data": other}))
    out = tmp_path / "out"
    assert "trained on other data" in refused(*paths, "--out", out)
    assert not out.exists() or list(out.iterdir()) == []


def test_a_missing_run_file_is_status_2_and_one_sentence(tmp_path):
    command = [sys.executable, "-m", "experiments.committee"]
    result = subprocess.run(
        [*command, str(tmp_path / "no.h5"), str(tmp_path / "nor.h5"), "--out", str(tmp_path / "o")],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr == f"error: cannot read {tmp_path}/no.h5: No such file or directory\n"
    assert list(tmp_path.iterdir()) == []


# The command line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--experiment", "7"], "argument --experiment: expected an integer from 1 to 6, got '7'"),
        (["--experiment", "0"], "argument --experiment: expected an integer from 1 to 6, got '0'"),
        (["--experiment", "2,2"], "argument --experiment: expected different integers, got '2,2'"),
        (["--experiment", ""], "argument --experiment: expected an integer"),
        (["--experiment", "one"], "argument --experiment: expected an integer"),
        (["--seed", str(2**63 + 1)], "argument --seed: expected an integer from 0 to"),
        (["--seed", "-1"], "argument --seed"),
        (["--epochs", "0"], "argument --epochs: expected an integer from 1 to"),
        (["--limit", "0"], "argument --limit: expected an integer of at least 1"),
        (["--workers", "0"], "argument --workers: expected an integer from 1 to"),
        (["--table4", "--experiment", "1"], "not allowed with argument"),
        (["a.h5", "b.h5", "--experiment", "1"], "not allowed with argument"),
        (["--experiment", "1", "a.h5", "b.h5"], "not allowed with argument"),
        (["a.h5", "b.h5", "--table4"], "not allowed with argument"),
        (["--table4", "a.h5", "b.h5"], "not allowed with argument"),
        (["a.h5", "b.h5", "--seed", "3"], "--seed: not allowed with run files"),
        (["a.h5", "--eta-decay=0.9", "--workers=2"], "--eta-decay, --workers: not allowed with"),
        (["--workers", "2", "--scheduler", "tcp://here:1"], "not allowed with argument"),
    ],
)
def test_bad_options(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as end:
        committee.parse_arguments(arguments)
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err


def test_the_largest_seed_is_good_for_seven_nets():
    made = make_jobs(EXPERIMENTS[4], "--seed", str(2**63))
    assert [job.config["seed"] for job in made] == [2**63 + k for k in range(7)]
    configs.prepare(numbered(), made[-1].config)


def test_help_names_units_and_defaults(capsys):
    with pytest.raises(SystemExit) as end:
        committee.parse_arguments(["--help"])
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "(default: 1,2,3,4,5,6)",
        "(default: 0)",
        "(default: runs/committee)",
        "paper's is 0.001)",
        "first N (default",
        "RUN.h5",
        "Tables 1, 2 and 4",
    ):
        assert part in text
    arguments = committee.parse_arguments([])
    assert (arguments.seed, str(arguments.out), arguments.runs) == (0, "runs/committee", [])
    assert arguments.experiment is None
    assert arguments.table4 is False
