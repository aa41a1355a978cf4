"""Measurements become rows of bench.csv, and such rows tables."""

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


def as_text(measurements):
    """Rows as bench.csv gives them back."""
    return [cells_again(bench_row(one)) for one in measurements]


def cells_again(row, *lacking):
    """The row after it was written as CSV, without the columns that are lacking."""
    (cells,) = csv.DictReader(io.StringIO(csv_text([to_cells(row)])))
    cells = {name: cell for name, cell in cells.items() if name not in lacking}
    return from_cells("it", cells, BenchRow)


def printed(lines):
    """A table as lists of cells, the headings first."""
    return [" | ".join(cells) for cells in (lines[0], *(line.values() for line in lines))]


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


def test_net_table_has_the_papers_figures_above_ours():
    read = Ceiling(us=np.full(7, 100.0), work=2_000_000)
    peak = Ceiling(us=np.full(7, 100.0), work=8e6)
    work = {"n_bytes": 3_000_000, "flops": 6e6}
    measurements = [
        net_measurement("engine cpu", 300.0, **work, read=read, peak=peak, vectors=16),
        net_measurement("JAX scan, CPU", 600.0, settings="2 threads", cpu_engine_us=None),
        net_measurement("engine cpu", 500.0, group=columns.NARROW, vectors=8),
        measurement(5.0, group="net", net=1, name="scaled copy", ran_on="it"),
        measurement(10.0, group="deformation", name="deform", n_images=1),
    ]
    heading, *lines = printed(columns.net_table([bench_row(one) for one in measurements]))
    assert heading == (
        "net | engine | us per image (p20-p80) | images/s | 1e9 updates/s | speedup over CPU | "
        "GB/s | % of copy | % of read | GFLOP/s | % of peak | vectors | device"
    )
    ours = "1 | engine cpu | 300.0 (300.0-300.0) | 3,333 | 4.49 | 1.00 | 10.0 | "
    assert lines == [
        "paper | 2010, GTX 280 |  |  | up to 5 | 40 |  |  |  |  |  |  | ",
        "paper | 2012, GTX 480 |  |  | up to 7.5 | 50 |  |  |  |  |  |  | ",
        ours + " | 50 | 20 | 25 | 16 floats | a chip",
        "1 | JAX scan, CPU (2 threads) | 600.0 (600.0-600.0) | 1,667 | 2.25"
        " |  |  |  |  |  |  |  | a chip",
        "1 | scaled copy |  |  |  |  |  |  |  |  |  |  | it",
        "1 | engine cpu | 500.0 (500.0-500.0) | 2,000 | 2.7 | 0.60"  # last, with narrower vectors
        " |  |  |  |  |  | 8 floats | a chip",
    ]
    lacking = "settings", "percent_of_read", "percent_of_peak", "vectors"  # in older records
    table = columns.net_table([cells_again(bench_row(measurements[0]), *lacking)])
    assert printed(table)[3] == ours + " |  | 20 |  |  | a chip"


def cnn_measurements():
    """Of net 3 of 2011 on a chip and a GPU."""
    both = {"group": "cnn", "net": 3, "ran_on": "a chip", "n_weights": 179_340}
    peak = Ceiling(us=np.full(7, 1000.0), work=1e8)  # 50 billion multiply-adds a second
    one = both | {"n_images": 1, "flops": 4e6, "cpu_engine_us": np.full(7, 200.0)}
    there = one | {"ran_on": "a GPU"}
    return [
        measurement(200.0, name="engine cpu", peak=peak, **one),
        measurement(1000.0, name="multiply-adds", peak=peak, flops=1e8, **both),
        measurement(500.0, name="loops over connections, CPU", peak=peak, **one),
        measurement(2000.0, name="PyTorch eager, CPU", peak=peak, **one),
        measurement(800.0, name="PyTorch eager at its best, CPU (so)", peak=peak, **one),
        measurement(100.0, name="PyTorch compiled, CPU", peak=peak, **one),
        measurement(50.0, name="engine cuda graph", **there),
        measurement(400.0, name="PyTorch eager, GPU", **there),
        measurement(1.0, name="PyTorch eager, CPU", **one | {"net": 4}),
    ]


