"""The work that figures of benchmarks show; test_kept_figures.py has all else of them."""

import numpy as np
import pytest
from bench_rows import CPU, GPU, on_cpu, on_gpu, row
from measurements import SOURCE
from msgspec import structs

from experiments.drawing import bench_plots
from experiments.results.loading import Results


def test_works_of_layers_are_added_up():
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
    own = found["1", "engine cpu", ""]
    assert (own.flops, own.ran_on) == (2 * (3 * 1_347_510 - 842_000), CPU)


def test_convolutional_nets_are_not_drawn():
    more = {"group": "cnn", "n_bytes": 5000, "n_images": 1, "n_weights": 7, "net": 3}
    rows = [*on_gpu(), row("engine cpu", 1.0, 10, **more)]
    rows.append(row("convolve_maps", 1.0, 10, **more | {"group": "cnn kernel"}))
    assert repr(bench_plots.works(rows)) == repr(bench_plots.works(on_gpu()))
    n_lines = [len(bench_plots.plot_times(some).axes[0].lines) for some in (rows, on_gpu())]
    assert n_lines[0] == n_lines[1]


def test_newest_benchmarks_the_newest_is_first():
    found = {}
    for device, date in (("an old chip", "2026-01-02"), ("new", "2026-03-01"), ("a", "2025-12-31")):
        source = structs.replace(SOURCE, device=device, date=date)
        found[device] = [structs.replace(one, source=source) for one in on_cpu()]
    newest = Results(benches=found).newest_benches
    assert list(newest) == ["new", "an old chip", "a"]
    assert newest["a"] == found["a"]
