"""Waiting for other processes and threads, with a deadline."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

POLL_SECONDS = 0.02


def is_alive(pid: int | str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], object], seconds: float = 120, what: str = "it") -> object:
    """What condition() returns once it is true; the test fails if it is not in so many seconds.

    what: what is waited for, as the failure names it.
    """
    __tracebackhide__ = True  # so that pytest shows the line that waits
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds} s in vain for {what}")
        time.sleep(POLL_SECONDS)
    return found


def join(process, seconds: float = 120) -> None:
    """Join a process or thread. Fails the test if it has not ended after `seconds`."""
    __tracebackhide__ = True
    process.join(seconds)
    if process.is_alive():
        pytest.fail(f"waited {seconds} s in vain for the end of {process.name}")
