"""The records in results/<device>/: the types of JSON records, and how all records are read.

Types hold no record that a table cannot be made of: anybody may have written the files. All
functions that read raise files.FileFault, one sentence, if a file does not hold such a record.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from deepbig_runtime.files import FileFault, Malformed, checked
from experiments.results.rows import (
    BenchRow,
    CommitteeRow,
    RaceRow,
    StartupRow,
    StudyRow,
    read_rows,
    read_text,
)
from experiments.training import provenance
from experiments.training.provenance import Source
from experiments.training.store import Run, run_of_builtins
from experiments.training.validation import (
    Count,
    Lines,
    Number,
    Positive,
    Seconds,
    Text,
    convert,
    parse_json,
)

# Names of the committees that may be recorded. The name of their folder of runs stands before them.
GIVEN = "committee"  # of given run files, which has no row in the papers
COMMITTEES = rf"(experiment[1-6]|table4)(-load_digits)?|{GIVEN}"
STUDIES = r"study.*\.csv"  # named after their folders of runs
_COMMITTEE_NAME = re.compile(rf"(.+)-(?:{COMMITTEES})\.csv")

# In the same folder, of experiments.gpu_check, experiments.ladder, experiments.blocks, the
# campaign, and of experiments.recognise of commit d071946.
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
    checks: Annotated[list[GpuCheckRow], Meta(min_length=1)]
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


class RedrawnRow(Struct, forbid_unknown_fields=True):
    """A way of drawing: how many digits are wrong, those included in which none was found."""

    way: Text
    wrong: Count
    not_found: Count


class RedrawnRecord(Struct, forbid_unknown_fields=True):
    """Errors on test digits that were drawn as pictures. n: number of digits. seed: of drawings."""

    net: Text
    n: Positive
    seed: Count
    rows: Annotated[list[RedrawnRow], Meta(min_length=1)]
    provenance: Source


# The ways to make the same steps that a record has distances of.
PLAIN, ENGINE = "plain float32 loop", "CPU engine"
# Images of a window, and of a block.
WINDOWS = {
    f"window of {window}, B = {block}": (window, block) for window, block in ((16, 64), (32, 128))
}


class BlockRow(Struct, forbid_unknown_fields=True):
    """A net from where it was compared.

    trained_on: number of images it was trained on before. distances: of the weights from those of
    float64, relative to how far these moved, by the names of methods. sweeps_per_image: how often
    a window's images went forward and backward, by the names of WINDOWS.
    """

    sizes: Annotated[tuple[Annotated[int, Meta(ge=1, le=10**6)], ...], Meta(min_length=2)]
    trained_on: Count
    eta: Number
    steps: Count
    distances: dict[str, Number]
    sweeps_per_image: dict[str, Number]

    def __post_init__(self) -> None:
        if not self.distances.keys() >= {PLAIN, ENGINE, *WINDOWS}:
            raise ValueError("it lacks the distance of a method")
        if not self.sweeps_per_image.keys() >= WINDOWS.keys():
            raise ValueError("it lacks the sweeps of a window")


class BlockRecord(Struct, forbid_unknown_fields=True, kw_only=True):
    """The record of experiments.blocks."""

    data: Text
    seed: Count
    rows: Annotated[list[BlockRow], Meta(min_length=1)]
    provenance: Source


BLOG_HIDDEN = 128
Large = Annotated[int, Meta(ge=0, le=10**15)]
Times = Annotated[list[Annotated[float, Meta(ge=1e-9, le=1e30)]], Meta(min_length=1)]


class RungKernel(Struct, forbid_unknown_fields=True):
    """A kernel of a rung: its launch, its resources on a GPU, and its work for an image.

    images_a_launch: images that a launch of the rung trains. warps: resident at once. Bytes are
    those that threads request, segments the sectors of 32 bytes that warps touch. shared_passes:
    equals shared_accesses if there are no bank conflicts. distance: of the rung's weights from the
    CPU engine's, relative to how far they moved.
    """

    rung: Text
    images_a_launch: Large
    kernel: Text
    blocks: Large
    threads: Large
    registers: Large
    shared_bytes: Large
    spill_bytes: Large
    warps: Large
    flops: Large
    read_bytes: Large
    read_segments: Large
    write_bytes: Large
    write_segments: Large
    shared_accesses: Large
    shared_passes: Large
    distance: Number


class ProgramTime(Struct, forbid_unknown_fields=True):
    """Microseconds an image of a program or a rung, one for each repeat of n_images.

    work_us: of a rung's kernels alone, where the host was fast enough to time them.
    """

    name: Text
    us: Times
    n_images: Large
    work_us: Times | UnsetType = UNSET


class SearchRow(Struct, forbid_unknown_fields=True):
    """Digits held out that are wrong after training with a learning rate and a momentum."""

    eta: Number
    momentum: Number
    epochs: Count
    n_train: Count
    wrong: Count
    n_apart: Positive


class AccuracyRow(Struct, forbid_unknown_fields=True):
    """Test digits that are wrong after an epoch."""

    seed: Large
    epoch: Count
    wrong: Count
    n_test: Annotated[int, Meta(ge=1)]
    data: Text


class LadderRecord(Struct, forbid_unknown_fields=True):
    """The record of experiments.ladder. hidden: neurons of the hidden layer."""

    data: Text
    hidden: Annotated[int, Meta(ge=1, le=10**6)]
    kernels: list[RungKernel]
    times: Annotated[list[ProgramTime], Meta(min_length=1)]
    search: list[SearchRow]
    accuracy: Annotated[list[AccuracyRow], Meta(min_length=1)]
    provenance: Source

    @property
    def is_blogs(self) -> bool:
        """Whether it is of the blog's net on MNIST."""
        return (self.data, self.hidden) == ("MNIST", BLOG_HIDDEN)


