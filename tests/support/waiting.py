"""Waiting for other processes and threads, with a deadline."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

POLL_SECONDS = 0.02
HANG_SECONDS = 2400  # of a wait that ends well on any machine; less than faulthandler_timeout


def is_alive(pid: int | str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], object], what: str = "it") -> object:
    """What condition() returns once it is true; the test fails if it is not in HANG_SECONDS.

    what: what is waited for, as the failure names it.
    """
    __tracebackhide__ = True  # so that pytest shows the line that waits
    end = time.monotonic() + HANG_SECONDS
    while not (found := condition()):
        if time.monotonic() > end:
            pytest.fail(f"waited {HANG_SECONDS} s in vain for {what}")
        time.sleep(POLL_SECONDS)
    return found


def join(process) -> None:
    """Join a process or thread. Fails the test if it has not ended after HANG_SECONDS."""
    __tracebackhide__ = True
    process.join(HANG_SECONDS)
    if process.is_alive():
        pytest.fail(f"waited {HANG_SECONDS} s in vain for the end of {process.name}")
