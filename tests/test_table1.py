"""`python -m experiments.table1` and what it prints, `figure1`, `record`."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from experiments import figure1, record, table1
from experiments.drawing import error_plots
from experiments.running import configs, data, plans, store
from experiments.running.errors import Problem
from experiments.running.provenance import REPOSITORY
from experiments.scoring import records, tables, voting
from mlp_gpu.files import FileFault
from mlp_gpu.network import NETS

TINY = ["--data", "digits", "--nets", "1", "--epochs", "2", "--limit", "60"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a tiny run leaves behind."""
    folder = tmp_path_factory.mktemp("table1")
    table1.main([*TINY, "--seeds", "0,7", "--out", str(folder)])
    return folder


def script(*arguments, module="experiments.table1"):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )


def make_run(net=1, name="MNIST", wrong=(35, 33), validation=(60, 70), deformation=True, epochs=2):
    """A run that was never trained, with the error counts given."""
    config = {
        "data": {"name": name, "sha256": "", "n_train": 60_000, "n_test": 10_000},
        "sizes": list(NETS[net]),
        "epochs": epochs,
        "eta": 1e-3,
        "decay": 0.997,
        "eta_min": 1e-6,
        "seed": 3,
        "deformation": {} if deformation else None,
        "engine": "cpu",
    }
    metrics = {name: [1.0] * epochs for name in store.METRICS}
    metrics |= {"validation_errors": list(validation), "test_errors": list(wrong)}
    session = {
        "commit": "0123456789abcdef",
        "dirty": False,
        "device": "Some GPU",
        "versions": {"python": "3.11"},
        "start": "2026-01-01",
        "end": "2026-01-02",
    }
    return store.Run(config, [session], metrics, np.empty((0, 0)), np.empty(0, np.uint8))


def test_a_run_on_a_gpu_names_driver_and_schedule():
    run = make_run()
    run.config["engine"] = "cuda"
    run.provenance[0] |= {"driver": "580.1, CUDA 13.0", "schedule": "graph"}
    row = tables.table1_row(run)
    assert (row["engine"], row["driver"]) == ("cuda graph", "580.1, CUDA 13.0")
    assert "Some GPU, driver 580.1, CUDA 13.0, engine cuda graph; python" in (
        tables.provenance_line(run)
    )
    assert "Some GPU, engine cpu; python" in tables.provenance_line(make_run())


def test_folder_has_runs_and_tables(folder):
    names = {path.name for path in folder.iterdir() if path.suffix != ".lock"}
    assert names == {
        "table1.md",
        "table1.csv",
        "net1-seed0-load_digits.h5",
        "net1-seed0-load_digits.weights.h5",
        "net1-seed7-load_digits.h5",
        "net1-seed7-load_digits.weights.h5",
    }


def test_digits_never_stand_beside_the_papers_figures(folder):
    text = (folder / "table1.md").read_text()
    assert "load_digits, which is NOT MNIST" in text
    assert "must not be compared" in text
    assert "| paper" not in text
    assert "0.49" not in text
    assert "Net 1, 2 seeds: TEfBV" in text


