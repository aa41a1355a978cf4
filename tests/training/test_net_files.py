"""Net files: written nets read back, and malformed files are refused in one sentence."""

import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from factories import changed, make_config, make_run
from forgeries import expect_sentence
from safetensors import safe_open
from safetensors.numpy import load_file, save

from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime import files
from experiments import export
from experiments.datasets import data
from experiments.results.trained import load
from experiments.training import net_files, store
from experiments.training.net_files import NetFile
from mlp_gpu import network as network_module
from mlp_gpu.network import Network

PERCEPTRON = make_config(sizes=(841, 7, 10))
CONVOLUTIONAL = changed(PERCEPTRON, layers="2M5s1-MP5")


@pytest.fixture(params=["perceptron", "convolutional"])
def found(request):
    if request.param == "perceptron":
        return NetFile(PERCEPTRON, 2, Network.initial((841, 7, 10), 3))
    return NetFile(CONVOLUTIONAL, 1, ConvNetwork.initial("2M5s1-MP5", Maps(1, 29, 29), 10, 3))


@pytest.mark.parametrize("half", [False, True])
def test_write_is_read_back_by_us_and_by_others(found, half, tmp_path):
    path = tmp_path / "a.safetensors"
    net_files.write(path, found, half)
    again = net_files.read(path)
    assert (again.config, again.epoch) == (found.config, found.epoch)
    for W, V in zip(again.network.weights, found.network.weights, strict=True):
        if V is not None:
            assert W.dtype == np.float32
            np.testing.assert_array_equal(W, V.astype(np.float16) if half else V)
    tensors = load_file(path)
    dtypes = {"W": "float16" if half else "float32", "C": "uint8"}
    assert {(name[0], str(values.dtype)) for name, values in tensors.items()} <= dtypes.items()
    content = path.read_bytes()
    net_files.write(path, found, half)
    assert path.read_bytes() == content


def test_net_in_parts_is_read_by_the_name_of_any_and_a_missing_or_foreign_one_is_named(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(net_files, "PART_BYTES", 15_000)
    found = NetFile(PERCEPTRON, 2, Network.initial((841, 7, 10), 3))
    whole, *parts = (
        path
        for in_parts in (False, True)
        for path in net_files.write(tmp_path / "a.safetensors", found, True, in_parts)
    )
    sizes = [part.stat().st_size for part in parts]
    assert max(sizes) == 15_000
    assert not whole.exists()  # of an earlier export, as a file beside these parts would be
    (whole,) = net_files.write(tmp_path / "a.safetensors", found, True)
    assert [path for path in parts if path.exists()] == []
    n_bytes = whole.stat().st_size
    net_files.write(tmp_path / "a.safetensors", found, True, in_parts=True)
    assert sum(sizes) == n_bytes + 64 * len(parts)
    for part in parts:
        again = load(part)
        assert again.described == found.described
        for W, V in zip(again.network.weights, found.network.weights, strict=True):
            np.testing.assert_array_equal(W, V.astype(np.float16))
    (tmp_path / "a.safetensors.1of2").write_bytes(b"of an earlier export")
    net_files.write(tmp_path / "a.safetensors", found, True, in_parts=True)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in parts}
    second = parts[1].read_bytes()
    parts[1].write_bytes(b"-" + second[1:])
    with pytest.raises(files.FileFault, match=f"{parts[1].name} is not a part of the same net as"):
        load(parts[0])
    parts[1].unlink()
    with pytest.raises(files.FileFault, match=parts[1].name):
        load(parts[0])


