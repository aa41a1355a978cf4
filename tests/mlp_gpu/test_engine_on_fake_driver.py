"""The GPU engine, unmodified, through numba-cuda on the fake driver."""

import csv
import re

import programs
import pytest
from run_bits import bits

from deepbig_runtime import compiled_cache
from experiments.training import store

pytestmark = programs.needs_driver

TRAIN = """
import ctypes
import os

import numpy as np
from deepbig_runtime import gpu
from mlp_gpu import cpu, cuda
from mlp_gpu.network import Network

cuda.IMAGES_PER_GRAPH = 3
rng = np.random.default_rng(0)
images = rng.uniform(-1, 1, (7, 40)).astype(np.float32)
labels = rng.integers(0, 10, 7).astype(np.uint8)
order = rng.permutation(7).astype(np.int32)  # 6 of the 7 images are in graphs
start = Network.initial((40, 35, 10), 1)


def train(engine):
    engine.set_network(start)
    losses = [engine.train(images, labels, order, 0.1) for epoch in range(2)]
    return losses, *engine.get_network().weights, engine.predict(images)


def assert_close(found, known):
    for one, other in zip(found, known, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
"""


def run(code, **environment):
    return programs.run_on_driver("-c", TRAIN + code, **environment)


KEPT = """
train(cuda.CudaEngine("launch"))
kernels = gpu._kept
found = [(sum(k._cache_hits.values()), sum(k._cache_misses.values())) for k in kernels]
print(len(found), *map(sum, zip(*found)), min(k._cache.cache_path for k in kernels))
"""


@pytest.mark.slow
def test_compiled_kernels_are_kept_for_the_next_process(tmp_path):
    (tmp_path / "cache").mkdir()
    counts, executed = [], []
    for number in range(2):
        cache = str(tmp_path / "cache")
        done = run(KEPT, XDG_CACHE_HOME=cache, CUDA_ON_CPU_CACHE=cache)
        assert done.returncode == 0, done.stderr
        *numbers, folder = done.stdout.split()
        counts.append([int(number) for number in numbers])
        assert folder.startswith(str(tmp_path / "cache" / "deepbig" / "compiled"))
        files = tmp_path.rglob("executed-*.txt")  # machine code of this CPU
        executed.append({(path.name, path.stat().st_mtime_ns) for path in files})
        if number == 0:  # a damaged file is no more than compiled again
            (path,) = tmp_path.rglob("*update_weights-*.nbc")
            path.write_bytes(b"damaged")
    n = counts[0][0]
    assert n > 5
    assert counts == [[n, 0, n], [n, n - 1, 1]]
    assert len(executed[0]) == n
    assert executed[0] <= executed[1]  # the kernel compiled again has another name in its PTX
    assert len(executed[1]) <= n + 1


def test_what_is_compiled_for_it_is_kept_apart_from_what_a_gpu_loads():
    done = programs.run_on_driver(
        "-c", "from deepbig_runtime import compiled_cache; print(compiled_cache.state_of_sources())"
    )
    assert done.stdout.strip() not in ("", compiled_cache.state_of_sources())


CONVOLUTIONAL = """
import cnn_gpu.cuda
from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork

cnn_gpu.cuda.PREDICT_BATCH = 4  # a whole batch, and 3 images more
start = ConvNetwork.initial("IP(sobel)-4M3s1c2-MP2-5M2c50%-6N", Maps(1, 9, 11), 10, 1)
for W in start.weights:
    if W is not None:
        W *= 20
images = rng.uniform(-1, 1, (7, 99)).astype(np.float32)


def results(engine):
    return [found for found in train(engine) if found is not None]  # some layers have no weights


expected = results(ConvCpuEngine())
for W, V in zip(expected[1:-1], (W for W in start.weights if W is not None), strict=True):
    assert abs(W - V).max() > 1e-3
for schedule in ("launch", "graph"):
    assert_close(results(cnn_gpu.cuda.ConvCudaEngine(schedule)), expected)
"""


WINDOW = """
from mlp_gpu.window.engine import WindowCudaEngine

cuda.IMAGES_PER_TICK = 4
expected = train(cpu.CpuEngine())
assert_close(train(WindowCudaEngine(4)), expected)
assert_close(train(WindowCudaEngine()), expected)
"""


FAULTS = """
expected = train(cpu.CpuEngine())
for schedule in ("launch", "graph"):
    assert_close(train(cuda.CudaEngine(schedule)), expected)

driver = ctypes.CDLL(os.environ["CUDA_ON_CPU_LIBRARY"])
n_calls = ctypes.c_long.in_dll(driver, "fake_calls")
driver.fake_recover()
train(cuda.CudaEngine("graph"))
for number in range(1, n_calls.value + 1, STEP):
    driver.fake_recover()
    code = (719, 2, 999)[number % 3]
    os.environ["CUDA_ON_CPU_FAIL"] = f"any:{number}:{code}"
    try:
        assert_close(train(cuda.CudaEngine("graph")), expected)
        if n_calls.value >= number:  # how many there are depends on what an earlier fault left
            print(code, "went on")
    except gpu.GpuFault as fault:
        print(code, fault)
"""

