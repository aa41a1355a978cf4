"""running/configs.py: what a training has of the data, and which data it accepts."""

from dataclasses import replace

import pytest
from committee_cases import make_config, make_jobs, numbered
from factories import changed, make_run
from measurements import SOURCE, net_measurement, write_bench

from deepbig_runtime.errors import Problem
from deform_gpu import TABLE1, is_narrow, normalize_width
from experiments import cnn, table1
from experiments.datasets import data
from experiments.results import records as results
from experiments.results.committees import EXPERIMENTS
from experiments.training import configs, nets, provenance, store
from mlp_gpu import engines
from mlp_gpu.engine import CPU_ARITHMETIC, ENGINE_NAMES, WINDOW_IMAGES_PER_BLOCK
from mlp_gpu.training import Schedule


def numbers(images):
    return images[:, 0, 0].astype(int).tolist()


def test_each_net_of_experiment_4_has_sets_of_its_own():
    whole, apart = numbered(70), []
    for job in make_jobs(EXPERIMENTS[4], "--limit", "66", dataset=whole):
        found = configs.prepare(whole, job.config)
        validation = numbers(found.validation[0])
        assert len(validation) == 11 == job.config.n_validation
        assert len(found.train_labels) == 55 == job.config.data.n_train
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
        assert len(found.validation[0]) == job.config.n_validation == 1
        assert len(found.train_labels) == limit - 1


def test_the_other_nets_are_validated_on_all_training_images():
    for number in (1, 2, 3, 5, 6):
        for job in make_jobs(EXPERIMENTS[number], "--limit", "20"):
            assert job.config.n_validation == 20
            assert configs.prepare(numbered(), job.config).validation is None


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


def test_configurations_from_before_committees_and_translations_are_as_good(digits):
    config = changed(make_config(data.limit(digits, 40)), deformation=TABLE1)
    old = config.to_builtins()
    del old["data"]["width"], old["data"]["n_validation"], old["deformed_on"]
    del old["deformation"]["translation"]
    old = changed(configs.from_builtins("it", old), deformed_on=config.deformed_on)
    assert old == config
    assert old.n_validation == 40
    assert len(configs.prepare(digits, old).train_labels) == 40
    assert configs.prepare(digits, old).validation is None

    for change, complaint in (
        ({"width": 10}, "data.width is None there and 10 here"),
        ({"n_validation": 4}, "data.n_validation is None there and 4 here"),
        ({"n_train": 39}, "data.n_train is 40 there and 39 here"),
    ):
        other = changed(config, data=change)
        with pytest.raises(Problem, match=f"^x.h5 holds another run .*: {complaint}; choose"):
            store.check_config("x.h5", old, other)
    moved = changed(config, deformation=replace(TABLE1, translation=5.0))
    with pytest.raises(Problem, match=r"deformation.translation is 0\.0 there and 5\.0 here"):
        store.check_config("x.h5", old, moved)
    with pytest.raises(Problem, match=r"eta is 0\.001 there and 0\.1 here"):
        store.check_config("x.h5", old, changed(config, eta=0.1))


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
        names = "images_per_block", "cpu_arithmetic"
        assert config == changed(today, **{name: getattr(config, name) for name in names})
        assert config.n_validation == config.data.n_train


def test_runs_of_the_cpu_name_their_arithmetic_and_older_ones_are_not_resumed(digits):
    few, schedule = data.limit(digits, 40), Schedule(epochs=1, eta=0.01)
    for net in ((841, 70, 10), "20M5s2-10N"):
        config = configs.make_config(few, net, schedule, 0, None, "cpu")
        assert config.cpu_arithmetic == CPU_ARITHMETIC
        on_gpu = configs.make_config(few, net, schedule, 0, None, "cuda")
        assert "cpu_arithmetic" not in on_gpu.to_builtins()
        older = changed(config, cpu_arithmetic=None)
        with pytest.raises(
            Problem, match=r"^x.h5 was trained by an older version .* not resumed; "
        ):
            store.check_config("x.h5", older, config)
    assert type(nets.make_engine(changed(older, images_per_block=32), "graph")).name == "cpu"


def test_runs_by_windows_say_so_and_have_their_engine(digits, monkeypatch):
    """They are rounded otherwise, so a run of another schedule does not go on by windows."""
    few, options = data.limit(digits, 40), {"windows": True}
    schedule = Schedule(epochs=1, eta=0.01)
    blocks = {}
    for engine in ENGINE_NAMES:
        config = configs.make_config(few, (841, 9, 10), schedule, 0, None, engine, **options)
        blocks[engine] = config.images_per_block
    assert blocks == {"cpu": None, "cuda": WINDOW_IMAGES_PER_BLOCK}
    without = configs.make_config(few, (841, 9, 10), schedule, 0, None, "cuda")
    with pytest.raises(Problem, match="images_per_block is 128 there and None here"):
        store.check_config("x.h5", config, without)
    made = []
    monkeypatch.setattr(engines, "make_engine", lambda *arguments: made.append(arguments))
    for one in (config, without):
        nets.make_engine(one, "launch")
    assert made == [("cuda", "window", 128), ("cuda", "launch")]


def test_commands_train_by_windows_where_a_gpu_is_asked_to(digits):
    argv = ["--data", "digits", "--nets", "1", "--schedule"]
    for chosen, expected in (("window", 128), ("graph", None)):
        arguments = table1.parse_arguments([*argv, chosen])
        (job,) = table1.make_jobs(arguments, digits, "cuda")
        assert job.config.images_per_block == expected
        (job,) = table1.make_jobs(arguments, digits, "cpu")
        assert job.config.images_per_block is None
        job, *_ = make_jobs(EXPERIMENTS[1], "--schedule", chosen, dataset=digits, engine="cuda")
        assert job.config.images_per_block == expected
    with pytest.raises(SystemExit):
        cnn.parse_arguments(["--schedule", "window"])


@pytest.mark.parametrize(("window_us", "expected"), [(19.0, 128), (21.0, None), (None, None)])
def test_a_record_of_the_gpu_says_whether_windows_are_the_default(
    digits, tmp_path, monkeypatch, window_us, expected
):
    """For that net; and a run that has begun keeps its own schedule."""
    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    rows = [net_measurement("engine cuda graph", 20.0)]
    rows += [net_measurement("engine cuda window", window_us)] if window_us else []
    write_bench(rows, SOURCE, tmp_path / "results" / "some-gpu" / "bench.csv")
    argv = ["--data", "digits", "--nets", "1,2", "--out", str(tmp_path)]
    arguments = table1.parse_arguments(argv)
    arguments.device = "Some GPU"
    one, two = table1.make_jobs(arguments, digits, "cuda")
    assert one.config.images_per_block == expected
    assert one.schedule == ("window" if expected else "graph")
    assert two.config.images_per_block is None
    begun = make_run(base=changed(two.config, epochs=1, images_per_block=128))
    store.write_run(two.path, begun)
    _, two = table1.make_jobs(arguments, digits, "cuda")
    assert two.schedule == "window"
