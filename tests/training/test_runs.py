"""Runs and their files: content, refusals, signals, killed processes."""

import ctypes
import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace
from unittest.mock import Mock

import h5py
import numpy as np
import pytest
from factories import changed, make_run
from filelock import FileLock
from forgeries import expect_sentence
from run_bits import bits, epochs_on_disk
from small_runs import CONFIG, DATASET, AtEpoch, train, train_some
from waiting import HANG_SECONDS, join

from deepbig_runtime import errors, files
from deepbig_runtime.errors import Interrupted, Problem
from deepbig_runtime.faults import GpuFault
from experiments.training import cli, runs, store
from mlp_gpu import network
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run.h5"
    train(path)
    return path


def test_run_file_is_hdf5_as_documented(uninterrupted):
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


def test_run_chooses_its_epoch_by_validation_errors_and_has_two_times():
    errors = {"validation_errors": [9, 7, 7], "test_errors": [30, 40, 20]}
    parts = {"deform": 1, "train": 10, "evaluate": 100}
    seconds = {f"{part}_seconds": [k, 2 * k, k] for part, k in parts.items()}
    run = make_run(metrics=errors | seconds, epochs=3)
    assert (run.chosen, run.chosen_errors, run.best_errors) == (2, 40, 20)
    assert run.epoch_seconds == [111, 222, 111]
    assert (run.seconds, run.seconds_by_median) == (444, 333)


FILES_OF = Path, store.weights_path


@pytest.fixture(scope="module")
def files_of(tmp_path_factory):
    """A function from a number of epochs to fresh files of the run after these, a path."""

    @cache
    def contents(epochs):
        path = tmp_path_factory.mktemp("runs") / "run.h5"
        train(path) if epochs == CONFIG.epochs else train_some(path, epochs)
        return [of(path).read_bytes() for of in FILES_OF]

    def copy(epochs):
        path = tmp_path_factory.mktemp("runs") / "run.h5"
        for of, content in zip(FILES_OF, contents(epochs), strict=True):
            of(path).write_bytes(content)
        return path

    return copy


def refused(path, config=CONFIG):
    """The sentence by which a run is not resumed; its files must stay."""
    paths = [of(path) for of in FILES_OF if of(path).exists()]
    before = [path.read_bytes() for path in paths]
    sentence = expect_sentence(lambda: train(path, config))
    assert [path.read_bytes() for path in paths] == before
    return sentence


@pytest.mark.parametrize("of", FILES_OF)
def test_resume_of_damaged_or_missing_file_is_refused(files_of, of):
    path = of(files_of(2))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    run_path = path.with_name("run.h5")
    assert f"{path.name} is damaged, or none of this project's" in refused(run_path)
    path.unlink()
    assert f"{path} is not; put it back" in refused(run_path)


def test_resume_of_weights_later_than_the_run_is_refused(files_of):
    """Both are genuine: one half is from a copy, or from a backup."""
    path = files_of(2)
    store.weights_path(files_of(4)).replace(store.weights_path(path))
    assert f"is of epoch 4 and {path} of epoch 2: they do not belong" in refused(path)


@pytest.mark.parametrize("epoch", [2, 3, 4, 5, CONFIG.epochs])
def test_resume_one_epoch_behind_has_the_chosen_outputs_and_net(files_of, uninterrupted, epoch):
    """Killed between the two files."""
    path = files_of(epoch)
    store.weights_path(files_of(epoch - 1)).replace(store.weights_path(path))
    run = store.read_run(path)
    runs.load_weights(path, run)
    assert run.chosen <= epoch - 1  # of the net that is exported
    engine = CpuEngine()
    run, _, net = runs.resume(path, CONFIG, DATASET.test_labels, engine, DATASET.test_images)
    assert (run.epochs, run.provenance[-1].why) == (epoch - 1, "killed")
    assert run.provenance[-1].end is None  # of an epoch that is done again
    engine.set_network(net)
    assert run.outputs.tobytes() == engine.predict(DATASET.test_images).tobytes()
    train(path)
    assert bits(path) == bits(uninterrupted)


def test_resume_of_another_configuration_is_refused_with_the_difference(files_of):
    other = changed(CONFIG, eta=0.02, deformation=replace(CONFIG.deformation, sigma=4.0))
    assert (
        "deformation.sigma is 5.5 there and 4.0 here; eta is 0.05 there and 0.02 here; "
        "choose another folder"
    ) in refused(files_of(2), other)


