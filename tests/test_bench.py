"""`python -m experiments.bench`: what it measures, writes and prints."""

import csv
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from factories import SESSION
from measurements import SOURCE, bench_row, gpu_measurements, measurement, net_measurement
from msgspec import structs

from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime import gpu
from deepbig_runtime.faults import GpuFault
from experiments import bench
from experiments.running.errors import Problem
from experiments.running.formatting import csv_text
from experiments.scoring.rows import BenchRow, RaceRow, SourceColumns, read_rows, to_cells
from experiments.timing import ceilings, cnn, connections, deform_peers, host, mlp, peers, race
from experiments.timing import gpu as gpu_timing
from mlp_gpu.network import count_weights

SIZES = (33, 21, 17, 10)


def test_a_peer_of_the_deformation_that_fails_is_told_and_left_out(capsys):
    def broken(images, labels, deformation):
        raise RuntimeError("no such kernel")

    images = np.zeros((3, 29, 29), np.float32)
    makers = {"broken": broken, "fine": lambda *some: lambda: None}
    workloads = bench.deform_peer_workloads(makers, images, np.zeros(3, np.uint8))
    assert {name: one.n_images for name, one in workloads.items()} == {"fine": 3}
    assert "broken fails, so it is not measured: RuntimeError: no such kernel" in (
        capsys.readouterr().err
    )


def test_main_measures_writes_and_prints(tmp_path, monkeypatch, capsys):
    """On tiny nets, without a GPU."""
    monkeypatch.setattr(mlp, "NETS", {"33-21-17-10": SIZES, 1: SIZES})
    tiny_works(monkeypatch)
    asked = []
    monkeypatch.setattr(bench.peer_processes, "started", in_this_process(asked))
    monkeypatch.setattr(cnn.cnn_peers, "on_cpu", lambda: {"loops, CPU": connections.loops})
    monkeypatch.setattr(gpu, "SIMULATED", False)
    monkeypatch.setattr(gpu, "missing", lambda n_bytes: "there is none")
    monkeypatch.setattr(bench, "missing_toolkit", lambda: "there is no compiler")
    monkeypatch.setattr(bench.data, "load", lambda choice, folder: choice)
    points = [
        RaceRow(
            way=race.NUMPY,
            setting="so",
            seed=seed,
            taken=True,
            seconds=60.0,
            apart_errors=3,
            test_errors=5 + seed,
            source=SOURCE,
        )
        for seed in (0, 1)
    ]
    monkeypatch.setattr(bench.race, "measure", lambda dataset, source: points)
    bench.main(["--repeats", "7", "--out", str(tmp_path / "out")])
    said = capsys.readouterr()
    with (tmp_path / "out" / "bench.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("bench.csv", "bench.png", "bench.pdf"),
        *("race.csv", "race.png", "race.pdf"),
    }
    assert read_rows(tmp_path / "out" / "race.csv", RaceRow) == points
    assert "| mini-batches, NumPy | so      | 2     |" in said.out
    assert [*rows[0]] == [*COLUMNS, *SourceColumns.__struct_fields__]
    assert {"device", "versions", "date", "commit"} < set(rows[0])
    names = {one["name"] for one in rows}
    assert {"engine cpu", *peers.on_cpu(), *deform_peers.on_cpu()} < names
    assert asked == [list(peers.on_cpu())]  # processes are started once for all nets
    assert "CPU, 1 thread" in names
    assert {one["ran_on"] for one in rows} == {rows[0]["device"]}
    assert {one["repeats"] for one in rows} == {"7"}
    engine = rows[0]
    assert engine["name"] == "engine cpu"
    assert float(engine["times_cpu"]) == 1
    assert int(engine["weights"]) == count_weights(SIZES)
    own = {row["name"]: row for row in rows if row["net"] == engine["net"] == "33-21-17-10"}
    copy = own["scaled copy"]
    assert copy["images"] == ""
    assert int(copy["bytes"]) == 2 * 4 * 1268
    assert float(copy["percent_of_copy"]) == pytest.approx(100)
    assert engine["copy_gb_a_second"] == copy["gb_a_second"]
    busy = own["engine cpu, a core busy"]
    assert float(busy["times_cpu"]) == pytest.approx(float(engine["us"]) / float(busy["us"]))
    evaluation = own["engine cpu, evaluation"]
    assert (evaluation["group"], evaluation["times_cpu"]) == ("evaluation", "")
    assert own["NumPy loop, CPU"]["settings"] == "here"
    assert "no GPU is measured: there is none" in said.err
    assert "measuring 33-21-17-10 ... (part 1 of 4)" in said.err
    assert "measuring net 1 ... (part 2 of 4)" in said.err
    assert "measuring convolutional net 3 ... (part 3 of 4)" in said.err
    assert "measuring the deformation ... (part 4 of 4)" in said.err
    convolutional = {one["name"]: one for one in rows if one["group"] == "cnn"}
    assert list(convolutional) == ["engine cpu", "multiply-adds", "loops, CPU"]
    ours, peak, loops = convolutional.values()
    assert {one["net"] for one in convolutional.values()} == {"3"}
    assert float(ours["times_cpu"]) == 1
    assert float(loops["times_cpu"]) == pytest.approx(float(ours["us"]) / float(loops["us"]))
    assert int(ours["weights"]) == 2 * 10 + 10 * (2 * 15 * 15 + 1)
    assert float(peak["percent_of_peak"]) == pytest.approx(100)
    assert peak["images"] == peak["times_cpu"] == ""
    assert "| loops, CPU" in said.out
    assert "| engine cpu" in said.out
    assert "| NumPy loop, CPU (here)" in said.out
    assert "TFLOP/s" in said.out  # of the evaluation
    assert "| CPU, 1 thread" in said.out
    assert "there is no compiler\n" in said.out


