"""Runs and their files: what they hold, what is refused, and what another process finds."""

import json
from dataclasses import replace
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from factories import changed
from run_bits import bits
from small_runs import CONFIG, DATASET, train, train_some

from deepbig_runtime.files import FileFault
from deform_gpu import TABLE1, deform
from experiments.running import runs, store
from experiments.running.configs import deformer
from experiments.running.errors import Problem
from mlp_gpu import network
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run.h5"
    train(path)
    return path


def test_run_file_has_what_the_design_says(uninterrupted):
    with h5py.File(uninterrupted, "r") as file:  # as any other program reads it
        assert file.attrs["schema"] == "deepbig run"
        assert file.attrs["schema_version"] == 1
        assert file.attrs["config"] == CONFIG.to_json()
        (session,) = json.loads(file.attrs["provenance"])
        assert session["why"] == "finished"
        assert session["start"] <= session["end"]
        assert session["device"]
        assert session["versions"]["numba"]
        assert len(session["commit"]) in (7, 40)  # 'unknown' outside of git
        for name, (dtype, units, long_name) in store.METRICS.items():
            dataset = file["metrics"][name]
            assert (dataset.shape, dataset.dtype) == ((6,), np.dtype(dtype))
            assert (dataset.attrs["units"], dataset.attrs["long_name"]) == (units, long_name)
        errors = file["metrics/validation_errors"][()]
        chosen = int(np.argmin(errors)) + 1
        assert file["predictions"].attrs["epoch"] == chosen
        outputs, labels = file["predictions/outputs"][()], file["predictions/labels"][()]
        assert outputs.shape == (360, 10)
        assert (outputs.argmax(1) != labels).sum() == file["metrics/test_errors"][chosen - 1]
        assert (labels == DATASET.test_labels).all()
    # The chosen weights are those that made the outputs.
    engine = CpuEngine()
    networks, _ = network.load(store.weights_path(uninterrupted), Network)
    engine.set_network(networks["chosen"])
    assert engine.predict(DATASET.test_images).tobytes() == outputs.tobytes()


def test_an_epoch_takes_the_time_of_its_three_parts():
    run = store.Run.new(CONFIG, DATASET.test_labels)
    assert (run.epoch_seconds, run.seconds) == ([], 0)
    run.metrics.deform_seconds += [1.0, 2.0]
    run.metrics.train_seconds += [10.0, 20.0]
    run.metrics.evaluate_seconds += [100.0, 400.0]
    assert (run.epoch_seconds, run.seconds) == ([111, 422], 533)


def test_training_learns(uninterrupted):
    run = store.read_run(uninterrupted)
    assert run.metrics.train_loss[-1] < 0.7 * run.metrics.train_loss[0]
    assert run.chosen_errors < 0.4 * 360
    assert 1 < run.chosen < 6
    assert run.epochs == 6


def test_finished_run_is_not_trained_again(uninterrupted):
    before = uninterrupted.read_bytes()
    assert train(uninterrupted).finished
    assert uninterrupted.read_bytes() == before


def test_same_seed_same_bits_and_other_seed_others(uninterrupted, tmp_path):
    train(tmp_path / "same.h5")
    assert bits(tmp_path / "same.h5") == bits(uninterrupted)
    train(tmp_path / "other.h5", changed(CONFIG, seed=6))
    assert bits(tmp_path / "other.h5")[1:] != bits(uninterrupted)[1:]


@pytest.mark.parametrize("which", ["run", "weights"])
def test_damaged_file_is_refused_and_left_alone(uninterrupted, tmp_path, which):
    path = tmp_path / "run.h5"
    path.write_bytes(uninterrupted.read_bytes())
    weights = store.weights_path(path)
    weights.write_bytes(store.weights_path(uninterrupted).read_bytes())
    damaged = path if which == "run" else weights
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(FileFault, match=f"{damaged.name} is damaged: expected SHA-256"):
        train(path)
    assert damaged.read_bytes() == content


@pytest.mark.parametrize("which", ["run", "weights"])
def test_missing_half_is_refused(tmp_path, which):
    path = tmp_path / "run.h5"
    train_some(path, 2)
    gone = {"run": path, "weights": store.weights_path(path)}[which]
    gone.unlink()
    with pytest.raises(Problem, match=f"{gone} is not; put it back"):
        train(path)


def test_halves_of_different_runs_are_refused(tmp_path):
    train_some(tmp_path / "a.h5", 3)
    train_some(tmp_path / "b.h5", 1)
    store.weights_path(tmp_path / "b.h5").replace(store.weights_path(tmp_path / "a.h5"))
    with pytest.raises(Problem, match="do not belong together"):
        train(tmp_path / "a.h5")
    # As far, but with another seed.
    train_some(tmp_path / "c.h5", 3, changed(CONFIG, seed=6))
    store.weights_path(tmp_path / "c.h5").replace(store.weights_path(tmp_path / "a.h5"))
    with pytest.raises(Problem, match=r"a\.weights\.h5 holds another run .* seed is 6 there"):
        train(tmp_path / "a.h5")


