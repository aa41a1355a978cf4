"""Run files as `python -m experiments.watch` finds them."""

from datetime import UTC, datetime

import factories

from experiments.training import store

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp()


WRITTEN = NOW - 7  # when the last epoch was saved


def utc(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def make_run(epochs=4, of=10, seconds=20.0, started=None, why="running", n_validation=None):
    """A run that was never trained. seconds: an epoch; started: of its last process, since 1970."""
    of_data = {"n_train": 6000, "n_validation": n_validation, "n_test": 200}
    metrics = {
        "validation_errors": [90, 30, 60, 45][:epochs] + [50] * (epochs - 4),
        "test_errors": [13, 7, 5, 9][:epochs] + [8] * (epochs - 4),
        "deform_seconds": [0.25 * seconds] * epochs,
        "train_seconds": [0.5 * seconds] * epochs,
        "evaluate_seconds": [0.25 * seconds] * epochs,
    }
    started = WRITTEN - seconds * epochs - 1 if started is None else started
    session = {"start": utc(started), "end": None if why == "running" else utc(NOW), "why": why}
    return factories.make_run(epochs, metrics, session, data=of_data, epochs=of)


def write(path, run):
    path.parent.mkdir(exist_ok=True)
    store.write_run(path, run)
