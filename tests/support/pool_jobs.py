"""Jobs of tests of pools. Workers import this module by its name."""

import os
import signal
import time
import uuid

from deepbig_runtime.errors import Interrupted
from experiments.training.workers import Trained


def double(channel, number):
    """Send as many messages as the number says, and return twice the number."""
    for k in range(number):
        channel.send(Trained(str(number), k))
    return 2 * number


def fail(channel, reason):
    raise ValueError(f"cannot do {reason}")


class OddError(Exception):
    def __init__(self, *, reason):
        super().__init__(reason)


def fail_oddly(channel):
    raise OddError(reason="this")


def end_worker(channel, kind):
    """End the worker process."""
    os.kill(os.getpid(), getattr(signal, kind))
    time.sleep(60)


def gpu_missing(channel):
    from deepbig_runtime import gpu  # not imported by workers without a GPU

    return gpu.missing()


def sleep(channel):
    """A job that takes long and asks for no stop signal, as compiling does."""
    channel.send(Trained("sleep", os.getpid()))
    time.sleep(9999)  # a pool that waits for its end hangs


def wait_for_stop(channel, folder):
    """Wait for the stop signal and save it in a file, as a training does."""
    channel.send(Trained("wait", os.getpid()))
    end = time.monotonic() + 600
    while not channel.stop_signal():
        assert time.monotonic() < end, "no stop signal came"
        time.sleep(0.01)
    (folder / uuid.uuid4().hex).write_text(str(channel.stop_signal()))
    raise Interrupted(channel.stop_signal())