def test_train_run_diverging_keeps_the_last_good_epoch(tmp_path, monkeypatch):
    path = tmp_path / "run.h5"

    def broken_in_epoch_3(config, dataset):
        def deform(epoch):
            images = dataset.train_images.copy()
            images[7] = np.nan if epoch == 3 else 0
            return images

        return deform

    monkeypatch.setattr(runs, "deformer", broken_in_epoch_3)
    with pytest.raises(
        Problem, match=r"it cannot go on: the loss .* epoch 3 .*; 2 of 6 epochs are safe in"
    ):
        train(path)
    run = store.read_run(path)
    assert run.epochs == 2
    assert "not a finite number" in run.provenance[-1].why


def test_estimate_epoch_seconds_is_the_sum_over_images(monkeypatch):
    """By a clock that goes on 2 ms for an image to train, 0.5 to predict and 0.25 to deform."""
    clock, etas = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now), set()

    def spend(seconds, images):
        clock.now += seconds * len(images)

    engine = SimpleNamespace(
        set_network=lambda net: None,
        train=lambda images, labels, order, eta: etas.add(eta) or spend(0.002, order),
        predict=lambda images: spend(0.0005, images),
    )
    monkeypatch.setattr(runs, "time", clock)
    deform = lambda _, dataset: lambda epoch: spend(0.00025, dataset.train_images)  # noqa: E731
    monkeypatch.setattr(runs, "deformer", deform)
    config = changed(CONFIG, data={"n_train": 30_000, "n_test": 36_000})
    expected = 30_000 * 0.00225 + (36_000 + config.n_validation) * 0.0005
    assert runs.estimate_epoch_seconds(engine, config, DATASET) == pytest.approx(expected)
    config = changed(config, deformed_on="cuda")  # while the GPU trains
    expected -= 30_000 * 0.00025
    assert runs.estimate_epoch_seconds(engine, config, DATASET) == pytest.approx(expected)
    assert etas == {config.eta * config.decay**2}  # of the third of six epochs


@pytest.mark.parametrize("has_weights", [True, False])
def test_train_run_finished_is_only_read(files_of, has_weights):
    path = files_of(CONFIG.epochs)
    if not has_weights:
        store.weights_path(path).unlink()
    before = path.read_bytes()
    assert runs.epochs_done(path, CONFIG) == 6
    assert train(path).finished
    assert path.read_bytes() == before


def test_a_run_of_one_epoch_without_weights_is_not_finished(tmp_path):
    """It may have been killed between its two files."""
    config = changed(CONFIG, epochs=1)
    train(tmp_path / "run.h5", config)
    store.weights_path(tmp_path / "run.h5").unlink()
    assert runs.epochs_done(tmp_path / "run.h5", config) == 0


def test_the_last_epoch_is_not_asked_whether_another_one_fits(tmp_path):
    callbacks, ended = runs.Callbacks(), []
    callbacks.epoch_ended = ended.append
    train(tmp_path / "run.h5", CONFIG, callbacks)
    assert len(ended) == CONFIG.epochs - 1


def test_a_process_that_trains_no_epoch_leaves_the_run_as_it_was(files_of):
    path = files_of(3)
    before, callbacks = path.read_bytes(), runs.Callbacks()
    callbacks.start = Mock(side_effect=Interrupted(signal.SIGINT))
    with pytest.raises(Interrupted, match="3 of 6 epochs are safe"):
        train(path, CONFIG, callbacks)
    assert path.read_bytes() == before


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's fork")


@linux
@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signal_saves_and_the_same_command_resumes(uninterrupted, tmp_path, signum, status):
    path, stderr = tmp_path / "run.h5", tmp_path / "stderr"

    def work():
        sys.stderr = stderr.open("w")
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # not as under nohup
        cli.run(lambda: train(path, CONFIG, AtEpoch(2, lambda: os.kill(os.getpid(), signum))))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    join(process)
    assert process.exitcode == status
    run = store.read_run(path)
    epochs = run.epochs
    assert epochs in (2, 3)  # the next one may be trained when the second is saved
    said = (
        f"{signal.Signals(signum).name}: {epochs} of 6 epochs are safe in {path}; the same command"
    )
    assert said in stderr.read_text()
    assert run.provenance[-1].why == signal.Signals(signum).name
    assert run.provenance[-1].end
    train(path)
    assert bits(path) == bits(uninterrupted)


class Noted(runs.Callbacks):
    """Notes the epochs that are reported, each with the number of images trained until then.

    on_tick: called in each tick with that number.
    """

    def __init__(self, on_tick=lambda n_images: None):
        self._on_tick, self.epochs, self.images = on_tick, {}, 0

    def tick(self, n_images):
        self.images += n_images
        self._on_tick(self.images)

    def epoch(self, row):
        self.epochs[row.epoch] = self.images


