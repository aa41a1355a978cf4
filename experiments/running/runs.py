"""One training run on disk: start it or go on with it, save it after each epoch, end it cleanly."""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from experiments.running import provenance, store
from experiments.running.configs import count_validation, deformer, schedule_of
from experiments.running.data import Dataset
from experiments.running.errors import Interrupted, Problem, signals
from mlp_gpu import files, network, training
from mlp_gpu.engines import Engine
from mlp_gpu.network import Network


class Watch:
    """Is told how a training gets on, and does nothing with it."""

    def start(self, done: int) -> None:
        """It begins, with so many epochs done by an earlier process."""

    def tick(self, n_images: int) -> None:
        """n_images more have been trained. What this raises ends the training."""

    def epoch(self, row: training.Epoch) -> None:
        """An epoch is done and saved."""


def epochs_done(path: Path, config: dict) -> int:
    """Epochs that are wholly saved in the run file at `path` and its weights file.

    Raises Problem if they hold another run than `config` or do not belong together,
    files.FileFault if one is damaged.
    """
    if not path.exists():
        return 0
    run = store.read_run(path)
    store.check_config(path, run.config, config)
    weights = store.weights_path(path)
    if weights.exists():
        return _load_weights(weights, path, run)[1]
    # Without weights only a finished run is good for something; of one epoch it is half saved.
    return run.epochs if run.finished and run.epochs > 1 else 0


def _load_weights(weights: Path, path: Path, run: store.Run) -> tuple[dict[str, Network], int]:
    """The networks beside a run file, and their epoch: the run's, or one before if it was killed.

    Raises Problem if the two files do not belong together, files.FileFault if one is damaged.
    """
    networks, attributes = network.load(weights)
    store.check_config(weights, json.loads(attributes["config"]), run.config)
    if run.epochs - attributes["epoch"] not in (0, 1):
        raise Problem(
            f"{weights} is of epoch {attributes['epoch']} and {path} of epoch {run.epochs}: they "
            "do not belong together; put the right ones back or move both away"
        )
    return networks, attributes["epoch"]


def warm_up(engine: Engine, config: dict, dataset: Dataset) -> None:
    """Have compiled what the run needs, so that its first epoch takes no longer than others."""
    engine.set_network(Network.initial(tuple(config["sizes"]), config["seed"]))
    one = dataset.train_images[:1], dataset.train_labels[:1]
    engine.train(*one, np.zeros(1, int), 0.0)
    engine.predict(one[0])
    if config["deformed_on"] == "cpu":
        deformer(config, replace(dataset, train_images=one[0], train_labels=one[1]))(1)


