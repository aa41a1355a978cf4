"""The page of your runs beside the records, and of all records: its rows, figures and sources."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from deepbig_runtime.errors import Problem
from experiments.datasets import data
from experiments.datasets.dataset import CIFAR10_JPEG, KINDS, is_mnist
from experiments.drawing import error_plots, run_plots
from experiments.drawing.page import Page
from experiments.results import cnn_tables, committee_report, comparisons, tables, voting
from experiments.results.committee_report import Committee, unfinished
from experiments.results.committees import find_committees
from experiments.results.comparisons import (
    Comparison,
    committee_with_paper,
    committee_with_record,
    with_paper,
    with_record,
)
from experiments.results.records import by_folder, folder_of, read_results
from experiments.results.rows import CommitteeRow
from experiments.training import provenance, store
from experiments.training.formatting import plural, printable
from experiments.training.store import Run

TITLE = "Deep, big, simple nets: what was trained and measured"
INTRODUCTION = (
    "Plain multi-layer perceptrons and convolutional nets, trained by on-line back-propagation on "
    "deformed digits, after Cireşan, Meier, Gambardella, Masci and Schmidhuber (2010 to 2012). "
    "Runs are the run files that were found; records are results of trainings, kept in results/. "
    "Below each table stands where its numbers come from."
)
NOT_MNIST = (
    "These are the 1,797 small digits of scikit-learn's load_digits. Their figures have nothing to "
    "do with the paper's and must not be compared with them, nor with those on MNIST."
)
NOT_THE_PAPERS = (
    "These are your own files in the format of the paper's data. Their figures must not be "
    "compared with the paper's."
)
RECORD_COLUMN, PAPER_COLUMN = "our record %", "the paper %"
OWN_TITLE = "Your runs, beside our records and the paper"
COMMITTEES_CAPTION = (
    "The result of each committee. The best member has the fewest errors on these same digits, "
    "which favours it; p is McNemar's exact test, two-sided, of the committee against it."
)
# Columns that come next after the name of a row.
ERROR_COLUMNS = (
    "TEfBV %",
    "paper TEfBV %",
    "95 % interval",
    "wrong",
    "epochs x images",
    "BTE %",
    "paper BTE %",
)
FIRST = "MNIST", "load_digits"  # data sets
OWN_DATA = ", data of your own"


def state(run: Run) -> str:
    """Nothing for a finished run; else how far it came, and why not further."""
    if run.finished:
        return ""
    last = run.provenance[-1]
    why = f"stopped: {last.why}" if last.end else "still training, or killed"
    return f", {run.epochs} of {run.config.epochs} epochs, {why}"


def source(name: str, run: Run) -> str:
    """Where and when a run was trained, in a line that begins with its name."""
    if tables.is_table1(run):
        return f"{name}: {tables.provenance_line(run)}"
    line = tables.source_line(tables.run_source(run), tables.engine_name(run))
    return f"{name}: {run.config.title}; {line}"


class Report:
    """The page of all runs below a folder and of all records in results/.

    runs: by the paths of their files below the folder, without .h5. records: of runs, by the paths
    of their files in the repository. results: all records. faults: a sentence for each file that
    cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.page, self.folder = Page(), folder
        self.faults: list[str] = []
        runs = store.read_runs(folder, lambda fault: self.faults.append(str(fault)))
        self.runs = {_shown(path.with_suffix(""), folder): run for path, run in runs.items()}
        self.results = read_results(skip_damaged=True)
        self.faults += self.results.faults
        recorded = self.results.runs.items()
        self.records = {_shown(path, provenance.REPOSITORY): run for path, run in recorded}
        everything = [*self.runs.values(), *self.records.values()]
        self._kinds = {run.config.data.name: run.config.kind for run in everything} | KINDS
        others = {run.config.data.name for run in everything} - set(FIRST)
        self.names = [*FIRST, *sorted(others)]

    def title(self, name: str) -> str:
        """The heading of what there is on a data set."""
        of_paper = cnn_tables.table_for(self._kinds[name]).data
        if name == CIFAR10_JPEG:
            return "CIFAR-10, a JPEG copy"
        if name not in KINDS:
            return f"{name}{OWN_DATA}"
        return name if name == of_paper else f"{name}, which is NOT {of_paper}"

    def _warn(self, name: str) -> None:
        """Say that figures of data that are not the paper's cannot be compared with it."""
        if " NOT " in self.title(name):
            self.page.warn(NOT_MNIST if name in FIRST else NOT_THE_PAPERS)

    def add_own(self) -> None:
        """Each run of the folder, beside the record of the same net and the paper's figure."""
        page = self.page
        page.heading(2, OWN_TITLE, is_open=True)
        if not self.runs:
            return page.say(
                'No run yet. `make table1 ARGS="--data digits --nets 1 --epochs 2"` trains a net '
                "in seconds, `make table1` five on MNIST in minutes."
            )
        for name in self.names:
            if runs := tables.on_data(self.runs, name):
                page.heading(3, self.title(name), is_open=True)
                self._warn(name)
                self._add_comparisons(runs, name)
                self._add_pictures(runs, name)
        page.say(comparisons.EXPLAINED)
        page.say(tables.TIME_EXPLAINED)

    def _add_comparisons(self, runs: Mapping[str, Run], name: str) -> None:
        """The table of the runs on one data set; a committee has the row of its members."""
        rows, lines, formed = [], [], find_committees(runs)
        members = {id(run) for one in formed for run in one.runs}
        for key, run in runs.items():
            if id(run) not in members:
                record, paper = with_record(run, self.records), with_paper(run)
                there = self.records | {key: run}
                lines += [source(name, there[name]) for name in (key, record.record) if name]
                cells = tables.result_cells(tables.result_row(run))
                named = f"{key}{state(run)}"
                rows.append(_own_row(named, cells["TEfBV %"], cells, record, paper))
        for one in formed:
            own, where = committee_report.tidy_rows(one), self._where(one)
            same = {
                _recorded_in(folder_of(path), found): found
                for path, found in self.results.committees.items()
                if found[-1].experiment == one.name
            }
            record, paper = committee_with_record(own[-1], same), committee_with_paper(own[-1])
            same[where] = own
            lines += [_committee_source(at, same[at]) for at in (where, record.record) if at]
            (cells,) = committee_report.committee_table(own)
            key = f"{one.name}, {where}{unfinished(one.runs)}"
            rows.append(_own_row(key, cells["error %"], cells, record, paper))
        used = {column for row in rows for column, cell in row.items() if cell != "-"}
        counted = f"{plural(len(runs), 'run')} on {name}"
        counted += "" if RECORD_COLUMN in used else "; there is no record of such a net"
        counted += "" if PAPER_COLUMN in used else "; the papers have no figure for it"
        rows = [{column: row[column] for column in row if column in used} for row in rows]
        self.page.table(f"{counted}.", rows, lines)

    def _where(self, one: Committee) -> str:
        """The folder that has a committee's runs."""
        first = next(key for key, run in self.runs.items() if run is one.runs[0])
        folder = Path(first).parent
        # "." would say nothing.
        return f"runs in {folder.as_posix() if folder.name else self.folder.resolve().name}"

    def _add_pictures(self, runs: Mapping[str, Run], name: str) -> None:
        """Learning curves of all runs on one data set, and the errors of the best one."""
        n_runs = plural(len(runs), "run")
        alt = f"Training loss, validation and test error of {n_runs} against epochs."
        figure = run_plots.plot_learning_curves(runs)
        self.page.figure(figure, f"{n_runs} on {name}.", alt)
        best = tables.best_of(runs)
        run, title = runs[best], runs[best].config.title
        if (images := find_test_images(run)) is None:
            self.page.say(
                f"The wrong {run.config.noun}s are not drawn, for the files of {name} that the run "
                'was tested on are not found: `make figure1 ARGS="RUN.h5 --data-dir DIR"` does it.'
            )
        else:
            counted = voting.count_sentence(run.outputs, run.labels)
            alt = f"The misclassified {run.config.noun}s, each with its label and two guesses: "
            figure = error_plots.plot_wrong(run.outputs, run.labels, images, title, run.config)
            who = f"{title}, the run with the lowest TEfBV: {best}."
            are_photographs = run.config.noun == "image"
            self.page.figure(figure, who, f"{alt}{counted}.", are_photographs)

    def add_records(self, name: str) -> None:
        """The recorded perceptrons, convolutional nets and committees on the data of that name."""
        page, is_paper = self.page, is_mnist(name)
        page.heading(2, f"Records: {self.title(name).removesuffix(OWN_DATA)}")
        self._warn(name)
        if own := tables.table1_runs(self.records, name):
            page.heading(3, "Table 1, the paper beside ours" if is_paper else "Table 1's nets")
            rows = list(map(_errors_first, tables.table1_table(list(own.values()))))
            page.table(" ".join(tables.COLUMNS_EXPLAINED), rows, sources(own))
        if own := cnn_tables.convolutional_runs(self.records, name):
            page.heading(3, "The convolutional nets of 2011")
            rows = list(map(_errors_first, cnn_tables.table(list(own.values()))))
            for row in rows:
                del row["layers"]  # which the source names, so that a row fits on paper
            page.table("The nets of 2011 and others.", rows, sources(own))
        found = [by_folder(self.results.committees, name, kind) for kind in committee_report.KINDS]
        if any(found):
            page.heading(3, "The committees of 2012")
        for folder, recorded in (item for folders in found for item in folders.items()):
            self._add_side_by_side(_recorded_in(folder, recorded), recorded, name)

    def _add_side_by_side(self, where: str, rows: Sequence[CommitteeRow], name: str) -> None:
        """Committees of equal size, with where they all are."""
        each = committee_report.by_committee(rows).values()
        lines = [_committee_source(where, own) for own in each]
        summary, results, *order = committee_report.side_by_side(rows)
        percent = "errors in percent" + (", the paper / ours" if is_mnist(name) else "")
        self.page.table(f"Each net and its committee, {where}: {percent}.", summary, lines)
        self.page.table(COMMITTEES_CAPTION, results)
        for claims in order:
            text = "The paper's claims, and whether the committees above show them."
            self.page.table(text, claims)

    def build(self) -> str:
        """The whole page."""
        page, counts = self.page, []
        self.add_own()
        for name in self.names:
            n = len(tables.on_data(self.records, name))
            n += sum(rows[-1].data == name for rows in self.results.committees.values())
            own = plural(len(tables.on_data(self.runs, name)), "run")
            counts.append(f"{own} and {plural(n, 'record')} on {name}")
            if n:
                self.add_records(name)
        tree = provenance.marked(**provenance.commit())
        written = f"Written {provenance.now()}; {provenance.commit_text(tree)}."
        page.heading(2, "About this page")
        page.say(INTRODUCTION)
        page.say(f"Found: {', '.join(counts)}. {written}")
        return page.render(TITLE, self.faults)