@pytest.mark.parametrize(("run_epoch", "weights_epoch"), [(3, 6), (6, 3), (2, 4)])
def test_halves_of_one_run_at_different_epochs_are_refused(
    uninterrupted, tmp_path, run_epoch, weights_epoch
):
    """Both are genuine: one half is from a copy, or from a backup."""
    halves = {}
    for epoch in (run_epoch, weights_epoch):
        halves[epoch] = tmp_path / f"epoch{epoch}.h5"
        if epoch == CONFIG.epochs:
            train(halves[epoch])
        else:
            train_some(halves[epoch], epoch)
    path = halves[run_epoch]
    store.weights_path(halves[weights_epoch]).replace(store.weights_path(path))
    refusal = f"is of epoch {weights_epoch} and .* of epoch {run_epoch}: they do not belong"
    with pytest.raises(Problem, match=refusal):
        runs.epochs_done(path, CONFIG)
    before = path.read_bytes()
    with pytest.raises(Problem, match=refusal):
        train(path)
    assert path.read_bytes() == before


def test_other_configuration_is_refused_with_the_difference(uninterrupted):
    before = uninterrupted.read_bytes()
    other = changed(CONFIG, eta=0.02, deformation=replace(CONFIG.deformation, sigma=4.0))
    with pytest.raises(
        Problem,
        match=r"deformation.sigma is 5.5 there and 4.0 here; eta is 0.05 there and 0.02 here; "
        r"choose another folder",
    ):
        train(uninterrupted, other)
    without = changed(CONFIG, deformation=None)
    with pytest.raises(Problem, match=r"deformation is \{.*\} there and None here; choose"):
        train(uninterrupted, without)
    assert uninterrupted.read_bytes() == before


def test_diverging_run_stops_and_keeps_the_last_good_epoch(tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    real = runs.deformer

    def broken_in_epoch_3(config, dataset):
        deform = real(config, dataset)

        def broken(epoch):
            images = deform(epoch)
            if epoch == 3:
                images[7] = np.nan
            return images

        return broken

    monkeypatch.setattr(runs, "deformer", broken_in_epoch_3)
    with pytest.raises(
        Problem, match=r"it cannot go on: the loss .* epoch 3 .*; 2 of 6 epochs are safe in"
    ):
        train(path)
    run = store.read_run(path)
    assert run.epochs == 2
    assert "not a finite number" in run.provenance[-1].why


class EngineOfKnownSpeed:
    """Takes 2 ms to train an image and 0.5 ms to predict one, by a clock of its own."""

    schedule = None

    def __init__(self):
        self.now = 0.0

    def set_network(self, net):
        pass

    def train(self, images, labels, order, eta):
        self.now += 0.002 * len(order)

    def predict(self, images):
        self.now += 0.0005 * len(images)

    def deform(self, images):
        self.now += 0.00025 * len(images)


def test_an_epoch_is_estimated_by_what_each_image_takes(monkeypatch):
    engine = EngineOfKnownSpeed()
    clock = SimpleNamespace(perf_counter=lambda: engine.now)
    monkeypatch.setattr(runs, "time", clock)
    monkeypatch.setattr(
        runs, "deformer", lambda _, dataset: lambda epoch: engine.deform(dataset.train_images)
    )
    config = changed(CONFIG, data={"n_train": 30_000, "n_test": 36_000})
    deformed, predicted = 30_000, 36_000 + config.n_validation
    expected = 30_000 * 0.002 + deformed * 0.00025 + predicted * 0.0005
    assert runs.estimate_epoch_seconds(engine, config, DATASET) == pytest.approx(expected)
    config = changed(config, deformed_on="cuda")  # while the GPU trains
    estimate = runs.estimate_epoch_seconds(engine, config, DATASET)
    assert estimate == pytest.approx(expected - deformed * 0.00025)


def test_every_epoch_is_deformed_anew_with_the_runs_seed():
    for seed in (2, 6):
        deformed = deformer(changed(CONFIG, seed=seed), DATASET)
        for epoch in (1, 2):
            expected = deform(
                DATASET.train_images, DATASET.train_labels, TABLE1, seed=seed, epoch=epoch
            )
            assert (deformed(epoch) == expected).all()
    assert deformer(changed(CONFIG, deformation=None), DATASET)(1) is DATASET.train_images


def test_finished_run_needs_no_weights(uninterrupted, tmp_path):
    path = tmp_path / "run.h5"
    path.write_bytes(uninterrupted.read_bytes())
    assert runs.epochs_done(path, CONFIG) == 6
    assert train(path).finished
    assert path.read_bytes() == uninterrupted.read_bytes()
