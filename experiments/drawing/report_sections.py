"""The page of all runs and records, section by section: its rows, figures and sources."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from deepbig_runtime.errors import Problem
from experiments.benchmarks import columns as timing_columns
from experiments.datasets import data
from experiments.datasets.dataset import CIFAR10_JPEG, KINDS, is_mnist
from experiments.drawing import error_plots, run_plots
from experiments.drawing.page import Html, Page, anchor, html
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
from experiments.results.records import folder_of, read_results
from experiments.results.rows import CommitteeRow
from experiments.results.tables import bench_source
from experiments.training import provenance, store
from experiments.training.formatting import plural, printable
from experiments.training.store import Run

TITLE = "Deep, big, simple nets: what was trained and measured"
INTRODUCTION = (
    "Plain multi-layer perceptrons and convolutional nets, trained by on-line back-propagation on "
    "deformed digits, after Cireşan, Meier, Gambardella, Masci and Schmidhuber (2010 to 2012). "
    "Runs are the run files that were found; records are results of trainings, kept in results/. "
    "A number in brackets leads to the source of the numbers or the picture beside it."
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
MAKE_OPTION = {"MNIST": "", "load_digits": ' ARGS="--data digits"'}  # to train on it
SMALL_P = 1e-9  # smaller ones are not printed
BENCH_TITLES = {  # by the part of results/README.md
    "bench": "Engines and baselines",
    "cnn-bench": "Convolutional nets and baselines",
    "deformation": "The deformation",
    "kernels": "The kernels",
}


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


def with_runs(
    records: Mapping[str, Run], runs: Mapping[str, Run]
) -> tuple[dict[str, Run], dict[str, str]]:
    """Records and the runs that are not recorded, by name, and the origin of each."""
    found, origins = dict(records), dict.fromkeys(records, "record")
    for name, run in runs.items():
        for key, other in records.items():
            if (other.config, other.metrics) == (run.config, run.metrics):
                origins[key] = f"record, and run {name}"
                break
        else:
            found[name], origins[name] = run, f"run {name}{state(run)}"
    return found, origins


class Report:
    """The page of all runs below a folder and of all records in results/.

    runs: by the paths of their files below the folder, without .h5. records: of runs, by the paths
    of their files in the repository. results: all records. faults: a sentence for each file that
    cannot be read. Each method that adds a section takes the runs on the data of that name.
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
        others = {run.config.data.name for run in everything} - MAKE_OPTION.keys()
        self.names = [*MAKE_OPTION, *sorted(others)]

    def title(self, name: str) -> str:
        """The heading of what there is on a data set."""
        of_paper = cnn_tables.table_for(self._kinds[name]).data
        if name == CIFAR10_JPEG:
            return "CIFAR-10, a JPEG copy"
        if name not in KINDS:
            return f"{name}, data of your own"
        return name if name == of_paper else f"{name}, which is NOT {of_paper}"

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
                self._add_comparisons(runs, name)
        page.say(comparisons.EXPLAINED)

    def _add_comparisons(self, runs: Mapping[str, Run], name: str) -> None:
        """The table of the runs on one data set; a committee has the row of its members."""
        rows, formed = [], find_committees(runs)
        members = {id(run) for one in formed for run in one.runs}
        for key, run in runs.items():
            if id(run) not in members:
                record, paper = with_record(run, self.records), with_paper(run)
                there = self.records | {key: run}
                lines = [source(name, there[name]) for name in (key, record.record) if name]
                cells = tables.result_cells(tables.result_row(run))
                rows.append(self._own_row(key, cells["TEfBV %"], cells, record, paper, lines))
        for one in formed:
            own, where = committee_report.tidy_rows(one), self._where(one)
            same = {
                _recorded_in(path, found): found
                for path, found in self.results.committees.items()
                if found[-1].experiment == one.name
            }
            record, paper = committee_with_record(own[-1], same), committee_with_paper(own[-1])
            same[where] = own
            lines = [_committee_source(at, same[at]) for at in (where, record.record) if at]
            (cells,) = committee_report.committee_table(own)
            key = f"{one.name}, {where}{unfinished(one.runs)}"
            rows.append(self._own_row(key, cells["error %"], cells, record, paper, lines))
        used = {column for row in rows for column, cell in row.items() if cell != "-"}
        counted = f"{plural(len(runs), 'run')} on {name}"
        counted += "" if RECORD_COLUMN in used else "; there is no record of such a net"
        counted += "" if PAPER_COLUMN in used else "; the papers have no figure for it"
        link = f'<a href="#{anchor(self.title(name))}">Curves, wrong digits, all tables</a>.'
        rows = [{column: row[column] for column in row if column in used} for row in rows]
        self.page.table(Html(f"{html(counted)}. {link}"), rows)

    def _own_row(
        self,
        name: str,
        error: str,
        cells: Mapping[str, str],
        record: Comparison,
        paper: Comparison,
        lines: Sequence[str],
    ) -> dict[str, str]:
        """A run or committee, its error, and the figures that it stands beside."""
        row = {"run": name, "error %": error, RECORD_COLUMN: record.text, PAPER_COLUMN: paper.text}
        row |= {name: cells[name] for name in ("95 % interval", "wrong", "epochs x images", "time")}
        for column, p in ("p, record", record.p), ("p, paper", paper.p):
            row[column] = "-" if p is None else f"{p:.2g}" if p > SMALL_P else f"< {SMALL_P:g}"
        return row | {"source": self.page.cite(*lines)}

    def add_table1(self, runs: Mapping[str, Run], name: str) -> None:
        """Table 1, from records and runs."""
        page = self.page
        page.heading(3, "Table 1, the paper beside ours" if is_mnist(name) else "Table 1's nets")
        recorded = tables.table1_runs(self.records, name)
        found, origins = with_runs(recorded, tables.table1_runs(runs, name))
        if not found:
            return page.say(f"No run yet: `make table1{MAKE_OPTION[name]}`.")
        everything = tables.table1_runs(found, name)
        rows = list(map(_errors_first, tables.table1_table(list(everything.values()))))
        for key, row in zip(everything, rows, strict=True):
            row["from"] = origins[key]
        page.table(" ".join(tables.ERRORS_EXPLAINED), rows, each=sources(everything))

    def add_convolutional(self, runs: Mapping[str, Run], name: str) -> None:
        """The convolutional nets of 2011, from records and runs."""
        page, own = self.page, cnn_tables.convolutional_runs(self.records, name)
        found, _ = with_runs(own, cnn_tables.convolutional_runs(runs, name))
        if not found:
            return
        page.heading(3, "The convolutional nets of 2011")
        if own:
            rows = list(map(_errors_first, cnn_tables.table(list(own.values()))))
            for row in rows:
                del row["layers"]  # which the source names, so that a row fits on paper
            page.table("The nets of 2011 and others, from records.", rows, each=sources(own))
        n_nets = plural(len(found), "convolutional net")
        alt = f"Test error of {n_nets} after each epoch, a panel for each description."
        beside = ", with the paper's figures" if is_mnist(name) else ""
        caption = f"{n_nets} on {name}, from records and runs{beside}."
        page.figure(run_plots.plot_error_curves(found), caption, alt, sources(found))

    def add_committees(self, runs: Mapping[str, Run], name: str) -> None:
        """The committees of 2012, from records and runs, and pictures."""
        page = self.page
        page.heading(3, "The committees of 2012")
        committees = self.results.committees.items()
        recorded = {path: rows for path, rows in committees if rows[-1].data == name}
        formed = [
            (one, committee_report.tidy_rows(one), self._where(one))
            for one in find_committees(runs)
        ]
        if not (recorded or formed):
            page.say(f"No committee yet: `make committee{MAKE_OPTION[name]}`.")
        found: list[tuple[str, str, Sequence[CommitteeRow]]] = []  # where, what from, the rows
        for path, rows in recorded.items():
            also = [where for _, own, where in formed if own == rows]
            found.append((_recorded_in(path, rows), ", and ".join(["record", *also]), rows))
        for one, rows, where in formed:
            if rows not in recorded.values():
                found.append((where, where + unfinished(one.runs), rows))
        places = dict.fromkeys(where for where, *_ in found)
        for where, kind in product(places, committee_report.KINDS):
            same = [
                (origin, rows)
                for there, origin, rows in found
                if there == where and rows[0].experiment.startswith(kind)
            ]
            if same:
                self._add_side_by_side(where, same, name)
        for one, rows, where in formed:
            errors = f"committee {100 * one.wrong[-1].mean():.2f} %"
            errors += f", members {one.mean_percent:.2f} %"
            alt = f"Test errors of {one.title}: {errors} on average, with 95 % intervals."
            cited = [_committee_source(where, rows)]
            page.figure(
                run_plots.plot_members(rows, one.title), f"{one.title}; {where}.", alt, cited
            )

    def _where(self, one: Committee) -> str:
        """The folder that has a committee's runs."""
        first = next(key for key, run in self.runs.items() if run is one.runs[0])
        folder = Path(first).parent
        # "." would say nothing.
        return f"runs in {folder.as_posix() if folder.name else self.folder.resolve().name}"

    def _add_side_by_side(
        self, where: str, own: Sequence[tuple[str, Sequence[CommitteeRow]]], name: str
    ) -> None:
        """Committees of equal size: where they all are; of each the origin and the rows."""
        page = self.page
        lines = [_committee_source(where, rows) for _, rows in own]
        summary, results, *order = committee_report.side_by_side(
            [row for _, rows in own for row in rows]
        )
        percent = "errors in percent" + (", the paper / ours" if is_mnist(name) else "")
        summary.append(dict(zip(summary[0], ["source", *map(page.cite, lines)], strict=True)))
        page.table(f"Each net and its committee, {where}: {percent}.", summary)
        for (origin, _), row in zip(own, results, strict=True):
            row["from"] = origin
        page.table(COMMITTEES_CAPTION, results, each=lines)
        for claims in order:
            text = "The paper's claims, and whether the committees above show them."
            page.table(text, claims, lines)

    def add_pictures(self, runs: Mapping[str, Run], name: str) -> None:
        """Learning curves of all runs, and the errors of the best one."""
        page = self.page
        page.heading(3, "Learning curves")
        if not runs:
            page.say(f"No run yet: `make table1{MAKE_OPTION[name]}`.")
            page.heading(3, "Misclassified digits")
            return page.say("No run yet.")
        for against, x in ("epochs", "epochs"), ("hours", "the time that they took"):
            n_runs = plural(len(runs), "run")
            alt = f"Training loss, validation and test error of {n_runs} against {x}."
            figure = run_plots.plot_learning_curves(runs, against)
            page.figure(figure, f"{n_runs} on {name}, against {x}.", alt, sources(runs))

        page.heading(3, "Misclassified digits")
        best = tables.best_of(runs)
        run, title = runs[best], runs[best].config.title
        noun = run.config.noun
        who = f"{title}, the run with the lowest TEfBV: {best}."
        cited = [source(best, run)]
        counted = voting.count_sentence(run.outputs, run.labels)
        images = find_test_images(run)
        if images is None:
            if name in KINDS:
                how = data.advice(KINDS[name].choice)
                why = f"the files of {name} that the run was tested on are not on this machine"
            else:
                how = 'name their folder: `make figure1 ARGS="RUN.h5 --data-dir DIR"`'
                why = f"{name} is data of your own, which this page does not look for"
            page.say(f"The {noun}s are not drawn: {why}. To draw them, {how}.")
        else:
            alt = f"The misclassified {noun}s, each with its label and two guesses: {counted}."
            figure = error_plots.plot_wrong(run.outputs, run.labels, images, title, run.config)
            page.figure(figure, who, alt, cited, has_photographs=noun == "image")
        figure = error_plots.plot_confusion(run.outputs, run.labels, title, run.config)
        alt = f"Which classes are taken for which: {counted}."
        page.figure(figure, f"{who} Labels in rows, guesses in columns.", alt, cited)

    def add_other_runs(self, runs: Mapping[str, Run]) -> None:
        """The runs that no Table 1 has: members of committees, and nets of other shapes."""
        own = {key: run for key, run in runs.items() if not tables.is_table1(run)}
        rows = []
        for key, run in own.items():
            cells = tables.result_cells(tables.result_row(run))
            errors = {name: cells[name] for name in ("TEfBV %", "95 % interval", "wrong", "BTE %")}
            row = {"run": key, **errors, "net": run.config.title}
            rows.append(row | {"epochs": f"{run.epochs}{state(run)}", "time": cells["time"]})
        if rows:
            self.page.heading(3, "The other runs")
            text = "Members of committees, and nets of other shapes."
            self.page.table(text, rows, each=sources(own))

    def add_benchmarks(self) -> None:
        """Engines, deformation, kernels and workers, as they were timed on each device."""
        page, results = self.page, self.results
        page.heading(2, "Benchmarks")
        page.say('Figures: `make pictures ARGS="times roofline"`, `notebooks/kernels.ipynb`.')
        for part, title in BENCH_TITLES.items():
            page.heading(3, title)
            found = [
                (rows, timing_columns.bench_tables(part, rows)) for rows in results.benches.values()
            ]
            if not any(own for _, own in found):
                page.say(timing_columns.NOT_MEASURED)
            for rows, own in found:
                for table in own:
                    page.table(f"{rows[0].source.device}.", table, [bench_source(rows)])
        page.heading(3, "Several workers")
        if not results.scalings:
            page.say(timing_columns.NOT_MEASURED)
        for scaled in results.scalings.values():
            table = timing_columns.scaling_table(scaled)
            page.table(f"{scaled[0].source.device}.", table, [bench_source(scaled)])

    def build(self, links: Sequence[Html] = ()) -> str:
        """The whole page. links: paragraphs that lead to other pages."""
        page, counts = self.page, []
        self.add_own()
        for name in self.names:
            runs = tables.on_data(self.runs, name)
            n = len(tables.on_data(self.records, name))
            n += sum(rows[-1].data == name for rows in self.results.committees.values())
            counts.append(f"{plural(len(runs), 'run')} and {plural(n, 'record')} on {name}")
            page.heading(2, self.title(name))
            if " NOT " in self.title(name):
                page.warn(NOT_MNIST if name in MAKE_OPTION else NOT_THE_PAPERS)
            if name in MAKE_OPTION or tables.table1_runs(runs, name):
                self.add_table1(runs, name)
            self.add_convolutional(runs, name)
            if name in MAKE_OPTION or find_committees(runs):
                self.add_committees(runs, name)
            if runs or name in MAKE_OPTION:
                self.add_pictures(runs, name)
            self.add_other_runs(runs)
        self.add_benchmarks()

        timings = plural(len(self.results.benches) + len(self.results.scalings), "record")
        tree = provenance.marked(**provenance.commit())
        written = f"Written {provenance.now()}; {provenance.commit_text(tree)}."
        page.heading(2, "About this page")
        page.say(INTRODUCTION)
        page.say(f"Found: {', '.join(counts)}, and {timings} of timings. {written}")
        return page.render(TITLE, links, self.faults)


def sources(runs: Mapping[str, Run]) -> list[str]:
    """Where and when each run was trained."""
    return [source(*item) for item in runs.items()]


def _shown(path: Path, folder: Path) -> str:
    return printable(path.relative_to(folder).as_posix())


def _errors_first(row: Mapping[str, str]) -> dict[str, str]:
    """A row whose errors stand next to its name, with the training effort."""
    first = [next(iter(row)), *(name for name in ERROR_COLUMNS if name in row)]
    return {name: row[name] for name in dict.fromkeys([*first, *row])}


def _recorded_in(path: Path, rows: Sequence[CommitteeRow]) -> str:
    return f"records of runs in {printable(folder_of(path).name)}, {rows[-1].source.device}"


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
