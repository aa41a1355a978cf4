"""The pretrained nets: files, records, commands; `load_net`; commands without runs."""

import os
import re
import shlex
from importlib import import_module

import numpy as np
import pytest
from factories import changed
from mnist_files import REAL, needs_mnist
from PIL import Image

from deepbig import load_net, pretrained
from deepbig.pretrained import FILES, PRETRAINED
from experiments import draw, figure1, recognise
from experiments.datasets import data
from experiments.results import records, trained
from experiments.training import jobs, net_files
from experiments.training.provenance import REPOSITORY

THREE = REPOSITORY / "docs" / "pictures" / "three.png"


class Asked(Exception):
    """Ends a command before it trains."""


@pytest.fixture
def record_of():
    """The record of a net's run."""
    runs = records.read_results().runs.values()
    return lambda path: trained.record_of(net_files.read(path), runs)


def test_files_are_those_named_the_best_first_and_small(record_of):
    assert sorted(FILES) == sorted(pretrained.FOLDER.iterdir())
    errors = [record_of(path).chosen_errors for path in FILES]
    assert errors == sorted(errors)
    assert sum(path.stat().st_size for path in FILES) <= 6_000_000


@needs_mnist
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_net_gets_wrong_the_digits_that_its_run_got_wrong(path, record_of):
    mnist = data.load_pixels("mnist", REAL)
    wrong = load_net(path.stem).predict(mnist.test_images) != mnist.test_labels
    assert np.count_nonzero(wrong) == record_of(path).chosen_errors


@needs_mnist
@pytest.mark.parametrize("net", PRETRAINED, ids=lambda net: net.name)
def test_command_beside_a_net_trains_it(net, record_of, monkeypatch, tmp_path):
    def asked(jobs, pool):
        raise Asked([job.config for job in jobs])

    command, options = re.fullmatch(r'make (\w+) ARGS="(.*)"', net.command).groups()
    monkeypatch.setattr(jobs, "train_all", asked)
    argv = [*shlex.split(options), "--engine", "cpu", "--data-dir", str(REAL)]
    with pytest.raises(Asked) as caught:
        import_module(f"experiments.{command}").main([*argv, "--out", str(tmp_path)])
    expected = record_of(net.path).config
    version = {"cpu_arithmetic": expected.cpu_arithmetic}  # a later one only rounds otherwise
    assert expected in [changed(config, **version) for config in caught.value.args[0]]


def test_load_net_reads_pictures_and_refuses_what_is_no_image_of_its_data(tmp_path):
    net = load_net()
    assert net.classes == tuple("0123456789")
    digit = net.read(THREE)
    assert net.predict(digit[None]) == [3]
    np.testing.assert_allclose(net.predict_proba(digit[None]).sum(), 1, atol=1e-6)
    assert net.predict_proba(np.zeros((0, 28, 28), np.uint8)).shape == (0, 10)
    for images in (digit, digit[None].astype(np.float32), np.zeros((1, 32, 32), np.uint8)):
        with pytest.raises(ValueError, match=r"expected uint8 \(n, 28, 28\) or \(n, 29, 29\)"):
            net.predict(images)
    with pytest.raises(ValueError, match=r"no net net9: expected a file, or one of 20M-60M-100M"):
        load_net("net9")
    (tmp_path / "net.safetensors").write_text("damaged")
    with pytest.raises(OSError, match=r"net\.safetensors is damaged"):
        load_net(tmp_path / "net.safetensors")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_net_says_how_good_it_is(path, record_of):
    run, net = record_of(path), load_net(path.stem)
    n, wrong = run.config.data.n_test, run.chosen_errors
    said = f"epoch {run.chosen:,} of {run.config.epochs:,}, {wrong} of {n:,} test images wrong"
    assert repr(net) == f"TrainedNet({net.title}, {said} ({wrong / n:.2%}))"
    member = net_files.read(path)
    assert member.validation_errors == run.metrics.validation_errors[run.chosen - 1]


def test_commands_without_runs_take_a_net_that_comes_along(sandbox, monkeypatch, capsys):
    monkeypatch.setenv("RUNS_DIR", "mine")
    assert recognise.main([str(THREE)]) == 0
    said = capsys.readouterr()
    assert f"net: {FILES[0]}, " in said.err
    assert f"{THREE}: 3 (" in said.out


@needs_mnist
def test_figures_without_runs_are_of_a_pretrained_net(sandbox, monkeypatch, capsys, record_of):
    monkeypatch.setenv("RUNS_DIR", "mine")
    monkeypatch.setenv("MNIST_DIR", str(REAL))
    figure1.main([])
    n_wrong = record_of(FILES[0]).chosen_errors
    assert f"seed 0:\n{n_wrong} of 10,000 wrong" in capsys.readouterr().out
    with Image.open(f"mine/{FILES[0].stem}.figure1.png") as picture:
        assert picture.width > 500
    figure1.main([os.path.relpath(FILES[1])])
    assert f"written to mine/{FILES[1].stem}.figure1.png" in capsys.readouterr().out
    draw.main([])
    assert f"mine/draw.html, with the net of {FILES[1]}" in capsys.readouterr().out
