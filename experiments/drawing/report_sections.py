"""What the page of all runs and records says, section by section: its rows, figures and sources."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.drawing import bench_plots, error_plots, run_plots
from experiments.drawing.page import Page
from experiments.drawing.report_files import Found
from experiments.running import data, provenance
from experiments.running.dataset import KINDS
from experiments.running.errors import Problem
from experiments.running.formatting import duration, plural, printable
from experiments.running.store import Run
from experiments.scoring import cnn_tables, committee_report, tables, voting
from experiments.scoring.committee_report import Committee, unfinished
from experiments.scoring.committees import find_committees
from experiments.scoring.records import folder_of, of_make_committee
from experiments.scoring.rows import BenchRow, CommitteeRow, ScalingRow, bench_source
from experiments.timing import clusters
from experiments.timing import columns as timing_columns
from mlp_gpu.training import Schedule

TITLE = "Deep, big, simple nets: what was trained and measured"
INTRODUCTION = (
    "Plain multi-layer perceptrons and convolutional nets, trained by on-line back-propagation on "
    "deformed digits, after Cireşan, Meier, Gambardella and Schmidhuber (2010 to 2012). Runs are "
    "the files of trainings that were found; records are what is kept of finished ones in "
    "results/. A number in brackets leads to where the numbers or the picture beside it come from."
)
NOT_MNIST = (
    "These are the 1,797 small digits of scikit-learn's load_digits. Their figures have nothing to "
    "do with the paper's and must not be compared with them, nor with those on MNIST."
)
NOT_THE_PAPERS = (
    "These are files of one's own in the format of the paper's data. Their figures must not be "
    "compared with the paper's."
)
TABLE1_CAPTION = (
    "TEfBV is the test error at the epoch with the lowest validation error, BTE the lowest test "
    "error of any epoch; the interval is that of TEfBV, 95 %, Clopper-Pearson."
)
COMMITTEES_CAPTION = (
    "What each committee came to. The best member has the fewest errors on these same digits, "
    "which favours it; p is McNemar's exact test, two-sided, of the committee against it."
)
WORK_COLUMN = "epochs x images"  # of Table 1
MAKE_OPTION = {"MNIST": "", "load_digits": ' ARGS="--data digits"'}  # to train on it


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
    line = committee_report.source_line(committee_report.run_source(run), tables.engine_name(run))
    return f"{name}: {run.config.title}; {line}"


def add_table1(page: Page, found: Found, runs: Mapping[str, Run], name: str) -> None:
    """Table 1 on the data of that name, from records and runs."""
    page.heading(3, "Table 1, the paper beside ours" if name == "MNIST" else "Table 1's nets")
    records = tables.table1_runs(found.records, name)
    kinds = dict.fromkeys(records, "record")
    everything = dict(records)
    for key, run in tables.table1_runs(runs, name).items():
        same = [k for k, r in records.items() if (r.config, r.metrics) == (run.config, run.metrics)]
        if same:
            kinds[same[0]] = f"record, and run {key}"
        else:
            everything[key], kinds[key] = run, f"run {key}{state(run)}"
    if not everything:
        return page.say(f"No run yet: `make table1{MAKE_OPTION[name]}`.")

    everything = tables.table1_runs(everything, name)
    rows = [
        {"source": page.cite(source(key, run)), **_move_work(row), "from": kinds[key]}
        for (key, run), row in zip(
            everything.items(), tables.table1_table(list(everything.values())), strict=True
        )
    ]
    page.table(TABLE1_CAPTION, rows)
    if name == "MNIST" and all(run.epochs < Schedule().epochs for run in everything.values()):
        page.say(f"The paper's own schedule, {Schedule().epochs:,} epochs: not measured yet.")


def _move_work(row: Mapping[str, str]) -> dict[str, str]:
    """A row of Table 1 with what was done just before what came of it, in one view with it."""
    names = [name for name in row if name != WORK_COLUMN]
    names.insert(names.index("TEfBV %"), WORK_COLUMN)
    return {name: row[name] for name in names}


def _without_layers(row: Mapping[str, str]) -> dict[str, str]:
    """A row of convolutional nets that fits on paper; its source names the layers."""
    return {name: cell for name, cell in row.items() if name != "layers"}


def add_convolutional(page: Page, found: Found, runs: Mapping[str, Run], name: str) -> None:
    """The convolutional nets of 2011 on the data of that name, from records and runs."""
    own = cnn_tables.convolutional_runs(found.records, name)
    recorded = [(run.config, run.metrics) for run in own.values()]
    everything = own | {
        key: run
        for key, run in cnn_tables.convolutional_runs(runs, name).items()
        if (run.config, run.metrics) not in recorded
    }
    if everything:
        page.heading(3, "The convolutional nets of 2011")
    if own:
        rows = cnn_tables.table(list(own.values()))
        page.table(
            "The nets of 2011 and others, from records.",
            [
                {"source": page.cite(source(key, run)), **_without_layers(row)}
                for (key, run), row in zip(own.items(), rows, strict=True)
            ],
        )
    if everything:
        n_nets = plural(len(everything), "convolutional net")
        alt = f"Test error of {n_nets} after each epoch, a panel for each description."
        beside = ", with the paper's figures" if name == "MNIST" else ""
        caption = f"{n_nets} on {name}, from records and runs{beside}."
        sources = [source(key, run) for key, run in everything.items()]
        page.figure(run_plots.draw_error_curves(everything), caption, alt, sources)


def add_committees(page: Page, found: Found, runs: Mapping[str, Run], name: str) -> None:
    """The committees of 2012 on the data of that name, from records and runs, and pictures."""
    page.heading(3, "The committees of 2012")
    recorded = {path: one for path, one in found.committees.items() if one[-1].data == name}
    formed = [
        (one, committee_report.tidy_rows(one), _where(one, found)) for one in find_committees(runs)
    ]
    if not (recorded or formed):
        page.say(f"No committee yet: `make committee{MAKE_OPTION[name]}`.")
    groups: dict[Path | str, list] = {}  # side by side: from where, what they are from, the rows
    for path, rows in recorded.items():
        origin = ", and ".join(["record", *(where for _, own, where in formed if own == rows)])
        groups.setdefault(folder_of(path), []).append((_recorded_in(path, rows), origin, rows))
    for one, rows, where in formed:
        if rows not in recorded.values():
            groups.setdefault(where, []).append((where, where + unfinished(one.runs), rows))
    for group in groups.values():
        for kind in "experiment", "table4", committee_report.GIVEN:
            same = [one for one in group if one[-1][0].experiment.startswith(kind)]
            if same:
                _add_side_by_side(page, same, name)
    for one, rows, where in formed:
        errors = f"committee {100 * one.wrong[-1].mean():.2f} %, members {one.mean_percent:.2f} %"
        alt = f"Test errors of {one.title}: {errors} on average, with 95 % intervals."
        caption = f"{one.title}; {where}."
        page.figure(run_plots.draw_members(one), caption, alt, [_committee_source(where, rows)])


def _where(one: Committee, found: Found) -> str:
    """The folder that has a committee's runs."""
    first = next(key for key, run in found.runs.items() if run is one.runs[0])
    folder = Path(first).parent
    # "." would say nothing.
    return f"runs in {folder.as_posix() if folder.name else found.folder.resolve().name}"


