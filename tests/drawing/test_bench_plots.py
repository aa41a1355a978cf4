"""The bars and the roofline say what the rows of bench.csv say."""

import numpy as np
import pytest
from measurements import SOURCE, bench_row, measurement, net_measurement
from msgspec import structs

from experiments.benchmarks import mlp
from experiments.benchmarks.columns import Ceiling, Measurement
from experiments.drawing import bench_plots
from experiments.results.records import Results
from mlp_gpu.network import NETS, count_weights

CPU, GPU = "a chip, 2 cores", "a GPU"


def row(name, us, percent, **more):
    """A row of bench.csv whose copy took so many percent of its time."""
    fields = {"net": 1, "name": name, "us": np.full(7, us), "n_bytes": 1000, "ran_on": GPU} | more
    if percent:
        copy = Ceiling(us=np.full(7, us * percent / 100), work=fields["n_bytes"])
        fields |= {"copy": copy}
    if "n_weights" in fields:
        fields |= {"cpu_engine_us": fields["us"]}
    return bench_row(Measurement(**fields), structs.replace(SOURCE, device=GPU))


def engine(name, net, us, percent, **more):
    sizes = mlp.NETS[net]
    fields = {"n_weights": count_weights(sizes), "flops": mlp.training_flops(sizes), "n_images": 1}
    more = fields | {"net": net, "ran_on": CPU} | more
    return row(name, us, percent, group="net", **more)


def kernel(name, us, percent, **more):
    return row(name, us, percent, **{"group": "kernel", "n_in": 31, "n_out": 50} | more)


def on_cpu():
    return [
        engine("engine cpu", 1, 200.0, 90, n_bytes=12_000_000),
        row("scaled copy", 100.0, 100, group="net", ran_on=CPU),
        engine("NumPy loop, CPU", 1, 900.0, None, n_bytes=None),
        engine("engine cpu", 2, 800.0, 150, n_bytes=32_000_000),
    ]


def on_gpu():
    """Two layers of a kernel as different as can be, in both states, and what has no copy."""
    return [
        *on_cpu(),
        engine("engine cuda graph", 2, 20.0, None, n_bytes=64_000_000, ran_on=GPU),
        kernel("empty kernel", 2.0, None, n_bytes=None, state="warm"),
        kernel("forward_partial", 10.0, 80, state="cold"),
        kernel("forward_partial", 30.0, 40, state="cold", n_in=99, n_out=7, n_bytes=3000),
        kernel("forward_partial", 5.0, 60, state="warm"),
        kernel("forward_reduce", 4.0, 20, state="cold"),
        row(
            "forward_batch", 40.0, None, group="evaluation", n_images=5000, n_bytes=None, flops=1e9
        ),
    ]


def panels(rows):
    *bars, roofline = bench_plots.draw_roofline(rows).axes
    return bars, roofline


def test_convolutional_nets_are_not_drawn():
    more = {"group": "cnn", "n_bytes": 5000, "n_images": 1, "n_weights": 7, "net": 3}
    rows = [*on_gpu(), row("engine cpu", 1.0, 10, **more)]
    rows.append(row("convolve_maps", 1.0, 10, **more | {"group": "cnn kernel"}))
    assert repr(bench_plots.works(rows)) == repr(bench_plots.works(on_gpu()))
    n_lines = [len(bench_plots.draw_times(some).axes[0].lines) for some in (rows, on_gpu())]
    assert n_lines[0] == n_lines[1]


def test_layers_are_added_up():
    found = {(one.net, one.name, one.state): one for one in bench_plots.works(on_gpu())}
    assert set(found) == {
        *((net, "engine cpu", "") for net in "12"),
        *(("1", "forward_partial", state) for state in ("cold", "warm")),
        ("2", "engine cuda graph", ""),
        ("1", "forward_reduce", "cold"),
    }
    both = found["1", "forward_partial", "cold"]
    assert (both.us, both.n_bytes, both.ran_on) == (40, 4000, GPU)
    assert both.copy_us == pytest.approx(8 + 12)
    assert both.flops == 2 * (32 * 50 + 100 * 7)
    assert found["1", "forward_reduce", "cold"].flops == 0
    assert np.isnan(found["2", "engine cuda graph", ""].copy_us)
    assert found["1", "engine cpu", ""].flops == 2 * (3 * 1_347_510 - 842_000)


def test_a_record_without_the_flops_of_nets():
    """As they were before 841-800-10 was measured: bars are drawn, no roofline."""
    rows = [structs.replace(one, flops=None) for one in on_cpu()]
    assert {one.flops for one in bench_plots.works(rows)} == {0}
    bars = bench_plots.draw_roofline(rows).axes
    assert [len(one.patches) for one in bars] == [1, 1]


def test_a_net_that_is_named_by_its_sizes():
    rows = [engine("engine cpu", "841-800-10", 40.0, 50, n_bytes=1000), *on_cpu()]
    (axes,) = bench_plots.draw_times(rows).axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["0.682\n841-800-10", "1.35\nnet 1", "3.27\nnet 2"]
    bars, _ = panels(rows)
    assert [one.get_title() for one in bars] == ["841-800-10", "net 1", "net 2"]
    assert [bar.get_width() for bar in bars[0].patches] == pytest.approx([50])


