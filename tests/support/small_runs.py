"""A small run, which tests of run files train, stop and train on."""

import pytest

from deform_gpu import TABLE1
from experiments.datasets import data
from experiments.training import runs
from experiments.training.configs import make_config
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.training import Schedule

SIZES = (841, 70, 33, 10)
DATASET = data.limit(data.load("digits"), 300)
# So high a learning rate that the best epoch is neither the first nor the last.
CONFIG = make_config(DATASET, SIZES, Schedule(6, 0.05, 0.9), 2, TABLE1, "cpu")

NO_CALLBACKS = runs.Callbacks()


def train(path, config=CONFIG, callbacks=NO_CALLBACKS):
    return runs.train_run(path, config, DATASET, CpuEngine(), callbacks)


class AtEpoch(runs.Callbacks):
    """Calls `action` once that epoch is saved."""

    def __init__(self, number, action):
        self._number, self._action = number, action

    def epoch(self, row):
        if row.epoch == self._number:
            self._action()


def train_some(path, epochs):
    """Leave a run behind that was stopped after so many epochs."""

    class Stopped(BaseException):
        pass

    def stop():
        raise Stopped

    with pytest.raises(Stopped):
        train(path, callbacks=AtEpoch(epochs, stop))
