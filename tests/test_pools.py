"""What all three pools do alike, and which of them a command line gets."""

import _ctypes
import argparse
import signal
import sys
from contextlib import closing

import pytest
from llvmlite import binding
from pool_jobs import double, fail, wait_for_stop

from deepbig_runtime import driver, gpu
from deepbig_runtime.faults import GpuFault
from experiments.running import cli, gpu_trial, pools, provenance
from experiments.running.errors import Interrupted, Problem
from experiments.running.pools import InProcess
from experiments.running.processes import LocalProcesses

LIBRARY = _ctypes.__file__  # some library that can be loaded


@pytest.fixture(scope="module")
def local():
    with closing(LocalProcesses(2)) as pool:
        yield pool


@pytest.fixture
def dask(cluster):
    from experiments.running.cluster import Cluster  # needs distributed

    with closing(Cluster(cluster.scheduler_address)) as pool:
        yield pool


@pytest.fixture(params=["in process", "local", pytest.param("dask", marks=pytest.mark.slow)])
def pool(request):
    return InProcess() if request.param == "in process" else request.getfixturevalue(request.param)


def test_answers_and_messages_of_each_job_come_in_order(pool):
    taken = []
    pool.on_message = taken.append
    futures = {pool.submit(double, number): number for number in (3, 0, 100, 7)}
    found = {}
    for future in pool.as_completed(futures):
        number = futures[future]
        found[number] = future.result()
        # All that a job says is taken before its answer.
        assert [m["k"] for m in taken if m["number"] == number] == list(range(number))
    assert found == {3: 6, 0: 0, 100: 200, 7: 14}
    assert len(taken) == 110


def test_an_exception_comes_back_and_the_others_go_on(pool):
    bad, good = pool.submit(fail, "this"), pool.submit(double, 4)
    assert set(pool.as_completed([bad, good])) == {bad, good}
    assert good.result() == 8
    with pytest.raises(ValueError, match="cannot do this"):
        bad.result()


def test_futures_may_be_dropped_while_they_are_handed_out(pool):
    futures = {pool.submit(double, number): number for number in (1, 2)}
    for future in pool.as_completed(futures):
        futures.pop(future)
    assert not futures


@pytest.mark.parametrize("kind", ["local", pytest.param("dask", marks=pytest.mark.slow)])
def test_stopping_lets_begun_jobs_save_and_begins_no_others(kind, request, tmp_path):
    taken = []

    def take(message):
        taken.append(message)
        if len(taken) == 2:
            raise Interrupted(signal.SIGINT)

    def stop(pool):
        pool.on_message = take
        jobs = [pool.submit(wait_for_stop, tmp_path / str(k)) for k in range(10)]
        with pytest.raises(Interrupted):
            list(pool.as_completed(jobs))
        pool.stop(signal.SIGINT, jobs)
        assert all(job.done() for job in jobs)
        assert {m["began"] for m in taken} == {str(path) for path in tmp_path.iterdir()}

    if kind == "dask":
        stop(request.getfixturevalue("dask"))
    else:
        with closing(LocalProcesses(2)) as pool:
            stop(pool)
    assert [path.read_text() for path in tmp_path.iterdir()] == 2 * [str(int(signal.SIGINT))]


def parse(*arguments, cores=1):
    parser = argparse.ArgumentParser()
    cli.add_engine_arguments(parser)
    cli.add_worker_arguments(parser, cores)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("arguments", "n_jobs", "workers"),
    [
        ([], 10, 6),
        ([], 4, 4),
        ([], 1, 1),
        (["--workers", "3"], 10, 3),
        (["--workers", "30"], 10, 10),
        (["--workers", "1"], 10, 1),
    ],
)
def test_as_many_processes_as_cores_as_jobs_or_as_asked_for(
    arguments, n_jobs, workers, monkeypatch
):
    monkeypatch.setattr(provenance, "cores", lambda: 6)
    with pools.opened(parse(*arguments, "--engine", "cpu"), n_jobs, never) as (
        pool,
        engine,
        device,
    ):
        assert isinstance(pool, LocalProcesses if workers > 1 else InProcess)
        assert (pool.workers, engine) == (workers, "cpu")
        assert device == provenance.device()


@pytest.mark.parametrize(("cores", "workers"), [(2, 1), (4, 1), (7, 1), (9, 2)])
def test_several_cores_for_each_process(cores, workers, monkeypatch):
    monkeypatch.setattr(provenance, "cores", lambda: cores)
    with pools.opened(parse("--engine", "cpu", cores=4), 10, never) as (pool, *_):
        assert pool.workers == workers


def missing_above_7_bytes(n_bytes=0):
    return f"{n_bytes} bytes" if n_bytes > 7 else None


@pytest.fixture(autouse=True)
def _tried_here(monkeypatch):
    """What a process of its own would find is what this one is told to find."""
    monkeypatch.setenv(gpu_trial.VARIABLE, "null")
    monkeypatch.setattr(gpu_trial, "tell", lambda text: None)
    monkeypatch.setattr(gpu_trial, "_try_gpu", lambda: gpu_trial.Trial(gpu.missing()))


def never():
    raise AssertionError("asked for the memory that is needed of a GPU, but there is none")


