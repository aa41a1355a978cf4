"""The CPU engine alone; see also tests/mlp_gpu/test_engines.py."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nets
import numpy as np
import pytest

from mlp_gpu import cpu, team
from mlp_gpu.cpu import CpuEngine

PREDICT = """
import hashlib
import nets
from mlp_gpu.cpu import PREDICT_BATCH, CpuEngine
engine, _, images, _ = nets.make(CpuEngine(), (97, 300, 10), n=2 * PREDICT_BATCH + 203)
print(hashlib.sha256(engine.predict(images).tobytes()).hexdigest())
"""


def test_outputs_do_not_depend_on_how_many_threads_there_are():
    """The workers that share a machine have fewer than a process that has it alone."""

    def predict(n_numba, n_blas):
        environment = {"NUMBA_NUM_THREADS": n_numba, "OPENBLAS_NUM_THREADS": n_blas}
        environment |= {"OMP_NUM_THREADS": n_blas, "MKL_NUM_THREADS": n_blas}
        return subprocess.Popen(
            [sys.executable, "-c", PREDICT],
            env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            text=True,
        )

    processes = [predict("1", "1"), predict("2", "2")]
    one, two = [process.communicate()[0] for process in processes]
    assert len(one.strip()) == 64
    assert one == two


@pytest.mark.parametrize("asked", [None, 1, 2, 5])
def test_as_many_threads_as_asked_for(asked, monkeypatch):
    monkeypatch.setattr(cpu.numba.config, "NUMBA_NUM_THREADS", 3)
    members, run = [], team.run

    class Executor(ThreadPoolExecutor):
        def __init__(self, workers):
            super().__init__(workers)
            members.append(workers)

    def noted(executor, n, work):
        members.append(n)
        return run(executor, n, work)

    monkeypatch.setattr(team, "run", noted)
    engine, _, images, labels = nets.make(CpuEngine(threads=asked), (13, 200, 10))
    engine.train(images, labels, np.arange(12), 0.1)
    monkeypatch.setattr(team, "ThreadPoolExecutor", Executor)
    engine.predict(images)
    assert members == [asked or 3, *([] if asked == 1 else [asked or 3])]