COLUMNS = [name for name in BenchRow.__struct_fields__ if name != "source"]


def names_in(path):
    return [row.name for row in read_rows(path, BenchRow)]


def test_each_row_is_written_as_it_is_measured(tmp_path, monkeypatch):
    """Rows of before stay until all is measured, and those not asked for stay then too."""
    path, arguments = tmp_path / "bench.csv", bench.parse_arguments(["--nets", "1"])
    seen = []

    def measure_all(given, timer, names=("engine cpu", "engine cuda graph")):
        for name in names:
            yield net_measurement(name, 20.0)
            seen.append(names_in(path))
        if given.gpu_only:
            raise GpuFault("it fell off the bus")

    monkeypatch.setattr(bench, "measure_all", measure_all)
    source = structs.replace(SESSION, device="Some GPU")
    cells = to_cells(bench_row(net_measurement("old", 1.0, net=2)))
    del cells["percent_of_peak"]  # which older records lack; and they have a column of their own
    path.write_text(csv_text([cells | {"percent_of_product": 3.0}]))
    rows = bench.measure_into(path, arguments, None, source)
    assert seen == [["old", "engine cpu"], ["old", "engine cpu", "engine cuda graph"]]
    assert [row.name for row in rows] == seen[-1]
    assert [row.us for row in read_rows(path, BenchRow)] == [1, 20, 20]
    with pytest.raises(GpuFault):
        bench.measure_into(path, bench.parse_arguments(["--gpu-only"]), None, source)
    assert names_in(path) == seen[-1]
    bench.measure_into(path, bench.parse_arguments([]), None, source)
    assert names_in(path) == ["engine cpu", "engine cuda graph"]


def test_what_fails_costs_no_other_row(capsys):
    def fail():
        yield measurement(1.0, group="net", name="first")
        raise ZeroDivisionError("no way")

    makers = [fail, lambda: [measurement(2.0, group="net", name="second")]]
    assert [one.name for one in host.attempts(makers)] == ["first", "second"]
    said = capsys.readouterr().err
    assert said == "some measurements are left out: ZeroDivisionError: no way\n"


