"""What the pages say of benchmarks: tables, and sentences."""

import re

import numpy as np
from measurements import SOURCE, gpu_measurements, measurement, net_measurement, write_bench
from msgspec.structs import replace

from experiments import readme
from experiments.scoring.records import read_benchmarks
from experiments.scoring.rows import RaceRow, rows_text
from experiments.timing import columns, race
from experiments.timing import findings as speeds
from experiments.timing.measurement import Ceiling


def test_benchmarks_of_every_device_are_shown(empty):
    assert readme.benchmarks(read_benchmarks(), columns.net_table) == readme.NOT_MEASURED
    assert readme.kernels(read_benchmarks()) == readme.NOT_MEASURED

    on_cpu = replace(SOURCE, device="Some CPU", driver="")
    write_bench([net_measurement("engine cpu", 300.0)], on_cpu, empty / "results/cpu/bench.csv")
    text = readme.benchmarks(read_benchmarks(), columns.net_table)
    assert text.startswith(
        "Some CPU; a 1; 2026-01-01; commit cccccccccccc; medians of 7 repeats:\n\n|"
    )
    assert "| engine cpu " in text
    assert text.endswith("\n\nOn a GPU: not measured yet.")
    assert readme.kernels(read_benchmarks()) == readme.NOT_MEASURED
    text = readme.speed(read_benchmarks())
    assert text.startswith('<img src="results/some-cpu/bench.png" width=')
    assert text.endswith("On a GPU: not measured yet.")

    write_bench(gpu_measurements(), SOURCE, empty / "results/gpu/bench.csv")
    text = readme.benchmarks(read_benchmarks(), columns.net_table)
    assert "Some CPU" in text
    assert "Some GPU; driver 1.2; a 1; 2026-01-01" in text
    assert "not measured" not in text
    assert "forward_partial" not in text
    text = readme.kernels(read_benchmarks())
    assert text.startswith("Some GPU; driver 1.2; a 1; 2026-01-01; commit cccccccccccc; medians")
    assert re.findall(r"^\| (\d) .*forward_partial", text, re.MULTILINE) == ["1", "4"]
    assert "Some CPU" not in text
    text = readme.speed(read_benchmarks())
    assert text.startswith('<img src="results/some-gpu/bench.png" width=')
    assert "`engine cpu`" in text
    assert "`engine cuda graph`" in text
    assert "not measured" not in text


def test_a_race_stands_beside_the_first_benchmark(empty):
    write_bench([net_measurement("engine cpu", 300.0)], SOURCE, empty / "results/cpu/bench.csv")
    assert readme.races() == readme.NOT_MEASURED
    points = [
        RaceRow(
            way=way,
            setting="so",
            seed=seed,
            taken=True,
            seconds=seconds,
            apart_errors=9,
            test_errors=wrong + seed,
            source=SOURCE,
        )
        for way, wrong in ((race.ONLINE, 100), (race.NUMPY, 120))
        for seed in (0, 1, 2)
        for seconds in (15.0, 30.0, 60.0)
    ]
    (empty / "results/cpu/race.csv").write_text(rows_text(points))
    text = readme.speed(read_benchmarks())
    assert '<img src="results/cpu/race.png"' in text
    assert text.endswith(
        "of 10,000 test digits wrong after 60 s on Some GPU, median of the seeds (fewest-most): "
        "on-line, engine cpu 101 (100-102); mini-batches, NumPy 121 (120-122)."
    )
    assert "commit cccccccccccc; median (fewest-most) of the seeds:\n\n| way " in readme.races()


