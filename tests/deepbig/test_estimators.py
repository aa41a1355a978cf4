"""deepbig/estimators.py: scikit-learn's own checks, the commands' bits, images, bad input."""

import re
import warnings

import numpy as np
import pytest
import small_runs
from executed import ENGINE_DEVICES, on_device
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from cnn_gpu.network import ConvNetwork
from deepbig import OnlineCNNClassifier, OnlineMLPClassifier
from deform_gpu import TABLE1, TRANSLATION
from experiments.training import runs
from mlp_gpu.training import Diverged

X = np.random.default_rng(0).uniform(-1, 1, (60, 9, 9)).astype(np.float32)
Y = np.arange(60) % 3
LAYERS = "4M3-MP2-5N"


@parametrize_with_checks([OnlineMLPClassifier()])
def test_perceptron_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def weights(net):
    return [W.tobytes() for W in net.network_.weights if W is not None]


def test_perceptron_trains_to_the_bits_of_the_commands(tmp_path):
    config, data = small_runs.CONFIG, small_runs.DATASET
    run = tmp_path / "a.h5"
    small_runs.train(run)
    latest = runs.load_weights(run, runs.store.read_run(run))["latest"]
    net = OnlineMLPClassifier(
        config.sizes[1:-1],
        epochs=config.epochs,
        eta=config.eta,
        decay=config.decay,
        deformation=TABLE1,
        engine="cpu",
        seed=config.seed,
    ).fit(data.train_images, data.train_labels)
    assert weights(net) == [W.tobytes() for W in latest.weights]
    assert net.n_iter_ == config.epochs


@pytest.mark.parametrize("images", [X, np.stack([X, X[::-1]], axis=3)], ids=["grey", "two maps"])
def test_convolutional_net_trains_as_an_engine_does(images):
    net = OnlineCNNClassifier(LAYERS, epochs=2, deformation=TRANSLATION, engine="cpu", seed=7)
    net.fit(images, Y)
    assert isinstance(net.network_, ConvNetwork)
    assert net.predict_proba(images).shape == (60, 3)
    again = clone(net).partial_fit(images, Y).partial_fit(images, Y)
    assert weights(again) == weights(net)
    still = clone(net).set_params(deformation=None).fit(images, Y)
    assert weights(still) != weights(net)


def test_partial_fit_trains_as_fit_does():
    net = OnlineMLPClassifier((20,), epochs=3, decay=0.5, deformation=TRANSLATION, engine="cpu")
    net.fit(X, Y)
    again = clone(net)
    for epoch in range(1, 4):
        again.partial_fit(X.reshape(60, -1), Y, classes=[0, 1, 2])
        assert again.n_iter_ == epoch
    with pytest.raises(ValueError, match=r"classes are \[0, 1, 2\] since the first call"):
        again.partial_fit(X.reshape(60, -1), Y, classes=[0, 1, 2, 3])
    assert weights(again) == weights(net)
    assert again.loss_ == net.loss_


def test_fit_begins_anew_and_keeps_the_array():
    images = X.copy()
    net = OnlineMLPClassifier((20,), epochs=1, deformation=TRANSLATION, engine="cpu")
    first = weights(net.fit(images, Y))
    assert weights(net.fit(images, Y)) == first
    assert weights(net.set_params(seed=1).fit(images, Y)) != first
    assert (images == X).all()


def test_the_learning_rate_falls_to_its_least():
    net = OnlineMLPClassifier((20,), epochs=2, decay=1e-3, engine="cpu").fit(X, Y)
    assert weights(clone(net).set_params(eta_min=0.01).fit(X, Y)) != weights(net)


@pytest.mark.slow
def test_colours_are_deformed_on_the_cpu_while_a_gpu_trains():
    images, labels = np.stack([X, -X], axis=3)[:6], Y[:6]
    net = OnlineCNNClassifier("2M4-3N", epochs=1, deformation=TRANSLATION, engine="cuda")
    with on_device(ENGINE_DEVICES[0]):
        net.fit(images, labels)
    assert net.n_iter_ == 1


