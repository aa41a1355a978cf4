"""`python -m experiments.redrawn`: what it counts is what it drew."""

import json

import numpy as np
import pytest
from factories import make_config

from experiments import redrawn
from experiments.running import data, net_files, provenance
from experiments.running.net_files import NetFile
from experiments.scoring import records, redrawn_table, trained
from mlp_gpu.network import Network

N = 20


@pytest.fixture
def asked(monkeypatch):
    """Digits, bars and crosses, in the place of MNIST's, and a net that knows both."""
    pixels = np.zeros((N, 28, 28), np.uint8)
    pixels[:, 4:24, 12:16] = 255
    pixels[::2, 12:16, 5:23] = 255
    labels = np.arange(N).astype(np.uint8) % 2

    def load_pixels(choice, data_dir):
        assert choice == "mnist"
        return data.Dataset("MNIST", pixels, labels, pixels, labels, "", "")

    def recognise(members, seen):
        """A digit that is wide somewhere is a 0."""
        wide = ((seen > 127).sum(axis=2) > 8).any(axis=1)
        outputs = np.zeros((len(seen), 10), np.float32)
        outputs[np.arange(len(seen)), np.where(wide, 0, 1)] = 1
        return outputs

    monkeypatch.setattr(data, "load_pixels", load_pixels)
    monkeypatch.setattr(trained, "recognise", recognise)
    return pixels, labels


def test_digits_that_are_not_found_are_wrong(asked):
    pixels, labels = asked
    drawn = []

    def way(digit, rng):
        drawn.append(digit)
        return redrawn.itself(digit * (len(drawn) % 5 > 0), rng)  # every fifth is empty

    found = redrawn.measure([], pixels, labels, way)
    assert found == (4, 4)
    labels[1] = 0
    drawn.clear()
    assert redrawn.measure([], pixels, labels, way) == (5, 4)


@pytest.mark.parametrize("name", redrawn.WAYS)
def test_every_way_draws_the_digit(name, asked):
    pixels, labels = asked
    assert redrawn.measure([], pixels, labels, redrawn.WAYS[name]) == (0, 0)


def test_ways_differ(asked):
    pixels, _ = asked
    rng = np.random.default_rng(0)
    pictures = {name: way(pixels[0], rng) for name, way in redrawn.WAYS.items()}
    assert all(picture.dtype == np.uint8 for picture in pictures.values())
    ink = {name: (p[..., 0] < 128).mean() for name, p in pictures.items()}
    assert ink["a thin pen"] < 0.6 * ink["inverted"] < 0.5 * ink["broad strokes"]
    assert pictures["on a large sheet"].shape == (448, 672, 3)


def test_the_record_and_its_table(asked, tmp_path, capsys):
    net = NetFile(make_config(sizes=(841, 7, 10), epochs=9), 4, Network.initial((841, 7, 10), 0))
    net_files.write(tmp_path / "a.safetensors", net, half=True)
    redrawn.main(["--net", str(tmp_path / "a.safetensors"), "--n", "8", "--out", str(tmp_path)])
    record = records.read_json(tmp_path / "redrawn.json", redrawn_table.RedrawnRecord)
    ways = ["MNIST's own", *redrawn.WAYS]
    assert record.rows == [redrawn_table.RedrawnRow(way, 0, 0) for way in ways]
    assert record.n == 8
    assert record.net == "841-7-10 on MNIST, seed 0, after epoch 4 of 9"
    assert record.provenance.device == provenance.collect().device
    record.rows[1].wrong, record.rows[1].not_found = 3, 1
    text = redrawn_table.table(record)
    line = next(line for line in text.splitlines() if "as it is" in line)
    assert [cell.strip() for cell in line.split("|")[1:-1]] == ["as it is", "3 of 8", "37.50", "1"]
    assert "841-7-10 on MNIST" in capsys.readouterr().out
    assert json.loads((tmp_path / "redrawn.json").read_text())["seed"] == redrawn.SEED
