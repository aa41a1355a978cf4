"""timing/host.py: workloads take turns and are repeated for some time."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from measurements import bench_row

from experiments.timing import host
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
    changed = replace(workloads["a"], n_bytes=30, flops=6, copy="b", read="b", peak="b")
    a, b = host.measure("group", {"a": changed, "b": replace(workloads["b"], flops=20)}, 7)
    assert (a.n_images, b.n_images) == (1, None)
    row = bench_row(a)
    assert row.percent_of_copy == pytest.approx(100 * (30 / 600) * (3 / 0.2))
    assert row.percent_of_read == pytest.approx(row.percent_of_copy)
    assert row.percent_of_peak == pytest.approx(100 * (6 / 20) * (3 / 0.2))
    found = bench_row(b)
    assert found.percent_of_copy is found.percent_of_read is found.percent_of_peak is None


def test_what_goes_on_meanwhile_is_not_timed(monkeypatch):
    monkeypatch.setattr(host, "MIN_REPEAT_SECONDS", 0.5)
    now, goes_on = [0.0], []
    monkeypatch.setattr(host.time, "perf_counter", lambda: now[0])

    @contextmanager
    def beside():
        now[0] += 100
        goes_on.append(True)
        yield
        goes_on.pop()
        now[0] += 100

    def call():
        now[0] += 0.25 if goes_on else 7

    us = host.time_workloads({"a": Workload(call, beside=beside)}, 7)
    assert us["a"] == pytest.approx(np.full(7, 0.25e6))
    assert now[0] == pytest.approx(7 + 0.25 + 7 * 2 * 0.25 + 8 * 200)


def test_works_are_repeated_for_some_time(monkeypatch):
    monkeypatch.setattr(host, "MIN_REPEAT_SECONDS", 0.002)
    calls = []
    host.time_workloads({"a": Workload(lambda: calls.append(1))}, 7)
    assert len(calls) > 2 + 7
