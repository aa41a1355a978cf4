"""Measurements become rows of bench.csv, and such rows tables."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from measurements import bench_row, gpu_measurements, measurement, net_measurement
from msgspec import structs

from experiments import readme
from experiments.benchmarks import columns, findings
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
    assert found.repeats == 7
    assert found.gb_a_second == pytest.approx(2)  # 8,000 bytes in 4 us
    assert found.copy_gb_a_second == pytest.approx(2)  # 2,000 bytes in 1 us
    # Median of 1/2, 1/4, 1/6, 1/4, 1/5, 1/6, 1/7: 1/5 of the time, for 4 times the bytes.
    assert found.percent_of_copy == pytest.approx(100 * 4 / 5)
    assert found.paper_gb_a_second == 115
    assert found.net == ""
    assert found.images_a_second is found.updates_a_second is found.times_cpu is None


def test_rows_of_a_net_and_an_evaluation():
    one = measurement(20.0, group="net", net=1, name="engine", n_images=1, n_weights=3000)
    found = bench_row(replace(one, cpu_engine_us=np.array([70, 80, 90.0])))
    assert found.images_a_second == pytest.approx(50_000)
    assert found.updates_a_second == pytest.approx(1.5e8)
    assert found.times_cpu == pytest.approx(4)
    assert found.gb_a_second is found.percent_of_copy is found.percent_of_read is None
    assert bench_row(replace(one, settings="so")).settings == "so"
    assert bench_row(one).times_cpu is None
    one = measurement(250.0, group="evaluation", name="batch", n_images=4096, flops=5e9)
    assert bench_row(one).images_a_second == pytest.approx(4096 * 4000)
    assert bench_row(one).tflop_a_second == pytest.approx(20)


def test_net_table_has_the_papers_figures_above_ours():
    read = Ceiling(us=np.full(7, 100.0), work=2_000_000)
    peak = Ceiling(us=np.full(7, 100.0), work=8e6)
    measurements = [
        net_measurement("engine cpu", 300.0, n_bytes=3_000_000, read=read, flops=6e6, peak=peak),
        net_measurement("JAX scan, CPU", 600.0, settings="2 threads"),
        measurement(5.0, group="net", net=1, name="scaled copy", ran_on="it"),
        measurement(10.0, group="deformation", name="deform", n_images=1),
    ]
    lines = columns.net_table([bench_row(one) for one in measurements])
    papers = [(line["engine"], line["1e9 updates/s"], line["speedup over CPU"]) for line in lines]
    assert papers[:2] == [("2010, GTX 280", "up to 5", "40"), ("2012, GTX 480", "up to 7.5", "50")]
    assert lines[2] == {
        "net": "1",
        "engine": "engine cpu",
        "us per image (p20-p80)": "300.0 (300.0-300.0)",
        "images/s": "3,333",
        "1e9 updates/s": "4.49",
        "speedup over CPU": "1.00",
        "GB/s": "10.0",
        "% of copy": "",
        "% of read": "50",
        "GFLOP/s": "20",
        "% of peak": "25",
        "device": "a chip",
    }
    assert papers[3:] == [("JAX scan, CPU (2 threads)", "2.25", "0.50"), ("scaled copy", "", "")]
    assert lines[4]["us per image (p20-p80)"] == ""
    lacking = "settings", "percent_of_read", "percent_of_peak"  # in older records
    line = columns.net_table([cells_again(bench_row(measurements[0]), *lacking)])[2]
    assert (line["engine"], line["% of read"], line["% of peak"]) == ("engine cpu", "", "")


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
    lines = columns.cnn_table([bench_row(one) for one in cnn_measurements()])
    assert lines[0] == {
        "net": "3: 20M-60M-100M-150N",
        "engine": "engine cpu",
        "us per image (p20-p80)": "200.0 (200.0-200.0)",
        "images/s": "5,000",
        "speedup over CPU": "1.00",
        "speedup over PyTorch": "4.00",  # over the faster of the two eager ones
        "1e9 multiply-adds/s": "10.0",
        "% of peak": "20",
        "device": "a chip",
    }
    peak, loops, eager, best, compiled, graph, *_ = lines[1:]
    assert (peak["us per image (p20-p80)"], peak["speedup over PyTorch"]) == ("", "")
    assert (peak["1e9 multiply-adds/s"], peak["% of peak"]) == ("50.0", "100")
    assert (loops["speedup over CPU"], loops["speedup over PyTorch"]) == ("0.40", "1.60")
    assert [one["speedup over PyTorch"] for one in (eager, best)] == ["0.40", "1.00"]
    assert compiled["speedup over PyTorch"] == "8.00"
    assert (graph["speedup over CPU"], graph["speedup over PyTorch"]) == ("4.00", "8.00")
    assert graph["% of peak"] == ""
    without = [bench_row(one) for one in cnn_measurements()[:3]]
    assert columns.cnn_table(without)[0]["speedup over PyTorch"] == ""
    assert columns.cnn_table([bench_row(one) for one in gpu_measurements()]) == []


def test_records_of_convolutional_nets():
    # Records have these since there are such nets.
    old = [cells_again(bench_row(net_measurement("engine cpu", 300.0)), "flops", "percent_of_peak")]
    assert readme.benchmarks([old], "cnn-bench") == readme.NOT_MEASURED
    on_cpu, on_gpu = as_text(cnn_measurements()), as_text([cnn_kernel()])
    source, table, sentence, missing = readme.benchmarks(
        [old, on_cpu], "cnn-bench", findings.cnn_sentences
    ).split("\n\n")
    assert source.startswith("Some GPU; driver 1.2; a 1; 2026-01-01; commit cccccccccccc; ")
    assert "| 3: 20M-60M-100M-150N " in table
    assert sentence == (
        "On a chip, `engine cpu` takes 200 microseconds per image for 20M-60M-100M-150N, in one "
        "thread. It multiplies and adds 10.0 billion times per second, absent connections not "
        "counted, 20 % of what the processor can. Its speedup is 4.0 over PyTorch "
        "eager at its best and 2.5 over loops over connections."
    )
    assert findings.cnn_sentences(on_cpu[:2])[0].endswith("processor can.")
    assert findings.cnn_sentences(on_cpu[-1:]) == []
    assert missing == readme.ON_A_GPU
    *_, kernels = readme.benchmarks([on_cpu + on_gpu], "cnn-bench").split("\n\n")
    assert "| convolve_maps |" in kernels


def test_deform_table_has_the_papers_figures_above_ours():
    measurements = [
        measurement(us, group="deformation", name=name, n_images=1, ran_on="it")
        for name, us in (("CPU, 1 thread", 20.0), ("scipy recipe", 400.0), ("GPU", 0.05))
    ]
    measurements.append(net_measurement("engine cpu", 300.0))
    lines = columns.deform_table([bench_row(one) for one in measurements])
    assert len(lines) == 6 + 3
    assert lines[1] == {
        "method": "2010, convolution on a GPU",
        "60,000 images (p20-p80)": "9 s",
        "images/s": "6,667",
        "speedup over SciPy recipe": "",
        "device": "the paper",
    }
    assert lines[6] == {
        "method": "CPU, 1 thread",
        "60,000 images (p20-p80)": "1.2 s (1.2 s-1.2 s)",
        "images/s": "50,000",
        "speedup over SciPy recipe": "20.0",
        "device": "it",
    }
    assert lines[7]["speedup over SciPy recipe"] == "1.0"
    assert lines[8]["60,000 images (p20-p80)"] == "3 ms (3 ms-3 ms)"
    assert lines[8]["images/s"] == "20,000,000"
    without = columns.deform_table([bench_row(measurements[2])])
    assert without[6]["speedup over SciPy recipe"] == ""


def test_kernel_tables_have_both_states_in_a_line():
    found = [bench_row(one) for one in gpu_measurements()]
    kernels = columns.kernel_table(found, nets=(1, 4))
    evaluation = columns.evaluation_table(found)
    # A net that is named by its sizes.
    named = [structs.replace(row, net="841-800-10") for row in found if row.group == "kernel"]
    assert len(columns.kernel_table(named, ("841-800-10", 1))) == 2
    assert columns.kernel_table(named, (1, 4)) == []
    assert len(kernels) == 3
    floor = kernels[0]
    assert (floor["kernel"], floor["layer"], floor["MB"]) == ("empty kernel", "", "")
    assert floor["cold: us (p20-p80)"] == "2.75 (2.75-2.75)"
    assert kernels[2] == {
        "net": "4",
        "layer": "1: 841 x 1000",
        "kernel": "forward_partial",
        "MB": "3.400",
        "MFLOP": "",
        "paper GB/s": "115",
        "warm: us (p20-p80)": "2.00 (2.00-2.00)",
        "warm: GB/s": "1,700",
        "warm: copy GB/s": "3,400",
        "warm: % of copy": "50",
        "warm: GFLOP/s": "",
        "cold: us (p20-p80)": "4.00 (4.00-4.00)",
        "cold: GB/s": "850",
        "cold: copy GB/s": "3,400",
        "cold: % of copy": "25",
        "cold: GFLOP/s": "",
    }
    row = bench_row(cnn_kernel())
    (line,) = columns.kernel_table([row, *found], (1, 3), "cnn kernel")
    assert (line["net"], line["layer"], line["kernel"]) == ("3", "2: 10 x 20", "convolve_maps")
    assert (line["MFLOP"], line["warm: GFLOP/s"], line["warm: GB/s"]) == ("4.000", "2,000", "2")
    assert columns.kernel_table([row], (1, 3)) == []
    assert len(evaluation) == 6
    assert evaluation[0]["TFLOP/s"] == "5000.00"
    assert evaluation[0]["images/s"] == "2,048,000,000"
    assert (evaluation[0]["L2"], evaluation[0]["% of peak"]) == ("warm", "")
    peak = Ceiling(us=np.full(7, 100.0), work=8e6)
    fields = {"group": "evaluation", "net": 1, "n_images": 1, "flops": 1e6, "peak": peak}
    one = measurement(25.0, name="engine cpu, evaluation", ran_on="a chip", **fields)
    (line,) = columns.evaluation_table(as_text([one]))
    assert line == {
        "net": "1",
        "L2": "",
        "us (p20-p80)": "25.00 (25.00-25.00)",
        "images": "1",
        "images/s": "40,000",
        "TFLOP/s": "0.04",
        "% of peak": "50",
        "device": "a chip",
    }


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
