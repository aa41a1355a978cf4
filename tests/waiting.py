"""Waiting with a deadline, for tests of processes."""

import time

import pytest

POLL_SECONDS = 0.05


def wait_until(condition, seconds, what):
    """What condition() returns once it is true; the test fails if it is not in so many seconds.

    what: what is waited for, as the failure names it.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds} s for {what}")
        time.sleep(POLL_SECONDS)
    return found
