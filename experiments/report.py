"""Everything there is to see on one page: all runs, and all records in results/.

Writes one HTML file that holds its pictures and asks nothing of the network. Each number leads to
where it comes from. Files that cannot be read are named, on the page and on stderr.
"""

import argparse
import csv
import io
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from experiments.drawing import bench_plots, plots
from experiments.drawing.page import Page, html
from experiments.running import cli, configs, data, provenance, store
from experiments.running.errors import Problem
from experiments.running.formatting import csv_text, duration, plural
from experiments.running.messages import tell
from experiments.running.store import Run
from experiments.scoring import committee_report, records, tables, voting
from experiments.scoring.committee_report import Committee, unfinished
from experiments.scoring.committees import find_committees
from experiments.timing import clusters
from experiments.timing import report as timing_report
from mlp_gpu import files
from mlp_gpu.files import FileFault
from mlp_gpu.training import Schedule

TABLE1 = (
    "TEfBV is the test error at the epoch with the lowest validation error, BTE the lowest test "
    "error of any epoch; the interval is that of TEfBV, 95 %, Clopper-Pearson."
)
WORK = "epochs x images"
COMMITTEES = (
    "What each committee came to. The best member has the fewest errors on these same digits, "
    "which favours it; p is McNemar's exact test, two-sided, of the committee against it."
)
INTRODUCTION = (
    "Plain multi-layer perceptrons, trained by on-line back-propagation on deformed digits, after "
    "Cireşan, Meier, Gambardella and Schmidhuber (2010, 2012). Runs are the files of trainings "
    "that were found; records are what is kept of finished ones in results/. A number in brackets "
    "leads to where the numbers or the picture beside it come from."
)
NOT_MNIST = (
    "These are the 1,797 small digits of scikit-learn's load_digits. Their figures have nothing to "
    "do with the paper's and must not be compared with them, nor with those on MNIST."
)
# What damaged records raise.
DAMAGES = OSError, ValueError, TypeError, LookupError, StopIteration, csv.Error
RUNS = Path("runs")
OPTION = {"MNIST": "", "load_digits": ' ARGS="--data digits"'}  # of make, to train on it