def cnn_kernel():
    fields = {"group": "cnn kernel", "net": 3, "name": "convolve_maps", "layer": 2}
    fields |= {"n_in": 10, "n_out": 20, "n_bytes": 3000, "flops": 4e6, "state": "warm"}
    return measurement(2.0, **fields)


def test_cnn_table():
    table = columns.cnn_table([bench_row(one) for one in cnn_measurements()[:-1]])
    net = "3: 20M-60M-100M-150N"
    assert printed(table) == [
        "net | engine | us per image (p20-p80) | images/s | speedup over CPU | "
        "speedup over PyTorch | 1e9 multiply-adds/s | % of peak | device",
        # Over the faster of the two eager ones.
        f"{net} | engine cpu | 200.0 (200.0-200.0) | 5,000 | 1.00 | 4.00 | 10.0 | 20 | a chip",
        f"{net} | multiply-adds |  |  |  |  | 50.0 | 100 | a chip",
        f"{net} | loops over connections, CPU | 500.0 (500.0-500.0)"
        " | 2,000 | 0.40 | 1.60 | 4.0 | 8 | a chip",
        f"{net} | PyTorch eager, CPU | 2,000 (2,000-2,000) | 500 | 0.10 | 0.40 | 1.0 | 2 | a chip",
        f"{net} | PyTorch eager at its best, CPU (so) | 800.0 (800.0-800.0)"
        " | 1,250 | 0.25 | 1.00 | 2.5 | 5 | a chip",
        f"{net} | PyTorch compiled, CPU | 100.0 (100.0-100.0)"
        " | 10,000 | 2.00 | 8.00 | 20.0 | 40 | a chip",
        f"{net} | engine cuda graph | 50.00 (50.00-50.00) | 20,000 | 4.00 | 8.00 | 40.0 |  | a GPU",
        f"{net} | PyTorch eager, GPU | 400.0 (400.0-400.0) | 2,500 | 0.50 | 1.00 | 5.0 |  | a GPU",
    ]
    without = [bench_row(one) for one in cnn_measurements()[:3]]
    assert columns.cnn_table(without)[0]["speedup over PyTorch"] == ""
    assert columns.cnn_table([bench_row(one) for one in gpu_measurements()]) == []


def test_records_of_convolutional_nets():
    # Records have these since there are such nets.
    old = [cells_again(bench_row(net_measurement("engine cpu", 300.0)), "flops", "percent_of_peak")]
    assert readme.benchmarks([old], "cnn-bench") == readme.NOT_MEASURED
    on_cpu, on_gpu = as_text(cnn_measurements()), as_text([cnn_kernel()])
    source, table, missing = readme.benchmarks([old, on_cpu], "cnn-bench").split("\n\n")
    assert source.startswith("Some GPU, driver 1.2; a 1; 2026-01-01; commit cccccccccccc; ")
    assert "| 3: 20M-60M-100M-150N " in table
    assert missing == readme.ON_A_GPU
    *_, kernels = readme.benchmarks([on_cpu + on_gpu], "cnn-bench").split("\n\n")
    assert "| convolve_maps |" in kernels