def _recorded_in(path: Path, rows: Sequence[CommitteeRow]) -> str:
    return f"records of runs in {printable(folder_of(path).name)}, {rows[-1].source.device}"


def _add_side_by_side(page: Page, own: list[tuple], name: str) -> None:
    """Committees of equal size: where they all are, what the rows of each are from, its rows."""
    where = own[0][0]
    rows = [row for *_, one in own for row in one]
    lines = [_committee_source(where, one) for *_, one in own]
    percent = "errors in percent" + (", the paper / ours" if name == "MNIST" else "")
    summary = committee_report.summary_table(rows)
    summary.append(dict(zip(summary[0], ["source", *map(page.cite, lines)], strict=True)))
    page.table(f"Each net and its committee, {where}: {percent}.", summary)
    results = [
        {"source": page.cite(line), **row, "from": origin}
        for (_, origin, _), line, row in zip(
            own, lines, committee_report.committee_table(rows), strict=True
        )
    ]
    page.table(COMMITTEES_CAPTION, results)
    if committee_report.has_order(rows):
        order = committee_report.order_table(rows)
        claims = "What the paper shows, and whether the committees above show it."
        page.table(claims, order, lines)


def _committee_source(where: str, rows: Sequence[CommitteeRow]) -> str:
    members = rows[:-1]
    seeds = ", ".join(str(row.seed) for row in members)
    lines = dict.fromkeys(committee_report.source_line(row.source, row.engine) for row in members)
    return f"{where}: {rows[0].experiment}, seeds {seeds}: {'; '.join(lines)}"


