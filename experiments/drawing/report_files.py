"""What there is to report: the runs and records that can be read, and the files that cannot."""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from experiments.drawing import bench_plots
from experiments.running import provenance, store
from experiments.running.nets import is_convolutional
from experiments.running.store import Run
from experiments.scoring import cnn_tables, committee_report, records, tables
from experiments.timing import clusters
from experiments.timing import report as timing_report
from mlp_gpu.files import FileFault

# What reading a damaged record raises, or making a table of it.
DAMAGE_ERRORS = OSError, ValueError, TypeError, LookupError, StopIteration, csv.Error

# What the page makes of records; a record of which it cannot be made is damaged.
COMMITTEE_USES = committee_report.committee_table, committee_report.summary_table
BENCH_USES = (
    timing_report.bench_source,
    timing_report.net_table,
    timing_report.deform_table,
    timing_report.cnn_table,
    timing_report.evaluation_table,
    bench_plots.works,
)
SCALING_USES = timing_report.bench_source, clusters.scaling_table


def _row(run: Run) -> dict:
    """A run as a row of the table that it belongs to."""
    return cnn_tables.row(run) if is_convolutional(run.config) else tables.table1_row(run)


@dataclass
class Found:
    """What there is to report.

    folder: where runs were looked for. runs: by the paths of their files below it, without .h5.
    By the paths of their files: records, of runs, without outputs; and the rows of committees,
    benchmarks and scaling, all text. faults: a sentence for each file that cannot be read.
    """

    folder: Path
    runs: dict[str, Run] = field(default_factory=dict)
    records: dict[str, Run] = field(default_factory=dict)
    committees: dict[str, list[dict]] = field(default_factory=dict)
    benches: dict[str, list[dict]] = field(default_factory=dict)
    scalings: dict[str, list[dict]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def collect(folder: Path) -> Found:
    """Read all runs below the folder, and all records in results/."""
    found = Found(folder)

    def read(into: dict, path: Path, name: Path, reader: Callable, *uses: Callable) -> None:
        try:
            content = reader(path)
            for use in uses:
                use(content)  # fails if something is missing
        except FileFault as fault:
            found.faults.append(str(fault))
        except DAMAGE_ERRORS as error:
            found.faults.append(f"{path} is damaged: {error!r}")
        else:
            into[name.as_posix()] = content

    for path in store.run_files(folder):
        read(found.runs, path, path.relative_to(folder).with_suffix(""), store.read_run)
    base = provenance.REPOSITORY
    for path in sorted((base / "results").glob("*/*")):
        name = path.relative_to(base)
        if path.suffix == ".json" and path.name not in records.NOT_OF_RUNS:
            read(found.records, path, name, records.read_record, _row)
        elif path.suffix == ".csv" and re.fullmatch(records.COMMITTEES, path.stem):
            read(found.committees, path, name, read_rows, *COMMITTEE_USES)
        elif path.name == "bench.csv":
            read(found.benches, path, name, read_rows, *BENCH_USES)
        elif path.name == "scaling.csv":
            read(found.scalings, path, name, read_rows, *SCALING_USES)
    return found


def read_rows(path: Path) -> list[dict]:
    """The rows of a CSV file, all text. Raises FileFault if it was cut off."""
    rows = records.read_csv(path)
    if not rows:
        raise FileFault(f"{path} is damaged: expected rows, found none")
    if any(None in (*row, *row.values()) for row in rows):
        raise FileFault(f"{path} is damaged: a row has other cells than the first line names")
    return rows