def _own_row(
    name: str, error: str, cells: Mapping[str, str], record: Comparison, paper: Comparison
) -> dict[str, str]:
    """A run or committee, its error, and the figures that are shown next to it."""
    row = {"run": name, "error %": error, RECORD_COLUMN: record.text, PAPER_COLUMN: paper.text}
    names = "95 % interval", "wrong", "epochs x images", "time", tables.TIME_SUM
    return row | {name: cells.get(name, "-") for name in names}


def sources(runs: Mapping[str, Run]) -> list[str]:
    """Where and when each run was trained."""
    return [source(*item) for item in runs.items()]


def _shown(path: Path, folder: Path) -> str:
    return printable(path.relative_to(folder).as_posix())


def _errors_first(row: Mapping[str, str]) -> dict[str, str]:
    """A row whose errors stand next to its name, with the training effort."""
    first = [next(iter(row)), *(name for name in ERROR_COLUMNS if name in row)]
    return {name: row[name] for name in dict.fromkeys([*first, *row])}


def _recorded_in(folder: Path, rows: Sequence[CommitteeRow]) -> str:
    return f"records of runs in {printable(folder.name)}, {rows[-1].source.device}"


def _committee_source(where: str, rows: Sequence[CommitteeRow]) -> str:
    members = rows[:-1]
    seeds = ", ".join(str(row.seed) for row in members)
    lines = dict.fromkeys(tables.source_line(row.source, row.engine) for row in members)
    return f"{where}: {rows[0].experiment}, seeds {seeds}: {'; '.join(lines)}"


def find_test_images(run: Run) -> np.ndarray | None:
    """The images that a run was tested on, float32, if they are on this machine."""
    wanted = run.config.data
    try:
        dataset = data.load_pixels(data.choice_of(wanted.name, None), mirrors=())
    except Problem:
        return None
    same = dataset.sha256 == wanted.sha256
    return data.scale(data.limit(dataset, 1)).test_images if same else None