@pytest.mark.parametrize(
    ("arguments", "n_jobs", "workers"),
    [([], 10, 2), ([], 1, 1), (["--workers", "5"], 10, 5), (["--engine", "cuda"], 10, 2)],
)
def test_a_process_a_gpu_if_not_asked_for_more(arguments, n_jobs, workers, monkeypatch):
    monkeypatch.setattr(driver, "is_missing", lambda: False)
    monkeypatch.setattr(gpu, "missing", missing_above_7_bytes)
    monkeypatch.setattr(provenance, "cores", lambda: 7)
    monkeypatch.setattr(gpu, "count", lambda: 2)
    monkeypatch.setattr(gpu, "name", lambda: "Some GPU")
    with pools.opened(parse(*arguments), n_jobs, lambda: 7) as (pool, engine, device):
        assert isinstance(pool, LocalProcesses if workers > 1 else InProcess)
        assert (pool.workers, engine, device) == (workers, "cuda", "Some GPU")
        assert workers == 1 or pool._n_gpus == 2


def test_a_gpu_must_have_the_memory_that_is_needed(monkeypatch, capsys):
    monkeypatch.setattr(driver, "is_missing", lambda: False)
    monkeypatch.setattr(gpu, "missing", missing_above_7_bytes)
    with pools.opened(parse(), 1, lambda: 8) as (_, engine, _):
        assert engine == "cpu"
    assert capsys.readouterr().err == "no GPU is used: 8 bytes\n"


@pytest.mark.parametrize(
    ("features", "is_slow"), [({"fma": False}, 1), ({"fma": True}, 0), ({}, 0)]
)
def test_a_processor_without_fused_multiply_add_is_told_of(features, is_slow, monkeypatch, capsys):
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: features)
    with pools.opened(parse("--engine", "cpu"), 1, lambda: 8):
        pass
    assert capsys.readouterr().err.count("no fused multiply-add") == is_slow


def assert_no_gpu_is_used(reason, capsys, told=True):
    with pytest.raises(GpuFault) as fault, pools.opened(parse("--engine", "cuda"), 1, never):
        pass
    assert str(fault.value) == f"{reason}; or take --engine cpu"
    with pools.opened(parse(), 1, never) as (_, engine, _):
        assert engine == "cpu"
    assert capsys.readouterr().err == told * f"no GPU is used: {reason}\n"


@pytest.mark.parametrize(
    ("vendor", "kind", "told"),
    [("0x10de", "0x030200", True), ("0x10de", "0x0c0330", False), ("0x1002", "0x030000", False)],
)
def test_without_a_driver_numba_is_not_asked(vendor, kind, told, monkeypatch, capsys, tmp_path):
    """And the user is told only where the driver's lack is one: of a GPU that is there."""
    (tmp_path / "0000:00:1f.0").mkdir()
    (tmp_path / "0000:00:1f.0" / "vendor").write_text(f"{vendor}\n")
    (tmp_path / "0000:00:1f.0" / "class").write_text(f"{kind}\n")
    monkeypatch.setattr(driver, "PCI", tmp_path)
    monkeypatch.setattr(driver, "is_missing", lambda: True)
    monkeypatch.setattr(gpu, "missing", never)
    assert_no_gpu_is_used("there is no NVIDIA driver on this machine; install one", capsys, told)


@pytest.mark.parametrize(
    ("libraries", "missing"),
    [(["none.so"], True), (["none.so", LIBRARY], False), ([LIBRARY, "none.so"], False)],
)
def test_a_driver_is_what_can_be_loaded(libraries, missing, monkeypatch):
    monkeypatch.setattr(driver, "LIBRARIES", libraries)
    assert driver.is_missing() == missing


def test_without_numba_cuda_the_gpu_cannot_be_had(monkeypatch, capsys):
    monkeypatch.setattr(driver, "is_missing", lambda: False)
    monkeypatch.delattr(gpu.cuda, "implementation")
    reason = "the package numba-cuda is not installed: pip install 'numba-cuda[cu12]'"
    assert_no_gpu_is_used(reason, capsys)


def test_a_gpu_that_computes_something_else_is_not_used(monkeypatch, capsys):
    reason = gpu_trial.judge({"weights, trained by window": 0.5})
    assert "weights, trained by window: 0.5 apart" in reason
    monkeypatch.setattr(driver, "is_missing", lambda: False)
    monkeypatch.setattr(gpu_trial, "_try_gpu", lambda: gpu_trial.Trial(reason))
    monkeypatch.setattr(gpu, "missing", never)
    assert_no_gpu_is_used(reason, capsys)


def test_the_cluster_says_what_it_computes_on(cluster, capsys):
    arguments = parse("--scheduler", cluster.scheduler_address)
    with pools.opened(arguments, 1, never) as (pool, engine, device):
        assert type(pool).__name__ == "Cluster"
        assert (pool.workers, engine) == (2, "cpu")
        assert device == provenance.device()  # once, for they are the same
    assert capsys.readouterr().err == ""
    with (
        pytest.raises(GpuFault),
        pools.opened(parse("--scheduler", cluster.scheduler_address, "--engine", "cuda"), 1, never),
    ):
        pass


def test_dask_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "experiments.running.cluster", raising=False)
    arguments = parse("--scheduler", "tcp://127.0.0.1:8786")
    sentence = "--scheduler needs Dask, which is not installed; install"
    with pytest.raises(Problem, match=sentence), pools.opened(arguments, 1, never):
        pass
