"""Rows of bench.csv for the figures of benchmarks."""

import numpy as np
from measurements import SOURCE, net_row, timed
from msgspec.structs import replace

from experiments.benchmarks import columns, mlp_times
from experiments.benchmarks.columns import Ceiling
from experiments.drawing import bench_plots
from mlp_gpu.network import NETS, count_weights

CPU, GPU = "a chip, 2 cores", "a GPU"


def row(name, us, percent, **more):
    """A row of bench.csv whose copy took this percentage of its time."""
    fields = {"net": "1", "name": name, "n_bytes": 1000, "ran_on": GPU} | more
    if percent:
        fields["copy"] = Ceiling(us=np.full(7, us * percent / 100), work=fields["n_bytes"])
    return timed(us, source=replace(SOURCE, device=GPU), **fields)


def engine(name, net, us, percent, **more):
    sizes = mlp_times.NETS[net]
    fields = {"flops": mlp_times.training_flops(sizes), "images": 1, "ran_on": CPU} | more
    made = row(name, us, percent, group="net", **fields)
    (found,) = columns.of_net(net, count_weights(sizes), made.ran_on, [made])
    return replace(found, times_cpu=1.0)


def kernel(name, us, percent, **more):
    fields = {"group": "kernel", "n_in": 31, "n_out": 50} | more
    flops = 2 * (fields["n_in"] + 1) * fields["n_out"]
    return row(name, us, percent, **fields, flops=flops)


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
        row("forward_batch", 40.0, None, group="evaluation", images=5000, n_bytes=None, flops=1e9),
    ]


def all_engines():
    """A row of each engine and baseline, for each net."""
    found = []
    for net, sizes in NETS.items():
        for i, name in enumerate(bench_plots.STYLES, start=1):
            weights = count_weights(sizes)
            found.append(net_row(name, 100.0 * i, net=net, weights=weights))
        found.append(timed(1.0, group="net", net=str(net), name="scaled copy"))
    return found
