"""A plugin of pytest's: the outcome of each test, appended to a file as soon as the test ends.

The file is that of $DEEPBIG_OUTCOMES. What ends pytest in the middle costs no outcome of before.
"""

import os
from pathlib import Path
from typing import Any

VARIABLE = "DEEPBIG_OUTCOMES"
OUTCOMES = "passed", "failed", "skipped"


_is_worker = False  # of pytest-xdist, whose workers report to the process that writes


def pytest_configure(config: Any) -> None:
    """Called once, before the tests."""
    global _is_worker
    _is_worker = hasattr(config, "workerinput")


def pytest_runtest_logreport(report: Any) -> None:
    """Called for each phase of a test."""
    if _is_worker or (report.when != "call" and report.passed):
        return
    with open(os.environ[VARIABLE], "a") as file:
        print(report.outcome, report.nodeid, file=file)


def read(path: Path) -> dict[str, list[str]]:
    """Names of tests by outcome; no names if there is no file."""
    outcomes: dict[str, str] = {}  # the last phase of a test decides
    if path.exists():
        for line in path.read_text().splitlines():
            outcome, _, name = line.partition(" ")
            outcomes[name] = outcome
    return {kind: [name for name, own in outcomes.items() if own == kind] for kind in OUTCOMES}
