"""The records in results/<device>/, read and selected in one place: runs, committees and others.

Records are checked: anybody may have written them. All functions that read raise files.FileFault,
one sentence, if a file does not hold such a record.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

from deepbig_runtime.files import FileFault, checked
from experiments.results import block_tables, cnn_tables, committee_report, ladder_tables, tables
from experiments.results.block_tables import BlockRecord
from experiments.results.ladder_tables import LadderRecord
from experiments.results.rows import (
    BenchRow,
    CommitteeRow,
    RaceRow,
    ResultRow,
    ScalingRow,
    StartupRow,
    StudyRow,
    read_rows,
    read_text,
)
from experiments.training import provenance
from experiments.training.formatting import duration, markdown_table
from experiments.training.provenance import Source
from experiments.training.store import Run, run_of_builtins
from experiments.training.validation import Count, Lines, Seconds, Text, convert, parse_json

# Names of the committees that may be recorded. The name of their folder of runs stands before them.
COMMITTEES = rf"(experiment[1-6]|table4)(-load_digits)?|{committee_report.GIVEN}"
STUDIES = r"study.*\.csv"  # named after their folders of runs
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
    """A check of the GPU. result: a sentence. details: of the check, for people to look up.

    date, commit: of the end of the check, as in SourceColumns; older records lack them.
    """

    check: Text
    passed: bool
    result: Lines
    seconds: Seconds
    details: dict = {}
    date: Text = ""
    commit: Text = ""


class GpuCheckRecord(Struct):
    """The record of experiments.gpu_check. passed: whether all checks were made and passed."""

    passed: bool
    checks: list[GpuCheckRow]
    provenance: Source


class CampaignPart(Struct, kw_only=True):
    """A part of the record of a campaign (docs/promises.md). Older records have more fields.

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


class RedrawnRow(Struct, forbid_unknown_fields=True):
    """A way of drawing: how many digits are wrong, those included in which none was found."""

    way: Text
    wrong: Count
    not_found: Count


class RedrawnRecord(Struct, forbid_unknown_fields=True):
    """Errors on test digits that were drawn as pictures. n: number of digits. seed: of drawings."""

    net: Text
    n: Count
    seed: Count
    rows: Annotated[list[RedrawnRow], Meta(min_length=1)]
    provenance: Source


def redrawn_table(record: RedrawnRecord) -> str:
    """Errors on test digits that were drawn as pictures, as Markdown, with their source."""
    n = record.n
    lines = [
        {
            "digits": row.way,
            "wrong": f"{row.wrong} of {n:,}",
            "%": f"{100 * row.wrong / n:.2f}",
            "of these, no digit found": str(row.not_found),
        }
        for row in record.rows
    ]
    heading = f"{record.net}; {n:,} test digits, drawn with seed {record.seed}; "
    heading += tables.source_line(record.provenance.columns())
    return f"{heading}:\n\n{markdown_table(lines)}"


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


def folder_of(path: Path) -> Path:
    """results/<device>/<folder of its runs>, of the record of a committee at `path`."""
    return path.with_name(_COMMITTEE_NAME.sub(r"\1", path.name))


def by_folder(
    found: Mapping[Path, Sequence[CommitteeRow]], data: str, kind: str = "experiment"
) -> dict[Path, list[CommitteeRow]]:
    """The rows of all committees on the data of that name, by their folder of runs.

    found: the rows of each committee, by the paths of their records. kind: experiment, table4 or
    committee. The keys are those that `folder_of` returns.
    """
    folders: dict[Path, list[CommitteeRow]] = {}
    for path, rows in found.items():
        last = rows[-1]
        if last.data == data and last.experiment.startswith(kind):
            folders.setdefault(folder_of(path), []).extend(rows)
    return folders


def read_record(path: Path) -> Run:
    """The record of a run, as a run without predictions."""
    text = read_text(path)
    with checked(path):
        run = run_of_builtins(parse_json("it", text))
    return _used(path, run, _row)


