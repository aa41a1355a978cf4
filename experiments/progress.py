"""Progress of a training: a bar on a terminal, a line an epoch anywhere else. Both on stderr."""

import sys
import threading
import time
from datetime import timedelta

from tqdm import tqdm

from mlp_gpu.training import Epoch

# tqdm's own lock is shared with forked processes: one that is killed while it has it would leave
# all others waiting for ever.
tqdm.set_lock(threading.RLock())


def duration(seconds: float) -> str:
    """Seconds as h:mm:ss, from a day on with the days before that."""
    return str(timedelta(seconds=round(seconds)))


def percent(errors: int, n: int) -> str:
    """A share of n images in percent, as the paper prints it."""
    return f"{100 * errors / n:.2f} %"


class Progress:
    """Tells how one run is getting on. Use as a context manager.

    label: the run's name. epochs, done: all epochs of the run and those done by an earlier
    process. n_train, n_test: images an epoch, and test images.
    """

    def __init__(self, label: str, epochs: int, done: int, n_train: int, n_test: int):
        self._label, self._epochs, self._done = label, epochs, done
        self._n_train, self._n_test = n_train, n_test
        self._started = time.perf_counter()
        self._bar = tqdm(
            desc=label,
            total=epochs * n_train,
            initial=done * n_train,
            unit=" images",
            unit_scale=True,
            smoothing=0,  # evaluation comes in lumps, so only the mean rate foretells the end
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_exception) -> None:
        self._bar.close()

    def tick(self, n_images: int) -> None:
        """n_images more have been trained."""
        self._bar.update(n_images)

    def epoch(self, row: Epoch) -> None:
        """An epoch is done and saved."""
        validation = percent(row.validation_errors, self._n_train)
        test = percent(row.test_errors, self._n_test)
        if not self._bar.disable:
            self._bar.set_postfix_str(
                f"epoch {row.epoch}/{self._epochs}, validation {validation}, test {test}"
            )
            return
        elapsed = time.perf_counter() - self._started
        left = elapsed / (row.epoch - self._done) * (self._epochs - row.epoch)
        print(
            f"{self._label}: epoch {row.epoch}/{self._epochs}, eta {row.eta:.2e}, "
            f"loss {row.train_loss:.4f}, validation {validation}, test {test}, "
            f"{self._n_train / row.train_seconds:.0f} images/s, left {duration(left)}",
            file=sys.stderr,
            flush=True,
        )
