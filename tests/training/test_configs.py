"""Configurations: the images of a training, older runs, and a GPU's windows."""

import pytest
from committee_cases import make_config, make_jobs, numbered
from factories import changed, make_run

from deepbig_runtime.errors import Problem
from deform_gpu import TABLE1, is_narrow, normalize_width
from experiments import table1
from experiments.datasets import data
from experiments.results import records as results
from experiments.results.committees import EXPERIMENTS
from experiments.training import configs, nets, store
from mlp_gpu import engines
from mlp_gpu.engine import CONV_CPU_ARITHMETIC, CPU_ARITHMETIC, WINDOW_IMAGES_PER_BLOCK
from mlp_gpu.training import Schedule


def test_a_net_of_experiment_4_is_validated_on_an_image_at_least():
    for job in make_jobs(EXPERIMENTS[4], "--limit", "2", dataset=numbered()):
        assert (job.config.n_validation, job.config.data.n_train) == (1, 1)


def test_limit_split_and_width_go_together(digits):
    config = make_config(data.limit(digits, 100), width=12, n_validation=30)
    found = configs.prepare(digits, config)
    assert data.normalize(digits, 12).validation is None

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


def test_configuration_of_an_older_run_equals_todays(digits):
    config = changed(make_config(data.limit(digits, 40)), deformation=TABLE1)
    old = config.to_builtins()
    del old["data"]["width"], old["data"]["n_validation"], old["deformed_on"]
    del old["deformation"]["translation"]
    old = changed(configs.from_builtins("it", old), deformed_on=config.deformed_on)
    assert old == config
    assert old.n_validation == 40


def test_records_are_those_of_the_same_trainings_today(digits):
    found = [
        run for run in results.read_results().runs.values() if run.config.data.name == "load_digits"
    ]
    assert found
    for run in found:
        config = run.config
        today = configs.make_config(
            data.limit(digits, config.data.n_train),
            config.sizes,
            config.learning_rates,
            config.seed,
            config.deformation,
            config.engine,
        )
        # Those of the CPU from before are rounded otherwise.
        names = "images_per_block", "cpu_arithmetic", "window_arithmetic"
        assert config == changed(today, **{name: getattr(config, name) for name in names})
        assert config.n_validation == config.data.n_train


def test_runs_of_the_cpu_name_their_arithmetic_and_older_ones_are_not_resumed(digits):
    few, schedule = data.limit(digits, 40), Schedule(epochs=1, eta=0.01)
    versions = {(841, 70, 10): CPU_ARITHMETIC, "20M5s2-10N": CONV_CPU_ARITHMETIC}
    for net, expected in versions.items():
        config = configs.make_config(few, net, schedule, 0, None, "cpu")
        assert config.cpu_arithmetic == expected
        on_gpu = configs.make_config(few, net, schedule, 0, None, "cuda")
        assert "cpu_arithmetic" not in on_gpu.to_builtins()
        older = changed(config, cpu_arithmetic=None)
        match = r"^x.h5 was trained by another version .* not resumed; "
        for version in (None, expected - 1):
            with pytest.raises(Problem, match=match):
                store.check_config("x.h5", changed(config, cpu_arithmetic=version), config)
    by_windows = configs.make_config(few, (841, 9, 10), schedule, 0, None, "cuda", windows=True)
    with pytest.raises(Problem, match=match):
        store.check_config("x.h5", changed(by_windows, window_arithmetic=None), by_windows)
    assert type(nets.make_engine(changed(older, images_per_block=32), "graph")).name == "cpu"


def test_runs_of_a_gpu_by_windows_have_a_configuration_and_an_engine_of_their_own(
    digits, monkeypatch
):
    """They are rounded otherwise, so a run of another schedule does not go on by windows."""
    made = []
    monkeypatch.setattr(engines, "make_engine", lambda *arguments: made.append(arguments))
    argv = ["--data", "digits", "--nets", "1", "--schedule"]
    for chosen, expected in (("window", WINDOW_IMAGES_PER_BLOCK), ("graph", None)):
        arguments = table1.parse_arguments([*argv, chosen])
        (job,) = table1.make_jobs(arguments, digits, "cuda")
        assert job.config.images_per_block == expected
        nets.make_engine(job.config, "launch")
        (job,) = table1.make_jobs(arguments, digits, "cpu")
        assert job.config.images_per_block is None
        job, *_ = make_jobs(EXPERIMENTS[1], "--schedule", chosen, dataset=digits, engine="cuda")
        assert job.config.images_per_block == expected
    assert made == [("cuda", "window", WINDOW_IMAGES_PER_BLOCK), ("cuda", "launch")]


def test_windows_are_the_default_of_a_new_run_where_the_gpu_is_fast_at_them(digits, tmp_path):
    """A run that has begun keeps its own schedule."""
    arguments = table1.parse_arguments(["--data", "digits", "--nets", "1", "--out", str(tmp_path)])
    for arguments.windows, expected in ((True, "window"), (False, "graph")):
        (job,) = table1.make_jobs(arguments, digits, "cuda")
        assert job.schedule == expected
        assert job.config.images_per_block == (
            WINDOW_IMAGES_PER_BLOCK if arguments.windows else None
        )
    store.write_run(job.path, make_run(base=changed(job.config, epochs=1, images_per_block=128)))
    (job,) = table1.make_jobs(arguments, digits, "cuda")
    assert job.schedule == "window"