def test_a_benchmark_in_sentences(empty):
    large = {"net": 4, "n_weights": 12_000_000, "cpu_engine_us": [3000.0] * 7}
    deform = {"group": "deformation", "n_images": 1}
    found = [
        net_measurement("engine cpu", 300.0),
        net_measurement("NumPy loop, CPU", 1500.0),
        net_measurement("engine cpu", 3000.0, **large),
        net_measurement("NumPy loop, CPU", 9000.0, **large),
        measurement(20.0, name="CPU, 1 thread", **deform),
        measurement(10.0, name="CPU, 2 threads", **deform),
        measurement(300.0, name="scipy recipe", **deform),
        measurement(1.0, name="kornia, CPU", **deform),
    ]
    write_bench(found, SOURCE, empty / "results/gpu/bench.csv")
    (rows,) = read_benchmarks()
    first, speedup = speeds.bench_sentences(rows)
    assert first == (
        "On a chip, `engine cpu` takes 300 microseconds per image for net 1 and 3,000 for net 4, "
        "which is 4.5 and 4.0 billion weight updates per second; the GTX 480 of 2012 made up to "
        "7.5."
    )
    assert speedup == "Its speedup is 3.0 to 5.0 over NumPy loop, CPU."
    assert speeds.deform_sentence(rows) == (
        "Deforming 60,000 images takes 0.6 s (CPU, 2 threads), a speedup of 30 over the SciPy "
        "recipe; the paper's CPU took 93 s."
    )
    assert speeds.deform_sentence([row for row in rows if row.group == "net"]) is None
    assert speeds.epoch_sentences(rows) == []


def test_a_benchmark_of_threads_in_sentences(empty):
    small = {"net": "841-800-10", "n_weights": 681_610, "cpu_engine_us": [50.0] * 7}
    read = Ceiling(us=np.full(7, 100.0), work=1e6)
    copy = Ceiling(us=np.full(7, 100.0), work=7e6)
    moved = {"n_bytes": 1e6, "read": read, "copy": copy}
    peak = Ceiling(us=np.full(7, 100.0), work=8e6)
    evaluated = {"group": "evaluation", "name": "engine cpu, evaluation", "peak": peak}
    evaluated |= {"n_images": 1}
    deform = {"group": "deformation", "n_images": 1}
    found = [
        net_measurement("engine cpu", 50.0, **small, **moved),
        net_measurement("engine cpu, 1 thread", 75.0, **small),
        net_measurement("engine cpu, a core busy", 105.0, **small),
        net_measurement("JAX scan, CPU", 200.0, settings="1 thread", **small),
        measurement(10.0, net="841-800-10", flops=0.4e6, **evaluated),
        net_measurement("engine cpu", 200.0, **moved),
        net_measurement("engine cpu, 1 thread", 380.0),
        net_measurement("engine cpu, a core busy", 300.0),
        net_measurement("JAX scan, CPU", 500.0, settings="2 threads"),
        measurement(20.0, net=1, flops=1.2e6, **evaluated),
        measurement(9.0, name="CPU, 1 thread", **deform),
        measurement(5.0, name="CPU, 2 threads", **deform),
        measurement(1.0, name="scipy recipe", **deform),
    ]
    write_bench(found, SOURCE, empty / "results/box/bench.csv")
    (rows,) = read_benchmarks()
    assert speeds.bench_sentences(rows) == [
        "On a chip, `engine cpu` takes 50 microseconds per image for 841-800-10 and 200 for net 1, "
        "which is 13.6 and 6.7 billion weight updates per second; the GTX 480 of 2012 made up to "
        "7.5, fewer than it makes for 841-800-10.",
        "It takes 1.5 to 1.9 times as long in one thread and 1.5 to 2.1 times as long beside a "
        "process that keeps a core busy.",
        "It moves 50 to 200 % of the bytes per second that a read of memory moves.",
        "Its speedup is 2.5 to 4.0 over JAX scan, CPU, each with its fastest settings.",
    ]
    # 60,000 (5 us + 200 us) + 70,000 * 20 us: 1.7 s of 13.7 s. And 1.0 s of 4.0 s.
    assert speeds.epoch_sentences(rows) == [
        "Evaluation on the CPU multiplies and adds 50 to 75 % as fast as the processor can.",
        "Of an epoch, 60,000 images deformed and trained on and 70,000 evaluated, "
        "deformation and evaluation take 12 % for net 1 and 25 % for 841-800-10.",
    ]
    text = readme.speed([rows])
    for sentence in (*speeds.bench_sentences(rows), *speeds.epoch_sentences(rows)):
        assert sentence in text
    undeformed = [row for row in rows if row.group != "deformation"]
    assert len(speeds.epoch_sentences(undeformed)) == 1
    text = readme.pages()["results/README.md"]["bench"]
    assert "| engine cpu, a core busy " in text
    assert re.search(r"^\| net .* TFLOP/s", text, re.MULTILINE)
