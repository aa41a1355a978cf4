"""experiments/benchmarks/narrow.py: a net measured in a process that is limited to AVX2."""

from dataclasses import fields
from pathlib import Path

import msgspec
import numpy as np
import pytest
from measurements import measurement, net_measurement
from narrow_vectors import needs_avx2, printed_by

from experiments.benchmarks import mlp, narrow
from experiments.benchmarks.columns import NARROW, Ceiling


@pytest.fixture
def child(monkeypatch):
    """The process runs in this one; returns what it measures and the environments it had."""
    peak = Ceiling(us=np.array([1.5, 2.5]), work=8.0)
    measured = [
        net_measurement("engine cpu", 3.25, vectors=8, flops=6, peak=peak, cpu_engine_us=None),
        measurement(1.0, group="net", name="scaled copy"),
        measurement(2.0, group="evaluation", name="engine cpu, evaluation", vectors=8),
    ]
    environments = []

    def run(command, env, check, start_new_session):
        assert (command[1:3], check) == (["-m", "experiments.benchmarks.narrow"], True)
        environments.append(env)
        narrow.main(*command[3:])

    def measure_on_cpu(network, makers, repeats):
        assert (network.sizes, makers, repeats) == (mlp.NETS[1], {}, 7)
        return measured

    monkeypatch.setattr(mlp, "trained", lambda network: network)
    monkeypatch.setattr(mlp, "NETS", {1: (5, 4, 3)})
    monkeypatch.setattr(mlp, "measure_on_cpu", measure_on_cpu)
    monkeypatch.setattr(narrow.subprocess, "run", run)
    return measured, environments


def test_measurements_with_vectors_come_back_whole(child):
    (expected, *_), environments = child
    (found,) = narrow.measure(1, 7)
    assert found.group == NARROW
    assert (found.peak.us.tolist(), found.peak.work) == ([1.5, 2.5], 8)
    assert found.us.tolist() == expected.us.tolist()
    for name in {field.name for field in fields(found)} - {"group", "us", "peak"}:
        assert getattr(found, name) == getattr(expected, name), name
    assert [env["NUMBA_CPU_NAME"] for env in environments] == ["haswell"]


def test_malformed_measurements_are_refused(child, monkeypatch):
    text = '[{"group": "net", "name": "engine cpu", "us": ["x"]}]'
    monkeypatch.setattr(narrow, "main", lambda *given: Path(given[-1]).write_text(text))
    with pytest.raises(msgspec.ValidationError):
        narrow.measure(1, 7)


@needs_avx2
def test_limited_process_has_vectors_of_8_floats(tmp_path):
    code = "from mlp_gpu.vector_kernel import LANES; print(LANES)"
    assert printed_by(narrow.AVX2, code, tmp_path) == [str(narrow.AVX2_LANES)]
