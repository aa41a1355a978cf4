"""What there is to report: the runs and records that can be read, and the files that cannot."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from deepbig_runtime.files import FileFault
from experiments.drawing.page import Html
from experiments.running import provenance, store
from experiments.running.formatting import printable
from experiments.running.store import Run
from experiments.scoring import records
from experiments.scoring.rows import BenchRow, CommitteeRow, ScalingRow, read_rows


@dataclass
class Found:
    """What there is to report.

    folder: where runs were looked for. runs: by the paths of their files below it, without .h5.
    By the paths of their files: records, of runs, without outputs; and the rows of committees, of
    benchmarks and of scaling. faults: a sentence for each file that cannot be read. links:
    paragraphs that lead to other pages.
    """

    folder: Path
    runs: dict[str, Run] = field(default_factory=dict)
    records: dict[str, Run] = field(default_factory=dict)
    committees: dict[Path, list[CommitteeRow]] = field(default_factory=dict)
    benches: dict[str, list[BenchRow]] = field(default_factory=dict)
    scalings: dict[str, list[ScalingRow]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    links: list[Html] = field(default_factory=list)


def collect(folder: Path) -> Found:
    """Read all runs below the folder, and all records in results/."""
    found = Found(folder)

    def read(into: dict, path: Path, key: Path | str, reader: Callable) -> None:
        try:
            into[key] = reader(path)
        except FileFault as fault:
            found.faults.append(str(fault))

    for path in store.run_files(folder):
        name = printable(path.relative_to(folder).with_suffix("").as_posix())
        read(found.runs, path, name, store.read_run)
    base = provenance.REPOSITORY
    for path in sorted((base / "results").glob("*/*")):
        name = printable(path.relative_to(base).as_posix())
        if path.suffix == ".json" and path.name not in records.NOT_OF_RUNS:
            read(found.records, path, name, records.read_record)
        elif records.is_committee(path):
            read(found.committees, path, path, records.read_committee)
        elif path.name == "bench.csv":
            read(found.benches, path, name, partial(read_rows, kind=BenchRow))
        elif path.name == "scaling.csv":
            read(found.scalings, path, name, partial(read_rows, kind=ScalingRow))
    return found
