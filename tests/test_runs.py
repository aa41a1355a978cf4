"""Runs that survive: kill -9, signals, full disks, damage, second processes, other requests."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import h5py
import numpy as np
import pytest
from filelock import FileLock
from run_bits import bits, epochs_on_disk

from deform_gpu import TABLE1, deform
from experiments.running import cli, data, progress, runs, store
from experiments.running.configs import deformer, make_config, schedule_of
from experiments.running.errors import Interrupted, Problem, signals
from mlp_gpu import hdf5, network
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.files import FileFault
from mlp_gpu.training import Schedule

SIZES = (841, 70, 33, 10)
DATASET = data.limit(data.load("digits"), 300)
# So high a learning rate that the best epoch is neither the first nor the last.
CONFIG = make_config(DATASET, SIZES, Schedule(6, 0.05, 0.9), 2, TABLE1, "cpu")

NOBODY = runs.Watch()

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's fork")


def train(path, config=CONFIG, watch=NOBODY):
    return runs.train_run(path, config, DATASET, CpuEngine(), watch)


class AtEpoch(runs.Watch):
    """Calls `action` once that epoch is saved."""

    def __init__(self, number, action):
        self._number, self._action = number, action

    def epoch(self, row):
        if row.epoch == self._number:
            self._action()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run.h5"
    train(path)
    return path


def child(path, action=lambda: None, config=CONFIG, watch=NOBODY):
    """A forked process that trains as a script would; everything is compiled already.

    What it says goes to the file run.stderr beside the run file.
    """

    def main():
        action()
        train(path, config, watch)

    def work():
        sys.stderr = path.with_suffix(".stderr").open("w")
        cli.run(main)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


def test_run_file_has_what_the_design_says(uninterrupted):
    with h5py.File(uninterrupted, "r") as file:  # as any other program reads it
        assert file.attrs["schema"] == "deepbig run"
        assert file.attrs["schema_version"] == 1
        assert json.loads(file.attrs["config"]) == CONFIG
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
    networks, _ = network.load(store.weights_path(uninterrupted))
    engine.set_network(networks["chosen"])
    assert engine.predict(DATASET.test_images).tobytes() == outputs.tobytes()


def test_an_epoch_takes_the_time_of_its_three_parts():
    run = store.Run.new(CONFIG, DATASET.test_labels)
    assert (run.epoch_seconds, run.seconds) == ([], 0)
    run.metrics |= {
        "deform_seconds": [1.0, 2.0],
        "train_seconds": [10.0, 20.0],
        "evaluate_seconds": [100.0, 400.0],
    }
    assert (run.epoch_seconds, run.seconds) == ([111, 422], 533)


def test_training_learns(uninterrupted):
    run = store.read_run(uninterrupted)
    assert run.metrics["train_loss"][-1] < 0.7 * run.metrics["train_loss"][0]
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
    train(tmp_path / "other.h5", CONFIG | {"seed": 6})
    assert bits(tmp_path / "other.h5")[1:] != bits(uninterrupted)[1:]


@linux
def test_a_child_that_was_killed_with_the_bars_lock_stops_nobody(tmp_path):
    def hold():
        progress.tqdm.get_lock().acquire()
        (tmp_path / "held").touch()
        time.sleep(600)

    progress.tqdm.get_lock()  # as any bar does before the fork
    holder = multiprocessing.get_context("fork").Process(target=hold)
    holder.start()
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    holder.kill()
    holder.join()
    process = child(tmp_path / "run.h5")
    process.join(60)
    status = process.exitcode
    process.kill()
    assert status == 0


@pytest.mark.slow
@linux
def test_killed_at_random_moments_ends_with_the_same_bits(uninterrupted, tmp_path):
    """At least 20 kills, in training, evaluation and saving, over as many runs as that takes."""
    generator = random.Random(0)
    started = time.perf_counter()
    train(tmp_path / "timed.h5")
    whole = time.perf_counter() - started
    kills = 0
    while kills < 24:
        path = tmp_path / f"run{kills}.h5"
        while True:
            before = epochs_on_disk(path)
            process = child(path)
            process.join(generator.uniform(0, 0.6 * whole))
            if process.exitcode is None:
                process.kill()
                process.join()
                kills += 1
            else:
                assert process.exitcode == 0
            assert epochs_on_disk(path) >= before  # nothing saved is lost
            if epochs_on_disk(path) == 6:
                break
        train(path)  # the last kill may have come between the two files
        assert bits(path) == bits(uninterrupted)
        whys = [session["why"] for session in store.read_run(path).provenance]
        assert whys[-1] == "finished"
        assert set(whys[:-1]) <= {"killed"}


@pytest.mark.parametrize("epoch", range(1, 7))
def test_killed_between_the_two_files(uninterrupted, tmp_path, epoch, monkeypatch):
    """The one moment that a random kill hits too seldom."""
    path = tmp_path / "run.h5"

    class Killed(BaseException):
        pass

    save = network.save

    def save_until(path, networks, attributes):
        if attributes["epoch"] == epoch:
            raise Killed
        save(path, networks, attributes)

    monkeypatch.setattr(network, "save", save_until)
    with pytest.raises(Killed):
        train(path)
    monkeypatch.undo()
    assert epochs_on_disk(path) == epoch
    train(path)
    assert bits(path) == bits(uninterrupted)


@pytest.mark.parametrize("epoch", [2, 3, 4, 5])
def test_stopped_before_the_epoch_between_the_two_files_is_done_again(
    uninterrupted, tmp_path, epoch, monkeypatch
):
    """What is written then must be the run as it was one epoch before."""
    path = tmp_path / "run.h5"
    train_some(path, epoch - 1)
    weights = store.weights_path(path).read_bytes()
    path.unlink()
    store.weights_path(path).unlink()
    train_some(path, epoch)
    store.weights_path(path).write_bytes(weights)

    class Stop(runs.Watch):
        def tick(self, n_images):
            raise Interrupted(signal.SIGTERM)

    with pytest.raises(Interrupted, match=f"{epoch - 1} of 6 epochs are safe"):
        train(path, watch=Stop())
    run = store.read_run(path)
    assert run.epochs == epoch - 1
    assert (run.outputs.argmax(1) != run.labels).sum() == run.chosen_errors
    train(path)
    assert bits(path) == bits(uninterrupted)


@linux
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_save_and_the_same_command_goes_on(uninterrupted, tmp_path, signum, status):
    path = tmp_path / "run.h5"

    process = child(path, watch=AtEpoch(2, lambda: os.kill(os.getpid(), signum)))
    process.join()
    assert process.exitcode == status
    run = store.read_run(path)
    assert run.epochs == 2
    assert run.provenance[-1]["why"] == signal.Signals(signum).name
    assert run.provenance[-1]["end"]
    train(path)
    assert bits(path) == bits(uninterrupted)


def test_signals_wait_while_files_are_written(tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    signals.install()
    write = hdf5.replace

    def interrupted_write(target, content):
        monkeypatch.undo()
        os.kill(os.getpid(), signal.SIGINT)
        write(target, content)

    monkeypatch.setattr(hdf5, "replace", interrupted_write)
    try:
        with pytest.raises(Interrupted, match=r"1 of 6 epochs are safe in .*run\.h5"):
            train(path)
    finally:
        signal.signal(signal.SIGINT, handlers[0])
        signal.signal(signal.SIGTERM, handlers[1])
    assert epochs_on_disk(path) == 1
    assert network.load(store.weights_path(path))[1]["epoch"] == 1


@linux
def test_second_process_is_refused(tmp_path):
    path = tmp_path / "run.h5"
    with FileLock(path.with_suffix(".lock")):
        process = child(path)
        process.join()
    assert process.exitcode == 2
    assert "another process is training" in path.with_suffix(".stderr").read_text()
    assert not path.exists()
    train(path)


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
    train_some(tmp_path / "c.h5", 3, CONFIG | {"seed": 6})
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
        if epoch == CONFIG["epochs"]:
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


def train_some(path, epochs, config=CONFIG):
    """Leave a run behind that was stopped after so many epochs."""

    class Stopped(BaseException):
        pass

    def stop():
        raise Stopped

    with pytest.raises(Stopped):
        train(path, config, AtEpoch(epochs, stop))


def test_other_configuration_is_refused_with_the_difference(uninterrupted):
    before = uninterrupted.read_bytes()
    other = CONFIG | {"eta": 0.02, "deformation": CONFIG["deformation"] | {"sigma": 4.0}}
    with pytest.raises(
        Problem,
        match=r"deformation.sigma is 5.5 there and 4.0 here; eta is 0.05 there and 0.02 here; "
        r"choose another folder",
    ):
        train(uninterrupted, other)
    without = CONFIG | {"deformation": None}
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
    assert "not a finite number" in run.provenance[-1]["why"]


@linux
@pytest.mark.parametrize("room", [10_000, 100_000])  # not for the run file; for it alone
def test_full_disk_keeps_the_last_good_files(uninterrupted, tmp_path, room):
    path = tmp_path / "run.h5"
    train_some(path, 2)
    kept = path.read_bytes(), store.weights_path(path).read_bytes()

    def no_room():  # a file may not grow beyond this: the same failing write as a full disk
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))

    process = child(path, no_room)
    process.join()
    assert process.exitcode == 2
    said = path.with_suffix(".stderr").read_text()
    full = path if room < len(kept[0]) else store.weights_path(path)
    assert f"cannot write {full}: File too large" in said
    assert "Traceback" not in said
    assert store.weights_path(path).read_bytes() == kept[1]
    assert (path.read_bytes() == kept[0]) == (full == path)
    assert not list(tmp_path.glob("*.tmp"))
    train(path)
    assert bits(path) == bits(uninterrupted)


TAKE_LOCK = """
import pathlib, sys
from experiments.running import cli, runs
cli.run(lambda: runs.lock(pathlib.Path(sys.argv[1])).__enter__())
"""


@linux
@pytest.mark.parametrize(
    ("name", "complaint"), [("run.h5", "cannot write in"), ("sub/run.h5", "cannot make the folder")]
)
def test_read_only_folder(tmp_path, name, complaint):
    tmp_path.chmod(0o555)
    command = [sys.executable, "-c", TAKE_LOCK, str(tmp_path / name)]
    if os.geteuid() == 0:  # root may write anywhere, unless it gives that up
        command = ["setpriv", "--bounding-set", "-dac_override", *command]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("root without setpriv cannot try a read-only folder")
    finally:
        tmp_path.chmod(0o755)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {complaint} {tmp_path}")
    assert "Permission denied" in line


def test_estimate_is_of_the_right_size():
    engine = CpuEngine()
    short = runs.estimate_seconds(engine, CONFIG, DATASET)
    config = CONFIG | {"data": CONFIG["data"] | {"n_train": 30_000, "n_test": 36_000}}
    long = runs.estimate_seconds(engine, config, DATASET)
    assert 10 * short < long  # 100 times the work, and a margin that no noise fills


def test_every_epoch_is_deformed_anew_with_the_runs_seed():
    for seed in (2, 6):
        deformed = deformer(CONFIG | {"seed": seed}, DATASET)
        for epoch in (1, 2):
            expected = deform(
                DATASET.train_images, DATASET.train_labels, TABLE1, seed=seed, epoch=epoch
            )
            assert (deformed(epoch) == expected).all()
    assert deformer(CONFIG | {"deformation": None}, DATASET)(1) is DATASET.train_images


def test_a_run_that_is_let_go_soon_is_waited_for(tmp_path):
    path = tmp_path / "run.h5"
    held = FileLock(path.with_suffix(".lock"), thread_local=False)
    held.acquire()
    with pytest.raises(Problem, match="another process is training"), runs.lock(path, 0.1):
        pass
    threading.Timer(0.3, held.release, kwargs={"force": True}).start()
    with runs.lock(path, patience=60):
        assert not held.is_locked


def test_what_a_killed_process_left_is_removed(tmp_path):
    left = tmp_path / "run.weights.h5.12345.tmp"
    other = tmp_path / "run2.h5.12345.tmp"
    left.touch()
    other.touch()
    with runs.lock(tmp_path / "run.h5"):
        assert not left.exists()
        assert other.exists()


def test_finished_run_needs_no_weights(uninterrupted, tmp_path):
    path = tmp_path / "run.h5"
    path.write_bytes(uninterrupted.read_bytes())
    assert runs.epochs_done(path, CONFIG) == 6
    assert train(path).finished
    assert path.read_bytes() == uninterrupted.read_bytes()


def test_config_is_what_json_gives_back():
    assert json.loads(json.dumps(CONFIG)) == CONFIG
    other = make_config(replace(DATASET, name="x"), SIZES, Schedule(), 5, None, "cpu")
    assert other["deformation"] is None
    assert other["data"]["name"] == "x"
    assert schedule_of(other) == Schedule()