SENTENCES = {
    "719": "the GPU failed with CUDA_ERROR_LAUNCH_FAILED, and this process can no longer use it; ",
    "999": "the GPU failed with CUDA_ERROR_UNKNOWN, and this process can no longer use it; ",
    "2": ("the GPU has no memory free; ", "the GPU has too little free memory: "),
}


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 20])
def test_training_is_the_cpus_and_every_fault_ends_it_in_one_sentence(step):
    done = run(FAULTS.replace("STEP", str(step)))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    failed = re.findall(r"fake driver: call \d+ of (\w+) fails", done.stderr)
    outcomes = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert len(outcomes) * step > 300
    if step == 1:
        assert set(failed) > {"cuMemcpyDtoHAsync", "cuGraphLaunch"}
    for function, (code, outcome) in zip(failed, outcomes, strict=True):
        if outcome == "went on":  # what is not freed does no harm, and numba allocates twice
            frees = re.search("Free|Destroy|Release|Retain|UserObject", function)
            assert frees or (function, code) == ("cuMemAlloc", "2"), function
        else:
            assert outcome.startswith(SENTENCES[code]), (function, outcome)


LOST = """
start = Network.initial((40, *[10] * 12), 1)  # more arrays than numba frees at once
engine = cuda.CudaEngine("graph")
train(engine)
"""


def test_a_gpu_that_is_lost_is_told_once_though_nothing_can_be_freed():
    done = run(LOST, CUDA_ON_CPU_FAIL="cuGraphLaunch:1:719")
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.count("CUDA_ERROR_LAUNCH_FAILED") == 1


AHEAD = """
from deform_gpu.cuda import DeformedAhead, deform_set
from deform_gpu.parameters import TABLE1
from mlp_gpu.window.engine import WindowCudaEngine

digits = rng.uniform(-1, 1, (3, 29, 29)).astype(np.float32)
expected = [deform_set(digits, labels[:3], TABLE1, 5, epoch) for epoch in (1, 2, 3)]
engine = WindowCudaEngine(2) if WINDOWS else cuda.CudaEngine("launch")
engine.set_network(Network.initial((841, 35, 10), 1))
ahead = DeformedAhead(digits, labels[:3], TABLE1, 5, 3)
for epoch in (1, 2, 3):
    deformed = ahead(epoch)
    engine.train(deformed, labels[:3], np.arange(3), 0.1)
    found = deformed.copy_to_host(stream=engine.stream)
    gpu.synchronize(engine.stream)
    assert np.array_equal(found, expected[epoch - 1].reshape(3, 841)), epoch
"""


# As late as CUDA allows, a missing wait shows; by chance, that a buffer is used twice.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "seed"),
    [
        (CONVOLUTIONAL, {}),
        (WINDOW, {}),
        (AHEAD.replace("WINDOWS", "False"), {}),
        (AHEAD.replace("WINDOWS", "True"), {"CUDA_ON_CPU_SEED": "1"}),
    ],
    ids=["convolutional", "window", "deformed ahead, late", "deformed ahead, by chance"],
)
def test_other_engines_and_deformations_match_the_cpu(code, seed):
    done = run(code, **seed)
    assert done.returncode == 0, done.stderr


EXCLUSIVE = """
import subprocess
import sys
from contextlib import closing

import pool_jobs

from experiments.training.workers import LocalProcesses
from deepbig_runtime import gpu

assert gpu.missing() is None
with closing(LocalProcesses(1, n_gpus=1)) as pool:
    (answer,) = pool.as_completed([pool.submit(pool_jobs.gpu_missing)])
    print(answer.result(), flush=True)
    third = "from deepbig_runtime import gpu; print(gpu.missing(), flush=True)"
    subprocess.run([sys.executable, "-c", third])
"""


