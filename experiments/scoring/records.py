"""Read the records in results/<device>/: finished runs, committees and benchmarks.

What is read is checked, as files that anybody may have written: `Columns` and rules say what each
kind of record holds. All functions that read raise files.FileFault, one sentence, if it does not.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from experiments.running import checks, provenance
from experiments.running.checks import array, integer, mapping, number
from experiments.running.nets import is_convolutional
from experiments.running.store import Run
from experiments.scoring import cnn_tables, committee_report, tables
from mlp_gpu.files import FileFault, Malformed, checked, read_bytes

# Names of the committees that may be recorded. The name of their folder of runs stands before them.
COMMITTEES = rf"(experiment[1-6]|table4)(-load_digits)?|{committee_report.GIVEN}"
COMMAND_FOLDER = "committee"  # of 'make committee'
_COMMITTEE_NAME = re.compile(rf"(.+)-(?:{COMMITTEES})\.csv")
# In which columns two committees of the same name must agree for one to replace the other.
SETTINGS = "member", "seed", "epochs", "images_an_epoch", "eta", "eta_decay"

# In the same folder, of experiments.gpu_check, experiments.ladder, experiments.blocks, the campaign
# and experiments.redrawn.
GPU_CHECK = "gpu-check.json"
LADDER = "ladder.json"
BLOCKS = "blocks.json"
CAMPAIGN = "campaign.json"
REDRAWN = "redrawn.json"
NOT_OF_RUNS = GPU_CHECK, LADDER, BLOCKS, CAMPAIGN, REDRAWN

LARGEST, LONGEST = 1e30, 1e10  # numbers in tables; seconds, which are taken from dates

Content = TypeVar("Content")


@dataclass(frozen=True)
class Columns:
    """Columns that a table must have. Cells of numbers may be empty, those of filled may not."""

    numbers: Sequence[str]
    filled: Sequence[str] = ()
    texts: Sequence[str] = ()

    def check(self, rows: Sequence[Mapping]) -> None:
        """Raise Malformed unless rows, as csv.DictReader gives them, are of such a table."""
        if not rows:
            raise Malformed("expected rows, found none")
        missing = {*self.numbers, *self.filled, *self.texts} - rows[0].keys()
        if missing:
            raise Malformed(f"it lacks the column {min(missing)}")
        for k, row in enumerate(rows, start=1):
            if None in (*row, *row.values()):
                raise Malformed(f"row {k} has other cells than the first line names")
            for name, cell in row.items():
                where = f"{name} of row {k}"
                if name in self.numbers and cell:
                    largest = LONGEST if "seconds" in name.split("_") else LARGEST
                    checks.parsed_number(where, cell, largest)
                elif name == "device" and name in self.filled:
                    checks.DEVICE(where, cell)
                elif name in self.filled and not cell:
                    raise Malformed(f"{where} is empty")
                elif name == "wrong_digits":
                    checks.PLACES(where, cell)
                elif name == "date":
                    checks.DATE(where, cell)
                else:
                    checks.TEXT(where, cell)


_SOURCE = "device", "date", "commit"
_COUNTED = "errors", "n_test", "percent", "low", "high", "shared_1", "seconds"
COMMITTEE = Columns(
    numbers=(
        *(*_COUNTED, "paper", "second_guesses", "mean_percent", "chosen_epoch"),
        *("only_committee", "only_best", "mcnemar_p"),
    ),
    filled=("experiment", "member", "finished", "data", *_COUNTED, *_SOURCE),
    texts=("net", "best_member", "layers", "engine", "driver", "versions", *SETTINGS),
)
BENCH = Columns(
    numbers=(
        *("weights", "layer", "n_in", "n_out", "repeats", "us_p20", "us", "us_p80"),
        *(
            "images",
            "images_a_second",
            "updates_a_second",
            "bytes",
            "gb_a_second",
            "copy_gb_a_second",
        ),
        *("times_cpu", "percent_of_copy", "tflop_a_second", "paper_gb_a_second", "flops"),
    ),
    filled=("group", "name", *_SOURCE),
    texts=("net", "state", "ran_on", "driver", "versions"),
)
_SCALED = (
    *("workers", "runs", "seconds", "seconds_p20", "seconds_p80", "speedup"),
    *("start_seconds", "bytes_an_epoch"),
)
SCALING = Columns(
    numbers=_SCALED,
    filled=("data", "engine", *_SCALED, *_SOURCE),
    texts=("driver", "versions"),
)
RACE = Columns(
    numbers=("seed", "seconds", "apart_errors", "test_errors"),
    filled=("way", "setting", "seed", "taken", "seconds", "apart_errors", "test_errors", *_SOURCE),
    texts=("driver", "versions"),
)
_STARTED = "repeats", "seconds", "seconds_p20", "seconds_p80"
STARTUP = Columns(
    numbers=_STARTED,
    filled=("what", *_STARTED, *_SOURCE),
    texts=("driver", "versions"),
)

# What is made of tables; one of which it cannot be made is damaged.
COMMITTEE_USES = (
    *(committee_report.committee_table, committee_report.summary_table),
    *(committee_report.check_wrong_digits, committee_report.images_trained),
)
DAMAGE_ERRORS = ArithmeticError, ValueError, TypeError, LookupError, StopIteration

RUN = mapping(
    {"config": checks.ANY, "provenance": checks.PROVENANCE, "metrics": checks.METRICS},
)
_SESSION = mapping(
    {
        "device": checks.DEVICE,
        "commit": checks.TEXT,
        "dirty": checks.FLAG,
        "versions": mapping({}, others=checks.TEXT),
        "start": checks.TIME,
        "end": checks.TIME,
        "driver": checks.nullable(checks.TEXT),
    },
    others=checks.ANY,
)
GPU_CHECK_RULE = mapping(
    {
        "checks": array(
            mapping(
                {
                    "check": checks.TEXT,
                    "passed": checks.FLAG,
                    "result": checks.LINES,
                    "seconds": number(0, checks.LONG),
                },
                others=checks.ANY,
            )
        ),
        "provenance": _SESSION,
    },
    others=checks.ANY,
)
_TIMES = array(number(1e-9, LARGEST), shortest=1)
_COUNT = integer(0, 10**15)
LADDER_RULE = mapping(
    {
        "data": checks.TEXT,
        "hidden": integer(1, 10**6),
        "kernels": array(
            mapping(
                {
                    "rung": checks.TEXT,
                    "kernel": checks.TEXT,
                    "distance": number(0, LARGEST),
                    **dict.fromkeys(
                        (
                            *("images_a_launch", "blocks", "threads", "registers", "spill_bytes"),
                            *("warps", "flops", "read_bytes", "read_segments", "write_bytes"),
                            *("write_segments", "shared_accesses", "shared_passes"),
                        ),
                        _COUNT,
                    ),
                },
                others=checks.ANY,
            )
        ),
        "times": array(
            mapping({"name": checks.TEXT, "us": _TIMES, "n_images": _COUNT}, {"work_us": _TIMES}),
            shortest=1,
        ),
        "search": array(
            mapping(
                {
                    "eta": number(0, LARGEST),
                    "momentum": number(0, LARGEST),
                    **dict.fromkeys(("epochs", "n_train", "wrong", "n_apart"), _COUNT),
                }
            )
        ),
        "accuracy": array(
            mapping(
                {
                    "data": checks.TEXT,
                    **dict.fromkeys(("seed", "epoch", "wrong", "n_test"), _COUNT),
                }
            )
        ),
        "provenance": _SESSION,
    }
)


_DISTANCES = mapping({}, others=number(0, LARGEST))
BLOCKS_RULE = mapping(
    {
        "data": checks.TEXT,
        "seed": _COUNT,
        "rows": array(
            mapping(
                {
                    "sizes": array(integer(1, 10**6), 2, 100),
                    **dict.fromkeys(("trained_on", "steps"), _COUNT),
                    "eta": number(0, LARGEST),
                    **dict.fromkeys(("distances", "sweeps_per_image"), _DISTANCES),
                }
            ),
            shortest=1,
        ),
        "provenance": _SESSION,
    },
    {"images_per_block": _COUNT},  # of older records
)
CAMPAIGN_RULE = mapping(
    {
        "parts": array(
            mapping(
                {
                    **dict.fromkeys(("part", "claim", "unit"), checks.TEXT),
                    **dict.fromkeys(("goal", "tries", "failures", "seconds"), _COUNT),
                    "seed": integer(0, 2**64),
                    "minutes": checks.nullable(number(0, LONGEST)),
                    "provenance": _SESSION,
                },
                # Records from before a part could go on lack these.
                optional={
                    "drawn": _COUNT,
                    "left": array(_COUNT),
                    "earlier": array(_SESSION),
                },
            ),
            shortest=1,
        ),
    }
)
REDRAWN_RULE = mapping(
    {
        "net": checks.TEXT,
        **dict.fromkeys(("n", "seed"), _COUNT),
        "rows": array(
            mapping({"way": checks.TEXT, **dict.fromkeys(("wrong", "not_found"), _COUNT)}),
            shortest=1,
        ),
        "provenance": _SESSION,
    }
)


def read_text(path: Path) -> str:
    """The text of a file, UTF-8."""
    try:
        return read_bytes(path).decode()
    except OSError as error:
        raise FileFault(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise FileFault(f"{path} is damaged: it is no text, UTF-8") from None


def read_json(path: Path, rule: checks.Rule) -> Any:
    """The value in a JSON file."""
    text = read_text(path)
    with checked(path):
        found = checks.parse_json("it", text)
        rule("it", found)
    return found


def read_csv(path: Path, columns: Columns) -> list[dict]:
    """The rows of a CSV file, all text."""
    text = read_text(path)
    with checked(path):
        try:
            reader = csv.DictReader(io.StringIO(text, newline=""))
            rows = list(reader)
        except csv.Error as error:
            raise Malformed(f"{error}") from None
        names = reader.fieldnames or ()
        if len(set(names)) < len(names):
            raise Malformed("two columns have the same name")
        columns.check(rows)
    return rows


def used(path: Path, content: Content, uses: Iterable[Callable[[Content], object]]) -> Content:
    """The content of a file, of which all this can be made. Raises FileFault if it cannot."""
    for use in uses:
        try:
            use(content)
        except DAMAGE_ERRORS as error:
            raise FileFault(f"{path} is damaged: {error!r:.200}") from None
    return content


def read_committee(path: Path) -> list[dict]:
    """The rows of a committee, all text."""
    return used(path, read_csv(path, COMMITTEE), COMMITTEE_USES)


def read_committees() -> dict[Path, list[dict]]:
    """The rows of all committees below results/, all text, in the order of their paths."""
    paths = sorted((provenance.REPOSITORY / "results").glob("*/*.csv"))
    return {path: read_committee(path) for path in paths if is_committee(path)}


def is_committee(path: Path) -> bool:
    """Whether a file's name is that of the record of a committee."""
    return _COMMITTEE_NAME.fullmatch(path.name) is not None