def test_bars_are_percent_of_the_copy():
    (first, second), _ = panels(on_gpu())
    titles = [label.get_text() for label in first.get_yticklabels()]
    assert titles == [
        "engine cpu",
        "forward_partial, cold",
        "forward_partial, warm",
        "forward_reduce, cold",
    ]
    bars = {titles[round(bar.get_y() + bar.get_height() / 2)]: bar for bar in first.patches}
    lengths = {title: bar.get_width() for title, bar in bars.items()}
    assert lengths == pytest.approx(dict(zip(titles, (90, 50, 60, 20), strict=True)))
    assert [bar.get_width() for bar in second.patches] == pytest.approx([150])
    assert [text.get_text() for text in first.texts] == [" 90", " 50", " 60", " 20"]
    assert bars["forward_partial, warm"].get_hatch()
    assert not bars["forward_partial, cold"].get_hatch()
    for axes, net in ((first, 1), (second, 2)):
        (ceiling,) = axes.lines
        assert list(ceiling.get_xdata()) == [100, 100]
        assert axes.get_xlim()[0] == 0
        assert axes.get_xlim()[1] > 150
        assert axes.get_title() == f"net {net}"


def test_roofline_has_flops_and_the_ceiling_of_each_device():
    _, axes = panels(on_gpu())
    points, ceilings = {}, {}
    for one in axes.collections:
        if one.get_label().startswith("ceiling"):
            ceilings[one.get_label()] = one.get_paths()[0].vertices
        else:
            points[one.get_label()] = np.asarray(one.get_offsets())
    assert set(points) == {
        "engine cpu",
        "engine cuda graph",
        "forward_partial, cold",
        "forward_partial, warm",
    }
    flops = 2 * (32 * 50 + 100 * 7)
    assert points["forward_partial, cold"] == pytest.approx(
        np.array([[flops / 4000, flops / 40 / 1e3]])
    )
    flops = 2 * (3 * 1_347_510 - 842_000)
    assert points["engine cpu"][0] == pytest.approx([flops / 12e6, flops / 200 / 1e3])
    assert len(points["engine cpu"]) == 2
    on_the_cpu, on_the_gpu = ceilings
    # 12 MB in 180 us, 32 MB in 1200 us.
    assert on_the_cpu == f"ceiling: copies, 27 to 67 GB/s\n({CPU})"
    assert on_the_gpu == f"ceiling: copies, 0 to 0 GB/s\n({GPU})"
    corners = {(x, round(y, 3)) for x, y in ceilings[on_the_cpu]}
    assert {(0.1, 2.667), (0.1, 6.667), (10, 266.667), (10, 666.667)} <= corners
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (on_cpu(), "Kernels: not measured yet on a GPU. More than 100 %: weights"),
        (on_gpu(), "More than 100 %: weights"),
    ],
    ids=["cpu", "gpu"],
)
def test_the_roofline_says_what_is_not_measured_and_can_be_read(rows, note):
    figure = bench_plots.draw_roofline(rows)
    assert figure.subfigs[1].get_supxlabel().startswith(note)
    figure.draw_without_rendering()
    assert figure.get_figwidth() <= 7
    space = figure.get_tightbbox()
    assert min(space.x0, space.y0) >= 0
    assert space.x1 <= figure.get_figwidth()
    assert space.y1 <= figure.get_figheight()


def test_nothing_to_draw():
    with pytest.raises(ValueError, match="beside a copy, found none"):
        bench_plots.draw_roofline(on_cpu()[1:3])


def test_the_newest_benchmark_comes_first():
    found = {}
    for device, date in (("an old chip", "2026-01-02"), ("new", "2026-03-01"), ("a", "2025-12-31")):
        source = structs.replace(SOURCE, device=device, date=date)
        found[device] = [structs.replace(one, source=source) for one in on_cpu()]
    newest = Results(benches=found).newest_benches
    assert list(newest) == ["new", "an old chip", "a"]
    assert newest["a"] == found["a"]


def test_plot_has_a_line_for_everything_and_the_paper():
    found = []
    for net, sizes in NETS.items():
        for i, name in enumerate(bench_plots.STYLES, start=1):
            one = net_measurement(name, 100.0 * i, net=net, n_weights=count_weights(sizes))
            found.append(bench_row(one))
        copy = measurement(1.0, group="net", net=net, name="scaled copy")
        found.append(bench_row(copy))
    (axes,) = bench_plots.draw_times(found).axes
    lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    paper = lines.pop("paper, 2012, GTX 480:\n7.5e9 updates/s")
    assert set(lines) == set(bench_plots.STYLES)
    assert lines["engine cpu"][:, 0] == pytest.approx(
        [1.34751, 3.26951, 6.69201, 8.86001, 12.11501]
    )
    assert paper[-1] == pytest.approx([12.11501, 1e6 * 12_115_010 / 7.5e9])
    markers = {(line.get_marker(), line.get_markerfacecolor()) for line in axes.lines}
    assert len(markers) == len(axes.lines)
    assert "microseconds" in axes.get_ylabel()
    assert "millions" in axes.get_xlabel()
