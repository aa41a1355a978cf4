"""Rows of bench.csv, and the tables that are made of them.

How the tables of the records look is compared with the pages: tests/commands/test_readme.py.
"""

import csv
import io

import numpy as np
import pytest
from measurements import gpu_rows, net_row, timed
from msgspec.structs import replace

from experiments import readme
from experiments.benchmarks import columns
from experiments.benchmarks.columns import Ceiling
from experiments.results import tables
from experiments.results.rows import BenchRow, from_cells, to_cells
from experiments.training.formatting import csv_text, markdown_table


def cells_again(row):
    """The row after it was written as CSV."""
    (cells,) = csv.DictReader(io.StringIO(csv_text([to_cells(row)])))
    return from_cells("it", cells, BenchRow)


def test_row_of_a_kernel():
    copy = Ceiling(us=np.array([0.5, 0.5, 0.5, 1, 1, 1, 1]), work=2000)
    fields = {"group": "kernel", "name": "some_kernel", "paper_gb_a_second": 115}
    found = columns.bench_row(np.array([1.0, 2, 3, 4, 5, 6, 7]), n_bytes=8000, copy=copy, **fields)
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
    found = net_row("engine cpu", 600.0, **work, settings="2 threads")
    assert (found.net, found.weights, found.settings) == ("1", 1_347_510, "2 threads")
    assert found.images_a_second == pytest.approx(1e6 / 600)
    assert found.updates_a_second == pytest.approx(1_347_510 * 1e6 / 600)
    assert found.percent_of_read == pytest.approx(100 * 3 / 8 / 6)
    assert found.percent_of_peak == pytest.approx(100 * 6 / 8 / 6)


CNN_ROW = timed(200.0, name="engine cpu", group="cnn", net="3", images=1, ran_on="a chip")
KERNEL = timed(2.0, group="cnn kernel", net="3", name="convolve_maps", state="warm")


def test_parts_of_the_page_say_what_is_not_measured():
    assert readme.benchmarks([gpu_rows()], "cnn-bench") == readme.NOT_MEASURED
    assert readme.benchmarks([[CNN_ROW]], "cnn-bench").endswith(f"|\n\n{readme.ON_A_GPU}")
    *_, kernels = readme.benchmarks([[CNN_ROW, KERNEL]], "cnn-bench").split("\n\n")
    assert "| convolve_maps |" in kernels


def test_speedups_are_left_out_without_what_they_are_over():
    row = timed(0.05, group="deformation", name="GPU", images=1, ran_on="it")
    *_, line = columns.deform_table([row])
    assert line["60,000 images (p20-p80)"] == "3 ms (3 ms-3 ms)"
    assert line["speedup over SciPy recipe"] == ""
    assert columns.cnn_table([CNN_ROW])[0]["speedup over PyTorch"] == ""


def test_kernel_table_names_a_net_by_its_sizes():
    named = [replace(row, net="841-800-10") for row in gpu_rows() if row.group == "kernel"]
    assert len(columns.kernel_table(named, ("841-800-10", 1))) == 2
    assert columns.kernel_table(named, (1, 4)) == []


def test_rows_of_a_benchmark_that_was_stopped_or_resumed_are_a_table_with_all_sources():
    other, _, warm, cold = (r for r in gpu_rows() if r.group == "kernel" and r.net == "1")
    later = replace(other.source, date="2026-11-30T10:00:00+00:00", commit="feed")
    rows = [warm, cold, replace(other, source=later)]
    lines = columns.kernel_table(rows, (1,))
    assert [line["cold: us (p20-p80)"] != "" for line in lines] == [True, False]
    assert tables.bench_source(rows).count("; medians of 7 repeats; and ") == 1
    assert "feed" in tables.bench_source(rows)


def test_a_bar_in_a_cell_begins_no_column():
    assert markdown_table([{"run": "a|b"}]).endswith("\n| a\\|b |")