def test_digits_choose_the_angle():
    # TABLE1 turns ones by half as much, so the same labels in other places are other images.
    turned = [
        weights(
            OnlineMLPClassifier((20,), epochs=1, deformation=TABLE1, engine="cpu").fit(X, labels)
        )
        for labels in (Y, Y + 2)
    ]
    assert turned[0] != turned[1]


def test_verbose_shows_progress(capsys):
    OnlineMLPClassifier((20,), epochs=1, engine="cpu").fit(X, Y)
    assert capsys.readouterr().err == ""
    OnlineMLPClassifier((20,), epochs=1, engine="cpu", verbose=True).fit(X, Y)
    assert "60/60" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parameters", "images", "labels", "expected"),
    [
        ({}, X, np.zeros(60, int), "expected 2 to 256 classes, found 1 class"),
        ({}, X, Y[:59], "59 labels for 60 images"),
        ({"epochs": 0}, X, Y, "epochs is 0; expected an integer from 1 to"),
        ({"epochs": 2.5}, X, Y, "epochs is 2.5; expected an integer"),
        ({"eta": float("nan")}, X, Y, "eta nan"),
        ({"eta": float("inf")}, X, Y, "eta inf"),
        ({"hidden": 100}, X, Y, r"hidden is 100; expected a number of neurons for each .*\(100,\)"),
        ({"engine": "gpu"}, X, Y, "engine is 'gpu'; expected one of auto, cpu, cuda"),
        ({"seed": 1.5}, X, Y, "seed is 1.5; expected an integer"),
        ({}, np.zeros((600, 9)), np.arange(600) % 257, "expected 2 to 256 classes, found 257 cl"),
        ({"deformation": TRANSLATION}, X[:, :4], Y, "images are 4x9; expected squares"),
        ({"deformation": TRANSLATION}, X[:, 0, :8], Y, "8 features are no square image"),
    ],
)
def test_bad_input_of_the_perceptron_is_a_sentence(parameters, images, labels, expected):
    net = OnlineMLPClassifier(**{"hidden": (20,), "engine": "cpu"} | parameters)
    with pytest.raises(ValueError, match=expected):
        net.fit(images, labels)


def test_bad_input_of_the_convolutional_net_is_a_sentence():
    net = OnlineCNNClassifier(LAYERS, epochs=1, engine="cpu")
    with pytest.raises(ValueError, match=re.escape("X has the shape (60, 81)")):
        net.fit(X.reshape(60, -1), Y)
    net.fit(X, Y)
    with pytest.raises(ValueError, match="the net takes 1 of 9x9"):
        net.predict(X[:, :8])
    with pytest.raises(ValueError, match="y has the label 3"):
        net.partial_fit(X, Y + 3)


def test_loss_that_is_not_finite_ends_the_training():
    net = OnlineMLPClassifier((20,), epochs=3, eta=1e38, engine="cpu")
    with pytest.raises(Diverged, match="not a finite number"):
        net.fit(X, Y)
    with pytest.raises(NotFittedError):
        net.predict(X)
    net.set_params(eta=0.01).fit(X, Y)
    before = net.predict(X)
    with pytest.raises(Diverged):
        net.set_params(eta=1e38).fit(X[:, :8], np.array(["a", "b"])[Y % 2])
    assert (net.predict(X) == before).all()


@pytest.mark.parametrize(
    ("net", "limit"),
    [
        (OnlineMLPClassifier((30,), epochs=1, engine="cpu"), 19),  # 841 inputs to a neuron
        (OnlineCNNClassifier(LAYERS, epochs=1, engine="cpu"), 163),  # 9 inputs
    ],
    ids=["perceptron", "convolutional"],
)
def test_inputs_that_saturate_the_net_are_warned_of_once_and_others_never(net, limit, digits):
    net, labels = clone(net), digits.train_labels[:200]
    small, large = (factor * limit * digits.train_images[:200] for factor in (0.98, 1.02))
    with pytest.warns(ConvergenceWarning) as warned:
        net.partial_fit(large, labels).partial_fit(large, labels)
    (warning,) = warned
    assert warning.filename == __file__
    assert f"as large as {large.max():g}, so that most units of the first" in str(warning.message)
    with warnings.catch_warnings(action="error"):
        net.fit(small, labels)
