"""Small trainings for tests of many: light jobs, whose engine compiles nothing, and a table."""

import csv
import signal
from contextlib import contextmanager

import numpy as np
import pytest
from run_bits import bits

from deepbig_runtime.errors import Interrupted
from experiments.datasets import data
from experiments.training import jobs, nets
from experiments.training.configs import make_config
from experiments.training.jobs import Job
from experiments.training.progress import View
from experiments.training.workers import EpochSaved, InProcess
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network
from mlp_gpu.training import Schedule

EPOCHS = 100  # of a hundredth of a second
TABLE = ["--data", "digits", "--nets", "1", "--seeds", "0,1", "--epochs", "8", "--limit", "150"]


class LightEngine(CpuEngine):
    """As the CPU's for a net of one layer, without anything to be compiled."""

    def set_network(self, network):
        self._network = Network(network.sizes, tuple(W.copy() for W in network.weights))

    def get_network(self):
        return Network(self._network.sizes, tuple(W.copy() for W in self._network.weights))

    def _probabilities(self, x):
        a = x @ self._network.unpadded()[0]
        p = np.exp(a - a.max(axis=-1, keepdims=True))
        return p / p.sum(axis=-1, keepdims=True)

    def predict(self, images):
        return self._probabilities(np.insert(images.reshape(len(images), -1), 0, 1, axis=1))

    def train(self, images, labels, order, eta, tick=lambda n, loss: None):
        (W,) = self._network.unpadded()
        losses = []
        with np.errstate(all="ignore"):
            for k in order:
                x = np.append(np.float32(1), images[k])
                delta = self._probabilities(x)
                losses.append(1 - delta[labels[k]])
                delta[labels[k]] -= 1
                W -= np.float32(eta) * np.outer(x, delta)
        tick(len(order), np.mean(losses))
        return float(np.mean(losses))


def light_train_job(channel, job):
    """As jobs.train_job, with a LightEngine. Workers find this function by its name."""
    return _with_light_engine(TRAIN_JOB, channel, job)


def light_estimate_job(channel, job):
    return _with_light_engine(ESTIMATE_JOB, channel, job)


TRAIN_JOB, ESTIMATE_JOB = jobs.train_job, jobs.estimate_job


def _with_light_engine(function, channel, job):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nets, "make_engine", lambda *_: LightEngine())
        return function(channel, job)


@contextmanager
def light_jobs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "train_job", light_train_job)
        patch.setattr(jobs, "estimate_job", light_estimate_job)
        yield


def make_job(folder, seed, epochs=EPOCHS, eta=0.001):
    dataset = data.limit(data.load("digits"), 100)
    config = make_config(dataset, (841, 10), Schedule(epochs, eta, 0.95), seed, None, "cpu")
    return Job(folder / f"seed{seed}.h5", f"seed {seed}", config)


def make_jobs(folder, n=3):
    return [make_job(folder, seed) for seed in range(n)]


def train_undisturbed(folder):
    """The bits of each of three jobs, trained one after another without any trouble."""
    queue = make_jobs(folder)
    with light_jobs():
        jobs.train_all(queue, InProcess())
    return [bits(job.path) for job in queue]


def train_all(queue, pool):
    """As jobs.train_all: the runs, None for those that failed, and why those failed."""
    outcomes = jobs.train_all(queue, pool)
    return [o.run for o in outcomes], [o.failure for o in outcomes if o.failure]


def run_files(folder):
    return sorted(path for path in folder.glob("*.h5") if ".weights" not in path.name)


def table_rows(folder):
    """The table without times."""
    with (folder / "table1.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k not in ("seconds", "date")} for row in rows]


def assert_same_table(folder, expected):
    paths, others = run_files(folder), run_files(expected)
    assert [path.name for path in paths] == [path.name for path in others]
    for path, other in zip(paths, others, strict=True):
        assert bits(path) == bits(other)
    assert table_rows(folder) == table_rows(expected)


def stop_after(epoch, queue, pool, signum=signal.SIGTERM):
    """Train until an epoch of that number is told, and stop there as a signal would."""

    class Stopping(View):
        stopped = False

        def show(self, message):
            if isinstance(message, EpochSaved) and message.epoch == epoch and not self.stopped:
                self.stopped = True
                raise Interrupted(signum)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "View", Stopping)
        jobs.train_all(queue, pool)
