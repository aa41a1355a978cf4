"""timing/mlp.py: what of perceptrons is timed, and beside what."""

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

from experiments.timing import ceilings, host, mlp, peers
from mlp_gpu import cpu
from mlp_gpu.network import NETS, Network, count_weights

SIZES = (33, 90, 17, 10)


@pytest.fixture
def small(monkeypatch):
    """A net, and little work with it."""
    monkeypatch.setattr(ceilings, "CALL_BYTES", 0)
    monkeypatch.setattr(ceilings, "CALL_FLOPS", 10_000)
    monkeypatch.setattr(host, "MIN_REPEAT_SECONDS", 0)
    monkeypatch.setattr(mlp, "ENGINE_UPDATES", 1)
    monkeypatch.setattr(mlp, "PREDICT_BATCH", 5)
    return Network.initial(SIZES, 0)


def test_nets():
    assert list(mlp.NETS) == ["841-800-10", 1, 2, 3, 4, 5]
    assert mlp.NETS["841-800-10"] == (841, 800, 10)
    assert mlp.NETS[4] == NETS[4]


def test_engine_bytes():
    # Net 1 has 1,347,510 weights, 842,000 of them in layer 1. The others are read twice a sweep.
    # Once a block layer 1 is read once more, and all are read and written.
    a_block = 2 * 1_347_510 + 842_000
    expected = 4 * (2 * 0.5 * (1_347_510 - 842_000) + a_block / 48)
    assert mlp.engine_bytes(NETS[1], sweeps=0.5, per_block=48) == expected


def test_multiplications_and_additions():
    # Forward, back but for layer 1, and the update.
    assert mlp.training_flops(NETS[1]) == 2 * (3 * 1_347_510 - 842_000)


def test_an_engine_beside_what_its_threads_can_do(small, monkeypatch):
    monkeypatch.setattr(mlp.numba.config, "NUMBA_NUM_THREADS", 3)
    engines, asked = [], []

    class Engine(cpu.CpuEngine):
        def __init__(self, threads=None):
            super().__init__(threads=threads)
            engines.append(threads)

        def train(self, images, labels, order, eta):
            asked.append((self._threads, len(order)))

        def count_sweeps(self):
            return 24, 100

    monkeypatch.setattr(mlp, "CpuEngine", Engine)
    for name in ("scaled_copy", "memory_read", "multiply_adds"):
        make = getattr(ceilings, name)

        def noted(*arguments, make=make, name=name):
            engines.append((name, *arguments))
            return make(*arguments)

        monkeypatch.setattr(ceilings, name, noted)
    works = mlp.cpu_workloads(small)
    assert asked == [(None, 48), (1, 48)]  # to count the sweeps
    asked.clear()
    assert list(works) == [
        "engine cpu",
        "engine cpu, 1 thread",
        "engine cpu, a core busy",
        *("scaled copy", "read of memory", "multiply-adds"),
        *("scaled copy, 1 thread", "read of memory, 1 thread", "multiply-adds, 1 thread"),
        *("kernel, forward", "kernel, backward"),
        "engine cpu, evaluation",
    ]
    n = small.n_weights
    expected = [
        one
        for threads in (3, 1)
        for one in (
            ("scaled_copy", n, threads),
            ("memory_read", n, threads),
            ("multiply_adds", threads),
        )
    ]
    assert engines == [None, 1, *expected, None]
    for suffix in ("", ", 1 thread"):
        one = works["engine cpu" + suffix]
        assert one.copy == "scaled copy" + suffix
        assert one.read == "read of memory" + suffix
        assert one.peak == "multiply-adds" + suffix
        assert one.n_bytes == mlp.engine_bytes(SIZES, 0.5, 48)
        assert one.flops == mlp.training_flops(SIZES)
        one.call()
    busy, evaluation = works["engine cpu, a core busy"], works["engine cpu, evaluation"]
    busy.call()
    assert asked == [(None, 48), (1, 48), (None, 48)]
    assert busy.beside is mlp.busy_core
    assert (busy.n_images, busy.n_bytes) == (48, None)
    assert evaluation.n_images == 4 * 5 * 3
    assert evaluation.flops == 2 * count_weights(SIZES)
    assert evaluation.peak == "multiply-adds"


def test_work_is_in_whole_blocks(monkeypatch):
    monkeypatch.setattr(mlp, "ENGINE_UPDATES", 70 * count_weights(SIZES))
    work = mlp.engine_workload(Network.initial(SIZES, 0), 1)
    assert work.n_images == 96


def test_each_call_trains_on_the_next_images(monkeypatch):
    """On the same ones the net would soon be right, and its windows would need few sweeps."""
    monkeypatch.setattr(mlp.host, "N_EXAMPLES", 100)
    monkeypatch.setattr(mlp, "ENGINE_UPDATES", 1)
    mlp.host.training_examples.cache_clear()
    orders = []
    monkeypatch.setattr(cpu.CpuEngine, "train", lambda self, *given: orders.append(list(given[2])))
    monkeypatch.setattr(cpu.CpuEngine, "count_sweeps", lambda self: (1, 1))
    work = mlp.engine_workload(Network.initial(SIZES, 0), 1)
    for _ in range(4):
        work.call()
    mlp.host.training_examples.cache_clear()
    calls = [*range(48)], [*range(48, 96)], [96, 97, 98, 99, *range(44)], [*range(48)]
    assert orders[1:] == list(calls)