class WhileSaved(Noted):
    """Calls `tick` in the first tick that comes while epoch 2 is saved, which then calls `save`.

    overlapped: whether there was such a tick.
    """

    def __init__(self, monkeypatch, tick=lambda: None, save=lambda: None):
        begun, seen, self.overlapped, write = Event(), Event(), False, store.write_run

        def slow_write(path, run):
            if run.epochs == 2 and not begun.is_set():
                begun.set()
                self.overlapped = seen.wait(HANG_SECONDS)
                save()
            write(path, run)

        def on_tick(n_images):
            if begun.is_set() and not seen.is_set():
                seen.set()
                tick()

        super().__init__(on_tick)
        monkeypatch.setattr(store, "write_run", slow_write)


def interrupt():
    raise Interrupted(signal.SIGINT)


def test_an_epoch_is_saved_while_the_next_one_is_trained(tmp_path, uninterrupted, monkeypatch):
    callbacks = WhileSaved(monkeypatch)
    train(tmp_path / "run.h5", callbacks=callbacks)
    assert callbacks.overlapped
    assert list(callbacks.epochs) == [1, 2, 3, 4, 5, 6]
    assert bits(tmp_path / "run.h5") == bits(uninterrupted)


def test_a_save_that_fails_is_not_hidden_by_signals(signals_raise, tmp_path, monkeypatch):
    """Neither by the one that ends the training, nor by one that comes while it waits."""

    def fail():
        while not errors.signals._held:  # until the training waits
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        raise files.FileFault("there is no room")

    monkeypatch.setattr(errors.signals, "_pending", 0)  # so that none is left for later tests
    callbacks = WhileSaved(monkeypatch, interrupt, fail)
    with pytest.raises(files.FileFault, match="no room"):
        train(tmp_path / "run.h5", callbacks=callbacks)
    assert callbacks.overlapped
    errors.signals._pending = 0  # the command would end here
    assert epochs_on_disk(tmp_path / "run.h5") == 1


def test_the_last_saved_epoch_is_reported_although_a_signal_came(tmp_path, monkeypatch):
    callbacks = WhileSaved(monkeypatch, interrupt)
    with pytest.raises(Interrupted, match="2 of 6 epochs are safe"):
        train(tmp_path / "run.h5", callbacks=callbacks)
    assert list(callbacks.epochs) == [1, 2]


def test_the_next_tick_reports_a_saved_epoch_or_ends_the_training(tmp_path, monkeypatch):
    class AtOnce(ThreadPoolExecutor):
        def submit(self, work):
            future = super().submit(work)
            wait([future])
            return future

    def write(path, run):
        if run.epochs == 2:
            raise files.FileFault("there is no room")
        write_run(path, run)

    callbacks, write_run, n = Noted(), store.write_run, len(DATASET.train_labels)
    monkeypatch.setattr(runs, "ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr(store, "write_run", write)
    with pytest.raises(files.FileFault, match="no room"):
        train(tmp_path / "run.h5", callbacks=callbacks)
    assert (callbacks.epochs, callbacks.images) == ({1: n}, 2 * n)


@pytest.fixture
def seldom_saved(monkeypatch):
    """As on a GPU with short epochs: the first one is saved, then none for long."""
    assert runs.seconds_between_saves(CONFIG) == 0
    assert runs.seconds_between_saves(changed(CONFIG, engine="cuda")) == 5
    monkeypatch.setattr(runs, "seconds_between_saves", lambda config: HANG_SECONDS)


def test_short_epochs_are_saved_together(seldom_saved, uninterrupted, tmp_path, monkeypatch):
    path, callbacks, saved, write = tmp_path / "run.h5", Noted(), [], store.write_run
    monkeypatch.setattr(store, "write_run", lambda *of: saved.append(of[1].epochs) or write(*of))
    train(path, callbacks=callbacks)
    assert saved == [1, 6]
    assert list(callbacks.epochs) == [1, 2, 3, 4, 5, 6]
    assert bits(path) == bits(uninterrupted)


@pytest.mark.parametrize("error", [Interrupted(signal.SIGINT), GpuFault("fell off the bus")])
def test_an_end_saves_the_epochs_that_no_save_has(error, seldom_saved, uninterrupted, tmp_path):
    def fail(n_images):
        if n_images > 3 * len(DATASET.train_labels):
            raise error

    path, callbacks = tmp_path / "run.h5", Noted(fail)
    with pytest.raises(type(error), match=r"3 of 6 epochs are safe|fell off"):
        train(path, callbacks=callbacks)
    assert list(callbacks.epochs) == [1, 2, 3]
    assert epochs_on_disk(path) == 3
    train(path)
    assert bits(path) == bits(uninterrupted)


def test_resume_several_epochs_behind_ends_with_the_same_bits(uninterrupted, files_of):
    path = files_of(4)
    store.weights_path(files_of(1)).replace(store.weights_path(path))
    train(path)
    assert bits(path) == bits(uninterrupted)


def test_lock_waits_for_a_run_that_is_released_soon(tmp_path):
    path = tmp_path / "run.h5"
    held = FileLock(path.with_suffix(".lock"), thread_local=False)
    held.acquire()
    with pytest.raises(Problem, match="another process is training"), runs.lock(path, 0.1):
        pass
    Timer(0.3, held.release, kwargs={"force": True}).start()
    with runs.lock(path, timeout=HANG_SECONDS):
        assert not held.is_locked


def test_lock_removes_what_a_killed_process_left_of_this_run_alone(tmp_path):
    path, other = tmp_path / "sigma6.h5", tmp_path / "sigma6.5.h5.7.tmp"
    for left in (tmp_path / "sigma6.h5.7.tmp", tmp_path / "sigma6.weights.h5.7.tmp", other):
        left.touch()
    with runs.lock(path):
        assert set(tmp_path.glob("*.tmp")) == {other}


@linux
def test_replace_removes_what_killed_processes_left(tmp_path):
    alive = tmp_path / f"table[1].md.{os.getppid()}.tmp"
    left = [tmp_path / f"table[1].md.{2**30}.tmp", tmp_path / f"table[1].md.{2**31}.tmp"]
    others = [tmp_path / f"table1.md.{2**30}.tmp", tmp_path / "table[1].md.mine.tmp"]
    for path in (alive, *left, *others):
        path.touch()
    files.replace(tmp_path / "table[1].md", b"content")
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for path in (alive, *others, tmp_path / "table[1].md")
    }