def folder_of(path: Path) -> Path:
    """results/<device>/<folder of its runs>, of the record of a committee at `path`."""
    return path.with_name(_COMMITTEE_NAME.sub(r"\1", path.name))


def by_folder(
    found: Mapping[Path, Sequence[Mapping]], data: str, kind: str = "experiment"
) -> dict[Path, list[Mapping]]:
    """The rows of all committees on the data of that name, by their folder of runs.

    found: as `read_committees` gives them. kind: experiment, table4 or committee. The keys are of
    `folder_of`.
    """
    folders: dict[Path, list[Mapping]] = {}
    for path, rows in found.items():
        last = rows[-1]
        if last["data"] == data and last["experiment"].startswith(kind):
            folders.setdefault(folder_of(path), []).extend(rows)
    return folders


def of_make_committee(
    found: Mapping[Path, Sequence[Mapping]],
) -> dict[Path, Sequence[Mapping]]:
    """Experiments 1 to 6 on MNIST as 'make committee' trains them, by the paths of records."""
    return {
        path: rows
        for path, rows in found.items()
        if rows[-1]["data"] == "MNIST" and rows[-1]["experiment"].startswith("experiment")
        if folder_of(path).name == COMMAND_FOLDER
    }


def read_benchmarks(uses: Iterable[Callable[[list[dict]], object]] = ()) -> list[list[dict]]:
    """The rows of all devices' bench.csv below results/, all text, in the order of their names.

    uses: what is made of each.
    """
    paths = sorted((provenance.REPOSITORY / "results").glob("*/bench.csv"))
    return [used(path, read_csv(path, BENCH), uses) for path in paths]


def record_paths() -> list[Path]:
    """The records of runs below results/, in the order of their names."""
    paths = sorted((provenance.REPOSITORY / "results").glob("*/*.json"))
    return [path for path in paths if path.name not in NOT_OF_RUNS]


def read_records() -> list[Run]:
    """All records of runs, without predictions, in the order of their names."""
    return [read_record(path) for path in record_paths()]


def read_record(path: Path) -> Run:
    """The record of a run, as a run without predictions."""
    record = read_json(path, RUN)
    with checked(path):
        checks.check_config("config", record["config"])
        checks.check_metrics(record["metrics"], record["config"])
    run = Run(**record, outputs=np.empty((0, 0), np.float32), labels=np.empty(0, np.uint8))
    return used(path, run, (_row,))


def _row(run: Run) -> dict:
    """A run as a row of the table that it belongs to."""
    return cnn_tables.row(run) if is_convolutional(run.config) else tables.table1_row(run)
