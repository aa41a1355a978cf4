"""`python -m experiments.ladder`: what it trains, counts, records and refuses."""

from types import SimpleNamespace

import numpy as np
import programs
import pytest
from factories import SESSION
from ladder_cases import KERNEL, NAIVE, RECORD, copy, epoch, moving
from msgspec import UNSET
from msgspec.structs import replace

from deepbig_runtime import gpu
from experiments import ladder, readme
from experiments.benchmarks import baselines, ladder_times
from experiments.datasets import data
from experiments.results import ladder_tables
from experiments.results.records import LadderRecord, ProgramTime, read_json
from experiments.training.validation import to_json
from mlp_gpu.ladder import cpu, formulas
from mlp_gpu.ladder.net import Net
from mlp_gpu.ladder.rungs import RUNGS

needs_no_gpu = pytest.mark.skipif(not gpu.missing(), reason="says what it says without a GPU")


@programs.needs_toolkit
@pytest.mark.slow
def test_what_a_rung_does_is_counted():
    images, labels, _ = epoch()
    counted = ladder_times.count_rungs(moving(32), (images, labels))
    rows = {(row.rung, row.kernel): row for row in counted}
    assert list(dict.fromkeys(row.rung for row in counted)) == list(RUNGS)
    n_weights = 784 * 32
    naive, turned = (
        rows["naive", "update_hidden_naive"],
        rows["coalesced", "update_hidden_coalesced"],
    )
    for row in (naive, turned):
        assert row.write_bytes == 8 * n_weights
    # 32 threads that walk along a row touch a piece each; side by side they touch 4 together.
    assert naive.write_segments == 2 * n_weights
    assert turned.write_segments == 2 * n_weights // 8
    tiled, shared = rows["tiled", "forward_tiled"], rows["shared", "forward_shared"]
    assert tiled.shared_passes > tiled.shared_accesses
    assert shared.shared_passes == shared.shared_accesses > 0
    # Of the weights, those in registers are neither read nor written for an image.
    one = rows["one kernel", "train_chunk"]
    kept = 32 * 8 * (512 // 32)
    assert one.write_bytes == 8 * (n_weights - kept) + 8 * 320
    assert rows["streams", "forward_shared"] == replace(shared, rung="streams")
    assert all(row.spill_bytes == 0 < row.registers for row in counted)
    assert all(0 < row.distance < 1e-5 for row in counted)


@pytest.mark.parametrize("make", [baselines.numpy_ladder, baselines.jax_ladder])
def test_baseline_makes_the_same_steps(make):
    if make is baselines.jax_ladder:
        pytest.importorskip("jax")
    net, (images, labels, _) = moving(10), epoch()
    expected = copy(net)
    cpu.train(expected, images, labels, np.arange(len(images)))
    trainer = make(net, images, labels, float(formulas.ETA))
    trainer.train()
    for V, W, before in zip(trainer.weights(), expected.arrays, net.arrays, strict=False):
        assert np.linalg.norm(V - W) < 1e-5 * np.linalg.norm(W - before)


ON_GPU = """
import numpy as np
from experiments.benchmarks import gpu_times, ladder_times
from mlp_gpu.ladder.net import Net

gpu_times.MIN_MEMSET_BYTES = 1 << 20
ladder_times.GPU_IMAGES, ladder_times.WORK_STEPS = 2, 2
images = (np.random.default_rng(0).random((2, 784)) < 0.2).astype(np.float32)
examples = images, np.array([3, 5], np.uint8)
rows = ladder_times.time_on_gpu(Net.initial(10, 0), examples, 1)
*rungs, copy = rows
# An empty kernel's time is taken off work_us: on a busy CPU less than nothing may be left.
print(*(row.name for row in rungs if row.us[0] > 0 and len(row.work_us) == 1), sep=", ")
assert copy.name.startswith("copy ") and copy.us[0] > 0
"""


@pytest.mark.slow
@programs.needs_driver
def test_rungs_are_timed():
    done = programs.run_on_driver("-c", ON_GPU)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ", ".join(RUNGS) + "\n"


@pytest.mark.parametrize(
    ("blocks", "threads", "registers", "shared", "warps"),
    [
        *((1, 128, 32, 0, 4), (392, 256, 30, 0, 64), (392, 256, 64, 0, 32), (99, 512, 104, 0, 16)),
        (99, 128, 32, 75 * 1024, 12),  # 76 KiB each: three fit
    ],
)
def test_warps_on_a_multiprocessor(blocks, threads, registers, shared, warps):
    kernel = SimpleNamespace(registers=registers, shared_bytes=shared)
    assert ladder_times.resident_warps(blocks, threads, kernel) == warps


@needs_no_gpu
def test_a_record_says_what_was_trained(digits, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ladder, "REPEATS", 2)
    monkeypatch.setattr(ladder_times, "count_rungs", lambda net, examples: [])
    some = data.limit(data.cached_pixels("digits", None), 300)
    monkeypatch.setattr(data, "cached_pixels", lambda choice, folder: some)
    seeds, initial = [], Net.initial
    monkeypatch.setattr(Net, "initial", lambda n, seed: seeds.append(seed) or initial(n, seed))
    arguments = ["--hidden", "32", "--seeds", "0,3", "--epochs", "6", "--search"]
    ladder.main([*arguments, "--out", str(tmp_path)])
    said = capsys.readouterr()
    record = read_json(tmp_path / "ladder.json", LadderRecord)
    assert [(row.seed, row.epoch) for row in record.accuracy] == [
        (seed, n) for seed in (0, 3) for n in range(1, 7)
    ]
    assert seeds[-2:] == [0, 3]
    assert record.accuracy[5].wrong < 0.5 * record.accuracy[5].n_test
    assert [(row.eta, row.momentum) for row in record.search] == ladder.SEARCHED
    assert {(row.n_train, row.n_apart) for row in record.search} == {(250, 50)}
    assert [row.name for row in record.times] == ["CPU engine", "NumPy"]
    assert "must not be compared with the blog's" in said.out
    assert "blog, correct" not in said.out
    assert "no rung is timed: " in said.err
    assert record.provenance.end


def test_rungs_that_were_not_timed_say_so():
    (line,) = ladder_tables.rung_table([replace(KERNEL, images_a_launch=20)], [])
    assert line["launches"] == "1 for 20 images"
    assert line["us an image"] == "not measured yet"
    assert line["share of a copy's rate %"] == ""
    copy_times = ProgramTime(ladder_times.COPY, [1.0, 1.2, 9.0], 1)
    (line,) = ladder_tables.rung_table([KERNEL], [NAIVE, copy_times])
    assert line["us an image"] == "6.0"
    assert (line["share of launches %"], line["share of a copy's rate %"]) == ("75", "20")


def test_a_rungs_part_has_its_kernels_and_its_time():
    record = replace(RECORD, kernels=[KERNEL])
    text = readme.ladder_rung([record], "naive")
    assert "| k " in text
    assert text.endswith("Time: not measured yet.")
    on_gpu = replace(record, times=[NAIVE], provenance=replace(SESSION, device="Some GPU"))
    text = readme.ladder_rung([record, on_gpu], "naive")
    assert text.count("| k ") == 1
    assert text.endswith(
        "On Some GPU: 6.0 microseconds an image, 75 % of them launches and waiting."
    )
    assert readme.ladder_rung([], "naive") == "Time: not measured yet."
    row = ProgramTime("graph", [5.0], 1, [6.0])  # noise makes a share negative
    assert ladder_tables.time_sentence(row).endswith("an image, 0 % of them launches and waiting")
    assert ladder_tables.time_sentence(replace(row, work_us=UNSET)) == "5.0 microseconds an image"
    assert tuple(RUNGS) == ladder_tables.RUNG_NAMES


def test_pages_have_the_blogs_net_on_mnist_and_say_where_it_comes_from(empty):
    record = replace(RECORD, times=[ProgramTime("CPU engine", [30.0], 1)])
    others = replace(record, data="load_digits"), replace(record, hidden=32)
    for k, one in enumerate((record, *others)):
        (empty / "results" / f"{k}").mkdir(parents=True)
        (empty / "results" / f"{k}" / "ladder.json").write_bytes(to_json(one))
    text = readme.pages()["results/README.md"]["ladder"]
    assert text.startswith(
        "784-128-10 on MNIST: Some CPU; python 3.11; 2026-01-02T00:00:00+00:00; commit 0123456789"
    )
    assert text.count("784-") == 1
    assert "| 95.10 " in text
    assert readme.ladders([]) == readme.NOT_MEASURED
