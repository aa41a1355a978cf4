"""`python -m experiments.cnn`, whole: on digits, and with small files of NORB and CIFAR-10."""

from dataclasses import replace

import numpy as np
import pytest
from committee_cases import HERE, read_csv
from factories import changed
from natural_files import make_cifar, make_norb

from deepbig_runtime.errors import Problem
from deform_gpu import TABLE1, TRANSLATION
from deform_gpu.batches import deform_set
from experiments import cnn, committee, export, table1, watch
from experiments.datasets import download
from experiments.datasets.dataset import CIFAR10_JPEG, KINDS, Dataset
from experiments.results import cnn_tables
from experiments.results.cnn_tables import TABLES
from experiments.training import configs, nets, plans, store
from mlp_gpu.training import Schedule


def test_describe_prints_each_layer_without_any_data(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(download, "find", None)
    assert cnn.main(["--describe", "--nets", "3", "--out", str(tmp_path / "none")]) == 0
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()
    ]
    second = ["convolution", "60", "5x5", "5x5", "1x1", "600", "15,060", "375,000"]
    assert second in lines
    assert ["all", "", "", "", "", "", "179,340", "839,000"] in lines
    assert not (tmp_path / "none").exists()
    assert cnn.main(["--data", "cifar10", "--describe", "--nets", "3"]) == 0
    text = capsys.readouterr().out
    assert "input 3 of 32x32" in text
    assert "1,750,410" in text
    assert cnn.main(["--data", "norb", "--describe", "--net", "7M6x3s1x0-9N"]) == 0
    assert "| fully connected | 5 " in capsys.readouterr().out


def table_of(folder, data_name, ending):
    """The only table of nets of one's own on some data."""
    (path,) = folder.glob(f"cnn-*-{data_name}.{ending}")
    return path


def test_long_descriptions_have_short_distinct_file_names(tmp_path):
    nets = ["-".join(["20M5x3s1x0c10"] * 29 + [last]) for last in ("1N", "2N")]
    paths = [cnn.run_path(tmp_path, net, 0, "MNIST", 0) for net in nets]
    paths += [tmp_path / table1.own_name([1000] * 97 + [last]) for last in (1, 2)]
    assert all(len(path.name) < 200 for path in paths)
    assert paths[2] != paths[3]
    assert paths[0] != paths[1]


PAIRS = ["--data", "norb", "--net", "12M8s7-MP3-40N", "--seeds", "0,1", "--epochs", "8"]
PAIRS += ["--eta", "1e-2", "--eta-decay", "0.9", *HERE]
COLOURS = ["--data", "cifar10", "--net", "12M5-MP2-20M5-MP2-40N", "--epochs", "6"]
COLOURS += ["--eta", "5e-3", "--eta-decay", "0.9", *HERE]
N_TEST = 60


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


# Trainings


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
    assert cnn.deformation_of(KINDS["CIFAR10"], None) == replace(TRANSLATION, translation=5.0)
    config = configs.make_config(digits, "3M5", Schedule(), 0, TABLE1, "cpu")
    assert config.source == (1, 29, 29)
    assert "n_classes" not in config.to_builtins()
    assert nets.initial(config).n_classes == 10


# How maps are translated


@pytest.mark.parametrize("deformation", [TRANSLATION, replace(TABLE1, beta=(9.0,) * 10)])
def test_deformer_moves_all_maps_of_an_image_together(deformation):
    """As each would in a set of such maps alone, for any size of batches."""
    images = np.random.default_rng(5).uniform(-1, 1, (230, 13, 13, 3)).astype(np.float32)
    labels = (np.arange(230) % 5).astype(np.uint8)
    dataset = Dataset("CIFAR10-like", images, labels, images[:1], labels[:1], "0" * 64, "here")
    config = configs.make_config(dataset, "3M3", Schedule(), 7, deformation, "cuda")
    assert (config.engine, config.deformed_on) == ("cuda", "cpu")
    deform = configs.deformer(config, dataset)
    for epoch in (1, 2):
        found = deform(epoch)
        assert found.shape == images.shape
        for m in range(3):
            one = images[..., m].copy()
            expected = np.empty_like(one)
            deform_set(expected, one, labels, deformation, 7, epoch)
            np.testing.assert_array_equal(found[..., m], expected)
            assert (found[..., m] != one).any(axis=(1, 2)).all()


# The tables of the paper


def test_rows_are_those_of_tables_2_and_3_and_have_plans():
    rows = cnn_tables.PAPER_ROWS
    assert [row.tefbv for row in rows["NORB"]] == [7.86, 4.71, 3.94, 2.53]
    assert sum(row.n_runs for row in rows["NORB"]) == 250
    assert min(rows["CIFAR10"], key=lambda row: row.tefbv).layers == cnn_tables.cifar10_net(300)
    for name, own in rows.items() - {(CIFAR10_JPEG, rows["CIFAR10"])}:
        assert {row.layers for row in own} == set(TABLES[KINDS[name].choice].nets.values())
    for name, kind in KINDS.items():
        assert plans.QUICK_CNN[name].keys() == TABLES[kind.choice].nets.keys()


def test_small_files_never_stand_beside_the_papers_figures(pairs, colours):
    for (_, folder), name, number in ((pairs, "NORB", 2), (colours, "CIFAR10", 3)):
        text = table_of(folder, f"{name}-like", "md").read_text()
        assert f"# The nets of Table {number} of the 2011 paper on {name}-like" in text
        assert f"{name}-like, which is NOT {name}\n" in text
        assert "must not be compared with the paper's" in text
        assert "| paper" not in text
    rows = read_csv(table_of(pairs[1], "NORB-like", "csv"))
    assert [row["seed"] for row in rows] == ["0", "1"]
    assert rows[0]["error_after_1"] > "0"
    assert {(row["data"], row["translation"]) for row in rows} == {("NORB-like", "5.0")}


def of_norb(run, layers, deformation):
    """The run, as if it had been on NORB."""
    config = changed(run.config, layers=layers, deformation=deformation, data={"name": "NORB"})
    return replace(run, config=config)


def test_the_papers_profile_is_that_of_the_data(tmp_path):
    images = np.zeros((5, 96, 96, 2), np.uint8)
    dataset = Dataset("NORB", images, np.zeros(5), images, np.zeros(5), "", "")
    options = ["--data", "norb", "--net", "MP16", "--profile", "paper", "--out", str(tmp_path)]
    arguments = cnn.parse_arguments(options)
    (job,) = cnn.make_jobs(arguments, arguments.nets, dataset, "cpu")
    assert (job.config.epochs, job.config.decay) == (6, 0.95)


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


# Other commands


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
