"""`python -m experiments.bench`: what it measures, writes and prints."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from factories import SESSION
from measurements import SOURCE, gpu_rows, net_row, timed

from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime import gpu
from deepbig_runtime.errors import Problem
from deepbig_runtime.faults import GpuFault
from deepbig_runtime.files import FileFault
from experiments import bench
from experiments.benchmarks import (
    baselines,
    cnn_times,
    deform_times,
    gpu_times,
    host,
    mlp_times,
    race,
)
from experiments.results.rows import BenchRow, RaceRow, read_rows, to_cells
from experiments.training.formatting import csv_text
from experiments.training.provenance import SourceColumns
from mlp_gpu.network import count_weights

SIZES = (33, 21, 17, 10)


def test_main_measures_writes_and_prints(tmp_path, monkeypatch, capsys):
    """On tiny nets, without a GPU."""
    monkeypatch.setattr(mlp_times, "NETS", {"33-21-17-10": SIZES, 1: SIZES})
    tiny_works(monkeypatch)
    asked, names = [], {group: list(makers(group)) for group in ("net", "cnn", "deformation")}
    monkeypatch.setattr(bench, "in_processes", in_this_process(asked))
    monkeypatch.setattr(baselines, "available", lambda group, device: makers(group))
    monkeypatch.setattr(gpu, "missing", lambda n_bytes: "there is none")
    monkeypatch.setattr(bench.data, "load", lambda choice, folder: choice)
    fields = {"way": race.NUMPY, "setting": "so", "taken": True, "seconds": 60.0, "source": SOURCE}
    points = [RaceRow(seed=seed, apart_errors=3, test_errors=5, **fields) for seed in (0, 1)]
    monkeypatch.setattr(bench.race, "measure", lambda dataset, source: points)
    bench.main(["--repeats", "7", "--out", str(tmp_path)])
    said, rows = capsys.readouterr(), read_rows(tmp_path / "bench.csv", BenchRow)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.{kind}" for name in ("bench", "race") for kind in ("csv", "png", "pdf")
    }
    assert read_rows(tmp_path / "race.csv", RaceRow) == points
    header, *_ = (tmp_path / "bench.csv").read_text().splitlines()
    assert header.split(",") == [*COLUMNS, *SourceColumns.__struct_fields__]
    assert {(row.repeats, row.ran_on) for row in rows} == {(7, rows[0].source.device)}
    found = {(row.group, row.net, row.name): row for row in rows}
    assert {name for group, _, name in found if group == "deformation"} > {*names["deformation"]}
    assert asked == [names["net"]]  # processes are started once for all nets
    for net in ("33-21-17-10", "1"):
        engine = found["net", net, "engine cpu"]
        assert (engine.times_cpu, engine.weights) == (1, count_weights(SIZES))
        evaluation = found["evaluation", net, "engine cpu, evaluation"]
        assert evaluation.times_cpu is evaluation.updates_a_second is None
        assert found["net", net, "NumPy loop, CPU"].settings == "here"
    convolutional = [(net, name) for group, net, name in found if group == "cnn"]
    assert convolutional == [("3", n) for n in ("engine cpu", "multiply-adds", *names["cnn"])]
    assert found["cnn", "3", "engine cpu"].weights == 2 * 10 + 10 * (2 * 15 * 15 + 1)
    assert "no GPU is measured: there is none" in said.err
    parts = ("33-21-17-10", "net 1", "convolutional net 3", "the deformation")
    for number, part in enumerate(parts, start=1):
        assert f"measuring {part} ... (part {number} of 4)" in said.err
    for text in ("3: 20M-60M-100M-150N | NumPy loop, CPU ", "| NumPy loop, CPU (here)", "TFLOP/s"):
        assert text in said.out
    for text in ("| CPU, 1 thread", "| mini-batches, NumPy | so "):
        assert text in said.out


COLUMNS = [name for name in BenchRow.__struct_fields__ if name != "source"]


def names_in(path):
    return [row.name for row in read_rows(path, BenchRow)]


def test_each_row_is_written_as_it_is_measured(tmp_path, monkeypatch):
    """Rows of before stay until all is measured, and those not asked for stay then too."""
    path, arguments = tmp_path / "bench.csv", bench.parse_arguments(["--nets", "1"])
    seen = []

    def measure_all(given, timer):
        for name in ("engine cpu", "engine cuda graph"):
            yield net_row(name, 20.0)
            seen.append(names_in(path))
        if given.gpu_only:
            raise GpuFault("it fell off the bus")

    monkeypatch.setattr(bench, "measure_all", measure_all)
    cells = to_cells(net_row("old", 1.0, net=2))
    del cells["percent_of_peak"]  # which older records lack; and they have a column of their own
    path.write_text(csv_text([cells | {"percent_of_product": 3.0}]))
    rows = bench.measure_into(path, arguments, None, SESSION)
    assert seen == [["old", "engine cpu"], ["old", "engine cpu", "engine cuda graph"]]
    assert [row.name for row in rows] == seen[-1]
    assert [row.us for row in read_rows(path, BenchRow)] == [1, 20, 20]
    with pytest.raises(GpuFault):
        bench.measure_into(path, bench.parse_arguments(["--gpu-only"]), None, SESSION)
    assert names_in(path) == seen[-1]
    bench.measure_into(path, bench.parse_arguments([]), None, SESSION)
    assert names_in(path) == ["engine cpu", "engine cuda graph"]
    path.write_text("<<<<<<<")
    with pytest.raises(FileFault, match=r"bench\.csv"):
        bench.measure_into(path, arguments, None, SESSION)
    assert path.read_text() == "<<<<<<<"


@pytest.mark.parametrize("minutes", ["1", "0.01"])
def test_nets_and_minutes_that_are_asked_for(minutes, monkeypatch, capsys):
    """The first net is measured however few the minutes are."""

    def measure_net(net, makers, repeats, timer, on_cpu):
        clock.append(clock[-1] + 40)
        yield (net, makers, timer, on_cpu)

    clock = [0.0]
    monkeypatch.setattr(bench.time, "monotonic", lambda: clock[-1])
    monkeypatch.setattr(bench, "measure_net", measure_net)
    started = in_this_process([])
    monkeypatch.setattr(bench, "in_processes", lambda makers: clock.append(2) or started(makers))
    arguments = bench.parse_arguments(["--nets", "1,4,5", "--gpu-only", "--minutes", minutes])
    found = list(bench.measure_all(arguments, "a timer"))
    nets = [1, 4] if minutes == "1" else [1]
    assert found == [(net, {}, "a timer", False) for net in nets]
    said = capsys.readouterr().err
    assert f"net 5 is not measured any more, after {minutes} minutes" in said


def test_without_digits_there_is_no_race(tmp_path, monkeypatch, capsys):
    def load(choice, folder):
        raise Problem("there are no digits")

    monkeypatch.setattr(bench.data, "load", load)
    bench.run_race(tmp_path, {})
    assert not list(tmp_path.iterdir())
    assert "not measured: there are no digits" in capsys.readouterr().err


def makers(group):
    """Baselines that are always there."""
    return {
        one.name: one.make for one in baselines.BASELINES if one.group == group and not one.package
    }


def in_this_process(asked):
    """Stands in for the processes of the baselines."""

    @contextmanager
    def started(makers):
        asked.append(list(makers))

        def here(make):
            return lambda *arguments: replace(make(*arguments), settings="here")

        yield {name: here(make) for name, make in makers.items()}

    return started


def tiny_works(monkeypatch):
    """Little of everything, and a small net in place of net 3 of 2011."""
    monkeypatch.setattr(bench, "CNN_NETS", (3,))
    network = ConvNetwork.initial("2M3s1", Maps(1, 31, 31), 10, 0)
    monkeypatch.setattr(cnn_times, "initial", lambda net: network)
    monkeypatch.setattr(host, "CALL_FLOPS", 10_000)
    monkeypatch.setattr(host, "CALL_BYTES", 0)
    monkeypatch.setattr(mlp_times, "ENGINE_UPDATES", 1)
    monkeypatch.setattr(mlp_times, "BASELINE_UPDATES", 2 * 1268)
    monkeypatch.setattr(mlp_times, "PREDICT_BATCH", 5)
    monkeypatch.setattr(bench.host, "MIN_REPEAT_SECONDS", 0)
    monkeypatch.setattr(deform_times, "CPU_IMAGES", 100)
    monkeypatch.setattr(deform_times, "BASELINE_IMAGES", 10)


def test_main_on_a_gpu(tmp_path, monkeypatch, capsys):
    """With made-up times of the GPU."""
    monkeypatch.setattr(mlp_times, "NETS", {4: SIZES})
    tiny_works(monkeypatch)
    asked = []

    def cnn_on_gpu(network, *how):
        asked.append((network.description, *how))
        kernel = timed(2.0, group="cnn kernel", name="convolve_maps", state="warm", layer=1)
        return [timed(9.0, group="cnn", name="engine cuda graph", images=1), kernel]

    def paper_set(images, labels, deformation, seed):
        asked.append((images.shape, labels.shape))
        return SimpleNamespace(deform=lambda out, epoch: asked.append(out.shape))

    tiled = timed(0.05, group="deformation", name="GPU, a kernel a tile", images=1)
    monkeypatch.setattr(gpu, "SIMULATED", False)
    monkeypatch.setattr(gpu, "missing", lambda n_bytes: None)
    monkeypatch.setattr(gpu, "name", lambda: "Some GPU")
    monkeypatch.setattr(gpu, "driver_version", lambda: "1.2")
    monkeypatch.setattr(gpu_times, "Timer", lambda: "a timer")
    monkeypatch.setattr(gpu_times, "measure_net", lambda network, timer, repeats: gpu_rows())
    monkeypatch.setattr(cnn_times, "measure_on_gpu", cnn_on_gpu)
    monkeypatch.setattr(deform_times, "N_IMAGES", 120)
    monkeypatch.setattr(deform_times, "measure_on_gpu", lambda *arguments: [tiled])
    monkeypatch.setattr(deform_times, "PaperSet", paper_set)
    there = {
        ("deformation", "cuda"): {"kornia, GPU": baselines.scipy_recipe},
        ("net", "cuda"): {"PyTorch window, GPU": baselines.numpy_loop},
    }
    monkeypatch.setattr(baselines, "available", lambda *asked: there.get(asked, {}))
    monkeypatch.delattr(bench, "run_race")  # a GPU is not lent for that
    bench.main(["--repeats", "7", "--out", str(tmp_path)])
    said, rows = capsys.readouterr(), read_rows(tmp_path / "bench.csv", BenchRow)
    assert asked[0] == ("2M3s1", "a timer", 7, True)
    assert {*asked[1:]} == {((100, 29, 29), (100,)), (100, 29, 29)}
    assert {(row.source.device, row.source.driver) for row in rows} == {("Some GPU", "1.2")}
    found = {(row.group, row.name): row for row in rows}
    cpu_names = {"engine cpu", "engine cpu, 1 thread"}
    for (_, name), row in found.items():
        if name in cpu_names or "GPU" in name or "cuda" in name:
            device = bench.provenance.device("cpu") if name in cpu_names else "Some GPU"
            assert row.ran_on == device, name
    assert {key for key, row in found.items() if row.times_cpu} == {
        *(("net", name) for name in cpu_names),
        *(("net", "engine cuda graph"), ("net", "PyTorch window, GPU")),
        *(("cnn", "engine cpu"), ("cnn", "engine cuda graph")),
    }
    for group in ("net", "cnn"):
        ours, cpu = found[group, "engine cuda graph"], found[group, "engine cpu"]
        assert ours.times_cpu == pytest.approx(cpu.us / ours.us)
    for name in ("Listing 1 on the GPU, the rest on the CPU", "kornia, GPU"):
        assert ("deformation", name) in found
    assert "no GPU is measured" not in said.err
    for name in ("forward_partial |", "convolve_maps |", "GPU, a kernel a tile "):
        assert f"| {name}" in said.out
