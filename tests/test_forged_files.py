"""Files with a correct seal and wrong content: one sentence, whoever reads them."""

import json
import re
import signal

import h5py
import numpy as np
import pytest
from factories import changed, make_run
from forgeries import (
    OF_ANY_ARRAY,
    as_json,
    at,
    attribute,
    edit,
    expect_sentence,
    item,
    link,
    put,
    remove,
    reseal,
    virtual,
    without,
)
from small_runs import CONFIG, train, train_some

from cnn_gpu.network import ConvNetwork
from deepbig_runtime import hdf5
from deepbig_runtime.files import FileFault
from experiments import figure1, report, watch
from experiments.running import examples, runs, store
from experiments.running.dataset import DIGIT
from mlp_gpu import network
from mlp_gpu.network import Network

TWO_EPOCHS = changed(CONFIG, epochs=3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that was stopped after two of three epochs."""
    path = tmp_path_factory.mktemp("forged") / "run.h5"
    train_some(path, 2, TWO_EPOCHS)
    return path


@pytest.fixture
def path(trained, tmp_path):
    """A copy of it, of both files."""
    path = tmp_path / "run.h5"
    for of in (lambda path: path, store.weights_path):
        of(path).write_bytes(of(trained).read_bytes())
    return path


ARRAYS = [*(f"metrics/{name}" for name in store.METRICS), "predictions/outputs"]
ARRAYS += ["predictions/labels"]
FORGED = {f"{name}: {what}": of(name) for name in ARRAYS for what, of in OF_ANY_ARRAY.items()}
FORGED |= {
    f"{name}: {number}": edit(name, item(1, number))
    for name in (*(n for n in ARRAYS if "_errors" not in n and n[-5:] != "epoch"),)
    for number in (np.nan, np.inf, -np.inf, -1.0)
    if not (name.endswith(("labels",)) or (name.endswith("loss") and number == -1))
}
FORGED |= {
    "a member more": put("more", [1.0]),
    "a metric more": put("metrics/more", [1.0, 2.0]),
    "an attribute more": lambda file: file.attrs.update(more=1),
    "units": lambda file: file["metrics/train_seconds"].attrs.update(units="ms"),
    "no metrics": remove("metrics"),
    "no predictions": remove("predictions"),
    "a soft link to metrics": link("metrics", h5py.SoftLink("/elsewhere")),
    "a circle": lambda file: file["metrics"].__setitem__("again", file["/"]),
    "epoch 0": edit("metrics/epoch", item(0, 0)),
    "epochs twice": edit("metrics/epoch", item(1, 1)),
    "negative count": edit("metrics/test_errors", item(0, -1)),
    "more errors than test images": edit("metrics/test_errors", item(0, 361)),
    "more errors than training images": edit("metrics/validation_errors", item(1, 301)),
    "no learning rate": edit("metrics/eta", item(0, 0)),
    "no time": edit("metrics/train_seconds", item(0, 0)),
    "ages": edit("metrics/deform_seconds", item(0, 1e300)),
    "errors that the outputs have not": edit("metrics/test_errors", lambda v: v.fill(0)),
    "outputs above 1": edit("predictions/outputs", lambda v: v.__imul__(2)),
    "outputs below 0": edit("predictions/outputs", lambda v: v.__isub__(1)),
    "outputs of others": edit("predictions/outputs", lambda v: v.__setitem__(..., v[::-1].copy())),
    "labels of no class": edit("predictions/labels", item(3, 10)),
    "outputs of another epoch": attribute("epoch", 7, "predictions"),
    "an epoch that is text": attribute("epoch", "2", "predictions"),
    "no epoch": attribute("epoch", None, "predictions"),
    "no schema": attribute("schema", None),
    "another schema": attribute("schema", "deepbig\nrun"),
    "a schema that is a number": attribute("schema", 1),
    "another version": attribute("schema_version", 2),
    "a version that is a row": attribute("schema_version", [1, 1]),
    "provenance of an old kind": attribute("provenance", np.bytes_("[]")),
    "sessions of 0": as_json("provenance", lambda v: []),
}
for key in ("config", "provenance"):
    FORGED |= {
        f"{key}: {text[:20]!r}": attribute(key, text)
        for text in ("", "{", "null", "[]", "{}", "1", '"a"', "[1]", "[[]]", "[" * 100_000)
    }
    FORGED[f"{key} is missing"] = attribute(key, None)
    FORGED[f"{key} is a number"] = attribute(key, 3)
    FORGED[f"{key} with a long number"] = attribute(key, "9" * 5000)
WRONG = ("x", -1, 0, True, 1.5, [], {}, 10**400, "\ud800", "a\nb")
for names in (
    *(("epochs",), ("eta",), ("seed",), ("sizes",), ("deformation",), ("engine",), ("decay",)),
    *(("data",), ("data", "n_test"), ("data", "n_train"), ("data", "name"), ("data", "sha256")),
    *(("eta_min",), ("deformed_on",), ("data", "width"), ("data", "n_validation"), ("layers",)),
    *(("deformation", "beta"), ("deformation", "sigma"), ("n_classes",), ("source",)),
):
    valid = {"eta": 1.5, "decay": (0, 1.5), "eta_min": (0, 1.5), "seed": 0, "source": []}
    allowed = valid.get(names[-1], 1.5 if names == ("deformation", "sigma") else None)
    allowed = allowed if isinstance(allowed, tuple) else (allowed,)
    FORGED |= {
        f"config.{'.'.join(names)} {value!a:.20}": as_json("config", at(*names, value=value))
        for value in WRONG
        if not any(type(value) is type(one) and value == one for one in allowed)
    }
    if names not in (("data", "width"), ("data", "n_validation"), ("layers",), ("source",)) and (
        names not in (("n_classes",), ("deformed_on",))
    ):
        FORGED[f"config without {names}"] = as_json("config", without(*names))
FORGED |= {
    "config with a name of tomorrow": as_json("config", at("momentum", value=0.9)),
    "NaN in the configuration": attribute(
        "config", json.dumps(CONFIG.to_builtins() | {"eta": float("nan")})
    ),
    "fewer epochs than done": as_json("config", at("epochs", value=1)),
    "other sizes of the data": as_json("config", at("data", "n_test", value=359)),
    "a net of no inputs": as_json("config", at("sizes", value=[840, 10])),
    "a net of no classes": as_json("config", at("sizes", value=[841, 9])),
    "a deformation of something else": as_json("config", at("deformation", "tau", value=1)),
}
for name in ("commit", "dirty", "device", "versions", "start", "end", "why"):
    FORGED[f"a session without {name}"] = as_json("provenance", without(0, name))
    for value in (1.5, [], "\ud800", "a\nb", ""):
        if value == "" and name in ("commit", "why"):
            continue
        FORGED[f"{name} of a session: {value!a}"] = as_json("provenance", at(0, name, value=value))
FORGED |= {
    "a time without zone": as_json("provenance", at(0, "start", value="2026-01-01T00:00:00")),
    "a device without a letter": as_json("provenance", at(0, "device", value="--")),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_run_file_that_no_run_can_have_is_refused(path, what):
    reseal(path, FORGED[what])
    said = expect_sentence(lambda: store.read_run(path))
    assert said.startswith(f"{path} ")


OF_WEIGHTS = {
    **{f"W2: {what}": of("latest/W2") for what, of in OF_ANY_ARRAY.items()},
    "one net": remove("chosen"),
    "a net more": lambda file: file.copy("latest", "more"),
    "other names": lambda file: file.move("latest", "last"),
    "a layer less": remove("latest/W3"),
    "a layer more": put("latest/W4", np.zeros((32, 32), "f4")),
    "NaN": edit("chosen/W1", item((3, 3), np.nan)),
    "padding": edit("latest/W1", item((-1, 3), 1e-9)),
    "padding at the right": edit("latest/W2", item((3, -1), 1)),
    "sizes that are text": attribute("sizes", "841", "latest"),
    "one size": attribute("sizes", [841], "latest"),
    "sizes of other shapes": attribute("sizes", [841, 70, 70, 10], "latest"),
    "sizes of the same shapes": attribute("sizes", [841, 70, 34, 10], "latest"),
    "negative sizes": attribute("sizes", [841, -70, 33, 10], "latest"),
    "no sizes": attribute("sizes", None, "latest"),
    "huge sizes": attribute("sizes", [841, 2**62, 33, 10], "latest"),
    "epoch 0": attribute("epoch", 0),
    "epoch 4": attribute("epoch", 4),
    "epoch as text": attribute("epoch", "2"),
    "no epoch": attribute("epoch", None),
    "no config": attribute("config", None),
    "no JSON": attribute("config", "{"),
    "a config of nothing": attribute("config", "{}"),
    "another config": as_json("config", at("seed", value=3)),
}


@pytest.mark.parametrize("what", OF_WEIGHTS)
def test_a_weights_file_that_no_run_can_have_is_refused(path, what):
    weights = store.weights_path(path)
    reseal(weights, OF_WEIGHTS[what])
    before = [path.read_bytes(), weights.read_bytes()]
    assert str(weights) in expect_sentence(lambda: runs.epochs_done(path, TWO_EPOCHS))
    assert str(weights) in expect_sentence(lambda: train(path, TWO_EPOCHS))
    assert [path.read_bytes(), weights.read_bytes()] == before


CONVOLUTIONAL = {
    "layers that are none": attribute("layers", "3M\n5", "latest"),
    "layers without end": attribute("layers", "-".join(["3M1"] * 300), "latest"),
    "other layers": attribute("layers", "4M6", "latest"),
    "two numbers of a source": attribute("source", [1, 29], "latest"),
    "a large source": attribute("source", [1, 2**31, 2**31], "latest"),
    "a negative source": attribute("source", [1, -29, -29], "latest"),
    "no classes": attribute("n_classes", 0, "latest"),
    "many classes": attribute("n_classes", 2**60, "latest"),
    "connections that are none": put("latest/C1", np.zeros((1, 3), bool)),
    "connections of a byte": put("latest/C1", np.ones((1, 3), "u1")),
    "a weight less": put("latest/W1", np.zeros((36, 3), "f4")),
    "a weight that is infinite": edit("latest/W1", item((1, 1), np.inf)),
    "weights without connections": edit("latest/C2", item((1, 0), False)),
    "no table": remove("latest/C2"),
    "a table more": put("latest/C3", np.ones((1, 3), bool)),
    "a filter of any size": attribute("layers", "IP(hat999999999)-3M6", "latest"),
}


@pytest.mark.parametrize("what", CONVOLUTIONAL)
def test_weights_that_no_convolutional_net_can_have_are_refused(tmp_path, what):
    net = ConvNetwork.initial("3M6", DIGIT, 10, 0)
    network.save(tmp_path / "a.h5", {"latest": net}, {})
    found, _ = network.load(tmp_path / "a.h5", ConvNetwork)
    assert (found["latest"].weights[0] == net.weights[0]).all()
    reseal(tmp_path / "a.h5", CONVOLUTIONAL[what])
    expect_sentence(lambda: network.load(tmp_path / "a.h5", ConvNetwork))


def test_weights_of_a_later_epoch_than_they_say_are_refused(path):
    """The last epoch would be done on top of itself."""
    errors = store.read_run(path).metrics.test_errors
    assert errors[0] != errors[1]
    reseal(store.weights_path(path), attribute("epoch", 1))
    said = expect_sentence(lambda: train(path, TWO_EPOCHS))
    assert "the latest net in" in said
    assert "epoch 1" in said


@pytest.mark.parametrize("factor", [-1, 1e35])
def test_weights_that_did_not_make_the_chosen_outputs_are_refused(path, factor):
    def change(file):
        for W in file["chosen"].values():
            W[...] = factor * W[()]

    reseal(store.weights_path(path), change)
    assert "the chosen net in" in expect_sentence(lambda: train(path, TWO_EPOCHS))


@pytest.mark.parametrize("finished", [False, True])
def test_labels_that_are_not_the_datas_are_refused(path, finished):
    if finished:
        train(path, TWO_EPOCHS)
    run = store.read_run(path)
    run.labels, run.outputs = np.roll(run.labels, 1), np.roll(run.outputs, 1, axis=0)
    store.write_run(path, run)
    assert store.read_run(path).epochs == run.epochs
    assert "other labels than the test images" in expect_sentence(lambda: train(path, TWO_EPOCHS))


def test_what_is_sound_goes_on_to_the_same_bits(path, tmp_path):
    reseal(path, lambda file: None)
    reseal(store.weights_path(path), lambda file: None)
    train(path, TWO_EPOCHS)
    train(tmp_path / "other.h5", TWO_EPOCHS)
    ours, theirs = store.read_run(path), store.read_run(tmp_path / "other.h5")
    assert ours.outputs.tobytes() == theirs.outputs.tobytes()
    assert ours.metrics.train_loss == theirs.metrics.train_loss


@pytest.mark.slow
def test_one_bad_file_does_not_hide_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    changes = {
        "a": edit("metrics/eta", item(0, np.nan)),
        "b": virtual("predictions/outputs"),
        "c": as_json("provenance", lambda v: []),
        "d": lambda file: None,
    }
    for name, change in changes.items():
        run = make_run(data={"n_test": 50}, metrics={"test_errors": [5, 5]})
        store.write_run(tmp_path / "runs" / f"{name}.h5", run)
        reseal(tmp_path / "runs" / f"{name}.h5", change)
    watch.main(["--once"])
    rows = sorted(capsys.readouterr().out.splitlines()[2:])
    for row, name in zip(rows[:3], "abc", strict=True):
        assert row.startswith(f"{name} ")
        assert "is damaged or not as this version" in row
    assert re.match(r"d +2/2 ", rows[3])
    report.main([])
    said = capsys.readouterr()
    assert re.findall(r"left out: runs/(.)\.h5 is damaged or not as", said.err) == ["a", "b", "c"]
    assert figure1.find_best(tmp_path / "runs").name == "d.h5"
    assert re.findall(r"left out: .*/(.)\.h5 is dam", capsys.readouterr().err) == ["a", "b", "c"]
    assert list(examples.load_runs(tmp_path / "runs")) == ["d"]


@pytest.mark.parametrize("which", ["run.h5", "run.weights.h5"])
def test_no_change_of_a_byte_behind_the_seal_crashes_or_hangs(trained, tmp_path, which):
    """What is read is what was written, or one sentence."""
    content, is_run = (trained.parent / which).read_bytes(), which == "run.h5"
    rng = np.random.default_rng(0)
    places = np.flatnonzero(np.frombuffer(content, np.uint8))
    structure = places[(places >= hdf5.USER_BLOCK) & (places < 20_000)]
    damaged = tmp_path / "damaged.h5"
    refused = 0
    for _ in range(600):
        changed = bytearray(content)
        for place in rng.choice(structure, rng.integers(1, 4)):
            changed[place] = rng.integers(256)
        hdf5.put_seal(changed)
        damaged.write_bytes(changed)
        signal.alarm(20)
        try:
            store.read_run(damaged) if is_run else network.load(damaged, Network)
        except FileFault:
            refused += 1
        finally:
            signal.alarm(0)
    assert refused > 30


def test_the_files_of_all_kinds_of_nets_still_open(tmp_path):
    net = ConvNetwork.initial("IP(sobel)-20M5s1c2-MP2-60M3c50%-30N", DIGIT, 10, 3)
    network.save(tmp_path / "a.h5", {"latest": net}, {})
    found, _ = network.load(tmp_path / "a.h5", ConvNetwork)
    for W, V in zip(found["latest"].weights, net.weights, strict=True):
        assert (W is None and V is None) or (W == V).all()
    sizes = (841, *[40] * 20, 10)
    nets = {name: Network.initial(sizes, seed) for seed, name in enumerate(("latest", "chosen"))}
    network.save(tmp_path / "b.h5", nets, {"epoch": 1, "config": "é" * 100_000})
    found, attributes = network.load(tmp_path / "b.h5", Network)
    assert attributes["config"] == "é" * 100_000
    assert found["chosen"].weights[20].tobytes() == nets["chosen"].weights[20].tobytes()
