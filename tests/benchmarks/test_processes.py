"""Processes with other settings: baselines where they are fastest."""

import os

import numpy as np
import pytest

from experiments.benchmarks import baselines, host, processes
from experiments.benchmarks.baselines import Trainer
from experiments.benchmarks.processes import ConfiguredProcess, ProcessSettings
from experiments.training.workers import WorkerDied
from mlp_gpu.network import Network


def test_all_settings_are_tried(monkeypatch):
    monkeypatch.setattr(processes.provenance, "cores", lambda: 4)
    monkeypatch.setattr(processes.platform, "libc_ver", lambda: ("glibc", "2.36"))
    found = [str(one) for one in processes.process_settings()]
    kept = ", memory kept"
    assert found == [t + k for t in ("1 thread", "2 threads", "4 threads") for k in ("", kept)]
    monkeypatch.setattr(processes.platform, "libc_ver", lambda: ("", ""))
    assert processes.process_settings() == [ProcessSettings(n) for n in (1, 2, 4)]
    monkeypatch.setattr(processes.provenance, "cores", lambda: 6)
    assert processes.process_settings() == [ProcessSettings(n) for n in (1, 2, 4, 6)]
    monkeypatch.setattr(processes.provenance, "cores", lambda: 1)
    assert processes.process_settings() == [ProcessSettings(1)]


def fail():
    raise ValueError("no such net")


def environment():
    return os.getpid(), dict(os.environ)


def test_process_has_its_settings_and_ends(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    process = ConfiguredProcess(ProcessSettings(7, True).environment)
    try:
        with pytest.raises(ValueError, match="no such net"):
            process.call(fail)
        pid, variables = process.call(environment)
        assert pid != os.getpid()
        libraries = ("NUMBA", "OMP", "OPENBLAS", "MKL")
        expected = {"NPROC": "7"} | {f"{library}_NUM_THREADS": "7" for library in libraries}
        expected |= {"MALLOC_MMAP_THRESHOLD_": str(32 * 1024**2)}
        expected |= {"MALLOC_TRIM_THRESHOLD_": str(1024**3), "PATH": os.environ["PATH"]}
        assert variables.items() >= expected.items()
        assert "OPENBLAS_CORETYPE" not in variables
        assert os.environ["OPENBLAS_CORETYPE"] == "Haswell"  # here as before
        with pytest.raises(WorkerDied):
            process.call(os._exit, 3)
    finally:
        process.close()
    assert "MALLOC_MMAP_THRESHOLD_" not in ProcessSettings(2).environment


_calls = []  # in a process


def noted(network):
    """In place of a baseline: its weights are what its process did, and its variables."""
    _calls.append(network)
    return Trainer(lambda: _calls.append("trained"), lambda: (_calls, dict(os.environ)))


def test_baseline_trains_in_its_fastest_process_until_the_end(monkeypatch):
    """The first of three trainings, which may compile, does not count; then a net is made anew."""
    settings = [ProcessSettings(), ProcessSettings(1, True), ProcessSettings(2)]
    monkeypatch.setattr(processes, "process_settings", lambda: settings)
    seconds = iter([5, 4, 3, 9, 6, 7])  # of two timed trainings for each of the settings
    monkeypatch.setattr(host, "time_calls", lambda call: (call(), next(seconds))[1])
    with processes.in_processes({"noted": noted}) as makers:
        trainer = makers["noted"]("net")
        assert trainer.settings == "1 thread, memory kept"
        calls, variables = trainer.weights()
        assert calls == ["net", *3 * ["trained"], "net"]
        assert "MALLOC_TRIM_THRESHOLD_" in variables
    with pytest.raises(WorkerDied):
        trainer.train()


def test_trainers_of_several_baselines_are_kept_apart(monkeypatch):
    monkeypatch.setattr(processes, "process_settings", lambda: [ProcessSettings()])
    network, examples = Network.initial((33, 21, 10), 0), host.random_examples(5, 33)
    loops = {name: baselines.numpy_loop for name in "ab"}
    with processes.in_processes(loops) as makers:
        a, b = (make(network, *examples, 0.05) for make in makers.values())
        a.train()
        assert all((W == V).all() for W, V in zip(b.weights(), network.unpadded(), strict=True))
        moved = [abs(W - V).max() for W, V in zip(a.weights(), b.weights(), strict=True)]
        assert np.min(moved) > 0
