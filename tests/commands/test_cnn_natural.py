"""`python -m experiments.cnn --data norb` and `cifar10`, whole, on small files of their formats."""

import csv
import shutil
from dataclasses import replace

import numpy as np
import pytest
import small_sets
from factories import changed
from natural_files import make_cifar, make_norb

from cnn_gpu import layers
from deepbig_runtime.errors import Problem
from deform_gpu import TABLE1, TRANSLATION
from deform_gpu.batches import deform_set
from experiments import cnn, committee, export, figure1, report, table1, watch
from experiments.datasets import download
from experiments.datasets.dataset import KINDS, Dataset
from experiments.drawing import error_plots
from experiments.results import cnn_tables
from experiments.results.cnn_tables import TABLES
from experiments.training import configs, nets, plans, store
from mlp_gpu.training import Schedule

HERE = ["--engine", "cpu", "--workers", "1"]
PAIRS = ["--data", "norb", "--net", "12M8s7-MP3-40N", "--seeds", "0,1", "--epochs", "8"]
PAIRS += ["--eta", "1e-2", "--eta-decay", "0.9", *HERE]
COLOURS = ["--data", "cifar10", "--net", "12M5-MP2-20M5-MP2-40N", "--epochs", "6"]
COLOURS += ["--eta", "5e-3", "--eta-decay", "0.9", *HERE]
N_TEST = 60
NORB, CIFAR10 = KINDS["NORB"], KINDS["CIFAR10"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Folders: of NORB's files, and of two nets trained on them."""
    files, runs = tmp_path_factory.mktemp("norb"), tmp_path_factory.mktemp("pairs")
    make_norb(files, 150, N_TEST)
    assert cnn.main([*PAIRS, "--data-dir", str(files), "--out", str(runs)]) == 0
    return files, runs


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    """Folders: of CIFAR-10's archive, and of a net trained on it."""
    files, runs = tmp_path_factory.mktemp("cifar"), tmp_path_factory.mktemp("colours")
    make_cifar(files, 40, N_TEST)
    assert cnn.main([*COLOURS, "--data-dir", str(files), "--out", str(runs)]) == 0
    return files, runs


def read(folder):
    return [store.read_run(path) for path in store.run_files(folder)]


# What is trained


def test_nets_tell_shapes_apart(pairs, colours):
    for (_, folder), source, n_classes, most in (
        (pairs, (2, 96, 96), 5, 20),
        (colours, (3, 32, 32), 10, 36),
    ):
        for run in read(folder):
            assert run.outputs.shape == (N_TEST, n_classes)
            assert run.chosen_errors < most  # by chance 48 and 54
            assert (run.config.source, run.config.n_classes) == (source, n_classes)
            assert run.config.deformation == TRANSLATION


def test_a_finished_run_is_only_read(pairs, capsys):
    files, folder = pairs
    (path, _) = store.run_files(folder)
    before = path.read_bytes()
    assert cnn.main([*PAIRS, "--data-dir", str(files), "--out", str(folder)]) == 0
    assert "finished, in" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_translation_chooses_the_deformation_and_the_file(pairs, tmp_path):
    files, _ = pairs
    options = ["--data", "norb", "--data-dir", str(files), "--net", "MP16-10N", "--epochs", "1"]
    options += ["--limit", "10", *HERE, "--out", str(tmp_path)]
    for percent in ("0", "2.5"):
        assert cnn.main([*options, "--translation", percent]) == 0
    assert [path.name for path in store.run_files(tmp_path)] == [
        "MP16-10N-seed0-NORB-like-translated2.5.h5",
        "MP16-10N-seed0-NORB-like.h5",
    ]
    some, none = read(tmp_path)
    assert none.config.deformation is None
    assert some.config.deformation.translation == 2.5
    assert "undeformed" in none.config.title
    assert "translated by up to 2.5 %" in some.config.title
    assert "sigma" not in some.config.title


def test_digits_keep_their_deformation_and_configuration(digits):
    """So their older runs are resumed."""
    assert cnn.deformation_of(KINDS["MNIST"], None) == TABLE1
    assert cnn.deformation_of(KINDS["MNIST"], 3.0) == replace(TABLE1, translation=3.0)
    assert cnn.deformation_of(CIFAR10, None) == replace(TRANSLATION, translation=5.0)
    config = configs.make_config(digits, "3M5", Schedule(), 0, TABLE1, "cpu")
    assert config.source == (1, 29, 29)
    assert "n_classes" not in config.to_builtins()
    assert nets.initial(config).n_classes == 10


# How maps are translated


def natural(n, side, maps, name="CIFAR10-like"):
    images = np.random.default_rng(5).uniform(-1, 1, (n, side, side, maps)).astype(np.float32)
    labels = (np.arange(n) % 5).astype(np.uint8)
    return Dataset(name, images, labels, images[:1], labels[:1], "0" * 64, "here")


@pytest.mark.parametrize("deformation", [TRANSLATION, replace(TABLE1, beta=(9.0,) * 10)])
def test_all_maps_of_an_image_move_together(deformation):
    """As each would in a set of such maps alone, whatever batches it is cut into."""
    dataset = natural(230, 13, 3)
    config = configs.make_config(dataset, "3M3", Schedule(), 7, deformation, "cpu")
    deform = configs.deformer(config, dataset)
    for epoch in (1, 2):
        found = deform(epoch)
        assert found.shape == dataset.train_images.shape
        for m in range(3):
            images = dataset.train_images[..., m].copy()
            expected = np.empty_like(images)
            deform_set(expected, images, dataset.train_labels, deformation, 7, epoch)
            np.testing.assert_array_equal(found[..., m], expected)
            assert (found[..., m] != images).any(axis=(1, 2)).all()


def test_images_are_translated_and_nothing_else():
    dataset = natural(40, 20, 2)
    dataset.train_images[:] = 0.5
    config = configs.make_config(dataset, "3M3", Schedule(), 0, TRANSLATION, "cuda")
    assert (config.engine, config.deformed_on) == ("cuda", "cpu")
    found = configs.deformer(config, dataset)(1)
    assert (found[:, 1:-1, 1:-1] == 0.5).all()  # 5 % of 20 pixels is one
    assert (found.min(axis=(1, 2, 3)) < 0.5).all()
    assert (found >= 0).all()  # beside an image it is grey


# The tables of the paper


def test_the_nets_are_the_papers():
    weights = [
        sum(layer.n_weights for layer in layers.parse(net, CIFAR10.source, 10))
        for net in TABLES["cifar10"].nets.values()
    ]
    assert weights[:4] == [244_410, 817_410, 1_750_410, 3_043_410]
    for net in TABLES["norb"].nets.values():
        found = layers.parse(net, NORB.source, 5)
        assert [layer.maps.width for layer in found][-6:] == [46, 23, 20, 5, 1, 1]
    assert found[0].maps.n == 6  # the pair, and what two hats make of each


def test_rows_are_those_of_tables_2_and_3():
    rows = cnn_tables.PAPER_ROWS
    assert [row.tefbv for row in rows["NORB"]] == [7.86, 4.71, 3.94, 2.53]
    assert sum(row.n_runs for row in rows["NORB"]) == 250
    assert min(rows["CIFAR10"], key=lambda row: row.tefbv).layers == cnn_tables.cifar10_net(300)
    for name, own in rows.items():
        assert {row.layers for row in own} == set(TABLES[KINDS[name].choice].nets.values())


def test_every_net_has_a_quick_plan():
    for name, kind in KINDS.items():
        assert plans.QUICK_CNN[name].keys() == TABLES[kind.choice].nets.keys()


def test_small_files_never_stand_beside_the_papers_figures(pairs, colours):
    for (_, folder), name, number in ((pairs, "NORB", 2), (colours, "CIFAR10", 3)):
        text = (folder / "cnn.md").read_text()
        assert f"# The nets of Table {number} of the 2011 paper on {name}-like" in text
        assert f"{name}-like, which is NOT {name}\n" in text
        assert "must not be compared with the paper's" in text
        assert "| paper" not in text
    with (pairs[1] / "cnn.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["0", "1"]
    assert {(row["data"], row["translation"]) for row in rows} == {("NORB-like", "5.0")}


def of_norb(run, layers, deformation):
    """The run, as if it had been on NORB."""
    config = changed(run.config, layers=layers, deformation=deformation, data={"name": "NORB"})
    return replace(run, config=config)


def test_norb_stands_beside_the_papers_figures(pairs):
    run, net = read(pairs[1])[0], cnn_tables.NORB_NET
    cases = [
        (of_norb(run, net, TRANSLATION), "4.71 ± 0.57"),
        (of_norb(run, net, None), "7.86 ± 0.55"),
        (of_norb(run, net, replace(TRANSLATION, translation=4)), "-"),
        (of_norb(run, net, replace(TABLE1, translation=5)), "-"),
        (of_norb(run, "MP16", TRANSLATION), "-"),
    ]
    lines = cnn_tables.table([run for run, _ in cases])
    assert [line["paper TEfBV %"] for line in lines] == [expected for _, expected in cases]
    assert [line["paper runs"] for line in lines] == ["50", "50", "-", "-", "-"]
    assert [line["translation %"] for line in lines] == ["5", "0", "4", "5", "5"]
    assert "Table 2 of the 2011 paper, on NORB, the paper beside ours" in cnn.report([cases[0][0]])


def test_files_of_the_papers_checksums_are_the_papers_data(tmp_path, monkeypatch):
    small_sets.make("norb", tmp_path, monkeypatch).be_whole(monkeypatch)
    options = ["--data", "norb", "--data-dir", str(tmp_path), "--net", "MP16-10N"]
    options += ["--epochs", "1", *HERE, "--out", str(tmp_path / "runs")]
    assert cnn.main(options) == 0
    assert "# Table 2 of the 2011 paper, on NORB" in (tmp_path / "runs" / "cnn.md").read_text()


# What is described and refused


def test_nets_are_described_without_any_data(monkeypatch, capsys):
    monkeypatch.setattr(download, "find", None)
    assert cnn.main(["--data", "cifar10", "--describe", "--nets", "3"]) == 0
    text = capsys.readouterr().out
    assert "input 3 of 32x32" in text
    assert "1,750,410" in text
    assert cnn.main(["--data", "norb", "--describe", "--net", "7M6x3s1x0-9N"]) == 0
    assert "| fully connected | 5 " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "arguments", "sentence"),
    [
        (cnn, "--data norb --nets 1,3", "argument --nets: there is no net 3 for norb"),
        (cnn, "--data norb --net 9M5s1", "5 that skips 1 does not divide a map of 96"),
        (cnn, "--data cifar10 --net 9M33", "33x33 must be at least 1x1 and fit into maps of 32"),
        (cnn, "--data norb --translation 51", "expected a number from 0 to 50, got '51'"),
        (table1, "--data norb", "invalid choice: 'norb'"),
        (committee, "--data norb", "invalid choice: 'norb'"),
    ],
)
def test_bad_arguments_are_one_sentence(command, arguments, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(arguments.split())
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_other_files_than_a_runs_are_refused(pairs, tmp_path):
    path = store.run_files(pairs[1])[0]
    make_norb(tmp_path, 5, 5)
    with pytest.raises(Problem, match="the run was trained on other data than"):
        figure1.main(["--data-dir", str(tmp_path), str(path)])


# Other commands


def test_figure1_shows_pairs_and_colours(pairs, colours, tmp_path, capsys):
    for files, folder in (pairs, colours):
        path = store.run_files(folder)[0]
        out = tmp_path / folder.name
        figure1.main(["--data-dir", str(files), "--out", str(out), str(path)])
        wrong = store.read_run(path).chosen_errors
        assert f"\n{wrong} of {N_TEST} wrong" in capsys.readouterr().out
        assert out.with_name(f"{out.name}.png").exists()


@pytest.mark.parametrize(("maps", "shown"), [(2, (0, 0, 0)), (3, (0, 1, 2))])
@pytest.mark.parametrize("side", [32, 96])
def test_pictures_lie_in_their_frames(side, maps, shown):
    images = np.random.default_rng(0).uniform(-1, 1, (9, side, side, maps)).astype(np.float32)
    below = [(1, 2)] * 9
    (axes,) = error_plots.plot_digits(images, np.arange(9), below, "a").axes
    mosaic = np.asarray(axes.images[0].get_array())
    (frames,) = axes.collections
    for image, path in zip(images, frames.get_paths(), strict=True):
        left, top = (path.vertices.min(axis=0) + 0.5).astype(int)
        cell = mosaic[top : top + side, left : left + side]
        np.testing.assert_array_equal(cell, (image[..., shown] + 1) / 2)
    covered = 9 * side * side
    assert (mosaic == 1).all(axis=2).sum() == mosaic[..., 0].size - covered


def test_other_commands_take_such_runs(pairs, colours, tmp_path, capsys):
    paths = [str(path) for path in store.run_files(pairs[1])]
    watch.main(paths)
    assert "finished" in capsys.readouterr().out
    export.main(["--csv", "--out", str(tmp_path), paths[0]])
    (rows,) = tmp_path.glob("*.outputs.csv")
    assert rows.read_text().splitlines()[0] == "index,label,guess,p0,p1,p2,p3,p4"
    out = ["--data-dir", str(pairs[0]), "--out", str(tmp_path / "committee")]
    assert committee.main([*out, *paths]) == 0
    assert "A committee of 2 nets on NORB-like" in capsys.readouterr().out
    with pytest.raises(Problem, match="a committee needs runs on the same"):
        committee.form_committee([store.run_files(f[1])[0] for f in (pairs, colours)])


def test_the_report_has_such_runs(pairs, colours, empty, tmp_path, monkeypatch):
    for _, folder in (pairs, colours):
        shutil.copytree(folder, tmp_path / "runs" / folder.name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(download, "_cache_folder", lambda files: tmp_path / "cache")
    monkeypatch.setenv("NORB_DIR", str(pairs[0]))
    monkeypatch.delenv("CIFAR10_DIR", raising=False)
    report.main([])
    text = (tmp_path / "runs" / "report.html").read_text()
    assert "NORB-like, which is NOT NORB" in text
    assert "CIFAR10-like, which is NOT CIFAR10" in text
    counted = [run.chosen_errors for run in read(pairs[1])]
    assert f"label at the top right, two guesses below: {min(counted)} of {N_TEST} wrong" in text
    assert "the files of CIFAR10-like that the run was tested on are not on this machine" in text
    assert "set CIFAR10_DIR or --data-dir to a folder with" in text
