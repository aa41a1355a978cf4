"""Rows of a benchmark, made up."""

import numpy as np

from experiments.benchmarks import columns
from experiments.benchmarks.columns import Ceiling
from experiments.training.provenance import SourceColumns

SOURCE = SourceColumns(
    device="Some GPU", driver="1.2", versions="a=1", date="2026-01-01", commit="c" * 40
)


def timed(us, **fields):
    """A row of seven repeats that took the same number of microseconds each."""
    return columns.bench_row(np.full(7, us), **{"source": SOURCE} | fields)


def net_row(name, us, net=1, weights=1_347_510, ran_on="a chip", **changes):
    """Of an engine that trains net 1, where the CPU engine takes 300 us per image."""
    fields = {"group": "net", "name": name, "images": 1, "times_cpu": 300 / us} | changes
    (row,) = columns.of_net(net, weights, ran_on, [timed(us, **fields)])
    return row


def gpu_rows():
    """As of a GPU."""
    copy = Ceiling(us=np.full(7, 1.0), work=3_400_000)
    kernel = {"group": "kernel", "n_in": 841, "n_out": 1000, "layer": 1, "n_bytes": 3_400_000}
    kernel |= {"name": "forward_partial", "copy": copy, "paper_gb_a_second": 115}
    evaluation = {"group": "evaluation", "name": "forward_batch", "images": 4096, "flops": 1e10}
    found = [
        timed(us, group="kernel", net="1", name="empty kernel", state=state)
        for state, us in (("warm", 2.5), ("cold", 2.75))
    ]
    for net in "124":
        for state, us in (("warm", 2.0), ("cold", 4.0)):
            both = {"net": net, "state": state}
            found += [timed(us, **kernel | both), timed(us, **evaluation | both)]
    return [net_row("engine cuda graph", 20.0), *found]