def test_nets_and_minutes_that_are_asked_for(monkeypatch, capsys):
    def measure_net(net, makers, repeats, timer, on_cpu):
        clock.append(clock[-1] + 40)
        yield (net, makers, timer, on_cpu)

    clock = [0.0]
    monkeypatch.setattr(bench.time, "monotonic", lambda: clock[-1])
    monkeypatch.setattr(bench, "measure_net", measure_net)
    monkeypatch.setattr(bench.peer_processes, "started", in_this_process([]))
    arguments = bench.parse_arguments(["--nets", "1,4,5", "--gpu-only", "--minutes", "1"])
    found = list(bench.measure_all(arguments, "a timer"))
    assert found == [(1, {}, "a timer", False), (4, {}, "a timer", False)]
    assert "net 5 is not measured any more, after 1 minutes" in capsys.readouterr().err


def test_without_digits_there_is_no_race(tmp_path, monkeypatch, capsys):
    def load(choice, folder):
        raise Problem("there are no digits")

    monkeypatch.setattr(bench.data, "load", load)
    bench.run_race(tmp_path, {})
    assert not list(tmp_path.iterdir())
    assert "not measured: there are no digits" in capsys.readouterr().err


def test_simulated_gpu_is_not_measured(tmp_path, monkeypatch, capsys):
    class Stop(Exception):
        pass

    def stop(arguments, timer):
        assert timer is None
        raise Stop

    monkeypatch.setattr(gpu, "SIMULATED", True)
    monkeypatch.setattr(bench, "measure_all", stop)
    with pytest.raises(Stop):
        bench.main(["--out", str(tmp_path)])
    assert "only simulates" in capsys.readouterr().err