def test_csv_agrees_with_the_run_files(folder):
    with (folder / "table1.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["0", "7"]
    for row in rows:
        run = store.read_run(folder / f"net1-seed{row['seed']}-load_digits.h5")
        chosen = int(np.argmin(run.metrics["validation_errors"]))
        assert int(row["tefbv_errors"]) == run.metrics["test_errors"][chosen]
        assert int(row["bte_errors"]) == min(run.metrics["test_errors"])
        assert float(row["tefbv"]) == pytest.approx(int(row["tefbv_errors"]) / 3.60)
        assert row["weights"] == "1347510"
        assert row["distortion"] == "True"
        assert run.config["deformation"]["sigma"] == 5.5


def test_finished_runs_are_not_trained_again(folder, capsys):
    before = (folder / "net1-seed0-load_digits.h5").read_bytes()
    table1.main([*TINY, "--seeds", "0,7", "--out", str(folder)])
    printed = capsys.readouterr()
    assert f"net 1, seed 0 and 1 like it: finished, in {folder}\n" in printed.err
    assert "epoch 1/2" not in printed.err
    assert printed.out == (folder / "table1.md").read_text() + "\n"
    assert (folder / "net1-seed0-load_digits.h5").read_bytes() == before


def test_other_options_are_refused_before_anything_is_trained(folder, tmp_path):
    result = script(*TINY, "--eta", "0.5", "--seeds", "9,0", "--out", str(folder))
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert "eta is 0.001 there and 0.5 here" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (folder / "net1-seed9-load_digits.h5").exists()


def test_output_that_nobody_takes_costs_nothing(folder):
    command = [sys.executable, "-m", "experiments.table1", *TINY, "--out", str(folder)]
    (folder / "table1.md").unlink()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    assert process.wait() == 0
    assert (folder / "table1.md").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_output_on_a_full_disk(folder):
    command = [sys.executable, "-m", "experiments.table1", *TINY, "--out", str(folder)]
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == (
        "error: cannot print the result: No space left on device"
    )
    assert "Traceback" not in result.stderr


def test_no_distortion_is_a_run_and_a_table_of_its_own(tmp_path, capsys):
    assert table1.main([*TINY, "--no-distortion", "--out", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.iterdir() if path.suffix in (".md", ".csv")}
    assert names == {"table3.md", "table3.csv"}
    (row,) = csv.DictReader((tmp_path / "table3.csv").read_text().splitlines())
    assert row["distortion"] == "False"
    run = store.read_run(tmp_path / "net1-seed0-no-distortion-load_digits.h5")
    assert run.config["deformation"] is None
    printed = capsys.readouterr().out
    assert "Trained without distortion" in printed
    assert printed == (tmp_path / "table3.md").read_text() + "\n"
    assert "Table 3" not in printed  # the paper has no figures for these digits


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_not_a_traceback(tmp_path, signum):
    options = ["--data", "digits", "--nets", "1", "--epochs", "1000", "--limit", "100", "--out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.table1", *options, str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    path = tmp_path / "net1-seed0-load_digits.h5"
    while process.poll() is None and not (path.exists() and store.read_run(path).epochs > 1):
        time.sleep(0.05)
    process.send_signal(signum)
    _, said = process.communicate()
    assert process.returncode == 128 + signum
    assert re.search(r"stopped by SIG(INT|TERM): \d+ of 1000 epochs are safe in ", said)
    assert "the same command goes on" in said
    assert "about " in said  # the estimate came first
    assert re.search(r"epoch 1/1000, eta .*, validation .* %, test .* %, .* images/s, left ", said)
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--nets", "6"], "argument --nets: expected an integer from 1 to 5, got '6'"),
        (["--nets", "1,1"], "argument --nets: expected different integers, got '1,1'"),
        (["--nets", ""], "argument --nets: expected an integer"),
        (["--seeds", "-1"], "argument --seeds: expected"),
        (["--seeds", str(2**64)], "argument --seeds: expected an integer from 0 to"),
        (["--epochs", "0"], "argument --epochs: expected an integer from 1 to 1000000, got '0'"),
        (["--epochs", "1.5"], "argument --epochs: expected an integer"),
        (["--eta", "nan"], "argument --eta: expected a number from 1e-06 to 10, got 'nan'"),
        (["--eta", "1e-7"], "argument --eta: expected a number from 1e-06"),
        (["--eta-decay", "1.1"], "argument --eta-decay: expected a number from"),
        (["--limit", "x"], "argument --limit: expected an integer of at least 1"),
        (["--engine", "tpu"], "argument --engine: invalid choice"),
    ],
)
def test_bad_options(arguments, complaint, capsys):
    # '=' so that argparse does not take -1 for an option.
    with pytest.raises(SystemExit) as end:
        table1.parse_arguments(["=".join(arguments)])
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err


def test_limit_beyond_the_data(tmp_path):
    with pytest.raises(Problem, match="limit is 1438, expected 1 to 1437"):
        table1.main(["--data", "digits", "--limit", "1438", "--out", str(tmp_path)])


def test_out_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Exception, match=r"cannot make the folder .*file") as problem:
        table1.main([*TINY, "--out", str(tmp_path / "file")])
    assert isinstance(problem.value, FileFault)
    assert (tmp_path / "file").read_text() == "mine"


def test_paper_profile_is_the_papers_schedule():
    arguments = table1.parse_arguments(["--profile", "paper"])
    for net in NETS:
        plan = plans.choose(arguments, "cpu", plans.QUICK_TABLE1["MNIST"][net])
        assert (plan.schedule.epochs, plan.schedule.eta, plan.schedule.decay) == (2300, 1e-3, 0.997)
        assert plan.n_images is None


def test_epochs_begin_with_the_papers_plan():
    arguments = table1.parse_arguments(["--epochs", "9"])
    plan = plans.choose(arguments, "cpu", plans.QUICK_TABLE1["MNIST"][4])
    assert (plan.schedule.epochs, plan.schedule.eta, plan.schedule.decay) == (9, 1e-3, 0.997)
    assert plan.n_images is None


