"""One training run on disk: start it or go on with it, save its epochs, end it cleanly."""

import glob
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from msgspec.structs import asdict

from deepbig_runtime import files
from deepbig_runtime.errors import Interrupted, Problem, signals
from deepbig_runtime.faults import GpuFault
from experiments.datasets.data import Dataset
from experiments.training import configs, nets, provenance, store
from experiments.training.configs import Config, deformer
from experiments.training.nets import AnyNetwork
from experiments.training.provenance import Session
from mlp_gpu import network, training
from mlp_gpu.engine import Engine

RESUMES = "the same command goes on from there"
GPU_SAVE_SECONDS = 5  # of training between two saves: an epoch may be shorter than a save


class TimeIsUp(Exception):
    """The time that a training was given is over. The message names the saved epochs."""


class Callbacks:
    """Methods that a training calls as it goes on. These do nothing. An exception ends it."""

    def start(self, epochs_done: int) -> None:
        """Called when the training begins. epochs_done: by earlier processes."""

    def tick(self, n_images: int) -> None:
        """Called repeatedly in an epoch. n_images: number trained since the last call."""

    def epoch_ended(self, seconds: float) -> None:
        """Called when an epoch has ended that is not the last. seconds: that it took."""

    def epoch(self, row: training.Epoch) -> None:
        """Called for each epoch, in order, once it is saved; later ones may be trained by then."""


def seconds_between_saves(config: Config) -> float:
    """The least time from the beginning of a save to that of the next."""
    return GPU_SAVE_SECONDS if config.engine == "cuda" else 0


def epochs_done(path: Path, config: Config) -> int:
    """How many epochs are saved both in the run file at `path` and in its weights file.

    Raises Problem if the files hold another run than `config` or do not belong together,
    files.FileFault if one is damaged.
    """
    if not path.exists():
        return 0
    run = store.read_run(path, config.study is not None)
    store.check_config(path, run.config, config)
    weights = store.weights_path(path)
    if weights.exists():
        load_weights(path, run)
        return run.epochs
    # Without weights no run can go on, but a finished one is complete. A run of one epoch whose
    # weights are missing may have been killed before it wrote them, so it is not taken as finished.
    return run.epochs if run.finished and run.epochs > 1 else 0


def load_weights(path: Path, run: store.Run) -> dict[str, AnyNetwork]:
    """The networks beside a run file, latest and chosen.

    They are of the run's last epoch, or of one before if the process was killed between writing the
    two files. Then later epochs are taken out of the run's metrics, so that its chosen epoch is
    that of the network; its outputs and provenance stay. Raises Problem if the files do not belong
    together, files.FileFault if one is damaged.
    """
    weights = store.weights_path(path)
    networks, attributes = network.load(weights, nets.kind(run.config))
    with files.checked(weights):
        if networks.keys() != {"latest", "chosen"}:
            raise files.Malformed("it holds other nets than the latest and the chosen one")
        text, epoch = attributes.get("config"), attributes.get("epoch")
        if not (isinstance(text, str) and isinstance(epoch, int) and epoch > 0):
            raise files.Malformed("it lacks a configuration or an epoch from 1")
        config = configs.from_json("config", text)
        if any(net.stored().attrs != nets.attributes(config) for net in networks.values()):
            raise files.Malformed(f"its nets have other layers than {config.net_name}")
    store.check_config(weights, config, run.config)
    if epoch > run.epochs:
        raise Problem(
            f"{weights} is of epoch {epoch} and {path} of epoch {run.epochs}: they do not belong "
            "together; put the right ones back or move both away"
        )
    run.metrics = run.metrics.first(epoch)
    return networks


def warm_up(engine: Engine, config: Config, dataset: Dataset) -> None:
    """Compile what the run needs, so that its first epoch takes no longer than the others."""
    engine.set_network(nets.initial(config))
    image, label = dataset.train_images[:1], dataset.train_labels[:1]
    engine.train(image, label, np.zeros(1, int), 0.0)
    engine.predict(image)
    if config.deformed_on == "cpu":
        deformer(config, replace(dataset, train_images=image, train_labels=label))(1)