@dataclass
class Found:
    """What there is to report.

    folder: where runs were looked for. runs: by the paths of their files below it, without .h5. The
    others by their paths: records of runs, which have no outputs; rows of committees, benchmarks
    and scaling, all text. faults: a sentence for each file that cannot be read.
    """

    folder: Path
    runs: dict[str, Run] = field(default_factory=dict)
    records: dict[str, Run] = field(default_factory=dict)
    committees: dict[str, list[dict]] = field(default_factory=dict)
    benches: dict[str, list[dict]] = field(default_factory=dict)
    scalings: dict[str, list[dict]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def collect(folder: Path) -> Found:
    """Read all runs below the folder, and all records."""
    found = Found(folder)

    def read(into: dict, path: Path, name: Path, reader: Callable, *uses: Callable) -> None:
        try:
            content = reader(path)
            for use in uses:
                use(content)  # fails if something is missing
        except FileFault as fault:
            found.faults.append(str(fault))
        except DAMAGES as error:
            found.faults.append(f"{path} is damaged: {error!r}")
        else:
            into[name.as_posix()] = content

    for path in store.run_files(folder):
        read(found.runs, path, path.relative_to(folder).with_suffix(""), store.read_run)
    base, source = provenance.REPOSITORY, timing_report.bench_source
    for path in sorted((base / "results").glob("*/*")):
        name = path.relative_to(base)
        if path.suffix == ".json" and path.name != records.GPU_CHECK:
            read(found.records, path, name, records.read_record, tables.table1_row)
        elif path.suffix == ".csv" and re.fullmatch(records.COMMITTEES, path.stem):
            uses: tuple[Callable, ...]
            uses = committee_report.committee_table, committee_report.summary_table
            read(found.committees, path, name, read_rows, *uses)
        elif path.name == "bench.csv":
            uses = timing_report.net_table, timing_report.deform_table, bench_plots.works
            read(found.benches, path, name, read_rows, source, *uses)
        elif path.name == "scaling.csv":
            read(found.scalings, path, name, read_rows, source, clusters.scaling_table)
    return found


def read_rows(path: Path) -> list[dict]:
    """The rows of a CSV file, all text. Raises FileFault if it was cut off."""
    rows = records.read_csv(path)
    if not rows:
        raise FileFault(f"{path} is damaged: expected rows, found none")
    if any(None in (*row, *row.values()) for row in rows):
        raise FileFault(f"{path} is damaged: a row has other cells than the first line names")
    return rows


def state(run: Run) -> str:
    """Nothing for a finished run; else how far it came, and why not further."""
    if run.finished:
        return ""
    last = run.provenance[-1]
    why = f"stopped: {last['why']}" if last["end"] else "still training, or killed"
    return f", {run.epochs} of {run.config['epochs']} epochs, {why}"


def source(name: str, run: Run) -> str:
    """Where and when a run was trained, in a line that begins with its name."""
    if tables.is_table1(run):
        return f"{name}: {tables.provenance_line(run)}"
    commits = (provenance.columns(session)["commit"] for session in run.provenance)
    row = {
        **provenance.columns(run.provenance[-1]),
        "engine": tables.engine_name(run),
        "commit": committee_report.AND.join(dict.fromkeys(commits)),
    }
    return f"{name}: {configs.title(run.config)}; {committee_report.source_line(row)}"


def add_table1(page: Page, found: Found, runs: Mapping[str, Run], name: str) -> None:
    """Table 1 on the data of that name, from records and runs."""
    page.heading(3, "Table 1, the paper beside ours" if name == "MNIST" else "Table 1's nets")
    records = {key: run for key, run in found.records.items() if run.config["data"]["name"] == name}
    kinds = dict.fromkeys(records, "record")
    everything = dict(records)
    for key, run in runs.items():
        same = [k for k, r in records.items() if (r.config, r.metrics) == (run.config, run.metrics)]
        if same:
            kinds[same[0]] = f"record, and run {key}"
        elif tables.is_table1(run):
            everything[key], kinds[key] = run, f"run {key}{state(run)}"
    if not everything:
        return page.say(f"No run yet: `make table1{OPTION[name]}`.")

    keys = sorted(everything, key=lambda key: tables.table1_order(everything[key]))
    rows = tables.table1_table([everything[key] for key in keys])
    rows = [
        {"source": page.cite(source(key, everything[key])), **_move_work(row), "from": kinds[key]}
        for key, row in zip(keys, rows, strict=True)
    ]
    page.table(TABLE1, rows)
    if name == "MNIST" and all(run.epochs < Schedule().epochs for run in everything.values()):
        page.say(f"The paper's own schedule, {Schedule().epochs:,} epochs: not measured yet.")


def _move_work(row: Mapping[str, str]) -> dict[str, str]:
    """A row of Table 1 with what was done just before what came of it, in one view with it."""
    names = [name for name in row if name != WORK]
    names.insert(names.index("TEfBV %"), WORK)
    return {name: row[name] for name in names}


def add_committees(page: Page, found: Found, runs: Mapping[str, Run], name: str) -> None:
    """The committees of 2012 on the data of that name, from records and runs, and pictures."""
    page.heading(3, "The committees of 2012")
    recorded = [rows for rows in found.committees.values() if rows[-1]["data"] == name]
    formed = []
    for one in find_committees(runs):
        formed.append((one, _rows(one), _where(one, found)))
    if not (recorded or formed):
        page.say(f"No committee yet: `make committee{OPTION[name]}`.")
    groups: dict[str, list] = {}  # what stands side by side: what the rows are from, and the rows
    for rows in recorded:
        origin = ", and ".join(["record", *(where for _, own, where in formed if own == rows)])
        groups.setdefault(f"records of {rows[-1]['device']}", []).append((origin, rows))
    for one, rows, where in formed:
        if rows not in recorded:
            groups.setdefault(where, []).append((where + unfinished(one.runs), rows))
    for where, group in groups.items():
        for kind in "experiment", "table4":
            same = [
                (origin, rows) for origin, rows in group if rows[0]["experiment"].startswith(kind)
            ]
            if same:
                _add_side_by_side(page, where, same, name)
    for one, rows, where in formed:
        errors = f"committee {100 * one.wrong[-1].mean():.2f} %, members {one.mean_percent:.2f} %"
        alt = f"Test errors of {one.title}: {errors} on average, with 95 % intervals."
        caption = f"{one.title}; {where}."
        page.figure(plots.draw_members(one), caption, alt, [_committee_source(where, rows)])


def _rows(one: Committee) -> list[dict]:
    """A committee's table as it would be read back."""
    return list(csv.DictReader(io.StringIO(csv_text(committee_report.tidy_rows(one)))))


def _where(one: Committee, found: Found) -> str:
    first = next(key for key, run in found.runs.items() if run is one.runs[0])
    folder = Path(first).parent
    # "." would say nothing.
    return f"runs in {folder.as_posix() if folder.name else found.folder.resolve().name}"


def _add_side_by_side(page: Page, where: str, own: list[tuple], name: str) -> None:
    """Committees of equal size, each with what its rows are from."""
    rows = [row for _, one in own for row in one]
    lines = [_committee_source(where, one) for _, one in own]
    percent = "errors in percent" + (", the paper / ours" if name == "MNIST" else "")
    summary = committee_report.summary_table(rows)
    summary.append(dict(zip(summary[0], ["source", *map(page.cite, lines)], strict=True)))
    page.table(f"Each net and its committee, {where}: {percent}.", summary)
    results = [
        {"source": page.cite(line), **row, "from": origin}
        for (origin, _), line, row in zip(
            own, lines, committee_report.committee_table(rows), strict=True
        )
    ]
    page.table(COMMITTEES, results)
    if committee_report.has_order(rows):
        order = committee_report.order_table(rows)
        claims = "What the paper shows, and whether the committees above show it."
        page.table(claims, order, lines)


def _committee_source(where: str, rows: list[dict]) -> str:
    members = rows[:-1]
    seeds = ", ".join(row["seed"] for row in members)
    lines = dict.fromkeys(committee_report.source_line(row) for row in members)
    return f"{where}: {rows[0]['experiment']}, seeds {seeds}: {'; '.join(lines)}"


def add_pictures(page: Page, runs: Mapping[str, Run], name: str) -> None:
    """Learning curves of all runs on the data of that name, and the errors of the best one."""
    page.heading(3, "Learning curves")
    if not runs:
        page.say(f"No run yet: `make table1{OPTION[name]}`.")
    else:
        for against, x in ("epochs", "epochs"), ("hours", "the time that they took"):
            n_runs = plural(len(runs), "run")
            alt = f"Training loss, validation and test error of {n_runs} against {x}."
            caption = f"{n_runs} on {name}, against {x}."
            sources = [source(key, run) for key, run in runs.items()]
            page.figure(plots.draw_learning_curves(runs, against), caption, alt, sources)

    page.heading(3, "Misclassified digits")
    if not runs:
        return page.say("No run yet.")
    best = tables.best_of(runs)
    run, title = runs[best], configs.title(runs[best].config)
    who = f"{title}, the run with the lowest TEfBV: {best}."
    sources = [source(best, run)]
    counted = voting.count_sentence(run.outputs, run.labels)
    images = find_test_images(run)
    if images is None:
        page.say(
            f"The digits are not drawn, for {name} as the run has it is not on this machine. Set "
            "MNIST_DIR to a folder with its four files, or let `make table1` download them."
        )
    else:
        alt = f"The misclassified digits, labels at the top right, two guesses below: {counted}."
        page.figure(plots.draw_wrong(run.outputs, run.labels, images, title), who, alt, sources)
    caption = f"{who} Labels in rows, guesses in columns."
    alt = f"Which digits are taken for which: {counted}."
    page.figure(plots.draw_confusion(run.outputs, run.labels, title), caption, alt, sources)


def find_test_images(run: Run) -> np.ndarray | None:
    """The images that a run was tested on, (n_test, 29, 29), if they are on this machine."""
    wanted = run.config["data"]
    try:
        dataset = data.load(data.CHOICES[wanted["name"]], mirrors=())
    except Problem:
        return None
    return dataset.test_images if dataset.sha256 == wanted["sha256"] else None


def add_other_runs(page: Page, runs: Mapping[str, Run]) -> None:
    """The runs that no Table 1 has: members of committees, and nets of other shapes."""
    rows = []
    for key, run in runs.items():
        if not tables.is_table1(run):
            n = len(run.labels)
            low, high = tables.interval(run.chosen_errors, n)
            rows.append(
                {
                    "source": page.cite(source(key, run)),
                    "run": key,
                    "net": configs.title(run.config),
                    "TEfBV %": f"{100 * run.chosen_errors / n:.2f}",
                    "95 % interval": f"{low:.2f}-{high:.2f}",
                    "wrong": f"{run.chosen_errors} of {n:,}",
                    "BTE %": f"{100 * run.best_errors / n:.2f}",
                    "epochs": f"{run.epochs}{state(run)}",
                    "time": duration(run.seconds),
                }
            )
    if rows:
        page.heading(3, "The other runs")
        page.table("Members of committees, and nets of other shapes.", rows)


def add_benchmarks(page: Page, found: Found) -> None:
    """Engines, deformation, kernels and workers, as they were timed on each device."""
    page.heading(2, "Benchmarks")

    def add(
        title: str,
        benches: Collection[list[dict]],
        *tables: Callable,
        then: Callable = lambda rows: None,
    ) -> None:
        page.heading(3, title)
        if not benches:
            page.say(timing_report.NOT_MEASURED)
        for rows in benches:
            for table in tables:
                page.table(f"{rows[0]['device']}.", table(rows), [_bench_source(rows)])
            then(rows)

    benches = list(found.benches.values())
    on_gpu = [rows for rows in benches if timing_report.on_gpu(rows)]
    add(
        "Engines and their peers",
        benches,
        timing_report.net_table,
        then=lambda rows: _add_bench(page, rows),
    )
    add("The deformation", benches, timing_report.deform_table)
    add(
        "The kernels",
        on_gpu,
        lambda rows: timing_report.kernel_table(rows, nets=(1, 4)),
        timing_report.evaluation_table,
    )
    committees = list(found.committees.values())

    def add_estimate(rows: list[dict]) -> None:
        sentence, estimates = clusters.estimate_clusters(rows, committees)
        page.say(sentence)
        sources = [_bench_source(rows)]
        for own in committees:
            ran = {(row["data"], row["device"]) for row in own[:-1]}
            is_estimated = own[0]["experiment"].startswith("experiment")
            if is_estimated and ("MNIST", rows[-1]["device"]) in ran:
                sources.append(_committee_source(f"records of {own[-1]['device']}", own))
        if estimates:
            page.table("Clusters on paper.", estimates, sources)

    add("Several workers", list(found.scalings.values()), clusters.scaling_table, then=add_estimate)


def _bench_source(rows: list[dict]) -> str:
    return timing_report.bench_source(rows).rstrip(":")


def _add_bench(page: Page, rows: list[dict]) -> None:
    where, sources = f"on {rows[0]['device']}", [_bench_source(rows)]
    if any(row["updates_a_second"] for row in rows):
        alt = "Time for an image against the weights of the net, a line an engine."
        page.figure(bench_plots.draw_times(rows), f"Time for an image, {where}.", alt, sources)
    try:
        figure = bench_plots.draw_roofline(rows)
    except ValueError:
        return  # no copy was measured beside
    alt = "Engines and kernels against copies of as many bytes, as bars and as a roofline."
    page.figure(figure, f"Against the ceiling that copies set, {where}.", alt, sources)


def build(found: Found) -> str:
    """The page of all that was found."""
    page = Page()
    counts = []
    for name in data.CHOICES:
        runs = {key: run for key, run in found.runs.items() if run.config["data"]["name"] == name}
        n = sum(run.config["data"]["name"] == name for run in found.records.values())
        n += sum(rows[-1]["data"] == name for rows in found.committees.values())
        counts.append(f"{plural(len(runs), 'run')} and {plural(n, 'record')} on {name}")
        if name == "MNIST":
            page.heading(2, name)
        else:
            page.heading(2, f"{name}, which is NOT MNIST")
            page.add(f'<p class="warning">{NOT_MNIST}</p>')
        add_table1(page, found, runs, name)
        add_committees(page, found, runs, name)
        add_pictures(page, runs, name)
        add_other_runs(page, runs)
    add_benchmarks(page, found)

    tree = provenance.commit()
    changes = " with changes" if tree["dirty"] else ""
    timings = len(found.benches) + len(found.scalings)
    head = [
        f"<p>{INTRODUCTION}</p>",
        f"<p>Found: {', '.join(counts)}, and {plural(timings, 'record')} of timings. Written "
        f"{provenance.now()} by commit {tree['commit'][:12]}{changes}.</p>",
    ]
    if found.faults:
        items = "".join(f"<li>{html(fault)}</li>" for fault in found.faults)
        head.append(
            f'<div class="warning">Left out, for they cannot be read:<ul>{items}</ul></div>'
        )
    return page.render("Deep, big, simple nets: what was trained and measured", head)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--runs",
        type=Path,
        default=RUNS,
        metavar="DIR",
        help="folder with run files, also in folders below it (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/report.html"),
        metavar="FILE",
        help="the page to write (default: %(default)s)",
    )
    arguments = parser.parse_args(argv)
    if arguments.runs != RUNS and not arguments.runs.is_dir():
        raise Problem(
            f"there is no folder {arguments.runs}: name one with run files in or below it"
        )
    found = collect(arguments.runs)
    for fault in found.faults:
        tell(f"left out: {fault}")
    content = build(found).encode()
    files.make_folder(arguments.out.parent)
    files.replace(arguments.out, content)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    cli.run(main)
