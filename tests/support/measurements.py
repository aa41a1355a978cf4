"""Measurements of a benchmark, made up."""

import numpy as np

from experiments.benchmarks import columns
from experiments.benchmarks.columns import Ceiling, Measurement
from experiments.results.rows import rows_text
from experiments.training.provenance import SourceColumns

SOURCE = SourceColumns(
    device="Some GPU", driver="1.2", versions="a=1", date="2026-01-01", commit="c" * 40
)


def bench_row(measured, source=SOURCE):
    """A measurement as a row of bench.csv."""
    return columns.bench_row(measured, source)


def measurement(us, **fields):
    """Seven repeats that all took so many microseconds."""
    return Measurement(us=np.full(7, us), **fields)


def net_measurement(name, us, **changes):
    """Of an engine that trains net 1, where the CPU engine takes 300 us per image."""
    fields = {"group": "net", "name": name, "net": 1, "n_weights": 1_347_510, "n_images": 1}
    fields |= {"ran_on": "a chip", "cpu_engine_us": np.full(7, 300.0)}
    return measurement(us, **fields | changes)


def gpu_measurements():
    """As of a GPU."""
    copy = Ceiling(us=np.full(7, 1.0), work=3_400_000)
    kernel = {"group": "kernel", "n_in": 841, "n_out": 1000, "layer": 1, "n_bytes": 3_400_000}
    kernel |= {"name": "forward_partial", "copy": copy, "paper_gb_per_second": 115}
    evaluation = {"group": "evaluation", "name": "forward_batch", "n_images": 4096, "flops": 1e10}
    found = [
        measurement(us, group="kernel", net=1, name="empty kernel", state=state)
        for state, us in (("warm", 2.5), ("cold", 2.75))
    ]
    for net in (1, 2, 4):
        for state, us in (("warm", 2.0), ("cold", 4.0)):
            both = {"net": net, "state": state}
            found += [measurement(us, **kernel | both), measurement(us, **evaluation | both)]
    return [net_measurement("engine cuda graph", 20.0), *found]


def write_bench(measurements, source, path):
    """Write bench.csv at `path`."""
    path.parent.mkdir(parents=True)
    path.write_text(rows_text(bench_row(one, source) for one in measurements))
