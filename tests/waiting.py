"""Waiting for another process or thread, with a deadline."""

import time
from collections.abc import Callable

import pytest


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until condition() is true. Fails the test if it is still false after `seconds`."""
    __tracebackhide__ = True  # so that pytest shows the line that waits
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds} s in vain")
        time.sleep(0.01)


def join(process, seconds: float = 120) -> None:
    """Join a process or thread. Fails the test if it has not ended after `seconds`."""
    __tracebackhide__ = True
    process.join(seconds)
    if process.is_alive():
        pytest.fail(f"waited {seconds} s in vain for the end of {process.name}")