def _row(run: Run) -> ResultRow:
    """A run as a row of the table that it belongs to, if it belongs to one."""
    if run.config.is_convolutional:
        return cnn_tables.row(run)
    return tables.table1_row(run) if tables.is_table1(run) else tables.result_row(run)


@dataclass
class Results:
    """The records below results/, each kind by the paths of its files, sorted.

    runs: without predictions. faults: a sentence for each file that cannot be read.
    """

    runs: dict[Path, Run] = field(default_factory=dict)
    committees: dict[Path, list[CommitteeRow]] = field(default_factory=dict)
    benches: dict[Path, list[BenchRow]] = field(default_factory=dict)
    scalings: dict[Path, list[ScalingRow]] = field(default_factory=dict)
    startups: dict[Path, list[StartupRow]] = field(default_factory=dict)
    studies: dict[Path, list[StudyRow]] = field(default_factory=dict)
    races: dict[Path, list[RaceRow]] = field(default_factory=dict)
    gpu_checks: dict[Path, GpuCheckRecord] = field(default_factory=dict)
    ladders: dict[Path, LadderRecord] = field(default_factory=dict)
    campaigns: dict[Path, CampaignRecord] = field(default_factory=dict)
    blocks: dict[Path, BlockRecord] = field(default_factory=dict)
    redrawn: dict[Path, RedrawnRecord] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def perceptrons(self) -> dict[Path, Run]:
        """The runs of nets of Table 1 of 2010."""
        return {path: run for path, run in self.runs.items() if tables.is_table1(run)}

    @property
    def newest_benches(self) -> dict[str, list[BenchRow]]:
        """The rows of each benchmark by its device, the newest first."""
        found = sorted(self.benches.values(), key=lambda rows: rows[0].source.date, reverse=True)
        return {rows[0].source.device: rows for rows in found}


def _read_blog_ladder(path: Path) -> LadderRecord | None:
    """A record of the ladder; None if it is not of the blog's net on MNIST."""
    record = read_json(path, LadderRecord, ladder_tables.tables)
    is_blogs = (record.data, record.hidden) == ("MNIST", ladder_tables.BLOG_HIDDEN)
    return record if is_blogs else None


# The kind of a record by the name of its file. All other JSON files are records of runs.
KINDS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "bench.csv": ("benches", partial(read_rows, kind=BenchRow)),
    "scaling.csv": ("scalings", partial(read_rows, kind=ScalingRow)),
    "startup.csv": ("startups", partial(read_rows, kind=StartupRow)),
    "race.csv": ("races", partial(read_rows, kind=RaceRow)),
    GPU_CHECK: ("gpu_checks", partial(read_json, kind=GpuCheckRecord)),
    LADDER: ("ladders", _read_blog_ladder),
    CAMPAIGN: ("campaigns", partial(read_json, kind=CampaignRecord)),
    BLOCKS: ("blocks", partial(read_json, kind=BlockRecord, use=block_tables.tables)),
    REDRAWN: ("redrawn", partial(read_json, kind=RedrawnRecord, use=redrawn_table)),
}


def read_results(skip_damaged: bool = False) -> Results:
    """All records below results/.

    skip_damaged: whether to go on after a file that cannot be read, which then is one of the
    faults. Else raises files.FileFault, one sentence.
    """
    found = Results()
    for path in sorted((provenance.REPOSITORY / "results").glob("*/*")):
        if path.name in KINDS:
            kind, read = KINDS[path.name]
        elif _COMMITTEE_NAME.fullmatch(path.name):
            kind, read = "committees", read_committee
        elif re.fullmatch(STUDIES, path.name):
            kind, read = "studies", partial(read_rows, kind=StudyRow)
        elif path.suffix == ".json":
            kind, read = "runs", read_record
        else:
            continue
        try:
            record = read(path)
        except FileFault as fault:
            if not skip_damaged:
                raise
            found.faults.append(str(fault))
        else:
            if record is not None:
                getattr(found, kind)[path] = record
    return found
