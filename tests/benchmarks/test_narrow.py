"""experiments/benchmarks/narrow.py: a net measured in a process that is limited to AVX2."""

import os

from measurements import timed

from experiments.benchmarks import columns, mlp_times, narrow


def measured(*arguments):
    """In place of `mlp_times.measure_on_cpu`."""
    kinds = ("net", narrow.LANES), ("net", None), ("evaluation", narrow.LANES)
    name = f"{arguments} on {os.environ['NUMBA_CPU_NAME']}"
    return [timed(3.0, name=name, group=group, vectors=lanes) for group, lanes in kinds]


def test_rows_with_vectors_come_back_from_a_limited_process(monkeypatch):
    monkeypatch.setattr(mlp_times, "measure_on_cpu", measured)
    (found,) = narrow.measure("a net", 7)
    assert (found.name, found.group) == ("('a net', {}, 7) on haswell", columns.NARROW)
    assert (found.vectors, found.us) == (8, 3.0)
