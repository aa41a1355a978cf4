"""The rows of the tables in results/: one type for each kind, which declares its columns.

Empty cells are None, or "" in columns of text. Older records lack columns that have a default, and
have some that are not known any more.
"""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, to_builtins

from deepbig_runtime.files import FileFault, Malformed, checked, read_bytes
from experiments.training.formatting import csv_text
from experiments.training.provenance import SourceColumns
from experiments.training.validation import LARGEST, Count, Filled, Number, Positive, Text, convert

LONGEST = 1e10  # seconds, which are taken from dates
Duration = Annotated[float, Meta(ge=0, le=LONGEST)]
Time = Annotated[float, Meta(gt=0, le=LARGEST)]  # rates are divided by it


class Row(Struct, kw_only=True):
    """A row of a table, whose last columns are those of its source."""

    source: SourceColumns

    @classmethod
    def gather(cls, filled: dict[str, Any], cells: dict[str, str]) -> dict[str, Any]:
        """The values of fields in cells that are filled; cells: all of the row."""
        return filled

    def spread(self, values: dict[str, Any]) -> dict[str, Any]:
        """The cells of the values of fields, as text where a cell is no single value."""
        return values


RowT = TypeVar("RowT", bound=Row)


class BenchRow(Row, kw_only=True):
    """A row of bench.csv: the times of an engine, a kernel, a deformation or a copy.

    Times are microseconds: per image in the groups `net`, `cnn` and `deformation`, per launch in
    `kernel`, `window kernel` and `cnn kernel`, per batch in `evaluation` or, on a CPU, per image;
    copies, reads, multiply-adds and the CPU's kernel have that of a call. `narrow net` has the
    CPU's rows of `net` once more, limited to AVX2. us: the median of the repeats, us_p20 and us_p80
    its percentiles. Images, bytes and flops are those of such a time.

    net: number in Table 1 of 2010, or sizes; of 2011 in `cnn` and `cnn kernel`. weights: of the
    net. settings: those that a baseline is fastest with. layer: from 1, with n_in inputs and n_out
    neurons. state: of the GPU's L2 cache before the launch, warm or cold. ran_on: the device.
    vectors: floats in a vector register of the CPU, as far as our code uses them.
    updates_a_second: of weights. times_cpu: speedup over the CPU engine. copy_gb_a_second and the
    percentages: of copies, reads and multiply-adds measured in turn with it.
    """

    group: Filled
    net: Text = ""
    weights: Count | None = None
    name: Filled
    settings: Text = ""
    layer: Count | None = None
    n_in: Count | None = None
    n_out: Count | None = None
    state: Text = ""
    ran_on: Text = ""
    vectors: Count | None = None
    repeats: Count
    us_p20: Time
    us: Time
    us_p80: Time
    images: Count | None = None
    images_a_second: Number | None = None
    updates_a_second: Number | None = None
    times_cpu: Number | None = None
    bytes: Number | None = None
    gb_a_second: Number | None = None
    copy_gb_a_second: Number | None = None
    percent_of_copy: Number | None = None
    percent_of_read: Number | None = None
    tflop_a_second: Number | None = None
    paper_gb_a_second: Number | None = None
    flops: Number | None = None
    percent_of_peak: Number | None = None


class StartupRow(Row, kw_only=True):
    """A row of startup.csv, launches.csv or tests.csv.

    what: the timed work. Seconds: medians, percentiles of the repeats.
    """

    what: Filled
    repeats: Count
    seconds: Duration
    seconds_p20: Duration
    seconds_p80: Duration


class RaceRow(Row, kw_only=True):
    """A row of race.csv: a net after an epoch of one way to train.

    taken: whether the setting is the way's best, by the images held out with the first seed.
    seconds: of training until then. apart_errors: of the images held out.
    """

    way: Filled
    setting: Filled
    seed: Count
    taken: bool
    seconds: Duration
    apart_errors: Count
    test_errors: Count


class CommitteeRow(Row, kw_only=True):
    """A row of a committee's table: one of its members, or last, without `net`, the committee.

    net: from 1. Errors are of n_test digits; percent with its interval, and the paper's.
    second_guesses: errors whose second guess is right. shared: errors that the row has in common
    with each member, in the columns shared_1, shared_2 and so on. wrong_digits: places of the
    misclassified test digits, from 0; None in older records. Of the committee alone: mean_percent,
    of its members; the best of them, errors of one of the two alone, and McNemar's p. Settings
    that differ between members are joined by "and" in the row of the committee.
    """

    experiment: Filled
    net: Count | None = None
    member: Filled
    errors: Count
    n_test: Count
    percent: Number
    low: Number
    high: Number
    paper: Number | None = None
    second_guesses: Count
    mean_percent: Number | None = None
    best_member: Text = ""
    only_committee: Count | None = None
    only_best: Count | None = None
    mcnemar_p: Number | None = None
    shared: list[Count]
    wrong_digits: list[Count] | None = None
    data: Filled
    layers: Text
    seed: Annotated[int, Meta(ge=0)] | None = None
    epochs: Filled
    finished: bool
    images_an_epoch: Filled
    eta: Filled
    eta_decay: Filled
    chosen_epoch: Count | None = None
    seconds: Duration
    engine: Text

    def __post_init__(self) -> None:
        wrong = self.wrong_digits
        if wrong is not None and (
            len(set(wrong)) != self.errors or max(wrong, default=0) >= self.n_test
        ):
            raise ValueError(f"wrong_digits are not {self.errors} of {self.n_test} digits")
        if self.is_member:
            if not (self.epochs.isdecimal() and self.images_an_epoch.isdecimal()):
                raise ValueError("epochs and images_an_epoch of a member are not numbers")
        elif None in (self.mean_percent, self.only_committee, self.only_best, self.mcnemar_p):
            raise ValueError("the row of the committee lacks its comparison with its members")

    @property
    def is_member(self) -> bool:
        """Whether it is not the committee's."""
        return self.net is not None

    @classmethod
    def gather(cls, filled: dict[str, Any], cells: dict[str, str]) -> dict[str, Any]:
        shared = [name for name in filled if name.startswith("shared_")]
        filled["shared"] = [filled.pop(name) for name in shared]
        if "wrong_digits" in cells:
            filled["wrong_digits"] = cells["wrong_digits"].split()
        return filled

    def spread(self, values: dict[str, Any]) -> dict[str, Any]:
        cells: dict[str, Any] = {}
        for name, value in values.items():
            if name == "shared":
                cells |= {f"shared_{k}": n for k, n in enumerate(value, start=1)}
            elif name != "wrong_digits":
                cells[name] = value
            elif value is not None:
                cells[name] = " ".join(map(str, value))
        return cells