def add_pictures(page: Page, runs: Mapping[str, Run], name: str) -> None:
    """Learning curves of all runs on the data of that name, and the errors of the best one."""
    page.heading(3, "Learning curves")
    if not runs:
        page.say(f"No run yet: `make table1{MAKE_OPTION[name]}`.")
    else:
        for against, x in ("epochs", "epochs"), ("hours", "the time that they took"):
            n_runs = plural(len(runs), "run")
            alt = f"Training loss, validation and test error of {n_runs} against {x}."
            caption = f"{n_runs} on {name}, against {x}."
            sources = [source(key, run) for key, run in runs.items()]
            page.figure(run_plots.draw_learning_curves(runs, against), caption, alt, sources)

    page.heading(3, "Misclassified digits")
    if not runs:
        return page.say("No run yet.")
    best = tables.best_of(runs)
    run, title = runs[best], runs[best].config.title
    who = f"{title}, the run with the lowest TEfBV: {best}."
    sources = [source(best, run)]
    counted = voting.count_sentence(run.outputs, run.labels)
    images = find_test_images(run)
    if images is None:
        page.say(
            f"The digits are not drawn, for {name} as the run has it is not on this machine. To "
            f"draw them, {data.advice(data.CHOICES[name])}."
        )
    else:
        alt = f"The misclassified digits, labels at the top right, two guesses below: {counted}."
        page.figure(
            error_plots.draw_wrong(run.outputs, run.labels, images, title), who, alt, sources
        )
    caption = f"{who} Labels in rows, guesses in columns."
    alt = f"Which digits are taken for which: {counted}."
    page.figure(error_plots.draw_confusion(run.outputs, run.labels, title), caption, alt, sources)


def find_test_images(run: Run) -> np.ndarray | None:
    """The images that a run was tested on, float32, if they are on this machine."""
    wanted = run.config.data
    try:
        dataset = data.load_pixels(data.CHOICES[wanted.name], mirrors=())
    except Problem:
        return None
    same = dataset.sha256 == wanted.sha256
    return data.scale(data.limit(dataset, 1)).test_images if same else None


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
                    "net": run.config.title,
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
    benches = list(found.benches.values())
    _begin_timings(page, "Engines and baselines", benches)
    for rows in benches:
        _add_timings(page, rows, timing_columns.net_table(rows))
        if evaluations := timing_columns.evaluation_table(rows):
            _add_timings(page, rows, evaluations)
        _add_bench_figures(page, rows)
    convolutional = [rows for rows in benches if timing_columns.cnn_table(rows)]
    _begin_timings(page, "Convolutional nets and baselines", convolutional)
    for rows in convolutional:
        _add_timings(page, rows, timing_columns.cnn_table(rows))
        if kernels := timing_columns.kernel_table(rows, cnn_tables.PAPER, "cnn kernel"):
            _add_timings(page, rows, kernels)
    _begin_timings(page, "The deformation", benches)
    for rows in benches:
        _add_timings(page, rows, timing_columns.deform_table(rows))
    on_gpu = [rows for rows in benches if timing_columns.on_gpu(rows)]
    _begin_timings(page, "The kernels", on_gpu)
    for rows in on_gpu:
        _add_timings(page, rows, timing_columns.kernel_table(rows, nets=(1, 4)))
    _begin_timings(page, "Several workers", found.scalings)
    for scaled in found.scalings.values():
        _add_timings(page, scaled, clusters.scaling_table(scaled))
        _add_estimate(page, scaled, found.committees)