def test_windows_are_timed_on_deformed_digits_by_a_net_that_has_seen_some(digits):
    images, labels = mlp.host.training_examples(29 * 29)
    known = mlp.host.data.load("auto")
    assert images.shape == (mlp.host.N_EXAMPLES, 841)
    np.testing.assert_array_equal(labels[:50], known.train_labels[:50])
    undeformed = np.resize(known.train_images, (len(labels), 841))
    assert 0.02 < np.square(images - undeformed).mean() < np.square(images + 1).mean()
    net = Network.initial((841, 30, 10), 0)
    y = cpu.CpuEngine()
    y.set_network(mlp.trained(net))
    assert (y.predict(images).argmax(axis=1) == labels).mean() > 0.5


def test_everything_on_the_cpu_is_measured(small, monkeypatch):
    n_images = []

    def noted(*arguments):
        n_images.append(len(arguments[1]))
        return peers.numpy_loop(*arguments)

    monkeypatch.setattr(mlp, "PEER_UPDATES", 3 * small.n_weights + 7)
    found = {one.name: one for one in mlp.measure_on_cpu(small, {"NumPy": noted}, 7)}
    assert n_images == [3]
    assert all(one.us.shape == (7,) and (one.us > 0).all() for one in found.values())
    groups = {name: one.group for name, one in found.items()}
    assert groups.pop("engine cpu, evaluation") == "evaluation"
    assert set(groups.values()) == {"net"}
    for suffix in ("", ", 1 thread"):
        copy, read, peak = (
            found[name + suffix] for name in ("scaled copy", "read of memory", "multiply-adds")
        )
        engine = found["engine cpu" + suffix]
        assert engine.copy.us is copy.us is copy.copy.us
        assert engine.read.us is read.us is read.read.us
        assert engine.peak.us is peak.us is peak.peak.us
        assert (engine.n_images, copy.n_images) == (1, None)
    assert found["engine cpu, evaluation"].peak.us is found["multiply-adds"].us
    for name in mlp.KERNELS:
        assert found[f"kernel, {name}"].peak.us is found["multiply-adds"].us
    assert found["NumPy"].copy is None


def test_a_net_too_large_for_the_updates_of_a_call(small, monkeypatch):
    monkeypatch.setattr(mlp, "PEER_UPDATES", 1)
    monkeypatch.setattr(mlp, "cpu_workloads", lambda net: {})
    n_images = []
    monkeypatch.setattr(mlp, "peer_workloads", lambda makers, net, n: n_images.append(n) or {})
    assert mlp.measure_on_cpu(small, {}, 7) == []
    assert n_images == [1]


def test_a_peer_that_fails_is_told_and_left_out(small, capsys):
    def fail(*_arguments):
        raise RuntimeError("no such thing")

    def noted(*arguments):
        return peers.Peer(peers.numpy_loop(*arguments).train, list, "on 7 threads")

    works = mlp.peer_workloads({"bad": fail, "good": noted}, small, 2)
    assert {name: (one.n_images, one.settings) for name, one in works.items()} == {
        "good": (2, "on 7 threads")
    }
    assert (
        "bad fails, so it is not measured: RuntimeError: no such thing" in capsys.readouterr().err
    )


def test_another_process_keeps_a_core_busy(monkeypatch):
    started = []

    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(mlp.subprocess, "Popen", Popen)

    def cpu_ticks():
        fields = Path(f"/proc/{started[0].pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11])

    if not os.path.exists("/proc/self/stat"):
        pytest.skip("/proc says what a process computes, and this system has none")
    with mlp.busy_core():
        before = cpu_ticks()
        wait_until(lambda: cpu_ticks() > before + 2)
    assert started[0].returncode == -signal.SIGKILL


def test_the_busy_process_has_begun(tmp_path, monkeypatch):
    begun = tmp_path / "begun"
    code = f"import time; time.sleep(0.5); open({str(begun)!r}, 'w'); print(end='x', flush=True)"
    monkeypatch.setattr(mlp, "KEEP_BUSY", code)
    with mlp.busy_core():
        assert begun.exists()


def test_the_busy_process_ends_by_itself():
    code = mlp.KEEP_BUSY.replace("+ 60", "+ 0.1")
    assert code != mlp.KEEP_BUSY
    done = subprocess.run([mlp.sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"begun")


def test_peers_on_a_gpu(small):
    (one,) = mlp.measure_peers_on_gpu(small, {"there": peers.numpy_loop}, 7)
    assert (one.group, one.name, one.n_images) == ("net", "there", 1)
    assert np.isfinite(one.us).all()
