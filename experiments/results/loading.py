"""The records in results/, read and selected in one place: for README.md, the report, figures."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from deepbig_runtime.files import FileFault
from experiments.results import block_tables, ladder_tables, redrawn
from experiments.results.block_tables import BlockRecord
from experiments.results.ladder_tables import LadderRecord
from experiments.results.records import (
    BLOCKS,
    CAMPAIGN,
    GPU_CHECK,
    LADDER,
    REDRAWN,
    CampaignRecord,
    GpuCheckRecord,
    is_committee,
    read_committee,
    read_json,
    read_record,
)
from experiments.results.redrawn import RedrawnRecord
from experiments.results.rows import (
    BenchRow,
    CommitteeRow,
    RaceRow,
    ScalingRow,
    StartupRow,
    read_rows,
)
from experiments.training import provenance
from experiments.training.store import Run


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
    races: dict[Path, list[RaceRow]] = field(default_factory=dict)
    gpu_checks: dict[Path, GpuCheckRecord] = field(default_factory=dict)
    ladders: dict[Path, LadderRecord] = field(default_factory=dict)
    campaigns: dict[Path, CampaignRecord] = field(default_factory=dict)
    blocks: dict[Path, BlockRecord] = field(default_factory=dict)
    redrawn: dict[Path, RedrawnRecord] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def convolutional(self) -> list[Run]:
        """The runs of convolutional nets."""
        return [run for run in self.runs.values() if run.config.is_convolutional]

    @property
    def perceptrons(self) -> dict[Path, Run]:
        """The runs of nets of Table 1 of 2010."""
        return {path: run for path, run in self.runs.items() if not run.config.is_convolutional}

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
    REDRAWN: ("redrawn", partial(read_json, kind=RedrawnRecord, use=redrawn.table)),
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
        elif is_committee(path):
            kind, read = "committees", read_committee
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