def estimate_epoch_seconds(engine: Engine, config: Config, dataset: Dataset) -> float:
    """About how long an epoch of the run will take, from hundredths of a second of its work.

    engine: as warm_up leaves it.
    """
    n_train, n_test = config.data.n_train, config.data.n_test
    n_predict = config.n_validation + n_test
    images, labels = dataset.train_images[:200], dataset.train_labels[:200]

    def seconds_per_image(process: Callable[[int], object], n: int, min_seconds: float) -> float:
        """The time of process(n) per image, for n or more images that take min_seconds at least."""
        while True:
            process(n)  # to warm up; a GPU's engine captures its launches, for so many images
            started = time.perf_counter()
            process(n)
            taken = time.perf_counter() - started
            if taken >= min_seconds:
                return taken / n
            n *= max(2, math.ceil(1.2 * min_seconds / taken))

    def train(n: int) -> None:
        # With the rate half way, because a window's number of sweeps depends on it.
        eta = config.learning_rates.eta_of((config.epochs + 1) // 2)
        engine.train(images, labels, np.arange(n) % len(images), eta)

    def predict(n: int) -> None:
        engine.predict(np.resize(images, (n, *images.shape[1:])))

    training_seconds = seconds_per_image(train, getattr(engine, "images_per_block", 10), 0.02)
    if config.deformed_on == "cpu":  # a GPU deforms while it trains
        sample = Dataset(dataset.name, images, labels, images, labels, "", "")
        deform_sample = deformer(config, sample)

        def deform(n: int) -> None:
            for _ in range(n // len(images)):
                deform_sample(1)

        training_seconds += seconds_per_image(deform, len(images), 0.01)
    n = 50
    if config.engine == "cpu":  # each thread predicts a batch at a time
        from mlp_gpu.cpu import PREDICT_BATCH  # imports numba

        n = PREDICT_BATCH * provenance.cores()
    return n_train * training_seconds + n_predict * seconds_per_image(predict, n, 0.01)


@contextmanager
def lock(path: Path, timeout: float = 0) -> Iterator[None]:
    """Keep other processes from training the run at `path`, inside or until this process ends.

    timeout: seconds to wait for the lock. Raises Problem if another process still holds it then.
    """
    from filelock import FileLock, Timeout  # imports asyncio

    lock_path = path.with_suffix(".lock")
    files.make_folder(path.parent)
    held = FileLock(lock_path, timeout=timeout, fallback_to_soft=False)
    try:
        held.acquire()
    except Timeout:
        raise Problem(
            f"another process is training {path} (it holds {lock_path}); wait for it or choose "
            "another folder with --out"
        ) from None
    except OSError as error:
        raise Problem(
            f"no file can be locked in {path.parent} ({error.strerror}), and without a lock two "
            "commands could train one run; choose another folder with --out"
        ) from error
    for name in (path.name, store.weights_path(path).name):
        for half_written in path.parent.glob(f"{glob.escape(name)}.*.tmp"):  # of a killed process
            with suppress(OSError):  # skip folders and other non-files
                half_written.unlink()
    try:
        yield
    finally:
        held.release()


def resume(
    path: Path, config: Config, labels: np.ndarray, engine: Engine, test_images: np.ndarray
) -> tuple[store.Run, AnyNetwork, AnyNetwork]:
    """The run as the last process left it, or a new run; its latest and its chosen network.

    Raises Problem if the files hold another run or do not belong together, files.FileFault if
    one is damaged.
    """
    weights = store.weights_path(path)
    fresh = nets.initial(config)
    if not path.exists() and not weights.exists():
        return store.Run.new(config, labels), fresh, fresh
    if not path.exists():
        raise Problem(f"{weights} is there and {path} is not; put it back or move both away")
    run = store.read_run(path, config.study is not None)
    store.check_config(path, run.config, config)
    if not weights.exists():
        if run.epochs == 1:  # killed before the first weights file was written: begin again
            return store.Run.new(config, labels), fresh, fresh
        raise Problem(f"{path} is there and {weights} is not; put it back or move both away")
    run.config = config  # which may ask for more epochs
    n_saved = run.epochs
    networks = load_weights(path, run)
    if run.epochs < n_saved:  # killed between the two files: the last epochs are done again
        run.provenance[-1].end = None
        engine.set_network(networks["chosen"])
        run.outputs = engine.predict(test_images)
    if run.provenance[-1].end is None:
        run.provenance[-1].why = "killed"
    return run, networks["latest"], networks["chosen"]


class Saver:
    """Saves epochs, one save at a time, in a thread while the next ones are trained.

    A save of net 4 takes 0.3 seconds, an epoch of it on an H100 0.7. Leaving the body of `with`
    waits for the save in progress. The error of a save is raised again, files.FileFault.

    on_saved: called in the thread of the training with each epoch, when it is saved. least_seconds:
    see `seconds_between_saves`. unsaved: epochs that are not yet in any save.
    """

    def __init__(self, on_saved: Callable[[training.Epoch], None], least_seconds: float):
        self._on_saved, self._least_seconds = on_saved, least_seconds
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._last_began = -math.inf  # when the last save did
        self._in_progress: tuple[Future, list[training.Epoch]] | None = None
        self.unsaved: list[training.Epoch] = []

    def __enter__(self) -> "Saver":
        # Starts the thread, where Ctrl-C still ends it: without memory that can take for ever.
        self._thread.submit(int).result()
        return self

    def __exit__(self, *_exception: object) -> None:
        with signals.held():
            try:
                self.report(wait=True)
            finally:
                self._thread.shutdown()

    def add(self, row: training.Epoch) -> bool:
        """Note an epoch that is trained. Returns whether a save is due."""
        self.unsaved.append(row)
        return time.monotonic() - self._last_began >= self._least_seconds

    def start(self, save: Callable[[], None]) -> None:
        """Begin to save all epochs that are in no save, after the save in progress."""
        self.report(wait=True)
        self._last_began = time.monotonic()
        self._in_progress, self.unsaved = (self._thread.submit(save), self.unsaved), []

    def save_rest(self, save: Callable[[], None]) -> None:
        """Save in this thread the epochs that are in no save."""
        save()
        rows, self.unsaved = self.unsaved, []
        self._tell(rows)

    def report(self, wait: bool) -> None:
        """Call `on_saved` for the epochs whose save has begun, unless that save is in progress.

        wait: for the end of the save.
        """
        with signals.held():
            if self._in_progress and (wait or self._in_progress[0].done()):
                future, rows = self._in_progress
                future.result()
                self._in_progress = None
                self._tell(rows)

    def _tell(self, rows: list[training.Epoch]) -> None:
        for row in rows:
            self._on_saved(row)


def train_run(
    path: Path,
    config: Config,
    dataset: Dataset,
    engine: Engine,
    callbacks: Callbacks,
    lock_timeout: float = 0,
) -> store.Run:
    """Train the run that `config` defines to its end, from the last epoch in its files.

    dataset: as configs.prepare gives it. lock_timeout: seconds to wait for another process that
    trains this run. The run file and the weights file are replaced after each epoch, on a GPU after
    several short ones, while the next one is trained. A finished run is only read.

    Raises Problem, files.FileFault or gpu.GpuFault with one sentence, Interrupted on a signal, and
    TimeIsUp if `callbacks` do. The files then hold the last good epoch.
    """
    test_set = dataset.test_images, dataset.test_labels
    if epochs_done(path, config) == config.epochs:
        return store.read_run(path, config.study is not None)
    with lock(path, lock_timeout):
        run, latest, chosen = resume(path, config, dataset.test_labels, engine, test_set[0])
        begun = run.epochs
        engine.set_network(latest)
        session = Session(
            **asdict(provenance.collect(engine.name)),
            engine=config.engine,
            schedule=engine.schedule,
            data_sha256=config.data.sha256,
            why="running",
        )
        run.provenance.append(session)
        training_set = dataset.train_images, dataset.train_labels
        saver = Saver(callbacks.epoch, seconds_between_saves(config))

        def tick(n_images: int) -> None:
            saver.report(wait=False)
            callbacks.tick(n_images)

        epochs = training.train(
            engine,
            training_set,
            dataset.validation or training_set,
            test_set,
            config.learning_rates,
            config.seed,
            deformer(config, dataset),
            first_epoch=run.epochs + 1,
            tick=tick,
        )

        def end(why: str) -> str:
            """Write why this process stops, if it trained. Returns a sentence: what is saved."""
            if begun < run.epochs < config.epochs:
                _end_early(path, run, saver, (latest, chosen), why)
            if not run.epochs:
                return "no epoch was finished, so nothing is saved"
            return f"{run.epochs} of {config.epochs} epochs are safe in {path}"

        try:
            with saver:
                callbacks.start(run.epochs)
                for row in epochs:
                    with signals.held():
                        latest = engine.get_network()
                        run.metrics.append(row)
                        if run.chosen == row.epoch:
                            run.outputs, chosen = row.outputs, latest
                        is_due = saver.add(row)
                        if run.finished:
                            saver.report(wait=True)  # its save still reads the provenance
                            _end(run, "finished")
                        if is_due or run.finished:
                            now = replace(run, metrics=run.metrics.first(run.epochs))
                            saver.start(partial(_save, path, now, latest, chosen))
                    if not run.finished:
                        callbacks.epoch_ended(run.epoch_seconds[-1])
                saver.report(wait=True)
        except training.Diverged as reason:
            raise Problem(
                f"it cannot go on: {reason}; {end(str(reason))}; try a lower --eta with another "
                "--out"
            ) from reason
        except TimeIsUp:
            raise TimeIsUp(f"{end('its minutes were over')}; {RESUMES}") from None
        except Interrupted as reason:
            raise Interrupted(reason.signum, f"{end(reason.name)}; {RESUMES}") from None
        except (GpuFault, MemoryError) as reason:
            if saver.unsaved:
                end(str(reason) or "no memory")
            raise
    return run


def _save(path: Path, run: store.Run, latest: AnyNetwork, chosen: AnyNetwork) -> None:
    store.write_run(path, run)
    attributes: dict[str, str | int] = {"config": run.config.to_json(), "epoch": run.epochs}
    networks = {"latest": latest, "chosen": chosen}
    network.save(store.weights_path(path), networks, attributes)


def _end(run: store.Run, why: str) -> None:
    last = run.provenance[-1]
    last.end, last.why = provenance.now(), why
    last.peak_memory_bytes = provenance.peak_memory()


def _end_early(
    path: Path, run: store.Run, saver: Saver, networks: tuple[AnyNetwork, AnyNetwork], why: str
) -> None:
    """Write into the run file why this process stops. networks: the latest and the chosen one."""
    with signals.held():
        saver.report(wait=True)  # a second signal may have ended the first wait for it
        _end(run, why)
        if saver.unsaved:
            saver.save_rest(partial(_save, path, run, *networks))
        else:
            store.write_run(path, run)