def read_changed(path, found, tensors=(), metadata=None, **entries):
    """Read a net file with other tensors, entries or metadata, and the checksum that fits."""
    net_files.write(path, found, half=False)
    with safe_open(path, "numpy") as file:
        entry = json.loads(file.metadata()[net_files.ENTRY])
    entry |= {"sha256": net_files.NO_DIGITS} | entries
    tensors = {n: a for n, a in (load_file(path) | dict(tensors)).items() if a is not None}
    content = save(tensors, metadata or {net_files.ENTRY: json.dumps(entry)})
    digest = hashlib.sha256(content).hexdigest()
    path.write_bytes(content.replace(net_files.NO_DIGITS.encode(), digest.encode(), 1))
    return expect_sentence(lambda: net_files.read(path))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"epoch": 3}, "its epoch is 3, expected 1 to 2"),
        ({"test_errors": 10_001}, "10001 of 10000 images are wrong"),
        ({"validation_errors": 60_001}, "60001 of 60000 images are wrong"),
        ({"more": 1}, "unknown field"),
        ({"config": {}}, "missing required field"),
        ({"config": make_config(sizes=(841, 40, 10)).to_builtins()}, r"W1: expected float32 \("),
        ({"sha256": "0" * 64}, "expected SHA-256 0"),
        ({"metadata": {"epoch": "1"}}, "'deepbig net' is no JSON"),
        ({"tensors": {"W1": None}}, "arrays of"),
        ({"tensors": {"W1": np.zeros((864, 32), np.uint8)}}, "W1: expected float32"),
        ({"tensors": {"W1": np.full((864, 32), 2, np.uint8)}}, "W1: expected F16"),
        ({"tensors": {"W1": np.full((864, 32), np.nan, np.float16)}}, "finite"),
    ],
)
def test_read_malformed_is_refused(changes, reason, tmp_path):
    found = NetFile(PERCEPTRON, 2, Network.initial((841, 7, 10), 3))
    assert re.search(reason, read_changed(tmp_path / "a.safetensors", found, **changes))


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c + b"x",
        lambda c: b"\xff" * 100,
        lambda c: c[:300] + bytes([c[300] ^ 1]) + c[301:],
        lambda c: c[:-5] + bytes([c[-5] ^ 1]) + c[-4:],
    ],
)
def test_read_damaged_is_refused(damage, found, tmp_path):
    path = tmp_path / "a.safetensors"
    net_files.write(path, found, half=True)
    path.write_bytes(damage(path.read_bytes()))
    assert "is damaged" in expect_sentence(lambda: net_files.read(path))


@pytest.mark.parametrize(
    ("bias", "kind", "why"),
    [
        (1.5, "float16", "float16 changes 0 of 1 answers on test digits"),
        (1.0001, "float32", "float16 changes 1 of 1 answers on test digits"),  # it rounds it to 1
        (1e6, "float32", "one is too large for float16"),
    ],
)
def test_export_writes_the_chosen_net_in_half_precision_if_no_answer_changes(
    bias, kind, why, tmp_path, monkeypatch, capsys
):
    run = make_run(metrics={"validation_errors": [1, 2]}, sizes=(841, 10))
    nets = {name: Network.initial((841, 10), k) for k, name in enumerate(("latest", "chosen"))}
    for network in nets.values():
        network.weights[0][:, :10] = 0
        network.weights[0][0, :2] = 1, bias
    nets["latest"].weights[0][0, 2] = 9
    path, target = tmp_path / "run.h5", tmp_path / "run.safetensors"
    attributes = {"config": run.config.to_json(), "epoch": run.epochs}
    network_module.save(store.weights_path(path), nets, attributes)
    arrays = np.ones((1, 29, 29), np.float32), np.zeros(1, np.uint8)
    dataset = data.Dataset("MNIST", *arrays, *arrays, "", "")

    def load(*_):  # which takes seconds, in which a training may save another epoch
        store.write_run(path, run)
        return dataset

    store.write_run(path, replace(run, metrics=run.metrics.first(run.epochs - 1)))
    monkeypatch.setattr(export.configs, "load", load)
    monkeypatch.setattr(export.configs, "prepare", lambda found, config: found)
    export.main([str(path)])
    said = capsys.readouterr()
    assert said.out == f"{target}\n"
    size = f"epoch 1, {target.stat().st_size:,} bytes; weights as {kind}, for {why}\n"
    assert said.err.endswith(size)
    found = net_files.read(target)
    assert (found.config, found.epoch) == (run.config, 1)
    errors = run.metrics.validation_errors[0], run.chosen_errors
    assert (found.validation_errors, found.test_errors) == errors
    np.testing.assert_array_equal(found.network.weights[0], nets["chosen"].weights[0])
