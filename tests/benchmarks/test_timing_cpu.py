"""experiments/benchmarks/host.py and mlp_times.py: the rows that are timed on the CPU."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from experiments.benchmarks import baselines, host, mlp_times
from experiments.benchmarks.host import Workload
from mlp_gpu import cpu
from mlp_gpu.network import NETS, Network, count_weights
from mlp_gpu.vector_kernel import LANES, PANEL, ROWS, VECTORS

SIZES = (33, 90, 17, 10)


def test_workloads_take_turns(monkeypatch):
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
    assert (a.images, b.images) == (1, None)
    assert a.percent_of_copy == a.percent_of_read == pytest.approx(100 * (30 / 600) * (3 / 0.2))
    assert a.percent_of_peak == pytest.approx(100 * (6 / 20) * (3 / 0.2))
    assert b.percent_of_copy is b.percent_of_read is b.percent_of_peak is None


# --- ceilings


@pytest.fixture
def little(monkeypatch):
    """Little work in a call of a ceiling."""
    monkeypatch.setattr(host, "CALL_BYTES", 2400)
    monkeypatch.setattr(host, "CALL_FLOPS", 10_000)
    monkeypatch.setattr(host, "KERNEL_K", 128)


def spied(monkeypatch, name):
    """The arguments and the result of every call of a function of `host`."""
    seen, function = [], getattr(host, name)
    monkeypatch.setattr(host, name, lambda *given: seen.append((*given, function(*given))))
    return seen


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("threads", [1, 3])
def test_copy_and_read_touch_each_element_in_one_thread(threads, monkeypatch):
    source, target = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    host.scale(target, source, np.float32(2), 1)
    assert (target.tolist(), host.add_up(source, 3)) == ([0, 2, 4, 6, 8], 30)
    seen = spied(monkeypatch, "scale")
    work = host.scaled_copy(100, threads)
    work.call()
    assert (len(seen), sum(target.sum() for target, *_ in seen)) == (threads, 0.5 * 100)
    assert {passes for *_, passes, _ in seen} == {3}
    assert work.n_bytes == 3 * 100 * (4 + 4)
    seen = spied(monkeypatch, "add_up")
    work = host.memory_read(100, threads)
    work.call()
    assert (len(seen), sum(total for *_, total in seen)) == (threads, 6 * 100)
    assert work.n_bytes == 6 * 400
    # Large arrays are passed once.
    assert (host.memory_read(1000, 1).n_bytes, host.scaled_copy(1000, 1).n_bytes) == (4000, 8000)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("threads", [1, 2])
def test_multiply_adds_end_where_they_begin(threads, monkeypatch):
    """1 is the fixed point of x / 2 + 1 / 2, so a sum of other numbers means that some are lost."""
    assert host.multiply_and_add(np.float32(1), 5) == ROWS * VECTORS
    assert host.multiply_and_add(np.float32(17), 3) == ROWS * VECTORS * 3  # 1 + 16 / 2**3
    seen = spied(monkeypatch, "multiply_and_add")
    work = host.multiply_adds(threads)
    work.call()
    assert work.flops == sum(steps for _, steps, _ in seen) * 2 * LANES * ROWS * VECTORS <= 10_000
    assert len(seen) == threads


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("name", ["multiply_forward", "multiply_backward"])
def test_kernel_uses_each_weight_for_all_rows(name, monkeypatch):
    monkeypatch.setattr(host, "CALL_FLOPS", 16_000_000)
    seen, multiply = [], getattr(host, name)

    def spy(C, A, W, passes):
        seen.append((C, A, W, passes))
        A[:] = 1
        multiply(C, A, W, passes)

    work = host.kernel(spy, 2 * 3 * 128 * PANEL, 2)
    work.call()
    assert len(seen) == 2
    for C, _, W, passes in seen:
        assert W.shape == (3, 128, PANEL)
        assert (W == 1).all()
        np.testing.assert_array_equal(C, passes * W.size / C.shape[1])
        assert passes > 1
    assert work.flops == sum(2 * C.shape[0] * W.size * passes for C, _, W, passes in seen)


# --- perceptrons


@pytest.fixture
def small(monkeypatch):
    """A net, and little work with it."""
    monkeypatch.setattr(host, "CALL_BYTES", 0)
    monkeypatch.setattr(host, "CALL_FLOPS", 10_000)
    monkeypatch.setattr(host, "MIN_REPEAT_SECONDS", 0)
    monkeypatch.setattr(mlp_times, "ENGINE_UPDATES", 1)
    monkeypatch.setattr(mlp_times, "PREDICT_BATCH", 5)
    return Network.initial(SIZES, 0)


def test_bytes_and_operations_of_net_1():
    assert list(mlp_times.NETS) == ["841-800-10", 1, 2, 3, 4, 5]
    # Net 1 has 1,347,510 weights, 842,000 of them in layer 1. The others are read twice a sweep.
    # Once a block layer 1 is read once more, and all are read and written.
    a_block = 2 * 1_347_510 + 842_000
    expected = 4 * (2 * 0.5 * (1_347_510 - 842_000) + a_block / 48)
    assert mlp_times.engine_bytes(NETS[1], sweeps=0.5, per_block=48) == expected
    # Forward, back but for layer 1, and the update.
    assert mlp_times.training_flops(NETS[1]) == 2 * (3 * 1_347_510 - 842_000)


def test_engine_and_its_ceilings_are_measured_on_as_many_threads(small, monkeypatch):
    monkeypatch.setattr(mlp_times.numba.config, "NUMBA_NUM_THREADS", 3)
    monkeypatch.setattr(mlp_times, "BASELINE_UPDATES", 3 * small.n_weights + 7)
    made, n_images = [], []

    def noted(make, *arguments, **options):
        made.append((make.__name__, *arguments, *options.values()))
        return make(*arguments, **options)

    def baseline(*arguments):
        n_images.append(len(arguments[1]))
        return baselines.numpy_loop(*arguments)

    monkeypatch.setattr(mlp_times, "CpuEngine", partial(noted, cpu.CpuEngine))
    monkeypatch.setattr(cpu.CpuEngine, "count_sweeps", lambda self: (24, 100))
    for name in ("scaled_copy", "memory_read", "multiply_adds"):
        monkeypatch.setattr(host, name, partial(noted, getattr(host, name)))
    found = {row.name: row for row in mlp_times.measure_on_cpu(small, {"NumPy": baseline}, 7)}
    expected, n = [("CpuEngine",), ("CpuEngine", None), ("CpuEngine", 1)], small.n_weights
    for threads in (3, 1):
        expected += [("scaled_copy", n, threads), ("memory_read", n, threads)]
        expected.append(("multiply_adds", threads))
    assert made == expected
    assert n_images == [3]
    for name, row in found.items():
        assert row.group == ("evaluation" if "evaluation" in name else "net")
        assert row.images == (1 if "engine" in name or name == "NumPy" else None)
    for suffix in ("", ", 1 thread"):
        engine = found["engine cpu" + suffix]
        assert engine.bytes == mlp_times.engine_bytes(SIZES, 0.5, 48)
        assert engine.flops == mlp_times.training_flops(SIZES)
        assert None not in (engine.percent_of_copy, engine.percent_of_read, engine.percent_of_peak)
        assert found["scaled copy" + suffix].percent_of_copy == pytest.approx(100)
        assert found["read of memory" + suffix].percent_of_read == pytest.approx(100)
        assert found["multiply-adds" + suffix].percent_of_peak == pytest.approx(100)
    for name in ("kernel, forward", "kernel, backward", "engine cpu, evaluation"):
        assert found[name].percent_of_peak > 0
    assert found["engine cpu, evaluation"].flops == 2 * count_weights(SIZES)


def test_ceilings_of_the_engine_have_no_more_threads_than_it_takes(small, monkeypatch):
    monkeypatch.setattr(mlp_times.numba.config, "NUMBA_NUM_THREADS", 16)
    found = mlp_times.cpu_workloads(small)
    assert found["engine cpu"].peak == "multiply-adds, 8 threads"
    assert {"multiply-adds, 8 threads", "multiply-adds"} < found.keys()
    assert found["engine cpu, evaluation"].peak == "multiply-adds"


def test_engine_workload_trains_on_the_next_images(monkeypatch):
    """On the same ones the net would soon be right, and its windows would need few sweeps."""
    monkeypatch.setattr(mlp_times.host, "N_EXAMPLES", 200)
    monkeypatch.setattr(mlp_times, "ENGINE_UPDATES", 70 * count_weights(SIZES))
    mlp_times.host.training_examples.cache_clear()
    orders = []
    monkeypatch.setattr(cpu.CpuEngine, "train", lambda self, *given: orders.append(list(given[2])))
    monkeypatch.setattr(cpu.CpuEngine, "count_sweeps", lambda self: (1, 1))
    work = mlp_times.engine_workload(Network.initial(SIZES, 0), 1)
    for _ in range(4):
        work.call()
    mlp_times.host.training_examples.cache_clear()
    assert work.n_images == 96  # whole blocks
    calls = [*range(96)], [*range(96, 192)], [*range(192, 200), *range(88)], [*range(96)]
    assert orders[1:] == list(calls)


def test_engines_are_timed_on_deformed_digits_with_a_trained_net(digits):
    images, labels = mlp_times.host.training_examples(29 * 29)
    known = mlp_times.host.data.load("auto")
    assert images.shape == (mlp_times.host.N_EXAMPLES, 841)
    np.testing.assert_array_equal(labels[:50], known.train_labels[:50])
    undeformed = np.resize(known.train_images, (len(labels), 841))
    assert 0.02 < np.square(images - undeformed).mean() < np.square(images + 1).mean()
    net = Network.initial((841, 30, 10), 0)
    y = cpu.CpuEngine()
    y.set_network(mlp_times.trained(net))
    assert (y.predict(images).argmax(axis=1) == labels).mean() > 0.5
