"""Runs that were never trained, for tests of what is made of runs."""

from dataclasses import astuple

import numpy as np
from msgspec.structs import replace

from deform_gpu import TABLE1
from experiments.datasets.dataset import KINDS
from experiments.training import store
from experiments.training.configs import Config, DataConfig
from experiments.training.provenance import Session
from mlp_gpu.network import NETS

SESSION = Session(
    commit="0123456789abcdef",
    dirty=False,
    device="Some CPU",
    versions={"python": "3.11"},
    start="2026-01-01T00:00:00+00:00",
    end="2026-01-02T00:00:00+00:00",
    why="finished",
)


def make_config(**changes):
    """The configuration of net 1 on MNIST, but for some changes, as `changed` takes them."""
    config = Config(
        data=DataConfig(name="MNIST", sha256="0" * 64, n_train=60_000, n_test=10_000),
        sizes=NETS[1],
        cpu_arithmetic=1,
        epochs=2,
        eta=1e-3,
        decay=0.997,
        eta_min=1e-6,
        seed=0,
        deformation=TABLE1,
        deformed_on="cpu",
        engine="cpu",
    )
    return changed(config, **changes)


def changed(config, data=(), **changes):
    """A configuration with other settings. data: those of its data. A net replaces the other.

    Convolutional nets of a folder of one's own read images like those of CIFAR-10.
    """
    if "layers" in changes:
        name = dict(data).get("name", config.data.name)
        source = KINDS.get(name, KINDS["CIFAR10"]).source
        changes = {"sizes": (), "source": astuple(source)} | changes
    return replace(config, data=replace(config.data, **dict(data)), **changes)


def make_outputs(labels, n_wrong, seed=0):
    """Class probabilities float32 (n, 10), of a net that gets so many of the labels wrong."""
    rng = np.random.default_rng([seed, n_wrong])
    outputs = rng.uniform(0, 0.05, (len(labels), 10)).astype(np.float32)
    outputs[np.arange(len(labels)), labels] = 0.5
    wrong = rng.permutation(len(labels))[:n_wrong]
    outputs[wrong, (labels[wrong] + 1 + seed) % 10] = 0.9
    return outputs / outputs.sum(axis=1, keepdims=True)


def make_run(done=None, metrics=(), session=(), outputs=None, labels=None, base=None, **changes):
    """A run that a file can hold, of as many epochs as its configuration has, or of fewer: done.

    metrics: lists, in the place of figures that are as good as any, of which the first epoch is
    chosen. session: changes to the one process that trained. outputs, labels: of the test images;
    as many are wrong as the metrics say. base, changes: its configuration as `changed` takes it; by
    default as `make_config` does.
    """
    config = changed(base, **changes) if base else make_config(**changes)
    done = config.epochs if done is None else done
    n_validation, n_test = config.n_validation, config.data.n_test
    found = {name: [1.0] * done for name in store.METRICS} | {
        "epoch": list(range(1, done + 1)),
        "eta": [config.eta * config.decay**epoch for epoch in range(done)],
        "train_loss": [2 / epoch for epoch in range(1, done + 1)],
        "validation_errors": [min(n, n_validation) for n in range(60, 60 + done)],
        "test_errors": [min(n, n_test) for n in range(35 + done, 35, -1)],
    }
    metrics = store.Metrics(**found | dict(metrics))
    run = store.Run(config, [replace(SESSION, **dict(session))], metrics, outputs, labels)
    if labels is None:
        run.labels = np.arange(n_test, dtype=np.uint8) % 10
    if outputs is None:
        run.outputs = make_outputs(run.labels, run.chosen_errors if done else 0, config.seed)
    return run
