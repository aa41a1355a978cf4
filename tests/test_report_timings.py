"""drawing/report_sections.py: benchmarks and what is estimated of clusters."""

from pathlib import Path

from committee_cases import committee_row
from matplotlib.figure import Figure
from msgspec.structs import replace
from report_pages import caption, sources_of, tables_in

from experiments.drawing import bench_plots, report_sections
from experiments.drawing.page import Page
from experiments.drawing.report_files import Found
from experiments.running.provenance import REPOSITORY
from experiments.scoring import records
from experiments.scoring.rows import ScalingRow, read_rows
from experiments.timing import clusters

SCALING = REPOSITORY / "results" / "amd-epyc-2-cores" / "scaling.csv"


def test_clusters_are_estimated_from_experiments_on_mnist_on_such_workers(monkeypatch):
    def rows(name, data, device):
        both = {"experiment": name, "data": data}
        return [
            committee_row(net=1, device=device, **both),
            committee_row(device="several", **both),
        ]

    found = Found(REPOSITORY)
    timed = read_rows(SCALING, ScalingRow)
    found.scalings["timed"] = timed
    device = timed[-1].source.device
    recorded = {
        "committee-experiment1": rows("experiment1", "MNIST", device),
        "committee-table4": rows("table4", "MNIST", device),
        "committee-experiment1-load_digits": rows("experiment1-load_digits", "load_digits", device),
        "committee-experiment2": rows("experiment2", "MNIST", "another"),
        "committee100-experiment6": rows("experiment6", "MNIST", device),
    }
    found.committees = {Path(f"{name}.csv"): own for name, own in recorded.items()}
    monkeypatch.setattr(clusters, "estimate_clusters", lambda *_: ("So.", [{"a": "1"}]))
    monkeypatch.setattr(
        report_sections, "_committee_source", lambda where, own: f"{where}: {own[0].experiment}"
    )
    page = Page()
    report_sections.add_benchmarks(page, found)
    text = page.render("", [])
    _, *others = sources_of(text, caption(text, "Clusters on paper."))
    assert others == ["records of runs in committee, several: experiment1 back"]


def test_the_ceiling_is_drawn_where_copies_were_timed(monkeypatch):
    (rows,) = records.read_benchmarks()[:1]
    seen = []
    monkeypatch.setattr(bench_plots, "draw_roofline", lambda one: seen.append(one) or Figure())
    page = Page()
    report_sections.add_benchmarks(page, Found(REPOSITORY, benches={"own": rows}))
    assert seen == [rows]
    assert "bars and as a roofline" in page.render("", [])
    monkeypatch.undo()
    rows = [row for row in rows if row.group != "evaluation"]
    without = [replace(row, percent_of_copy=None) for row in rows]
    page = Page()
    report_sections.add_benchmarks(page, Found(REPOSITORY, benches={"own": without}))
    text = page.render("", [])
    assert "one line per engine" in text
    assert "TFLOP/s" not in text
    evaluation = {"group": "evaluation", "images": 1, "tflop_a_second": 0.5}
    page = Page()
    with_it = [*rows, replace(rows[0], percent_of_peak=71, **evaluation)]
    report_sections.add_benchmarks(page, Found(REPOSITORY, benches={"own": with_it}))
    (line,) = next(t for t in tables_in(page.render("", [])) if "TFLOP/s" in t[0])
    assert (line["TFLOP/s"], line["% of peak"]) == ("0.50", "71")
    assert "bars and as a roofline" not in text