def estimate_seconds(engine: Engine, config: dict, dataset: Dataset) -> float:
    """About how long an epoch of the run will take, from a fraction of a second of its work."""
    n_train, n_test = config["data"]["n_train"], config["data"]["n_test"]
    n_predict = count_validation(config) + n_test
    engine.set_network(Network.initial(tuple(config["sizes"]), config["seed"]))
    images, labels = dataset.train_images, dataset.train_labels

    def seconds(work: Callable[[int], object], n: int, least: float) -> float:
        """Time per image of work on n images, or on so many more that a call takes `least`."""
        work(n)  # to warm up
        while True:
            started = time.perf_counter()
            work(n)
            taken = time.perf_counter() - started
            if taken >= least:
                return taken / n
            n *= max(2, math.ceil(1.2 * least / taken))

    few = slice(min(200, len(images)))
    some = Dataset(dataset.name, images[few], labels[few], images[few], labels[few], "", "")

    def train_some(n: int) -> None:
        engine.train(images[few], labels[few], np.arange(n) % len(images[few]), 0.0)

    def predict_some(n: int) -> None:
        engine.predict(np.resize(images[few], (n, *images.shape[1:])))

    def deforming() -> float:
        if config["deformed_on"] == "cuda":  # it does so beside the training
            return 0.0
        deform_images = deformer(config, some)

        def deform_some(n: int) -> None:
            for _ in range(n // len(images[few])):
                deform_images(1)

        return seconds(deform_some, len(images[few]), 0.03)

    train = seconds(train_some, 20, 0.1)
    predict = seconds(predict_some, 50, 0.03)
    return n_train * (train + deforming()) + n_predict * predict


@contextmanager
def lock(path: Path, patience: float = 0) -> Iterator[None]:
    """Hold the run alone, as long as the process lives.

    patience: seconds to wait. Raises Problem if another process has it still.
    """
    lock_path = path.with_suffix(".lock")
    files.make_folder(path.parent)
    held = FileLock(lock_path, timeout=patience)
    try:
        held.acquire()
    except Timeout:
        raise Problem(
            f"another process is training {path} (it holds {lock_path}); wait for it or choose "
            "another folder with --out"
        ) from None
    except OSError as error:
        raise Problem(
            f"cannot write in {path.parent}: {error.strerror}; choose another folder with --out"
        ) from error
    except NotImplementedError:
        raise Problem(
            f"files in {path.parent} cannot be locked; choose a folder of another file system "
            "with --out"
        ) from None
    for left in path.parent.glob(f"{path.stem}.*.tmp"):  # half written by a killed process
        left.unlink()
    try:
        yield
    finally:
        held.release()


def resume(
    path: Path, config: dict, labels: np.ndarray, engine: Engine, test_images: np.ndarray
) -> tuple[store.Run, Network, Network]:
    """The run as the last process left it, or a new one; the latest and the chosen network.

    Raises Problem if the files hold another run or do not belong together, files.FileFault if
    one is damaged.
    """
    weights = store.weights_path(path)
    fresh = Network.initial(tuple(config["sizes"]), config["seed"])
    if not path.exists() and not weights.exists():
        return store.Run.new(config, labels), fresh, fresh
    if not path.exists():
        raise Problem(f"{weights} is there and {path} is not; put it back or move both away")
    run = store.read_run(path)
    store.check_config(path, run.config, config)
    if not weights.exists():
        if run.epochs == 1:  # stopped between the first two files: begin again
            return store.Run.new(config, labels), fresh, fresh
        raise Problem(f"{path} is there and {weights} is not; put it back or move both away")
    networks, epoch = _load_weights(weights, path, run)
    if epoch < run.epochs:  # stopped between the two files: the last epoch is done again
        for values in run.metrics.values():
            values.pop()
        engine.set_network(networks["chosen"])
        _, run.outputs = training.count_errors(engine, test_images, labels, lambda n: None)
        run.provenance[-1]["end"] = None
    if run.provenance[-1]["end"] is None:
        run.provenance[-1]["why"] = "killed"
    return run, networks["latest"], networks["chosen"]


def train_run(
    path: Path,
    config: dict,
    dataset: Dataset,
    engine: Engine,
    watch: Watch,
    patience: float = 0,
) -> store.Run:
    """Train the run that `config` defines to its end, from wherever its files are.

    dataset: as `prepare` gives it. patience: seconds to wait for another process to let go of it.
    The run file and the weights file are replaced after each epoch. A finished run is only read.

    Raises Problem or files.FileFault with one sentence, and Interrupted on a signal; the files
    then hold the last good epoch.
    """
    test_set = dataset.test_images, dataset.test_labels
    if epochs_done(path, config) == config["epochs"]:
        return store.read_run(path)
    with lock(path, patience):
        run, latest, chosen = resume(path, config, dataset.test_labels, engine, test_set[0])
        engine.set_network(latest)
        session = {"engine": config["engine"], "schedule": engine.schedule}
        session |= {"data_sha256": config["data"]["sha256"]}
        session |= {"end": None, "why": "running"}
        run.provenance.append(provenance.collect(engine.name) | session)
        training_set = dataset.train_images, dataset.train_labels
        epochs = training.train(
            engine,
            training_set,
            dataset.validation or training_set,
            test_set,
            schedule_of(config),
            config["seed"],
            deformer(config, dataset),
            first_epoch=run.epochs + 1,
            tick=watch.tick,
        )
        try:
            watch.start(run.epochs)
            for row in epochs:
                with signals.held():
                    for name, values in run.metrics.items():
                        values.append(getattr(row, name))
                    latest = engine.get_network()
                    if run.chosen == row.epoch:
                        run.outputs, chosen = row.outputs, latest
                    _save(path, run, latest, chosen)
                watch.epoch(row)
        except training.Diverged as reason:
            kept = _end_early(path, run, str(reason))
            raise Problem(
                f"it cannot go on: {reason}; {kept}; try a lower --eta with another --out"
            ) from reason
        except Interrupted as reason:
            kept = _end_early(path, run, reason.name)
            raise Interrupted(
                reason.signum, f"{kept}; the same command goes on from there"
            ) from None
    return run


def _save(path: Path, run: store.Run, latest: Network, chosen: Network) -> None:
    if run.finished:
        _end(run, "finished")
    store.write_run(path, run)
    attributes: dict[str, str | int] = {"config": json.dumps(run.config), "epoch": run.epochs}
    network.save(store.weights_path(path), {"latest": latest, "chosen": chosen}, attributes)


def _end(run: store.Run, why: str) -> None:
    run.provenance[-1].update(
        end=provenance.now(), why=why, peak_memory_bytes=provenance.peak_memory()
    )


def _end_early(path: Path, run: store.Run, why: str) -> str:
    """Write down why the process stops; returns what of its work is kept."""
    if not run.epochs:
        return "no epoch was finished, so nothing is saved"
    if not run.finished:
        with signals.held():
            _end(run, why)
            store.write_run(path, run)
    return f"{run.epochs} of {run.config['epochs']} epochs are safe in {path}"
