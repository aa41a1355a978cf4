"""The progress of all trainings of a command: bars on a terminal, elsewhere a line per epoch.

Trainings may run in other processes. They report by the messages of `experiments.training.workers`.
Everything is written to stderr.
"""

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tqdm import tqdm

from experiments.training.configs import Config
from experiments.training.formatting import duration, percent
from experiments.training.messages import tell
from experiments.training.workers import EpochSaved, Message, Started, Trained

# tqdm's own lock is shared with forked processes. A process that is killed while it holds that lock
# would leave all others waiting for ever.
tqdm.set_lock(threading.RLock())


@dataclass
class Track:
    """The state of one training.

    label: its name. estimate: seconds of an epoch, estimated before. epochs_done: number of saved
    epochs. epochs_first: number of epochs saved before this command; epochs_before: number of
    epochs saved by earlier processes. images: number of images trained since the last saved epoch.
    started: time, as time.perf_counter gives it; 0 while the training waits for a worker.
    epoch_seconds: measured mean of an epoch, seconds; 0 before the first.
    """

    label: str
    config: Config
    estimate: float
    epochs_done: int = 0
    epochs_first: int = 0
    epochs_before: int = 0
    images: int = 0
    started: float = 0.0
    epoch_seconds: float = 0.0
    bar: tqdm | None = None

    def __post_init__(self) -> None:
        self.epochs_first = self.epochs_done


class View:
    """Shows the progress of all trainings of a command. Use as a context manager.

    tracks: the trainings that are not finished. n_finished: how many trainings are.
    """

    def __init__(self, tracks: Sequence[Track], n_finished: int = 0):
        self._tracks = {track.label: track for track in tracks}
        self._n_finished = n_finished
        self._n_runs = len(tracks) + n_finished
        self._started = time.perf_counter()
        self._on_terminal = sys.stderr.isatty()
        self._bar = None
        if self._on_terminal and len(tracks) > 1:
            _, done, total = self._work()
            # tqdm predicts the end from the rate so far. The estimates only weigh the trainings.
            self._bar = tqdm(
                desc=self._count(),
                total=total,
                initial=done,
                smoothing=0,
                dynamic_ncols=True,
                bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}",
            )

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *_exception: object) -> None:
        for label in self._tracks:
            self.close(label)
        if self._bar is not None:
            with suppress(OSError):  # the terminal was closed
                self._bar.close()

    def tell(self, sentence: str) -> None:
        """Write a sentence above the bars, if there are any."""
        if self._on_terminal:
            with suppress(OSError):  # the terminal was closed
                tqdm.write(sentence, file=sys.stderr)
        else:
            tell(sentence)

    def show(self, message: Message) -> None:
        """Show the progress that a message reports."""
        with suppress(OSError):  # the terminal was closed
            self._show(self._tracks[message.run], message)

    def _show(self, track: Track, message: Message) -> None:
        match message:
            case Started():
                self._start(track, message.epochs_done)
            case Trained():
                track.images += message.images
                if track.bar is not None:
                    track.bar.update(message.images)
            case EpochSaved():
                self._end_epoch(track, message)
        if self._bar is not None:
            self._bar.set_description_str(self._count(), refresh=False)
            _, done, self._bar.total = self._work()
            self._bar.update(done - self._bar.n)

    def close(self, label: str) -> None:
        """The training has ended: close its bar. Images since its last saved epoch are lost."""
        track = self._tracks[label]
        if track.bar is not None:
            with suppress(OSError):  # the terminal was closed
                track.bar.close()
        track.bar, track.images = None, 0

    def _count(self) -> str:
        return f"{self._n_finished} of {self._n_runs} runs"

    def _start(self, track: Track, epochs_done: int) -> None:
        if not track.started:  # a worker with another folder finds other epochs done than we did
            track.epochs_first = epochs_done
        self.close(track.label)
        track.epochs_before = track.epochs_done = epochs_done
        track.started = time.perf_counter()
        n_train = track.config.data.n_train
        if self._on_terminal:
            track.bar = tqdm(
                desc=track.label,
                total=track.config.epochs * n_train,
                initial=epochs_done * n_train,
                unit=" images",
                unit_scale=True,
                smoothing=0,  # rates differ between training and evaluation: only the mean predicts
                dynamic_ncols=True,
                leave=self._n_runs == 1,
            )

    def _end_epoch(self, track: Track, row: EpochSaved) -> None:
        config, epochs = track.config, track.config.epochs
        track.epochs_done = row.epoch
        track.images = max(0, track.images - config.data.n_train)  # the rest is of the next epoch
        elapsed = time.perf_counter() - track.started
        track.epoch_seconds = elapsed / (row.epoch - track.epochs_before)
        seconds_left = track.epoch_seconds * (epochs - row.epoch)
        validation = percent(row.validation_errors, config.n_validation)
        tested = f"{config.tested_on} {percent(row.test_errors, config.data.n_test)}"
        if track.bar is not None:
            track.bar.n = row.epoch * config.data.n_train + track.images
            track.bar.set_postfix_str(
                f"epoch {row.epoch}/{epochs}, validation {validation}, {tested}"
            )
        line = (
            f"{track.label}: epoch {row.epoch}/{epochs}, eta {row.eta:.2e}, "
            f"loss {row.train_loss:.4f}, validation {validation}, {tested}, "
            f"{config.data.n_train / row.train_seconds:.0f} images/s, left {duration(seconds_left)}"
        )
        self._n_finished += row.epoch == epochs
        if self._n_runs > 1 and not self._on_terminal:
            before, done, total = self._work()  # the rest at the mean rate so far
            so_far = time.perf_counter() - self._started
            all_left = max(seconds_left, so_far * (total - done) / (done - before))
            line += f"; {self._count()} done, all left {duration(all_left)}"
        if not self._on_terminal or (self._n_runs > 1 and row.epoch == epochs):
            self.tell(line)

    def _work(self) -> tuple[float, float, float]:
        """Work of all trainings, in seconds of one worker: before the command, so far, in all.

        Measured times take the place of estimates, and correct the other estimates alike.
        """
        tracks = self._tracks.values()
        known = [track for track in tracks if track.epoch_seconds]
        ratio = sum(t.epoch_seconds for t in known) / sum(t.estimate for t in known) if known else 1
        before = done = total = 0.0
        for track in tracks:
            seconds = track.epoch_seconds or ratio * track.estimate
            before += seconds * track.epochs_first
            done += seconds * (track.epochs_done + min(track.images / track.config.data.n_train, 1))
            total += seconds * track.config.epochs
        return before, done, total
