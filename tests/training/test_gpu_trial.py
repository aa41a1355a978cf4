"""A GPU is tried before it is used: what is compared and said, and that nothing waits for ever."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict

import numpy as np
import programs
import pytest
from executed import ENGINE_DEVICES, on_device
from waiting import HANG_SECONDS

from deepbig_runtime import driver
from deepbig_runtime.errors import Interrupted
from experiments.training import gpu_trial
from experiments.training.gpu_trial import LIMITS, Trial, judge, try_gpu
from mlp_gpu.engine import WINDOW_IMAGES_PER_BLOCK

COMPARED = [
    "pixels, deformed",
    *(
        f"{what}, trained by {how}"
        for how in ("window", "graph", "launch")
        for what in ("weights", "outputs")
    ),
]


@pytest.fixture(autouse=True)
def _untried_gpu(monkeypatch):
    monkeypatch.setattr(gpu_trial, "_passed", [])
    monkeypatch.setattr(driver, "is_missing", lambda: False)


@pytest.mark.slow
@pytest.mark.parametrize("device", ENGINE_DEVICES)
def test_a_good_gpu_is_near_the_cpu(device, monkeypatch):
    assert gpu_trial.N_IMAGES > 2 * WINDOW_IMAGES_PER_BLOCK  # a block begins with updated weights
    monkeypatch.setattr(gpu_trial, "N_IMAGES", 30)
    with on_device(device):
        found = gpu_trial.compare()
    assert list(found) == COMPARED
    assert judge(found) is None
    for what, difference in found.items():
        assert 0 < difference < LIMITS[what.split(",")[0]] / 10, what


@pytest.mark.parametrize("what", COMPARED)
def test_judge_names_what_differs_too_much(what):
    limit = LIMITS[what.split(",")[0]]
    same = dict.fromkeys(COMPARED, 0.0)
    assert judge(same | {what: 0.99 * limit}) is None
    for found in (1.01 * limit, np.nan):
        reason = judge(same | {what: found})
        assert reason.startswith(f"the GPU computes something else than the CPU ({what}: ")
        assert f"expected at most {limit:.2g}" in reason


def as_child(monkeypatch, tmp_path, script):
    """Let a script stand for the process that tries the GPU. Returns a list, of those started."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))
    children, popen = [], subprocess.Popen

    def start(*arguments, **options):
        children.append(popen(*arguments, **options))
        return children[-1]

    monkeypatch.setattr(gpu_trial.subprocess, "Popen", start)
    return children


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo nonsense", "exit status 0"),
        ("echo '[]'", "exit status 0"),
        ("echo one >&2; echo 'OSError: no' >&2; exit 3", "OSError: no"),
        ("kill -SEGV $$", "exit status -11"),
    ],
)
def test_try_gpu_of_a_process_that_fails_is_a_sentence(script, reason, monkeypatch, tmp_path):
    as_child(monkeypatch, tmp_path, script)
    assert try_gpu().reason == f"the GPU failed when it was tried before use: {reason}"


@pytest.mark.usefixtures("signals_raise")
@pytest.mark.parametrize("signum", [None, signal.SIGTERM])
def test_try_gpu_gives_up_a_gpu_that_does_not_answer(signum, monkeypatch, tmp_path):
    children = as_child(monkeypatch, tmp_path, "exec sleep 9999")
    if signum:
        threading.Timer(1, os.kill, (os.getpid(), signum)).start()
        with pytest.raises(Interrupted):
            try_gpu()
    else:
        monkeypatch.setattr(gpu_trial, "SECONDS", 0.5)
        assert try_gpu().reason.startswith("the GPU did not answer within 0.5 seconds")
    assert [child.wait(HANG_SECONDS) for child in children] == [-signal.SIGKILL]


def test_try_gpu_without_a_driver_starts_no_process(monkeypatch):
    monkeypatch.setattr(driver, "is_missing", lambda: True)
    monkeypatch.setattr(gpu_trial.subprocess, "Popen", None)
    assert try_gpu() == Trial(driver.MISSING)


def test_try_gpu_tries_a_gpu_until_it_has_passed_once(monkeypatch, tmp_path, capsys):
    """A worker of a cluster lives for days. In exclusive-process mode it has the GPU by then."""
    as_child(monkeypatch, tmp_path, "echo busy >&2; exit 1")
    assert "busy" in try_gpu().reason
    trial = Trial(None, {"pixels, deformed": 1e-7})
    children = as_child(monkeypatch, tmp_path, f"echo '{json.dumps(asdict(trial))}'")
    assert try_gpu() == try_gpu() == trial
    assert len(children) == 1
    assert capsys.readouterr().err.startswith("trying the GPU: ")


TRY = """
from experiments.training import gpu_trial
print(gpu_trial.try_gpu().reason)
"""


@programs.needs_driver
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("cuInit:1:999", "no GPU can be used: "),
        ("cuLibraryLoadData:2:999", "the GPU failed with CUDA_ERROR_UNKNOWN"),
    ],
)
def test_faults_of_the_driver_are_sentences(fault, said):
    done = programs.run_on_driver("-c", TRY, CUDA_ON_CPU_FAIL=fault)
    assert done.stdout.startswith(said), done.stdout + done.stderr
