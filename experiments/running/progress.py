"""How all trainings of a command are getting on: bars on a terminal, a line an epoch elsewhere.

Trainings may be in other processes: what is known of them comes as messages, small dictionaries
that JSON can hold, as `experiments.running.jobs` describes them. Everything is written to stderr.
"""

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from experiments.running.formatting import duration, percent

# tqdm's own lock is shared with forked processes: one that is killed while it has it would leave
# all others waiting for ever.
tqdm.set_lock(threading.RLock())


@dataclass
class Track:
    """What is known of one training.

    epochs, n_train, n_validation, n_test: as its configuration has them. seconds: what an epoch
    takes, about. done: epochs that are saved; first: those of an earlier process. images: trained
    since the last saved epoch. started: time of its start, in seconds; 0 while it waits.
    """

    label: str
    epochs: int
    n_train: int
    n_validation: int
    n_test: int
    seconds: float
    done: int = 0
    first: int = 0
    images: int = 0
    started: float = 0.0
    bar: tqdm | None = None

    @property
    def work(self) -> float:
        """Seconds of work done so far, by the estimate."""
        return self.seconds * (self.done + min(self.images / self.n_train, 1))


class View:
    """One view over all trainings of a command. Use as a context manager.

    tracks: the trainings that are not finished, with their epochs done. n_finished: how many
    others there are.
    """

    def __init__(self, tracks: Sequence[Track], n_finished: int = 0):
        self._tracks = {track.label: track for track in tracks}
        self._n_finished = n_finished
        self._n_runs = len(tracks) + n_finished
        self._whole = sum(track.seconds * track.epochs for track in tracks)
        self._before = sum(track.work for track in tracks)
        self._started = time.perf_counter()
        self._on_terminal = sys.stderr.isatty()
        self._bar = None
        if self._on_terminal and len(tracks) > 1:
            # tqdm foretells the end from the rate so far; the estimate's seconds are only weights.
            self._bar = tqdm(
                desc=self._count(),
                total=self._whole,
                initial=self._before,
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

    def say(self, sentence: str) -> None:
        """Show a sentence that is not about progress."""
        if self._on_terminal:
            tqdm.write(sentence, file=sys.stderr)
        else:
            print(sentence, file=sys.stderr, flush=True)

    def _count(self) -> str:
        return f"{self._n_finished} of {self._n_runs} runs"

    def take(self, message: dict) -> None:
        """Show what a message of experiments.running.jobs says."""
        track = self._tracks[message["run"]]
        match message["event"]:
            case "start":
                self._start(track, message["done"])
            case "tick":
                self._tick(track, message["images"])
            case "epoch":
                self._epoch(track, message)
            case "end":
                self._end(track)

    def _start(self, track: Track, done: int) -> None:
        if not track.started:  # only the worker knows what was done, if its folder is another one
            self._before += track.seconds * (done - track.done)
        track.first = track.done = done
        track.images, track.started = 0, time.perf_counter()
        if self._on_terminal:
            self._close(track)
            track.bar = tqdm(
                desc=track.label,
                total=track.epochs * track.n_train,
                initial=done * track.n_train,
                unit=" images",
                unit_scale=True,
                smoothing=0,  # evaluation comes in lumps, so only the mean rate foretells the end
                dynamic_ncols=True,
                leave=self._n_runs == 1,
            )

    def _tick(self, track: Track, images: int) -> None:
        track.images += images
        if track.bar is not None:
            track.bar.update(images)
        self._show_all()

    def _epoch(self, track: Track, row: dict) -> None:
        track.done, track.images = row["epoch"], 0
        elapsed = time.perf_counter() - track.started
        left = elapsed / (track.done - track.first) * (track.epochs - track.done)
        validation = percent(row["validation_errors"], track.n_validation)
        test = percent(row["test_errors"], track.n_test)
        if track.bar is not None:
            track.bar.n = track.done * track.n_train
            track.bar.set_postfix_str(
                f"epoch {track.done}/{track.epochs}, validation {validation}, test {test}"
            )
        line = (
            f"{track.label}: epoch {track.done}/{track.epochs}, eta {row['eta']:.2e}, "
            f"loss {row['train_loss']:.4f}, validation {validation}, test {test}, "
            f"{track.n_train / row['train_seconds']:.0f} images/s, left {duration(left)}"
        )
        self._n_finished += track.done == track.epochs
        if self._n_runs > 1 and not self._on_terminal:
            line += f"; {self._count()} done, all left {duration(self._all_left())}"
        if not self._on_terminal or (self._n_runs > 1 and track.done == track.epochs):
            self.say(line)
        self._show_all()

    def _end(self, track: Track) -> None:
        self._close(track)
        track.images = 0  # what was trained since the last epoch is lost, if anything was

    def _close(self, track: Track) -> None:
        if track.bar is not None:
            track.bar.close()
            track.bar = None

    def _work(self) -> float:
        return sum(track.work for track in self._tracks.values())

    def _all_left(self) -> float:
        """Seconds until all is done, if it goes on as it went so far."""
        work = self._work()
        elapsed = time.perf_counter() - self._started
        return elapsed * (self._whole - work) / (work - self._before)

    def _show_all(self) -> None:
        if self._bar is not None:
            self._bar.set_description_str(self._count(), refresh=False)
            self._bar.update(self._work() - self._bar.n)
