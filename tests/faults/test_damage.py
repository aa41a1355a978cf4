"""Damaged files of every kind: each is refused in a sentence, or read right.

Each is read in a fork of this process, within seconds and memory, some by commands.
"""

import gzip
import hashlib
import os
import shutil
from functools import partial

import commands
import numpy as np
import pytest
from forging import changed_bytes, forged_hdf5
from hypothesis import given
from hypothesis import strategies as st
from mnist_files import make_small
from msgspec.structs import asdict
from natural_files import make_cifar, make_norb
from run_bits import TIMES, network_bits, run_bits
from small_runs import DATASET, AtEpoch
from tries import fuzz
from waiting import HANG_SECONDS

from deform_gpu import TABLE1
from experiments import export, report, watch
from experiments.datasets import data
from experiments.training import cli, configs, net_files, nets, provenance, runs, store
from mlp_gpu.training import Schedule

NETS = {"perceptron": (841, 12, 10), "convolutional": "2M5s1-MP5-9N"}
EPOCHS = 3
DATA = data.limit(DATASET, 40)
GZIP = b"\x1f\x8b"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with folders of whole files: of data, of runs that were stopped, of their nets."""
    folder = tmp_path_factory.mktemp("whole")
    for name, net in NETS.items():
        schedule = Schedule(EPOCHS, 0.01, 0.9)
        config = configs.make_config(DATA, net, schedule, 1, TABLE1, "cpu")
        end, stopped = folder / f"{name} end" / "run.h5", folder / name / "run.h5"
        stopped.parent.mkdir()

        def keep(end=end, stopped=stopped):
            for of in (lambda path: path, store.weights_path):
                shutil.copy(of(end), of(stopped))

        train(end, config, AtEpoch(EPOCHS - 1, keep))
        export.main(["--net", str(end), "--out", str(folder / f"{name} net")])
    make_norb(folder / "norb", 5, 5)
    make_cifar(folder / "cifar10", 3, 3)
    with pytest.MonkeyPatch.context() as patch:
        make_small(folder / "mnist", patch)
        yield folder


def train(path, config, callbacks):
    return runs.train_run(path, config, DATA, nets.make_engine(config, "graph"), callbacks)


@pytest.fixture(scope="module")
def expected(whole):
    """What readers find in whole files."""
    found = {name: read(whole / name) for name, read in READERS.items()}
    for name in NETS:
        found[name, "read"] = read_run(whole / name)
        found[name, "resume"] = metrics(store.read_run(whole / f"{name} end" / "run.h5"))
    return found


# Readers: each returns what must be as in the whole file, and checks what must be so in any.


def digest(*content):
    return hashlib.sha256(repr(content).encode()).hexdigest()


def read_data(folder, choice):
    found = data.load_pixels(choice, folder)
    content = []
    for images, labels in (
        (found.train_images, found.train_labels),
        (found.test_images, found.test_labels),
    ):
        assert images.dtype == labels.dtype == np.uint8
        assert len(images) == len(labels) > 0
        assert labels.max() < data.KINDS[found.name].n_classes
        content += [images.shape, images.tobytes(), labels.tobytes()]
    return digest(content)


def read_run(folder):
    path = folder / "run.h5"
    run = store.read_run(path)
    config = run.config
    networks = runs.load_weights(path, run)
    assert run.outputs.shape == (len(run.labels), config.n_classes)
    assert run.labels.shape == (config.data.n_test,)
    assert run.labels.max() < config.n_classes
    assert np.isfinite(run.outputs).all()
    for values in asdict(run.metrics).values():
        assert len(values) == run.epochs <= config.epochs
        assert np.isfinite(values).all()
        assert min(values) >= 0
    for network in networks.values():
        check_weights(network, config)
    return digest(run_bits(run), network_bits(networks))


def check_weights(network, config):
    for W, like in zip(network.weights, nets.initial(config).weights, strict=True):
        assert (W is None) == (like is None)
        if W is not None:
            assert (W.shape, W.dtype) == (like.shape, np.float32)
            assert np.isfinite(W).all()


def resume(folder, config):
    return metrics(train(folder / "run.h5", config, runs.Callbacks()))


def metrics(run):
    return digest([values for name, values in asdict(run.metrics).items() if name not in TIMES])


def read_net(folder):
    found = net_files.read(folder / "run.safetensors")
    check_weights(found.network, found.config)
    return digest(found.config, found.epoch, network_bits({"": found.network}))


READERS = {name: partial(read_data, choice=name) for name in ("mnist", "norb", "cifar10")}
READERS |= {f"{name} net": read_net for name in NETS}
COMMANDS = {
    "watch": partial(watch.main, ["--once", "."]),
    "export": partial(export.main, ["--csv", "run.h5", "--out", "out"]),
    "report": partial(report.main, ["--runs", ".", "--out", "report.html"]),
}


@pytest.fixture(scope="module")
def seconds(whole, tmp_path_factory):
    """Of a core, for any reader: ten times what the slowest one, which draws a run, takes here."""
    folder = shutil.copytree(whole / min(NETS), tmp_path_factory.mktemp("report") / "runs")
    before = sum(os.times()[2:4])
    commands.fork(COMMANDS["report"], folder, HANG_SECONDS).check(0)
    return 10 * (sum(os.times()[2:4]) - before)


def check(read, folder, seconds, expected=None):
    """Read something in a fork. expected: the content, unless it is refused; None for any."""

    def main():
        provenance.REPOSITORY = folder
        found = read()
        assert expected is None or found == expected, "something else is read"

    before = listing(folder)
    ended = commands.fork(partial(cli.run, main), folder, seconds)
    ended.check(0, 2)
    assert ended.status == 0 or listing(folder) == before, f"something was written\n{ended}"


def listing(folder):
    """Sizes and times of all files, but for locks."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


