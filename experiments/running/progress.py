"""The progress of all trainings of a command: bars on a terminal, elsewhere a line per epoch.

Trainings may run in other processes. They report by messages, small dictionaries that JSON can
hold, which `experiments.running.jobs` describes. Everything is written to stderr.
"""

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from experiments.running.formatting import duration, percent
from experiments.running.messages import tell

# tqdm's own lock is shared with forked processes. A process that is killed while it holds that lock
# would leave all others waiting for ever.
tqdm.set_lock(threading.RLock())


@dataclass
class Track:
    """What is known of one training.

    label: its name. epochs, n_train, n_validation, n_test: as its configuration has them.
    epoch_seconds: expected time of an epoch, from its estimate and the mean that was measured,
    0 before. epochs_done: how many are saved. epochs_before: how many of them earlier processes
    did; epochs_first: how many there were when the command began. images: trained since the last
    saved epoch. started: by time.perf_counter, seconds; 0 while it waits for a worker.
    """

    label: str
    epochs: int
    n_train: int
    n_validation: int
    n_test: int
    epoch_seconds: float
    estimate: float = 0.0
    measured: float = 0.0
    epochs_done: int = 0
    epochs_before: int = 0
    epochs_first: int = 0
    images: int = 0
    started: float = 0.0
    bar: tqdm | None = None

    @property
    def work(self) -> float:
        """Work done so far, in seconds by the estimate."""
        return self.epoch_seconds * (self.epochs_done + min(self.images / self.n_train, 1))


class View:
    """Shows the progress of all trainings of a command. Use as a context manager.

    tracks: the trainings that are not finished. n_finished: how many trainings are.
    """

    def __init__(self, tracks: Sequence[Track], n_finished: int = 0):
        self._tracks = {track.label: track for track in tracks}
        for track in tracks:
            track.epochs_first, track.estimate = track.epochs_done, track.epoch_seconds
        self._n_finished = n_finished
        self._n_runs = len(tracks) + n_finished
        self._started = time.perf_counter()
        self._on_terminal = sys.stderr.isatty()
        self._bar = None
        if self._on_terminal and len(tracks) > 1:
            # tqdm predicts the end from the rate so far. The estimates only weigh the trainings.
            self._bar = tqdm(
                desc=self._count(),
                total=self._total_work(),
                initial=self._work(),
                smoothing=0,
                dynamic_ncols=True,
                bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}",
            )

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *_exception: object) -> None:
        for track in self._tracks.values():
            self._close(track)
        if self._bar is not None:
            self._bar.close()

    def tell(self, sentence: str) -> None:
        """Write a sentence above the bars, if there are any."""
        if self._on_terminal:
            tqdm.write(sentence, file=sys.stderr)
        else:
            tell(sentence)

    def _count(self) -> str:
        return f"{self._n_finished} of {self._n_runs} runs"

    def show(self, message: dict) -> None:
        """Show the progress that a message of experiments.running.jobs reports."""
        track = self._tracks[message["run"]]
        match message["event"]:
            case "start":
                self._start(track, message["epochs_done"])
            case "tick":
                self._tick(track, message["images"])
            case "epoch":
                self._epoch(track, message)
            case "end":
                self._end(track)

    def _start(self, track: Track, epochs_done: int) -> None:
        if not track.started:  # a worker with another folder finds other epochs done than we did
            track.epochs_first = epochs_done
        track.epochs_before = track.epochs_done = epochs_done
        track.images, track.started = 0, time.perf_counter()
        if self._on_terminal:
            self._close(track)
            track.bar = tqdm(
                desc=track.label,
                total=track.epochs * track.n_train,
                initial=epochs_done * track.n_train,
                unit=" images",
                unit_scale=True,
                smoothing=0,  # rates differ between training and evaluation: only the mean predicts
                dynamic_ncols=True,
                leave=self._n_runs == 1,
            )

    def _tick(self, track: Track, images: int) -> None:
        track.images += images
        if track.bar is not None:
            track.bar.update(images)
        self._show_all()

    def _epoch(self, track: Track, row: dict) -> None:
        track.epochs_done, track.images = row["epoch"], 0
        elapsed = time.perf_counter() - track.started
        mean = elapsed / (track.epochs_done - track.epochs_before)
        track.measured = mean
        self._correct()
        seconds_left = mean * (track.epochs - track.epochs_done)
        validation = percent(row["validation_errors"], track.n_validation)
        test = percent(row["test_errors"], track.n_test)
        if track.bar is not None:
            track.bar.n = track.epochs_done * track.n_train
            track.bar.set_postfix_str(
                f"epoch {track.epochs_done}/{track.epochs}, validation {validation}, test {test}"
            )
        line = (
            f"{track.label}: epoch {track.epochs_done}/{track.epochs}, eta {row['eta']:.2e}, "
            f"loss {row['train_loss']:.4f}, validation {validation}, test {test}, "
            f"{track.n_train / row['train_seconds']:.0f} images/s, left {duration(seconds_left)}"
        )
        self._n_finished += track.epochs_done == track.epochs
        if self._n_runs > 1 and not self._on_terminal:
            all_left = max(seconds_left, self._seconds_left())
            line += f"; {self._count()} done, all left {duration(all_left)}"
        if not self._on_terminal or (self._n_runs > 1 and track.epochs_done == track.epochs):
            self.tell(line)
        self._show_all()

    def _end(self, track: Track) -> None:
        self._close(track)
        track.images = 0  # images trained since the last saved epoch are lost

    def _close(self, track: Track) -> None:
        if track.bar is not None:
            track.bar.close()
            track.bar = None

    def _correct(self) -> None:
        """Let measured times take the place of estimates, and correct the others alike."""
        known = [track for track in self._tracks.values() if track.measured]
        ratio = sum(track.measured for track in known) / sum(track.estimate for track in known)
        for track in self._tracks.values():
            track.epoch_seconds = track.measured or ratio * track.estimate

    def _total_work(self) -> float:
        return sum(track.epoch_seconds * track.epochs for track in self._tracks.values())

    def _work(self) -> float:
        return sum(track.work for track in self._tracks.values())

    def _seconds_left(self) -> float:
        """Seconds until all trainings are finished, at the mean rate so far."""
        work = self._work()
        before = sum(track.epoch_seconds * track.epochs_first for track in self._tracks.values())
        elapsed = time.perf_counter() - self._started
        return elapsed * (self._total_work() - work) / (work - before)

    def _show_all(self) -> None:
        if self._bar is not None:
            self._bar.set_description_str(self._count(), refresh=False)
            self._bar.total = self._total_work()
            self._bar.update(self._work() - self._bar.n)