@pytest.mark.parametrize("name", plans.QUICK_TABLE1)
def test_quick_plans_every_net(name):
    arguments = table1.parse_arguments([])
    for net in NETS:
        plan = plans.QUICK_TABLE1[name][net]
        assert plans.choose(arguments, "cpu", plan) == plan
        assert plan.schedule.eta_of(plan.schedule.epochs) > 1e-6


def test_options_go_before_the_profile():
    arguments = table1.parse_arguments(
        ["--epochs", "3", "--eta", "0.01", "--eta-decay", "0.5", "--limit", "77"]
    )
    plan = plans.choose(arguments, "cpu", plans.QUICK_TABLE1["MNIST"][4])
    assert (plan.schedule.epochs, plan.schedule.eta, plan.schedule.decay) == (3, 0.01, 0.5)
    assert plan.n_images == 77


def test_help_names_units_and_defaults(capsys):
    with pytest.raises(SystemExit):
        table1.parse_arguments(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for part in ("(default: 1,2,3,4,5)", "paper's is 0.001)", "(default: runs/table1)", "first N"):
        assert part in text


@pytest.mark.parametrize(("errors", "n"), [(35, 10_000), (0, 360), (360, 360), (7, 360)])
def test_interval_is_clopper_pearsons(errors, n):
    low, high = tables.interval(errors, n)
    assert low == pytest.approx(100 * (beta.ppf(0.025, errors, n - errors + 1) if errors else 0))
    top = 1 if errors == n else beta.ppf(0.975, errors + 1, n - errors)
    assert high == pytest.approx(100 * top)


def test_interval_of_the_papers_best_net():
    low, high = tables.interval(35, 10_000)
    assert (round(low, 2), round(high, 2)) == (0.24, 0.49)


def test_mnist_table_stands_beside_the_papers():
    text = table1.report([make_run(net=4), make_run(net=1, wrong=(90, 80), validation=(5, 5))])
    header, _, net4, net1 = [line for line in text.splitlines() if line.startswith("|")]
    cells = [dict(zip(columns(header), columns(line), strict=True)) for line in (net4, net1)]
    assert cells[0]["paper TEfBV %"] == "0.35"
    assert cells[0]["paper BTE %"] == "0.32"
    assert cells[0]["paper hours"] == "114.5"
    assert cells[0]["TEfBV %"] == "0.35"
    assert cells[0]["wrong"] == "35 of 10,000"
    assert cells[0]["95 % interval"] == "0.24-0.49"
    assert cells[0]["BTE %"] == "0.33"
    assert cells[0]["weights"] == "12,115,010"
    assert cells[0]["seed"] == "3"
    assert cells[1]["TEfBV %"] == "0.90"  # of equal validation errors the earliest
    assert "commit 0123456789ab" in text
    assert "Some GPU" in text


@pytest.mark.parametrize(
    ("net", "text"), [(1, "1000, 500, 10"), (3, "2000, 1500, 1000, 500, 10"), (5, "9 x 1000, 10")]
)
def test_layers_are_written_as_in_the_paper(net, text):
    assert tables.layers(NETS[net]) == text


def test_without_distortion_the_papers_other_column():
    text = table1.report([make_run(net=2, deformation=False)])
    assert text.startswith("# Table 3 on MNIST, column 'no distortion', the paper beside ours\n")
    assert "Trained without distortion" in text
    header, _, line = [line for line in text.splitlines() if line.startswith("|")]
    cells = dict(zip(columns(header), columns(line), strict=True))
    assert cells["net"] == "2, no distortion"
    assert cells["paper TEfBV %"] == "1.85"
    assert cells["paper BTE %"] == cells["paper hours"] == "-"


def columns(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_figure1(folder, capsys):
    path = folder / "net1-seed0-load_digits.h5"
    figure1.main([str(path)])
    run = store.read_run(path)
    wrong = [i for i in range(360) if run.outputs[i].argmax() != run.labels[i]]
    second = sum(np.argsort(run.outputs[i])[-2] == run.labels[i] for i in wrong)
    counted = f"{len(wrong)} of 360 wrong; second guess right for {second}"
    said = capsys.readouterr().out
    assert counted in said
    for form, begin in (("png", b"\x89PNG"), ("pdf", b"%PDF-")):
        picture = path.with_suffix(f".figure1.{form}")
        assert picture.read_bytes().startswith(begin)
        assert str(picture) in said

    images = data.load("digits").test_images
    figure = error_plots.draw_wrong(run.outputs, run.labels, images, "the run")
    assert figure.texts[0].get_text() == f"the run:\n{counted}"
    assert configs.title(run.config) == "841-1000-500-10 on load_digits, seed 0"
    (axes,) = figure.axes
    (mosaic,) = axes.images
    assert len(axes.texts) == 3 * len(wrong)
    for k, i in enumerate(wrong):
        label, first, second = axes.texts[3 * k : 3 * k + 3]
        order = np.argsort(run.outputs[i])
        expected = [str(run.labels[i]), str(order[-1]), str(order[-2])]
        assert [text.get_text() for text in (label, first, second)] == expected
        # The digit stands between its label, above its right side, and its guesses below.
        left, bottom = (round(value) for value in first.get_position())
        shown = mosaic.get_array()[bottom - 30 : bottom - 1, left : left + 29]
        assert (shown == images[i]).all()
        assert abs(label.get_position()[0] - (left + 27)) < 2
        assert abs(label.get_position()[1] - (bottom - 30)) < 2
    # Nothing sticks out of the picture.
    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    for text in [*figure.texts, *axes.texts]:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height


def test_figure1_of_a_perfect_run(folder):
    run = store.read_run(folder / "net1-seed0-load_digits.h5")
    outputs = np.eye(10, dtype=np.float32)[run.labels]
    assert voting.count_sentence(outputs, run.labels) == "0 of 360 wrong; second guess right for 0"
    assert (
        not error_plots.draw_wrong(outputs, run.labels, np.zeros((360, 29, 29)), "x").axes[0].texts
    )


def test_figure1_takes_the_best_run(folder, tmp_path):
    def put(name, wrong, data_name):
        run = store.read_run(folder / "net1-seed0-load_digits.h5")
        run.config["data"]["name"] = data_name
        run.metrics["test_errors"] = [wrong, wrong]
        store.write_run(tmp_path / name, run)

    put("a.h5", 5, "load_digits")
    put("b.h5", 3, "load_digits")
    assert figure1.find_best(tmp_path).name == "b.h5"
    put("c.h5", 50, "MNIST")
    put("d.h5", 40, "MNIST")
    assert figure1.find_best(tmp_path).name == "d.h5"


def test_figure1_without_a_run(tmp_path):
    with pytest.raises(Problem, match="there is no run in"):
        figure1.find_best(tmp_path)


def test_figure1_of_other_data(folder, tmp_path):
    run = store.read_run(folder / "net1-seed0-load_digits.h5")
    run.config["data"]["sha256"] = "0" * 64
    store.write_run(tmp_path / "x.h5", run)
    with pytest.raises(Problem, match="trained on other data"):
        figure1.main([str(tmp_path / "x.h5")])


def test_figures_have_the_name_asked_for_and_the_same_bytes_each_time(folder, tmp_path):
    path = folder / "net1-seed0-load_digits.h5"
    for out in ("new/v1.0", "again"):
        figure1.main([str(path), "--out", str(tmp_path / out)])
    for form in ("png", "pdf"):
        bytes_of = (tmp_path / f"new/v1.0.{form}").read_bytes()
        assert bytes_of == (tmp_path / f"again.{form}").read_bytes()
    assert len(list(tmp_path.rglob("*.*"))) == 4


def test_scripts_end_with_status_2_and_one_sentence(tmp_path):
    result = script(str(tmp_path / "no.h5"), module="experiments.figure1")
    assert result.returncode == 2
    assert result.stderr == f"error: cannot read {tmp_path}/no.h5: No such file or directory\n"


def test_records(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(record.provenance, "REPOSITORY", tmp_path)
    path = tmp_path / "long" / "net1-seed0.h5"
    path.parent.mkdir()
    run = store.read_run(folder / "net1-seed0-load_digits.h5")

    unfinished = replace(run, config=run.config | {"epochs": 9})
    store.write_run(path, unfinished)
    with pytest.raises(Problem, match="2 of 9 epochs: only a finished run counts"):
        record.write_record(path)

    run.provenance[-1]["dirty"] = True
    store.write_run(path, run)
    with pytest.raises(Problem, match="uncommitted changes"):
        record.write_record(path)

    run.provenance[-1] |= {"dirty": False, "device": "Some CPU, 2 cores"}
    store.write_run(path, run)
    target = record.write_record(path)
    assert target == tmp_path / "results" / "some-cpu-2-cores" / "long-net1-seed0.json"
    assert json.loads(target.read_text())["metrics"] == run.metrics
    (again,) = records.read_records()
    assert tables.table1_row(again) == tables.table1_row(run)
