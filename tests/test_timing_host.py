"""timing/host.py: workloads take turns and are repeated for some time."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.timing import host
from experiments.timing import report as timing_report
from experiments.timing.host import Workload


def test_works_take_turns(monkeypatch):
    monkeypatch.setattr(host, "MIN_REPEAT_SECONDS", 0)
    now, calls = [0.0], []
    monkeypatch.setattr(host.time, "perf_counter", lambda: now[0])

    def work(name, seconds):
        calls.append(name)
        now[0] += seconds

    workloads = {
        "a": Workload(lambda: work("a", 2), n_images=10),
        "b": Workload(lambda: work("b", 3), n_bytes=600),
    }
    us = host.time_workloads(workloads, 7)
    assert us["a"] == pytest.approx(np.full(7, 0.2e6))  # an image
    assert us["b"] == pytest.approx(np.full(7, 3e6))  # a call
    assert "".join(calls) == "aabb" + 7 * "ab"
    a, b = host.measure(
        "group", workloads | {"a": replace(workloads["a"], n_bytes=30)}, 7, copy="b"
    )
    assert (a.n_images, b.n_images) == (1, None)
    assert timing_report.row(a)["percent_of_copy"] == pytest.approx(100 * (30 / 600) * (3 / 0.2))
    assert timing_report.row(b)["percent_of_copy"] == pytest.approx(100)


def test_works_are_repeated_for_some_time(monkeypatch):
    monkeypatch.setattr(host, "MIN_REPEAT_SECONDS", 0.002)
    calls = []
    host.time_workloads({"a": Workload(lambda: calls.append(1))}, 7)
    assert len(calls) > 2 + 7
