"""Counts of what the tests of faults tried, which a campaign writes as a record."""

import os
import time
from functools import cache
from pathlib import Path

import pytest
from tries import RECORD, SEED, tries

from deepbig_runtime import files
from experiments.results.record_tables import campaign_table
from experiments.results.records import CampaignPart, CampaignRecord, read_json
from experiments.training import provenance
from experiments.training.validation import to_json

# Of each file: its claim, what it counts, and how many a campaign tries.
PARTS = {
    "kills": (
        "after a kill at any moment no saved epoch is lost, and no process lives on; the same "
        "command goes on to the same bits and leaves no file over",
        "kills",
        1000,
    ),
    "power": (
        "after a power cut at any point of saving an epoch, with any part written and any names "
        "new, the files open as the epoch before or as this one, and end with the same bits",
        "states",
        1974,  # all there are
    ),
    "damage": (
        "one sentence and status 2, or the right content; no traceback, hang or crash, within "
        "2 GB, nothing written",
        "inputs",
        10_000,
    ),
    "system": (
        "status 0, or 2 or 1 with a sentence; the same command without the fault ends with the "
        "same bits; nothing is left over",
        "faults",
        300,
    ),
    "arguments": (
        "status 0, 1 or 2, 130 after Ctrl-C, and one short sentence where it is not 0",
        "command lines",
        2000,
    ),
    "endurance": (
        "in a training of many epochs memory, open files and processor time do not grow, and the "
        "run file grows by its rows",
        "epochs",
        2000,
    ),
}


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """A function of a command: the folder where it ran undisturbed, and its seconds.

    In a campaign the shortest of three runs: most kills planned by a slow one would come too late.
    """

    @cache
    def run(*line):
        import commands

        seconds = []
        for _ in range(tries(1, 3)):
            folder, started = tmp_path_factory.mktemp("undisturbed"), time.monotonic()
            commands.run(line, folder).check(0)
            seconds.append(time.monotonic() - started)
        return folder, min(seconds)

    return run


@pytest.fixture
def tried(record_property):
    """A function that counts what a test tries."""
    counted = []
    yield lambda n=1: counted.append(n)
    record_property("tried", sum(counted))


def pytest_runtest_logreport(report):
    """Add a test to the record, where the reports of all processes of pytest-xdist meet."""
    part = Path(report.location[0]).stem.removeprefix("test_")
    if not RECORD or part not in PARTS or "PYTEST_XDIST_WORKER" in os.environ:
        return
    row = _rows.setdefault(part, _new_row(part))
    row.failures += report.failed
    row.seconds += report.duration
    if report.when == "teardown":
        row.tries += dict(report.user_properties).get("tried", 0)
        row.provenance = row.provenance.ended()
        path = Path(RECORD)
        found = read_json(path, CampaignRecord).parts if path.exists() else []
        rows = {row.part: row for row in found} | _rows
        files.make_folder(path.parent)
        files.replace(path, to_json(CampaignRecord(list(rows.values()))))


def pytest_terminal_summary(terminalreporter):
    if _rows:
        terminalreporter.write_line(campaign_table(list(_rows.values())))


_rows = {}  # by their parts


def _new_row(part):
    claim, unit, goal = PARTS[part]
    source = provenance.collect()
    return CampaignPart(part=part, claim=claim, unit=unit, goal=goal, seed=SEED, provenance=source)