def test_too_few_repeats_are_refused(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--repeats", "6"])
    assert "expected an integer from 7 to 1000, got '6'" in capsys.readouterr().err


def in_this_process(asked):
    """Stands in for the processes of the peers."""

    @contextmanager
    def started(makers):
        asked.append(list(makers))

        def here(make):
            return lambda *arguments: replace(make(*arguments), note="here")

        yield {name: here(make) for name, make in makers.items()}

    return started


def tiny_works(monkeypatch):
    """Little of everything, and a small net in place of net 3 of 2011."""
    monkeypatch.setattr(bench, "CNN_NETS", (3,))
    network = ConvNetwork.initial("2M3s1", Maps(1, 31, 31), 10, 0)
    monkeypatch.setattr(cnn, "initial", lambda net: network)
    monkeypatch.setattr(ceilings, "CALL_FLOPS", 10_000)
    monkeypatch.setattr(ceilings, "CALL_BYTES", 0)
    monkeypatch.setattr(mlp, "ENGINE_UPDATES", 1)
    monkeypatch.setattr(mlp, "PEER_UPDATES", 2 * 1268)
    monkeypatch.setattr(mlp, "PREDICT_BATCH", 5)
    monkeypatch.setattr(bench.host, "MIN_REPEAT_SECONDS", 0)
    monkeypatch.setattr(bench, "DEFORM_IMAGES", 100)
    monkeypatch.setattr(bench, "DEFORM_PEER_IMAGES", 10)


class NoPaper:
    """Stands in for Listing 1 where there is no GPU."""

    def __init__(self, images, labels, deformation, seed):
        assert (images.shape, labels.shape) == ((100, 29, 29), (100,))

    def deform(self, out, epoch):
        assert out.shape == (100, 29, 29)


def test_main_on_a_gpu(tmp_path, monkeypatch, capsys):
    """With made-up times of the GPU."""
    monkeypatch.setattr(mlp, "NETS", {4: SIZES})
    tiny_works(monkeypatch)
    monkeypatch.setattr(cnn.cnn_peers, "on_cpu", dict)
    asked = []
    kernel = measurement(2.0, group="cnn kernel", name="convolve_maps", state="warm", layer=1)
    engine = measurement(9.0, group="cnn", name="engine cuda graph", n_images=1)

    def on_gpu(network, timer, repeats, kernel_by_kernel):
        asked.append((network.description, timer, repeats, kernel_by_kernel))
        return [engine, kernel]

    monkeypatch.setattr(cnn, "measure_on_gpu", on_gpu)
    monkeypatch.setattr(gpu, "SIMULATED", False)
    monkeypatch.setattr(gpu, "missing", lambda n_bytes: None)
    monkeypatch.setattr(gpu, "name", lambda: "Some GPU")
    monkeypatch.setattr(gpu, "driver_version", lambda: "1.2")
    measured = [replace(one, ran_on="") for one in gpu_measurements()]
    monkeypatch.setattr(gpu_timing, "Timer", lambda: "a timer")
    monkeypatch.setattr(gpu_timing, "measure_net", lambda network, timer, repeats: measured)
    on_gpu = measurement(0.05, group="deformation", name="GPU, a kernel a tile", n_images=1)
    monkeypatch.setattr(bench.deform_timing, "N_IMAGES", 120)
    monkeypatch.setattr(bench.deform_timing, "measure", lambda *arguments: [on_gpu])
    monkeypatch.setattr(bench, "measure_window_kernels", lambda *arguments: [])
    monkeypatch.setattr(bench, "PaperSet", NoPaper)
    monkeypatch.setattr(deform_peers, "on_cpu", dict)
    monkeypatch.setattr(deform_peers, "on_gpu", lambda: {"kornia, GPU": deform_peers.scipy_recipe})
    monkeypatch.setattr(peers, "on_cpu", dict)
    monkeypatch.setattr(peers, "on_gpu", lambda: {"PyTorch eager, GPU": peers.numpy_loop})
    monkeypatch.delattr(bench, "run_race")  # a GPU is not lent for that
    bench.main(["--repeats", "7", "--out", str(tmp_path)])
    with (tmp_path / "bench.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["device"], row["driver"]) for row in rows} == {("Some GPU", "1.2")}
    on = {row["name"]: row["ran_on"] for row in rows if not row["group"].startswith("cnn")}
    assert (
        on["engine cuda graph"] == on["forward_partial"] == on["PyTorch eager, GPU"] == "Some GPU"
    )
    for name in ("empty kernel", "GPU, a kernel a tile", "kornia, GPU"):
        assert on[name] == "Some GPU"
    assert on["Listing 1 on the GPU, the rest on the CPU"] == "Some GPU"
    assert on["engine cpu"] == on["CPU, 1 thread"] == bench.provenance.device("cpu")
    assert asked == [("2M3s1", "a timer", 7, True)]
    convolutional = {row["name"]: row for row in rows if row["group"].startswith("cnn")}
    assert convolutional["convolve_maps"]["ran_on"] == "Some GPU"
    assert convolutional["convolve_maps"]["times_cpu"] == ""
    expected = float(convolutional["engine cpu"]["us"]) / 9
    assert float(convolutional["engine cuda graph"]["times_cpu"]) == pytest.approx(expected)
    times = {row["name"]: row for row in rows if row["times_cpu"] and row["group"] == "net"}
    on_cpu = {"engine cpu", "engine cpu, 1 thread", "engine cpu, a core busy"}
    assert set(times) == {"engine cuda graph", *on_cpu, "PyTorch eager, GPU"}
    ours, cpu = times["engine cuda graph"], times["engine cpu"]
    assert float(ours["times_cpu"]) == pytest.approx(float(cpu["us"]) / float(ours["us"]))
    said = capsys.readouterr()
    assert "no GPU is measured" not in said.err
    assert "| forward_partial |" in said.out
    assert "| convolve_maps |" in said.out
    assert "TFLOP/s" in said.out
    assert "| GPU, a kernel a tile " in said.out
