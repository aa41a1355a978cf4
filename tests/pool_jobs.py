"""What the workers of a pool do in tests. Workers import this module by its name."""

import os
import signal
import sys
import time

import numba
import numpy as np

from experiments.running.errors import Interrupted
from experiments.running.processes import THREAD_VARIABLES


def double(channel, number):
    """Send as many messages as the number says, and return twice the number."""
    for k in range(number):
        channel.send({"number": number, "k": k})
    return 2 * number


def fail(channel, what):
    raise ValueError(f"cannot do {what}")


def die(channel):
    os.kill(os.getpid(), signal.SIGKILL)


def name(channel, path):
    return path.name


def gpu_missing(channel):
    from deepbig_runtime import gpu  # not imported by workers without a GPU

    return gpu.missing()


def tell_threads(channel):
    variables = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    return variables, numba.config.NUMBA_NUM_THREADS, os.getpid()


def multiply_compiled(channel, a, b):
    """The product of two matrices by BLAS in compiled code, and what was imported before."""
    before = set(sys.modules)
    return numba.njit(lambda a, b: np.dot(a, b))(a, b), before


def look_at_nothing(channel):
    """A job that takes long and asks for no stop signal, as compiling does."""
    channel.send({"pid": os.getpid()})
    time.sleep(600)


def die_when_stopped(channel):
    channel.send({"pid": os.getpid()})
    while not channel.stop_signal():
        time.sleep(0.01)
    die(channel)


def wait_for_stop(channel, path):
    """Wait for the stop signal and save it, as a training does."""
    if channel.stop_signal():
        raise Interrupted(channel.stop_signal())
    channel.send({"began": str(path)})
    end = time.monotonic() + 600
    while not channel.stop_signal():
        assert time.monotonic() < end, "no stop signal came"
        time.sleep(0.01)
    path.write_text(str(channel.stop_signal()))
    raise Interrupted(channel.stop_signal())