def read_json(path: Path, kind: type[Content]) -> Content:
    """The record in a JSON file. kind: the Struct that it is."""
    text = read_text(path)
    with checked(path):
        return convert("it", parse_json("it", text), kind)


def read_committee(path: Path) -> list[CommitteeRow]:
    """The rows of a committee: of its members, and then of the committee."""
    rows = read_rows(path, CommitteeRow)
    *members, last = rows
    names = [row.member for row in members]
    with checked(path):
        if last.is_member or not all(row.is_member for row in members):
            raise Malformed("its rows are not those of members and, last, of their committee")
        if last.best_member not in names or {row.experiment for row in rows} != {last.experiment}:
            raise Malformed("its rows are of several committees")
        if any(len(row.shared) != len(names) for row in rows):
            raise Malformed("it lacks columns shared_1, shared_2 and so on, one for each member")
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
        return run_of_builtins(parse_json("it", text))


@dataclass
class Results:
    """The records below results/, each kind by the paths of its files, sorted.

    runs: without predictions. faults: a sentence for each file that cannot be read.
    """

    runs: dict[Path, Run] = field(default_factory=dict)
    committees: dict[Path, list[CommitteeRow]] = field(default_factory=dict)
    benches: dict[Path, list[BenchRow]] = field(default_factory=dict)
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
    def newest_benches(self) -> dict[str, list[BenchRow]]:
        """The rows of each benchmark by its device: first those of all nets, the newest first."""

        def key(rows: list[BenchRow]) -> tuple[bool, str]:
            return any(row.net == COMMITTEE_NET for row in rows), rows[0].source.date

        found = sorted(self.benches.values(), key=key, reverse=True)
        return {rows[0].source.device: rows for rows in found}


COMMITTEE_NET = "841-800-10"  # which `make bench ARGS="--nets ..."` leaves out


# The kind of a record by a pattern of its file's name, and how it is read.
KINDS: dict[str, tuple[str, Callable[[Path], object]]] = {
    r"bench\.csv": ("benches", partial(read_rows, kind=BenchRow)),
    r"(startup|launches|tests)\.csv": ("startups", partial(read_rows, kind=StartupRow)),
    r"race\.csv": ("races", partial(read_rows, kind=RaceRow)),
    STUDIES: ("studies", partial(read_rows, kind=StudyRow)),
    _COMMITTEE_NAME.pattern: ("committees", read_committee),
    re.escape(GPU_CHECK): ("gpu_checks", partial(read_json, kind=GpuCheckRecord)),
    re.escape(LADDER): ("ladders", partial(read_json, kind=LadderRecord)),
    re.escape(CAMPAIGN): ("campaigns", partial(read_json, kind=CampaignRecord)),
    re.escape(BLOCKS): ("blocks", partial(read_json, kind=BlockRecord)),
    re.escape(REDRAWN): ("redrawn", partial(read_json, kind=RedrawnRecord)),
    r".*\.json": ("runs", read_record),
}


def read_results(skip_damaged: bool = False) -> Results:
    """All records below results/, of ladders only those of the blog's net on MNIST.

    skip_damaged: whether to go on after a file that cannot be read, which then is one of the
    faults. Else raises files.FileFault, one sentence.
    """
    found = Results()
    for path in sorted((provenance.REPOSITORY / "results").glob("*/*")):
        kinds = (kind for pattern, kind in KINDS.items() if re.fullmatch(pattern, path.name))
        name, read = next(kinds, ("", None))
        if read is None:
            continue
        try:
            getattr(found, name)[path] = read(path)
        except FileFault as fault:
            if not skip_damaged:
                raise
            found.faults.append(str(fault))
    found.ladders = {path: one for path, one in found.ladders.items() if one.is_blogs}
    return found