@pytest.fixture
def copied(tmp_path):
    """A function that copies a folder to where its files may be damaged."""

    def copy(folder):
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
        return shutil.copytree(folder, tmp_path / "work")

    return copy


@pytest.mark.slow
@fuzz(30, 4400)
@given(source=st.data())
def test_damaged_data_or_a_net_is_refused_or_right(source, whole, expected, seconds, copied, tried):
    name = source.draw(st.sampled_from(sorted(READERS)))
    folder = copied(whole / name)
    path = source.draw(st.sampled_from(sorted(folder.iterdir())))
    content = path.read_bytes()
    is_inner = content.startswith(GZIP) and source.draw(st.booleans())  # whose checksum then fits
    if is_inner:
        content = gzip.compress(source.draw(changed_bytes(gzip.decompress(content))), 1)
    path.write_bytes(content if is_inner else source.draw(changed_bytes(content)))
    tried()
    has_checksum = name not in ("norb", "cifar10") or not is_inner
    right = expected[name] if has_checksum else None
    check(partial(READERS[name], folder), folder, seconds, right)


@pytest.mark.slow
@fuzz(30, 5600)
@given(source=st.data())
def test_a_damaged_run_is_refused_or_right(source, whole, expected, seconds, copied, tried):
    name = source.draw(st.sampled_from(sorted(NETS)))
    folder = copied(whole / name)
    config = store.read_run(folder / "run.h5").config
    path = folder / source.draw(st.sampled_from(("run.h5", "run.weights.h5")))
    damage = source.draw(st.sampled_from((changed_bytes, forged_hdf5)))
    path.write_bytes(source.draw(damage(path.read_bytes())))
    readers = {"read": partial(read_run, folder), "resume": partial(resume, folder, config)}
    reader = source.draw(st.sampled_from(("read", "read", "resume", "resume", *COMMANDS)))
    tried()
    right = expected.get((name, reader)) if damage is changed_bytes else None
    check((readers | COMMANDS)[reader], folder, seconds, right)
