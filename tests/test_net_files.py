"""Net files: what is written reads back, and what is none is refused in one sentence."""

from dataclasses import replace

import numpy as np
import pytest
from factories import changed, make_config

from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime import hdf5
from deepbig_runtime.files import FileFault
from experiments import cnn, export, table1
from experiments.running import data, net_files, nets, runs, store
from experiments.running.net_files import NetFile
from mlp_gpu.network import Network

PERCEPTRON = make_config(sizes=(841, 7, 10))
CONVOLUTIONAL = changed(PERCEPTRON, layers="2M5s1-MP5")


@pytest.fixture(params=["perceptron", "convolutional"])
def found(request):
    if request.param == "perceptron":
        return NetFile(PERCEPTRON, 2, Network.initial((841, 7, 10), 3))
    return NetFile(CONVOLUTIONAL, 1, ConvNetwork.initial("2M5s1-MP5", Maps(1, 29, 29), 10, 3))


def bits(weights):
    return [None if W is None else W.tobytes() for W in weights]


@pytest.mark.parametrize("half", [False, True])
def test_what_is_written_reads_back(found, half, tmp_path):
    path = tmp_path / "a.net"
    net_files.write(path, found, half)
    again = net_files.read(path)
    assert (again.config, again.epoch) == (found.config, found.epoch)
    expected = net_files.halved(found.network) if half else found.network
    assert bits(again.network.weights) == bits(expected.weights)
    assert nets.is_of(again.network, found.config)


def test_half_precision_halves_the_file(found, tmp_path):
    sizes = []
    for half in (False, True):
        net_files.write(tmp_path / "a.net", found, half)
        sizes.append((tmp_path / "a.net").stat().st_size)
    n_bytes = sum(W.nbytes for W in found.network.weights if W is not None)
    assert sizes[0] - sizes[1] == pytest.approx(n_bytes / 2, abs=32)


def test_halved_weights_are_the_nearest_of_half_precision(found):
    for W, half in zip(found.network.weights, net_files.halved(found.network).weights, strict=True):
        if W is not None:
            assert half.dtype == np.float32
            np.testing.assert_array_equal(half, W.astype(np.float16))
            assert (half != W).any()


def test_a_weight_that_is_too_large_for_half_precision_is_told():
    network = Network.initial((841, 7, 10), 3)
    network.weights[0][1, 2] = 1e6
    with pytest.raises(ValueError, match="beyond float16's largest number"):
        net_files.halved(network)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"epoch": 0}, "its epoch is 0, expected 1 to 2"),
        ({"epoch": 3}, "its epoch is 3, expected 1 to 2"),
        ({"config": make_config(sizes=(841, 8, 10)).to_json()}, "other layers than 841-8-10"),
        ({"config": "{}"}, "config"),
        ({"more": 1}, "attributes"),
        ({"schema": "deepbig run"}, "holds 'deepbig run' version 1, expected 'deepbig net'"),
    ],
)
def test_what_no_net_file_holds_is_refused(changes, reason, tmp_path):
    path = tmp_path / "a.net"
    network = Network.initial((841, 7, 10), 3)

    def fill(file):
        file.attrs.update(schema="deepbig net", schema_version=1)
        file.attrs.update({"config": PERCEPTRON.to_json(), "epoch": 1} | changes)
        network.write(file.create_group("net"))

    hdf5.write(path, fill)
    with pytest.raises(FileFault, match=reason):
        net_files.read(path)


def test_a_damaged_file_is_refused(found, tmp_path):
    path = tmp_path / "a.net"
    net_files.write(path, found, half=True)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileFault, match="is damaged: expected SHA-256"):
        net_files.read(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of two trained nets, of a kind each."""
    folder = tmp_path_factory.mktemp("trained")
    options = ["--data", "digits", "--epochs", "3", "--eta", "2e-3", "--out", str(folder)]
    table1.main(["--nets", "1", "--limit", "300", *options])
    cnn.main(["--net", "2M5s1-MP5", *options])
    return folder


def test_exported_nets_answer_as_the_runs_do(trained, tmp_path, capsys):
    paths = store.run_files(trained)
    export.main([*map(str, paths), "--net", "--out", str(tmp_path)])
    printed = capsys.readouterr()
    for path in paths:
        run = store.read_run(path)
        target = tmp_path / f"{path.stem}.net"
        assert f"{target}\n" in printed.out
        assert f"{path.stem}.net: " in printed.err
        assert f"epoch {run.chosen}, {target.stat().st_size:,} bytes" in printed.err
        again = net_files.read(target)
        assert (again.config, again.epoch) == (run.config, run.chosen)
        whole = runs.load_weights(path, run)[0]["chosen"]
        halved = net_files.halved(whole)
        outputs = nets.predictor(run.config, halved).predict(data.load("digits").test_images)
        changed = np.count_nonzero(outputs.argmax(axis=1) != run.outputs.argmax(axis=1))
        kind, expected = ("float32", whole) if changed else ("float16", halved)
        assert f"{kind}, for float16 changes {changed} of 360 answers on test digits" in printed.err
        assert bits(again.network.weights) == bits(expected.weights)


def spoiled(network):
    return replace(network, weights=tuple(0 * W for W in network.weights))


def too_large(network):
    raise ValueError


@pytest.mark.parametrize(
    ("found", "why"),
    [(spoiled, "answers on test digits"), (too_large, "one is too large for float16")],
)
def test_weights_stay_whole_where_halving_them_does_harm(found, why, trained, monkeypatch, capsys):
    path = trained / "net1-seed0-load_digits.h5"
    monkeypatch.setattr(net_files, "halved", found)
    export.main([str(path), "--net"])
    said = capsys.readouterr().err
    assert "weights as float32" in said
    assert why in said
    chosen = runs.load_weights(path, store.read_run(path))[0]["chosen"]
    assert bits(net_files.read(path.with_suffix(".net")).network.weights) == bits(chosen.weights)