def test_workers_have_the_gpu_that_one_process_alone_can_have(tmp_path):
    done = programs.run_on_driver("-c", EXCLUSIVE, CUDA_ON_CPU_EXCLUSIVE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    worker, other = done.stdout.splitlines()
    assert worker == "None"
    assert other.startswith("the GPU is taken: it is in exclusive-process mode, and another")


UNTRIED = """
from experiments import table1
from experiments.training import cli, gpu_trial

gpu_trial.try_gpu = lambda: gpu_trial.Trial(None)
cli.run(table1.main)
"""


def train_table1(
    out, *options, program=("-c", UNTRIED, "--engine", "cuda", "--schedule", "graph"), **environment
):
    """`make table1` with a small net on a few digits, by graphs on an untried GPU."""
    command = *program, "--data", "digits", "--hidden", "40", "--epochs", "2", "--limit", "25"
    return programs.run_on_driver(*command, "--out", out, *options, **environment)


@pytest.mark.slow
def test_table1_is_that_of_the_cpu_and_names_what_computed(tmp_path):
    rows = {}
    for engine in ("cuda", "cpu"):
        program = "-m", "experiments.table1"
        # The trial has let go of the GPU, on which windows are not the default.
        exclusive = {"CUDA_ON_CPU_EXCLUSIVE": str(tmp_path), "CUDA_ON_CPU_GPUS": "7.5"}
        done = train_table1(
            tmp_path / engine,
            *("--engine", engine, "--epochs=1", "--profile=paper"),
            program=program,
            **exclusive,
        )
        assert done.returncode == 0, done.stderr
        assert ("engine cuda: fake GPU" in done.stderr) == (engine == "cuda")
        assert (", schedule graph, about " in done.stderr) == (engine == "cuda")
        (path,) = (tmp_path / engine).glob("*.csv")
        with path.open(newline="") as file:
            (rows[engine],) = csv.DictReader(file)
    assert rows["cuda"]["device"] == "fake GPU on a CPU"
    (path,) = store.run_files(tmp_path / "cuda")
    (session,) = store.read_run(path).provenance
    assert session.schedule == "graph"
    # A digit whose outputs are nearly equal may fall to either side.
    assert abs(int(rows["cuda"]["tefbv_errors"]) - int(rows["cpu"]["tefbv_errors"])) <= 1


@pytest.mark.slow
def test_nets_trained_at_once_have_the_bits_that_they_have_alone(tmp_path):
    found = []
    for workers in ("1", "2"):
        out = tmp_path / workers
        options = "--seeds=1,2", f"--workers={workers}", "--schedule=window"
        done = train_table1(out, *options, CUDA_ON_CPU_EXCLUSIVE=str(tmp_path))
        assert done.returncode == 0, done.stderr
        found.append({path.name: bits(path) for path in store.run_files(out)})
    assert ", 2 workers\n" in done.stderr
    assert len(found[0]) == 2
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_run_that_loses_its_gpu_keeps_its_epochs(tmp_path):
    done = train_table1(tmp_path, CUDA_ON_CPU_FAIL="cuGraphLaunch:2:719")  # one an epoch
    assert done.returncode == 2
    (path,) = store.run_files(tmp_path)
    assert store.read_run(path).epochs == 1
    assert "the GPU failed with CUDA_ERROR_LAUNCH_FAILED" in done.stderr
    assert "Traceback" not in done.stderr


LADDER = """
import numpy as np
from deepbig_runtime import gpu
from mlp_gpu.ladder import arrays, cpu, rung6_graph as graph, rung7_one_kernel as one_kernel
from mlp_gpu.ladder.net import Net
from mlp_gpu.ladder.rungs import RUNGS

graph.IMAGES_PER_GRAPH = one_kernel.CHUNK = 2  # two launches, and a step more
rng = np.random.default_rng(0)
images = (rng.random((4, 784)) < 0.2).astype(np.float32)
labels, order = np.arange(4, dtype=np.uint8), np.array([2, 0, 3, 3, 1])
start = Net.initial(10, 1)
trained = Net(*(W.copy() for W in start.arrays))
cpu.train(trained, images, labels, order)
moved = [np.linalg.norm(W - V) for W, V in zip(trained.arrays, start.arrays)]
for name in NAMES:
    rung, stream = RUNGS[name], gpu.new_stream()
    there = arrays.put(start, images, labels, order, rung.TRANSPOSED, stream)
    rung.train(there, stream)
    for W, V, n in zip(arrays.read(there, stream).arrays, trained.arrays, moved):
        assert np.linalg.norm(W - V) < 1e-5 * n, name
    assert gpu.read([there.step], stream)[0] == 5, name
    print(name)
"""


# By chance either missing wait shows, as late as CUDA allows only the second one.
@pytest.mark.parametrize(
    ("names", "chance"),
    [
        (["streams"], {"CUDA_ON_CPU_SEED": "1"}),
        pytest.param(["streams", "naive", "graph", "one kernel"], {}, marks=pytest.mark.slow),
    ],
    ids=["by chance", "late"],
)
def test_a_rung_trains_as_the_cpu_does(names, chance):
    code = LADDER.replace("NAMES", repr(names))
    done = programs.run_on_driver("-c", code, CUDA_ON_CPU_GPUS="7.5", **chance)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == names