class ResultRow(Row, kw_only=True):
    """The training and the errors of a run, which tables of runs share. Errors in percent.

    tefbv: test error at the epoch with the lowest validation error, with its interval; bte: the
    lowest of any epoch. planned_epochs: those that the run is to have at its end. seconds: sum of
    all epochs. seconds_by_median: number of epochs times the median of one.
    """

    data: Filled
    distortion: bool
    seed: int
    epochs: Count
    planned_epochs: Count
    images_an_epoch: Count
    eta: Number
    eta_decay: Number
    n_test: Count
    tefbv_errors: Count
    tefbv: Number
    tefbv_low: Number
    tefbv_high: Number
    chosen_epoch: Count
    bte_errors: Count
    bte: Number
    seconds: Duration
    seconds_by_median: Duration
    engine: Text

    @property
    def epochs_done(self) -> str:
        """How many epochs the run was trained, and of how many if it is not finished."""
        of_planned = f" of {self.planned_epochs:,}" if self.epochs != self.planned_epochs else ""
        return f"{self.epochs:,}{of_planned}"

    def spread(self, values: dict[str, Any]) -> dict[str, Any]:
        shared = {name: values.pop(name) for name in ResultRow.__struct_fields__}
        return values | shared


class Table1Row(ResultRow, kw_only=True):
    """A row of table1.csv. net: its number in Table 1 of 2010; None if the run has no place there.

    deformation: its settings, name=value, with spaces between them.
    """

    net: Count | None
    layers: Filled
    weights: Count
    deformation: Text = ""
    n_validation: Count | None = None
    validation_part: Count | None = None


class StudyRow(Row, kw_only=True):
    """A row of study.csv: a net at the epoch that the images held out choose.

    held_out_errors: among the n_validation images held out.
    training_errors: among the undeformed training images. train_loss: of that epoch, nats;
    of outputs with squared error half that error.
    """

    factor: Filled
    setting: Filled
    layers: Filled
    seed: Count
    epochs: Count
    images_an_epoch: Positive
    eta: Number
    eta_decay: Number
    deformation: Text
    n_validation: Positive
    validation_part: Annotated[int, Meta(ge=1, le=2)]
    held_out_errors: Count
    chosen_epoch: Count
    training_errors: Count
    train_loss: Number
    seconds: Duration


class CnnRow(ResultRow, kw_only=True):
    """A row of cnn.csv. translation: percent. error_after_N: test error after N epochs, percent."""

    layers: Filled
    translation: Number
    weights: Count
    error_after_1: Number | None
    error_after_3: Number | None
    error_after_17: Number | None


def read_text(path: Path) -> str:
    """The text of a file, UTF-8. Raises FileFault if it cannot be read."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise FileFault(f"{path} is damaged: it is no text, UTF-8") from None


def read_rows(path: Path, kind: type[RowT]) -> list[RowT]:
    """The rows of a CSV file. Raises FileFault if it has no such rows."""
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
        if not rows:
            raise Malformed("expected rows, found none")
        for k, row in enumerate(rows, start=1):
            if None in (*row, *row.values()):
                raise Malformed(f"row {k} has other cells than the first line names")
        return [from_cells(f"row {k}", row, kind) for k, row in enumerate(rows, start=1)]


def from_cells(where: str, cells: dict[str, str], kind: type[RowT]) -> RowT:
    """A row of a type in cells of text. Raises Malformed if they are of no such row."""
    found = kind.gather({name: cell for name, cell in cells.items() if cell}, cells)
    source = {name: found.pop(name) for name in SourceColumns.__struct_fields__ if name in found}
    found["source"] = convert(where, source, SourceColumns)
    return convert(where, found, kind, strict=False)


def to_cells(row: Row) -> dict[str, Any]:
    """The cells of a row, as CSV files have them."""
    cells = row.spread(to_builtins(row))
    source = cells.pop("source")
    return cells | source


def rows_text(rows: Iterable[Row]) -> str:
    """Rows as CSV."""
    return csv_text([to_cells(row) for row in rows])
