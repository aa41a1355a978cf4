"""Records in results/<device>/, one at a time: finished runs, committees and others.

Records are checked: anybody may have written them. All functions that read raise files.FileFault,
one sentence, if a file does not hold such a record.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

from deepbig_runtime.files import FileFault, checked
from experiments.datasets.dataset import is_mnist
from experiments.results import cnn_tables, committee_report, tables
from experiments.results.rows import CommitteeRow, ResultRow, read_rows, read_text
from experiments.training.formatting import duration, markdown_table
from experiments.training.provenance import Source
from experiments.training.store import Run, run_of_builtins
from experiments.training.validation import (
    Count,
    Lines,
    Seconds,
    Text,
    convert,
    parse_json,
)

# Names of the committees that may be recorded. The name of their folder of runs stands before them.
COMMITTEES = rf"(experiment[1-6]|table4)(-load_digits)?|{committee_report.GIVEN}"
COMMAND_FOLDER = "committee"  # of 'make committee'
_COMMITTEE_NAME = re.compile(rf"(.+)-(?:{COMMITTEES})\.csv")

# In the same folder, of experiments.gpu_check, experiments.ladder, experiments.blocks, the campaign
# and experiments.recognise.
GPU_CHECK = "gpu-check.json"
LADDER = "ladder.json"
BLOCKS = "blocks.json"
CAMPAIGN = "campaign.json"
REDRAWN = "redrawn.json"

Content = TypeVar("Content")


class GpuCheckRow(Struct):
    """A check of the GPU. result: a sentence. details: of the check, for people to look up."""

    check: Text
    passed: bool
    result: Lines
    seconds: Seconds
    details: dict = {}


class GpuCheckRecord(Struct):
    """The record of experiments.gpu_check. passed: whether all checks were made and passed."""

    passed: bool
    checks: list[GpuCheckRow]
    provenance: Source


class CampaignPart(Struct, kw_only=True):
    """A part of the record of `make campaign`. Older records have more fields, which nobody reads.

    goal, tries: numbers of cases. failures: number of tests that failed. seconds: of all tests.
    earlier: provenance of earlier commands that made some of the cases.
    """

    part: Text
    claim: Text
    unit: Text
    goal: Count
    tries: Count = 0
    failures: Count = 0
    seconds: Seconds = 0
    seed: int
    earlier: list[Source] = []
    provenance: Source

    @property
    def sources(self) -> list[Source]:
        """Provenance of all commands that made its cases."""
        return [*self.earlier, self.provenance]


class CampaignRecord(Struct, forbid_unknown_fields=True):
    """The record of the campaign."""

    parts: Annotated[list[CampaignPart], Meta(min_length=1)]


def campaign_table(rows: Sequence[CampaignPart]) -> str:
    """The rows of a campaign's record as Markdown."""
    cells = [
        {
            "part": row.part,
            "what must hold": row.claim,
            "tried": f"{row.tries:,} {row.unit}",
            "goal": f"{row.goal:,}",
            "failed trials": str(row.failures),
            "time": duration(row.seconds),
            "seed": str(row.seed),
            "date": row.provenance.columns().date[:10],
            "commit": ", ".join(dict.fromkeys(one.commit[:7] for one in row.sources)),
        }
        for row in rows
    ]
    devices = sorted({one.device for row in rows for one in row.sources})
    return f"{markdown_table(cells)}\n\n{'; '.join(devices)}.\n"


def read_json(
    path: Path, kind: type[Content], use: Callable[[Content], object] = lambda record: None
) -> Content:
    """The record in a JSON file. kind: the Struct that it is. use: a function that must take it."""
    text = read_text(path)
    with checked(path):
        record = convert("it", parse_json("it", text), kind)
    return _used(path, record, use)


def _used(path: Path, content: Content, use: Callable[[Content], object]) -> Content:
    """The content of a file, after its use was tried. Raises FileFault if that fails."""
    try:
        use(content)
    except (ArithmeticError, ValueError, TypeError, LookupError, StopIteration) as error:
        raise FileFault(f"{path} is damaged: {error!r:.200}") from None
    return content


def read_committee(path: Path) -> list[CommitteeRow]:
    """The rows of a committee."""
    rows = read_rows(path, CommitteeRow)
    with checked(path):
        committee_report.check_committee(rows)
    return rows


def is_committee(path: Path) -> bool:
    """Whether a file's name is that of the record of a committee."""
    return _COMMITTEE_NAME.fullmatch(path.name) is not None


def folder_of(path: Path) -> Path:
    """results/<device>/<folder of its runs>, of the record of a committee at `path`."""
    return path.with_name(_COMMITTEE_NAME.sub(r"\1", path.name))


def by_folder(
    found: Mapping[Path, Sequence[CommitteeRow]], data: str, kind: str = "experiment"
) -> dict[Path, list[CommitteeRow]]:
    """The rows of all committees on the data of that name, by their folder of runs.

    found: as `read_committees` gives them. kind: experiment, table4 or committee. The keys are of
    `folder_of`.
    """
    folders: dict[Path, list[CommitteeRow]] = {}
    for path, rows in found.items():
        last = rows[-1]
        if last.data == data and last.experiment.startswith(kind):
            folders.setdefault(folder_of(path), []).extend(rows)
    return folders


def of_make_committee(
    found: Mapping[Path, Sequence[CommitteeRow]],
) -> dict[Path, Sequence[CommitteeRow]]:
    """Experiments 1 to 6 on MNIST as 'make committee' trains them, by the paths of records."""
    return {
        path: rows
        for path, rows in found.items()
        if is_mnist(rows[-1].data) and rows[-1].experiment.startswith("experiment")
        if folder_of(path).name == COMMAND_FOLDER
    }


def read_record(path: Path) -> Run:
    """The record of a run, as a run without predictions."""
    text = read_text(path)
    with checked(path):
        run = run_of_builtins(parse_json("it", text))
    return _used(path, run, _row)


def _row(run: Run) -> ResultRow:
    """A run as a row of the table that it belongs to."""
    return cnn_tables.row(run) if run.config.is_convolutional else tables.table1_row(run)