def test_signal_while_llvm_compiles_is_not_dropped(signals_raise, capfd):
    """What Python code raises that C calls is printed and forgotten, and the command goes on."""
    called = []
    names = {"called": called, "kill": lambda: os.kill(os.getpid(), signal.SIGTERM)}
    source = "def notify():\n    kill()\n    called.append(1)"
    exec(compile(source, f"/site-packages/{errors.LLVM}", "exec"), names)
    with pytest.raises(Interrupted):
        go_on_after(ctypes.CFUNCTYPE(None)(names["notify"]))
    assert called
    assert capfd.readouterr().err == ""


def go_on_after(step):
    """What a signal in the step must end."""
    step()
    time.sleep(200)


class Ending:
    """An object with a function that is called at its end."""

    def __init__(self, end):
        self.end = end

    def __del__(self):
        self.end()


def test_signal_while_an_object_ends_is_not_dropped(signals_raise, capfd, monkeypatch):
    """Python prints and forgets exceptions that are raised there."""
    other = []
    monkeypatch.setattr(sys, "unraisablehook", other.append)
    errors.Signals().install()
    Ending(lambda: 1 / 0)
    with pytest.raises(Interrupted):
        go_on_after(lambda: Ending(lambda: os.kill(os.getpid(), signal.SIGTERM)) and None)
    assert [one.exc_type for one in other] == [ZeroDivisionError]
    assert capfd.readouterr().err == ""


def test_signal_while_a_module_is_imported_waits_until_it_is(signals_raise, tmp_path, monkeypatch):
    """A module in C may make an ImportError of it, as if a package were not installed."""
    (tmp_path / "module_of_a_signal.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "except BaseException:\n"
        "    raise ImportError('something is missing')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Interrupted):
        go_on_after(lambda: importlib.import_module("module_of_a_signal"))
    assert "module_of_a_signal" in sys.modules
    with errors.signals.held():  # which does not raise it again
        pass


def test_signal_while_a_module_is_imported_is_raised_once_by_the_next_held(
    signals_raise, tmp_path, monkeypatch
):
    """Workers that it killed are not taken for a fault; see `workers.RemotePool`."""
    (tmp_path / "module_of_another_signal.py").write_text(
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(errors, "RETRY_SECONDS", 0.5)
    importlib.import_module("module_of_another_signal")
    with pytest.raises(Interrupted), errors.signals.held():
        pass
    time.sleep(1)


def test_signal_is_not_held_by_another_thread(signals_raise):
    holds, may_end = Event(), Event()

    def hold():
        with errors.signals.held():
            holds.set()
            may_end.wait(HANG_SECONDS)

    with ThreadPoolExecutor() as pool:
        held = pool.submit(hold)
        holds.wait(HANG_SECONDS)
        try:
            with pytest.raises(Interrupted):
                os.kill(os.getpid(), signal.SIGTERM)
        finally:
            may_end.set()
        held.result()