def _begin_timings(page: Page, title: str, timed: Collection) -> None:
    page.heading(3, title)
    if not timed:
        page.say(timing_columns.NOT_MEASURED)


def _add_timings(
    page: Page, rows: Sequence[BenchRow | ScalingRow], table: list[dict[str, str]]
) -> None:
    page.table(f"{rows[0].source.device}.", table, [_bench_source(rows)])


def _add_estimate(
    page: Page, rows: list[ScalingRow], committees: Mapping[Path, list[CommitteeRow]]
) -> None:
    """How long clusters would take for `make committee`, by the timings in `rows`."""
    sentence, estimates = clusters.estimate_clusters(rows, committees)
    page.say(sentence)
    sources = [_bench_source(rows)]
    for path, own in of_make_committee(committees).items():
        if rows[-1].source.device in {row.source.device for row in own[:-1]}:
            sources.append(_committee_source(_recorded_in(path, own), own))
    if estimates:
        page.table("Clusters on paper.", estimates, sources)


def _bench_source(rows: Sequence[BenchRow | ScalingRow]) -> str:
    return bench_source(rows).rstrip(":")


def _add_bench_figures(page: Page, rows: list[BenchRow]) -> None:
    where, sources = f"on {rows[0].source.device}", [_bench_source(rows)]
    if any(row.updates_a_second for row in rows):
        alt = "Time per image against the weights of the net, one line per engine."
        page.figure(bench_plots.draw_times(rows), f"Time per image, {where}.", alt, sources)
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
    names = {run.config.data.name for run in (*found.runs.values(), *found.records.values())}
    for name in (*MAKE_OPTION, *sorted(names & KINDS.keys() - MAKE_OPTION.keys())):
        runs = tables.on_data(found.runs, name)
        n = len(tables.on_data(found.records, name))
        n += sum(rows[-1].data == name for rows in found.committees.values())
        counts.append(f"{plural(len(runs), 'run')} and {plural(n, 'record')} on {name}")
        of_paper = cnn_tables.TABLES[data.CHOICES[name]].data
        if name == of_paper:
            page.heading(2, name)
        else:
            page.heading(2, f"{name}, which is NOT {of_paper}")
            page.warn(NOT_MNIST if name in MAKE_OPTION else NOT_THE_PAPERS)
        if name in MAKE_OPTION:
            add_table1(page, found, runs, name)
        add_convolutional(page, found, runs, name)
        if name in MAKE_OPTION:
            add_committees(page, found, runs, name)
        if runs or name in MAKE_OPTION:
            add_pictures(page, runs, name)
        add_other_runs(page, runs)
    add_benchmarks(page, found)

    tree = provenance.commit()
    changes = " with changes" if tree["dirty"] else ""
    timings = len(found.benches) + len(found.scalings)
    introduction = [
        INTRODUCTION,
        f"Found: {', '.join(counts)}, and {plural(timings, 'record')} of timings. Written "
        f"{provenance.now()} by commit {str(tree['commit'])[:12]}{changes}.",
    ]
    return page.render(TITLE, [*introduction, *found.links], found.faults)
