"""Run and weights files with a correct checksum that no run can have: one sentence."""

import json

import numpy as np
import pytest
from factories import make_config, make_run
from forgeries import attribute, edit, expect_sentence, put, reseal

from cnn_gpu.network import ConvNetwork
from deepbig_runtime.files import Malformed
from experiments.datasets.dataset import DIGIT
from experiments.training import configs, runs, store
from mlp_gpu import network
from mlp_gpu.network import Network

CONFIG = make_config(sizes=(841, 33, 10), epochs=3, data={"n_train": 300, "n_test": 50})


@pytest.fixture
def path(tmp_path):
    """The files of a run that was stopped after two of three epochs."""
    path = tmp_path / "run.h5"
    store.write_run(path, make_run(2, {"test_errors": [9, 8]}, base=CONFIG))
    nets = {name: Network.initial(CONFIG.sizes, seed) for seed, name in enumerate(NETS)}
    network.save(store.weights_path(path), nets, {"config": CONFIG.to_json(), "epoch": 2})
    return path


NETS = "latest", "chosen"


def in_json(name, *keys, value):
    """A change: another value, at these keys, in an attribute that is JSON."""

    def change(file):
        tree = found = json.loads(file.attrs[name])
        for key in keys[:-1]:
            found = found[key]
        found[keys[-1]] = value
        file.attrs[name] = json.dumps(tree)

    return change


def remove(name):
    return lambda file: file.__delitem__(name)


EVERY = slice(None)
RUNS = {
    "an epoch twice": edit("metrics/epoch", 1, 1),
    "more errors than test images": edit("metrics/test_errors", 0, 51),
    "more errors than validation images": edit("metrics/validation_errors", 1, 301),
    "no time": edit("metrics/train_seconds", 0, 0),
    "an epoch less": put("metrics/evaluate_seconds", [1.0]),
    "fewer epochs than done": in_json("config", "epochs", value=1),
    "labels of no class": edit("predictions/labels", 3, 10),
    "too few labels": put("predictions/labels", np.zeros(49, "u1")),
    "outputs of another epoch": attribute("epoch", 2, "predictions"),
    "a member more": put("more", [1.0]),
    "a metric more": put("metrics/more", [1.0]),
    "an output more": put("predictions/more", [1.0]),
    "another version": attribute("schema_version", 2),
    "provenance of no process": attribute("provenance", "[]"),
    "a session without a device": in_json("provenance", 0, "device", value="--"),
    "a session of no time": in_json("provenance", 0, "start", value="2026-01-01T00:00:00"),
    "no config": attribute("config", None),
    "config of many lists": attribute("config", "[" * 100_000),
}


@pytest.mark.parametrize("what", RUNS)
def test_read_run_malformed_is_refused(path, what):
    assert store.read_run(path).epochs == 2
    reseal(path, RUNS[what])
    assert str(path) in expect_sentence(lambda: store.read_run(path))


WEIGHTS = {
    "one net": remove("chosen"),
    "a net more": lambda file: file.copy("latest", "more"),
    "an array more": put("more", [1.0]),
    "a layer more": put("latest/W3", np.zeros((32, 32), "f4")),
    "padding below": edit("latest/W1", (-1, 3), 1e-9),
    "padding at the right": edit("latest/W2", (3, -1), 1),
    "one size": lambda file: [
        *(remove(f"latest/W{layer}")(file) for layer in (1, 2)),
        attribute("sizes", [841], "latest")(file),
    ],
    "sizes of the same shapes": attribute("sizes", [841, 34, 10], "latest"),
    "negative sizes": attribute("sizes", [841, -33, 10], "latest"),
    "epoch of text": attribute("epoch", "2"),
    "no config": attribute("config", None),
    "another config": in_json("config", "seed", value=3),
}


@pytest.mark.parametrize("what", WEIGHTS)
def test_load_weights_malformed_is_refused(path, what):
    assert runs.epochs_done(path, CONFIG) == 2
    weights = store.weights_path(path)
    reseal(weights, WEIGHTS[what])
    assert str(weights) in expect_sentence(lambda: runs.epochs_done(path, CONFIG))


CONVOLUTIONAL = {
    "layers of two lines": attribute("layers", "3M\n5", "net"),
    "layers of other shapes": attribute("layers", "4M6-4M2c2", "net"),
    "a filter of any size": attribute("layers", "IP(hat999999999)-3M6", "net"),
    "a large source": attribute("source", [1, 2**31, 2**31], "net"),
    "many classes": attribute("n_classes", 2**60, "net"),
    "fewer connections": lambda file: [
        edit(f"net/{name}", (rows, 0), 0)(file)
        for name, rows in (("C2", EVERY), ("W2", slice(1, None)))
    ],
    "weights without connections": edit("net/W2", EVERY, 1),
    "a table more": put("net/C4", np.ones((1, 3), bool)),
}


@pytest.mark.parametrize("what", CONVOLUTIONAL)
def test_load_malformed_convolutional_net_is_refused(tmp_path, what):
    path = tmp_path / "a.h5"
    network.save(path, {"net": ConvNetwork.initial("3M6-4M2c2", DIGIT, 10, 0)}, {})
    assert network.load(path, ConvNetwork)[0].keys() == {"net"}
    reseal(path, CONVOLUTIONAL[what])
    said = expect_sentence(lambda: network.load(path, ConvNetwork))
    assert ("of an unreasonable size" in said) == (what == "a large source")


SETTINGS = [
    *(("epochs",), ("eta",), ("seed",), ("sizes",), ("engine",), ("decay",), ("eta_min",)),
    *(("data",), ("data", "n_test"), ("data", "n_train"), ("data", "name"), ("data", "sha256")),
    *(("deformed_on",), ("data", "width"), ("data", "n_validation"), ("layers",), ("source",)),
    *(("deformation",), ("deformation", "beta"), ("deformation", "tau"), ("n_classes",), ("new",)),
]
ALLOWED = {"eta": [1.5], "decay": [0, 1.5], "eta_min": [0, 1.5], "seed": [0], "source": [[]]}


@pytest.mark.parametrize("keys", SETTINGS, ids=".".join)
def test_config_setting_of_another_type_or_range_is_refused(keys):
    for value in ("x", -1, 0, True, 1.5, [], {}, 10**400, float("nan"), "\ud800", "a\nb"):
        if any(type(value) is type(one) and value == one for one in ALLOWED.get(keys[-1], ())):
            continue
        found = CONFIG.to_builtins()
        holder = found if len(keys) == 1 else found[keys[0]]
        holder[keys[-1]] = value
        with pytest.raises(Malformed) as refusal:
            configs.from_builtins("config", found)
        assert "\n" not in str(refusal.value)
        assert str(refusal.value).isascii()


@pytest.mark.parametrize("sizes", [[840, 10], [841, 9]])
def test_config_of_a_net_for_other_images_or_classes_is_refused(sizes):
    with pytest.raises(Malformed, match="sizes"):
        configs.from_builtins("config", CONFIG.to_builtins() | {"sizes": sizes})
