"""Measurements become rows of bench.csv, and such rows tables.

How the tables of the records look is compared with the pages: tests/commands/test_readme.py.
"""

import csv
import io

import numpy as np
import pytest
from measurements import bench_row, gpu_measurements, measurement, net_measurement
from msgspec import structs

from experiments import readme
from experiments.benchmarks import columns
from experiments.benchmarks.columns import Ceiling, Measurement
from experiments.results.rows import BenchRow, from_cells, to_cells
from experiments.training.formatting import csv_text


def cells_again(row, *lacking):
    """The row after it was written as CSV, without the columns that are lacking."""
    (cells,) = csv.DictReader(io.StringIO(csv_text([to_cells(row)])))
    cells = {name: cell for name, cell in cells.items() if name not in lacking}
    return from_cells("it", cells, BenchRow)


def test_row_of_a_kernel():
    found = bench_row(
        Measurement(
            group="kernel",
            name="some_kernel",
            state="warm",
            us=np.array([1.0, 2, 3, 4, 5, 6, 7]),
            n_bytes=8000,
            copy=Ceiling(us=np.array([0.5, 0.5, 0.5, 1, 1, 1, 1]), work=2000),
            paper_gb_per_second=115,
        )
    )
    assert cells_again(found) == found
    assert (found.us_p20, found.us, found.us_p80) == pytest.approx((2.2, 4, 5.8))
    assert (found.repeats, found.paper_gb_a_second, found.net) == (7, 115, "")
    assert found.gb_a_second == pytest.approx(2)  # 8,000 bytes in 4 us
    assert found.copy_gb_a_second == pytest.approx(2)  # 2,000 bytes in 1 us
    # Median of 1/2, 1/4, 1/6, 1/4, 1/5, 1/6, 1/7: 1/5 of the time, for 4 times the bytes.
    assert found.percent_of_copy == pytest.approx(100 * 4 / 5)
    assert found.images_a_second is found.updates_a_second is found.times_cpu is None


def test_row_of_a_net():
    ceiling = Ceiling(us=np.full(7, 100.0), work=8e6)
    work = {"n_bytes": 3_000_000, "flops": 6e6, "read": ceiling, "peak": ceiling}
    found = bench_row(net_measurement("engine cpu", 600.0, **work, settings="2 threads"))
    assert (found.weights, found.settings) == (1_347_510, "2 threads")
    assert found.images_a_second == pytest.approx(1e6 / 600)
    assert found.updates_a_second == pytest.approx(1_347_510 * 1e6 / 600)
    assert found.times_cpu == pytest.approx(0.5)  # of the CPU engine's 300 us
    assert found.percent_of_read == pytest.approx(100 * 3 / 8 / 6)
    assert found.percent_of_peak == pytest.approx(100 * 6 / 8 / 6)


def test_rows_with_narrow_vectors_are_last_and_old_records_have_empty_cells():
    rows = [
        bench_row(net_measurement("engine cpu", 500.0, group=columns.NARROW, vectors=8)),
        bench_row(net_measurement("engine cpu", 300.0, flops=6e6, vectors=16)),
    ]
    *_, wide, narrow = columns.net_table(rows)
    assert (wide["vectors"], narrow["vectors"]) == ("16 floats", "8 floats")
    lacking = "settings", "percent_of_read", "percent_of_peak", "vectors"
    *_, old = columns.net_table([cells_again(rows[1], *lacking)])
    assert old == wide | {"vectors": ""}


def cnn_measurements():
    """Of nets of 2011 on a chip and a GPU."""
    one = {"group": "cnn", "net": 3, "n_weights": 179_340, "n_images": 1, "flops": 4e6}
    chip, there = one | {"ran_on": "a chip"}, one | {"ran_on": "a GPU"}
    return [
        measurement(200.0, name="engine cpu", **chip),
        measurement(1000.0, name="multiply-adds", **chip | {"n_images": None}),
        measurement(50.0, name="engine cuda graph", **there),
        measurement(1.0, name="PyTorch, CPU", **chip | {"net": 4}),
        measurement(2000.0, name="PyTorch eager, CPU", **chip),
        measurement(800.0, name="PyTorch eager at its best, CPU (so)", **chip),
        measurement(400.0, name="PyTorch graph, GPU", **there),
    ]


def test_convolutional_nets_are_compared_with_the_fastest_pytorch_on_their_device():
    rows = [bench_row(one) for one in cnn_measurements()]
    found = {line["engine"]: line["speedup over PyTorch"] for line in columns.cnn_table(rows)}
    assert list(found.values()) == ["4.00", "", "8.00", "1.00", "0.40", "1.00", "1.00"]
    assert columns.cnn_table(rows[:1])[0]["speedup over PyTorch"] == ""
    assert columns.cnn_table([bench_row(one) for one in gpu_measurements()]) == []


def cnn_kernel():
    fields = {"group": "cnn kernel", "net": 3, "name": "convolve_maps", "layer": 2}
    fields |= {"n_in": 10, "n_out": 20, "n_bytes": 3000, "flops": 4e6, "state": "warm"}
    return bench_row(measurement(2.0, **fields))


def test_records_of_convolutional_nets():
    # Records have these since there are such nets.
    old = [cells_again(bench_row(net_measurement("engine cpu", 300.0)), "flops", "percent_of_peak")]
    assert readme.benchmarks([old], "cnn-bench") == readme.NOT_MEASURED
    on_cpu = [cells_again(bench_row(one)) for one in cnn_measurements()]
    source, table, missing = readme.benchmarks([old, on_cpu], "cnn-bench").split("\n\n")
    assert source.startswith("Some GPU, driver 1.2; a 1; 2026-01-01; commit cccccccccccc; ")
    assert "| 3: 20M-60M-100M-150N " in table
    assert missing == readme.ON_A_GPU
    *_, kernels = readme.benchmarks([[*on_cpu, cnn_kernel()]], "cnn-bench").split("\n\n")
    assert "| convolve_maps |" in kernels


def test_deformations_without_the_recipe_have_no_speedup():
    row = bench_row(measurement(0.05, group="deformation", name="GPU", n_images=1, ran_on="it"))
    *_, line = columns.deform_table([row])
    assert (line["60,000 images (p20-p80)"], line["speedup over SciPy recipe"]) == (
        "3 ms (3 ms-3 ms)",
        "",
    )
    assert columns.deform_table([cnn_kernel()]) == []


def test_kernel_tables_are_of_some_nets_and_one_group():
    found = [bench_row(one) for one in gpu_measurements()]
    kernels = [(line["net"], line["kernel"]) for line in columns.kernel_table(found, nets=(1, 4))]
    assert kernels == [("1", "empty kernel"), ("1", "forward_partial"), ("4", "forward_partial")]
    # A net that is named by its sizes.
    named = [structs.replace(row, net="841-800-10") for row in found if row.group == "kernel"]
    assert len(columns.kernel_table(named, ("841-800-10", 1))) == 2
    assert columns.kernel_table(named, (1, 4)) == []
    (line,) = columns.kernel_table([cnn_kernel(), *found], (1, 3), "cnn kernel")
    assert (line["layer"], line["warm: GFLOP/s"]) == ("2: 10 x 20", "2,000")


def test_each_column_of_the_benchmarks_has_a_meaning():
    for table in (columns.NET_COLUMNS, columns.CNN_COLUMNS):
        explained = [line["column"] for line in columns.meanings(table)]
        assert explained == [
            c.heading for c in table if c.heading not in ("net", "engine", "device")
        ]
