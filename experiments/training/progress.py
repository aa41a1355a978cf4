"""The progress of all trainings of a command: a bar on a terminal, elsewhere a line per epoch.

Trainings may run in other threads and processes. They report by the messages of
`experiments.training.workers`. Everything is written to stderr.
"""

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tqdm import tqdm

from deepbig_runtime.errors import tell
from experiments.training.configs import Config
from experiments.training.formatting import duration, percent
from experiments.training.workers import EpochSaved, Message, Started, Trained

# tqdm's own lock is shared with forked processes. A process that is killed while it holds that lock
# would leave all others waiting for ever.
tqdm.set_lock(threading.RLock())


@dataclass
class Track:
    """The state of one training.

    label: its name. estimate: seconds of an epoch, estimated before. epochs_done: number of saved
    epochs. epochs_before: number of epochs saved by earlier processes. images: number of images
    trained since the last saved epoch. started: time at which its
    process began, as time.perf_counter gives it; 0 before.
    """

    label: str
    config: Config
    estimate: float
    epochs_done: int = 0
    epochs_before: int = 0
    images: int = 0
    started: float = 0.0

    @property
    def seconds_left(self) -> float:
        """Seconds until its end, at the mean rate of the process that trains it."""
        n_done = self._epochs_trained - self.epochs_before
        n_left = self.config.epochs - self._epochs_trained
        return (time.perf_counter() - self.started) * n_left / n_done

    @property
    def work(self) -> float:
        """The work done, in estimated seconds of one worker."""
        return self.estimate * self._epochs_trained

    @property
    def _epochs_trained(self) -> float:
        """Saved epochs, and those that are trained and not yet saved: several on a GPU, see runs.

        Else at most one: a second worker of a cluster may report the same images again.
        """
        most = self.config.epochs - self.epochs_done if self.config.engine == "cuda" else 1
        return self.epochs_done + min(self.images / self.config.data.n_train, most)


class View:
    """Shows the progress of all trainings of a command. Use as a context manager.

    tracks: the trainings that are not finished. n_finished: how many trainings are.
    """

    def __init__(self, tracks: Sequence[Track], n_finished: int = 0):
        self._tracks = {track.label: track for track in tracks}
        self._n_finished = n_finished
        self._n_runs = len(tracks) + n_finished
        self._started = time.perf_counter()
        self._total = sum(track.estimate * track.config.epochs for track in tracks)
        self._before = self._work()
        self._bar: tqdm | None = None
        if tracks and sys.stderr.isatty():
            # tqdm predicts the end from the rate so far. The estimates only weigh the trainings.
            self._bar = tqdm(
                desc=self._count(),
                total=self._total,
                initial=self._before,
                smoothing=0,
                dynamic_ncols=True,
                bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}",
            )

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._bar is not None:
            with suppress(OSError):  # the terminal was closed
                self._bar.close()

    def tell(self, sentence: str) -> None:
        """Write a sentence, above the bar if there is one."""
        if self._bar is None:
            tell(sentence)
        else:
            with suppress(OSError):  # the terminal was closed
                tqdm.write(sentence, file=sys.stderr)

    def show(self, message: Message) -> None:
        """Show the progress that a message reports."""
        track = self._tracks[message.run]
        match message:
            case Started():
                # A worker with another folder finds other epochs than we did.
                self._before += track.estimate * (message.epochs_done - track.epochs_done)
                track.epochs_before = track.epochs_done = message.epochs_done
                track.images, track.started = 0, time.perf_counter()
            case Trained():
                track.images += message.images
            case EpochSaved():
                track.epochs_done = message.epoch
                rest = track.images - track.config.data.n_train  # of epochs that are saved with it
                track.images = max(0, rest)
                self._tell_epoch(track, message)
        if self._bar is not None:
            with suppress(OSError):  # the terminal was closed
                self._bar.update(self._work() - self._bar.n)

    def close(self, label: str) -> None:
        """The training has ended. Images since its last saved epoch are lost."""
        self._tracks[label].images = 0

    def _count(self) -> str:
        if self._n_runs == 1:
            return next(iter(self._tracks))
        return f"{self._n_finished} of {self._n_runs} runs"

    def _tell_epoch(self, track: Track, row: EpochSaved) -> None:
        config, epochs = track.config, track.config.epochs
        errors = f"validation {percent(row.validation_errors, config.n_validation)}, "
        errors += f"{config.tested_on} {percent(row.test_errors, config.data.n_test)}"
        self._n_finished += row.epoch == epochs
        line = (
            f"{track.label}: epoch {row.epoch}/{epochs}, eta {row.eta:.2e}, "
            f"loss {row.train_loss:.4f}, {errors}, "
            f"{config.data.n_train / row.train_seconds:.0f} images/s, "
            f"left {duration(track.seconds_left)}"
        )
        if self._bar is not None:
            self._bar.set_description_str(self._count(), refresh=False)
            run = f"{track.label}: " if self._n_runs > 1 else ""
            self._bar.set_postfix_str(f"{run}epoch {row.epoch}/{epochs}, {errors}", refresh=False)
        elif self._n_runs > 1:
            done, so_far = self._work(), time.perf_counter() - self._started
            all_left = max(
                track.seconds_left, so_far * (self._total - done) / (done - self._before)
            )
            line += f"; {self._count()} done, all left {duration(all_left)}"
        if self._bar is None or (self._n_runs > 1 and row.epoch == epochs):
            self.tell(line)

    def _work(self) -> float:
        return sum(track.work for track in self._tracks.values())
