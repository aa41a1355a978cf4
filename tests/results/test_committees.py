"""results/committees.py: the committees are those of the paper, and trained as it says."""

import pytest
from committee_cases import make_jobs, numbered, of_committees
from msgspec.structs import replace

from deform_gpu import TABLE1
from experiments import committee
from experiments.results import committees
from experiments.results.committees import EXPERIMENTS, TABLE4
from experiments.training import plans, store
from experiments.training.configs import DataConfig


def test_equal_trainings_alone_have_equal_names():
    by_name, by_config = {}, {}
    for experiment in (*EXPERIMENTS.values(), TABLE4):
        made = make_jobs(experiment)
        assert len({job.label for job in made}) == 7
        for job in made:
            config = job.config
            assert by_name.setdefault(job.label, config) == config
            assert by_config.setdefault(config, job.label) == job.label
            assert str(job.path) == f"some/{job.label}.h5"
    assert len(by_name) == 39 + 7  # three of the 42 are the same; Table 4 shares none with them


def test_names_and_titles_tell_members_apart():
    expected = [
        ("original-undeformed-seed0", "undeformed, seed 0"),
        ("WN12-undeformed-seed1", "WN12, undeformed, seed 1"),
        ("original-seed2", "seed 2"),
        ("original-resampled-seed3", "11 images held out, seed 3"),
        ("original-sigma6-alpha42-seed4", "sigma 6, alpha 42, seed 4"),
        ("WN20-seed5", "WN20, seed 5"),
    ]
    dataset = numbered(name="MNIST")
    for k, (name, title) in enumerate(expected):
        jobs = make_jobs(EXPERIMENTS[k + 1], "--profile", "paper", dataset=dataset)
        assert len({job.config.title for job in jobs}) == 7
        assert jobs[k].label == name
        assert jobs[k].config.title == f"841-800-10 on MNIST, {title}"


@pytest.mark.parametrize("number", range(1, 8))
def test_jobs_train_what_the_experiment_says(number):
    experiment = EXPERIMENTS.get(number, TABLE4)
    made = make_jobs(experiment, "--seed", "40", "--epochs", "3", "--limit", "61")
    for k, (job, member) in enumerate(zip(made, experiment.members, strict=True)):
        config = job.config
        assert (config.seed, config.sizes, config.epochs) == (40 + k, experiment.sizes, 3)
        if number < 7:
            assert config.eta == 5e-3
            assert config.decay**2 == pytest.approx(0.94**59, rel=0.001)  # as after 60 epochs
        # One of six is for validation, rounded down.
        assert config.data == DataConfig(
            name="load_digits",
            sha256="ab" * 32,
            n_train=51 if number == 4 else 61,
            n_validation=10 if number == 4 else None,
            n_test=4,
            width=member.width,
        )
        assert config.deformation == member.deformation
        assert (config.deformation == TABLE1) == (number == 7)  # as net 4 of Table 3
        assert config.deformed_on == ("cpu" if member.deformation else None)


def test_the_command_line_chooses_the_experiments():
    def chosen(*options):
        return committee.chosen_experiments(committee.parse_arguments(options))

    assert chosen() == {f"experiment{n}": EXPERIMENTS[n] for n in range(1, 7)}
    assert list(chosen("--experiment", "6,2").items()) == [
        ("experiment6", EXPERIMENTS[6]),
        ("experiment2", EXPERIMENTS[2]),
    ]
    assert chosen("--table4") == {"table4": TABLE4}


def test_longest_committees_are_chosen_by_their_length_not_by_their_errors():
    first, second = (of_committees({3: (9, n)}).popitem()[1] for n in (7, 6))
    assert committees.longest_committees([first, second]) == {"experiment3": first}
    newer = [replace(row, source=replace(row.source, date="2026-01-02")) for row in first]
    assert committees.longest_committees([second, newer]) == {"experiment3": newer}
    longer = [replace(row, epochs="9") for row in first]
    assert committees.longest_committees([second, longer]) == {"experiment3": longer}


def test_committees_are_found_among_runs():
    dataset = numbered(name="MNIST")

    def runs_of(experiment, dataset=dataset, folder="some"):
        return {
            f"{folder}/{job.label}": store.Run.new(job.config, dataset.test_labels)
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
        run.metrics.epoch = list(range(run.config.epochs))
    assert committees.find_committees(runs)[0].title.endswith("seven widths, on MNIST")
    again = runs | {name.replace("some", "other"): run for name, run in runs.items()}
    titles = [one.title.rpartition(", ")[2] for one in committees.find_committees(again)]
    assert titles == ["in other", "in some"]
    name, run = runs.popitem()  # the original, which is experiment 3's too
    assert found(runs) == []
    others = runs_of(EXPERIMENTS[3]) | runs_of(TABLE4)
    assert found(runs | others) == ["experiment3", "experiment6", "table4"]
    assert found(runs | {name.replace("some", "other"): run}) == []
    digits = committees.find_committees(runs_of(EXPERIMENTS[2], dataset=numbered(), folder="x/y"))
    assert [(one.name, one.paper) for one in digits] == [("experiment2-load_digits", None)]


@pytest.mark.parametrize("name", plans.QUICK_COMMITTEE)
def test_quick_plan_ends_above_the_lowest_rate_and_reaches_the_jobs(name):
    quick = plans.QUICK_COMMITTEE[name]
    assert quick.schedule.eta_of(quick.schedule.epochs) > quick.schedule.eta_min
    for experiment, plan in ((EXPERIMENTS[3], quick), (TABLE4, plans.QUICK_TABLE1[name][4])):
        limit = "--limit", "66"  # of images
        for job in make_jobs(experiment, *limit, dataset=numbered(name=name)):
            assert job.config.learning_rates == plan.schedule