def test_deform_table_has_the_papers_figures_above_ours():
    rows = [
        bench_row(measurement(us, group="deformation", name=name, n_images=1, ran_on="it"))
        for name, us in (("CPU, 1 thread", 20.0), ("scipy recipe", 400.0), ("GPU", 0.05))
    ]
    rows.append(bench_row(net_measurement("engine cpu", 300.0)))
    heading, *lines = printed(columns.deform_table(rows))
    assert heading == (
        "method | 60,000 images (p20-p80) | images/s | speedup over SciPy recipe | device"
    )
    assert len(lines) == 6 + 3
    assert lines[1] == "2010, convolution on a GPU | 9 s | 6,667 |  | the paper"
    assert lines[6:] == [
        "CPU, 1 thread | 1.2 s (1.2 s-1.2 s) | 50,000 | 20.0 | it",
        "scipy recipe | 24 s (24 s-24 s) | 2,500 | 1.0 | it",
        "GPU | 3 ms (3 ms-3 ms) | 20,000,000 | 8,000.0 | it",
    ]
    assert (
        printed(columns.deform_table(rows[2:]))[7] == "GPU | 3 ms (3 ms-3 ms) | 20,000,000 |  | it"
    )


def test_kernel_tables_have_both_states_in_a_line():
    found = [bench_row(one) for one in gpu_measurements()]
    floor = "empty kernel |  |  |  | 2.50 (2.50-2.50) |  |  |  |  | 2.75 (2.75-2.75) |  |  |  | "
    heading, *lines = printed(columns.kernel_table(found, nets=(1, 4)))
    states = [
        f"{state}: {name}"
        for state in ("warm", "cold")
        for name in ("us (p20-p80)", "GB/s", "copy GB/s", "% of copy", "GFLOP/s")
    ]
    assert heading == " | ".join(["net", "layer", "kernel", "MB", "MFLOP", "paper GB/s", *states])
    kernel = (
        " | 1: 841 x 1000 | forward_partial | 3.400 |  | 115 | 2.00 (2.00-2.00) | 1,700 | 3,400 "
        "| 50 |  | 4.00 (4.00-4.00) | 850 | 3,400 | 25 | "
    )
    assert lines == ["1 |  | " + floor, "1" + kernel, "4" + kernel]
    # A net that is named by its sizes.
    named = [structs.replace(row, net="841-800-10") for row in found if row.group == "kernel"]
    assert len(columns.kernel_table(named, ("841-800-10", 1))) == 2
    assert columns.kernel_table(named, (1, 4)) == []
    row = bench_row(cnn_kernel())
    assert printed(columns.kernel_table([row, *found], (1, 3), "cnn kernel"))[1:] == [
        "3 | 2: 10 x 20 | convolve_maps | 0.003 | 4.000 |  | 2.00 (2.00-2.00) | 2 |  |  | 2,000"
    ]
    assert columns.kernel_table([row], (1, 3)) == []


def test_evaluation_table():
    peak = Ceiling(us=np.full(7, 100.0), work=8e6)
    fields = {"group": "evaluation", "net": 1, "n_images": 1, "flops": 1e6, "peak": peak}
    fields |= {"vectors": 16, "ran_on": "a chip"}
    one = measurement(25.0, name="engine cpu, evaluation", **fields)
    lines = printed(columns.evaluation_table(as_text([one, *gpu_measurements()])))
    assert lines[:3] == [
        "net | L2 | us (p20-p80) | images | images/s | TFLOP/s | % of peak | vectors | device",
        "1 |  | 25.00 (25.00-25.00) | 1 | 40,000 | 0.04 | 50 | 16 floats | a chip",
        "1 | warm | 2.00 (2.00-2.00) | 4,096 | 2,048,000,000 | 5000.00 |  |  | ",
    ]
    assert len(lines) == 2 + 6


def test_each_column_of_the_benchmarks_has_a_meaning():
    for table in (columns.NET_COLUMNS, columns.CNN_COLUMNS):
        explained = [line["column"] for line in columns.meanings(table)]
        assert explained == [
            c.heading for c in table if c.heading not in ("net", "engine", "device")
        ]
    cnn = columns.meanings(columns.CNN_COLUMNS, columns.NET_COLUMNS)
    assert [line["column"] for line in cnn] == [
        "speedup over PyTorch",
        "1e9 multiply-adds/s",
        "% of peak",
    ]
