"""A plugin of pytest's: the outcome of each test, appended to a file as soon as the test ends.

The file is that of $DEEPBIG_OUTCOMES. If pytest is killed, the outcomes written before remain.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "DEEPBIG_OUTCOMES"
REPEATS = "repeats"  # marker of the tests that repeat kernels and compare their bits

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
        print(report.outcome, REPEATS in report.keywords, report.nodeid, file=file)


class Outcomes(NamedTuple):
    """tests: names of the tests by outcome. repeats: number of passed ones marked REPEATS."""

    tests: dict[str, list[str]]
    repeats: int


def read(path: Path) -> Outcomes:
    """The outcomes in a file; none if there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    # The last phase of a test decides.
    last = {name: (outcome, mark) for outcome, mark, name in (line.split(" ", 2) for line in lines)}
    kinds = "passed", "failed", "skipped"
    tests = {kind: [name for name, own in last.items() if own[0] == kind] for kind in kinds}
    return Outcomes(tests, list(last.values()).count(("passed", "True")))
