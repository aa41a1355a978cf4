"""The work that figures of benchmarks show; test_kept_figures.py has all else of them."""

from bench_rows import on_cpu, on_gpu, row
from measurements import SOURCE
from msgspec import structs

from experiments.drawing import bench_plots
from experiments.results.records import Results


def test_convolutional_nets_are_not_drawn():
    more = {"group": "cnn", "bytes": 5000, "images": 1, "weights": 7, "net": "3"}
    rows = [*on_gpu(), row("engine cpu", 1.0, 10, **more)]
    rows.append(row("convolve_maps", 1.0, 10, **more | {"group": "cnn kernel"}))
    assert repr(bench_plots.works(rows)) == repr(bench_plots.works(on_gpu()))
    n_lines = [len(bench_plots.plot_times(some).axes[0].lines) for some in (rows, on_gpu())]
    assert n_lines[0] == n_lines[1]


def test_newest_benchmarks_the_newest_of_all_nets_is_first():
    found = {}
    for device, date, net in (
        ("of some nets", "2026-05-01", "4"),
        ("an old chip", "2026-01-02", "841-800-10"),
        ("new", "2026-03-01", "841-800-10"),
        ("a", "2025-12-31", "841-800-10"),
    ):
        source = structs.replace(SOURCE, device=device, date=date)
        found[device] = [structs.replace(one, source=source, net=net) for one in on_cpu()]
    newest = Results(benches=found).newest_benches
    assert list(newest) == ["new", "an old chip", "a", "of some nets"]
    assert newest["a"] == found["a"]
