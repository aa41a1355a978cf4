"""experiments/benchmarks/narrow.py: a net measured in a process that is limited to AVX2."""

import msgspec
import numpy as np
import pytest
from measurements import bench_row, measurement

from experiments.benchmarks import columns, mlp, narrow
from experiments.benchmarks.columns import Ceiling


def test_measurements_with_vectors_come_back_from_a_limited_process(monkeypatch):
    """Its process runs in this one."""
    peak, environments = Ceiling(us=np.array([1.5, 2.5]), work=8.0), []
    fields = {"us": np.array([3.0, 4.0]), "group": "net", "vectors": 8, "flops": 6}
    measured = [
        columns.Measurement(name="engine cpu", net=1, n_weights=9, n_images=1, peak=peak, **fields),
        measurement(1.0, group="net", name="scaled copy"),
        measurement(2.0, group="evaluation", name="engine cpu, evaluation", vectors=8),
    ]

    def run(command, env, check, start_new_session):
        assert (command[1:3], check) == (["-m", "experiments.benchmarks.narrow"], True)
        environments.append(env["NUMBA_CPU_NAME"])
        narrow.main(*command[3:])

    monkeypatch.setattr(mlp, "trained", lambda network: network)
    monkeypatch.setattr(mlp, "NETS", {1: (5, 4, 3)})
    monkeypatch.setattr(mlp, "measure_on_cpu", lambda *given: measured)
    monkeypatch.setattr(narrow.subprocess, "run", run)
    (found,) = map(bench_row, narrow.measure(1, 7))
    assert environments == ["haswell"]
    expected = bench_row(measured[0])
    assert found == msgspec.structs.replace(expected, group=columns.NARROW)
    measured[0].us[0] = np.nan  # null in JSON
    with pytest.raises(msgspec.ValidationError):
        narrow.measure(1, 7)
