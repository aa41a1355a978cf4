"""The program of a batch of damaged files: makes each from its seed, and has a fork read it."""

import gzip
import hashlib
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import asdict

from campaign import forks, mutations, samples
from campaign.damage import listing
from experiments.running import cli, data, mnist, provenance

if TYPE_CHECKING:
    from experiments.running.configs import Config
    from experiments.running.nets import AnyNetwork

LIMIT_SECONDS = 10
METRICS = "train_loss", "validation_errors", "test_errors"
NOT_AS_BEFORE = 3  # status of a reader that was given other content than the whole file has


def content_of_data(choice: str, folder: Path) -> str:
    """A digest of images and labels, which are checked."""
    found = data.load_pixels(choice, folder)
    kind = data.KINDS[found.name]
    digest = hashlib.sha256()
    for images, labels in (
        (found.train_images, found.train_labels),
        (found.test_images, found.test_labels),
    ):
        assert images.dtype == labels.dtype == np.uint8, "the types are wrong"
        assert len(images) == len(labels) > 0, "the numbers are wrong"
        assert images.ndim in (3, 4), "the shape is wrong"
        assert labels.max() < kind.n_classes, "the labels are wrong"
        digest.update(images.tobytes() + labels.tobytes())
    return digest.hexdigest()


def content_of_run(path: Path) -> str:
    """A digest of a run and its weights, which are checked."""
    from experiments.running import store

    run = store.read_run(path)
    config, n_test = run.config, run.config.data.n_test
    networks, _, epoch = store.read_weights(store.weights_path(path), config)
    assert run.outputs.shape == (n_test, config.n_classes), "the outputs' shape"
    assert run.outputs.dtype == np.float32, "the outputs' type"
    assert np.isfinite(run.outputs).all(), "the outputs are not finite"
    assert run.labels.shape == (n_test,), "the labels' shape"
    assert run.labels.max() < config.n_classes, "the labels' range"
    for name, values in asdict(run.metrics).items():
        assert len(values) == run.epochs <= config.epochs, f"the number of {name}"
        assert np.isfinite(values).all(), f"{name} is not finite"
        assert min(values) >= 0, f"{name} is negative"
    assert run.epochs - epoch in (0, 1), "the epoch of the weights"
    told = json.dumps(run.to_builtins(), sort_keys=True).encode()
    whole = told + run.outputs.tobytes() + run.labels.tobytes()
    for network in networks.values():
        whole += content_of_weights(network, config)
    return hashlib.sha256(whole).hexdigest()


def content_of_net(path: Path) -> str:
    """A digest of a net file, whose weights are checked."""
    from experiments.running import net_files

    found = net_files.read(path)
    told = json.dumps([found.config.to_builtins(), found.epoch], sort_keys=True).encode()
    return hashlib.sha256(told + content_of_weights(found.network, found.config)).hexdigest()


def content_of_weights(network: "AnyNetwork", config: "Config") -> bytes:
    """The weights of a net, which are checked."""
    from experiments.running import nets

    content = b""
    for W, like in zip(network.weights, nets.initial(config).weights, strict=True):
        if like is not None:
            assert W is not None, "weights are missing"
            assert W.shape == like.shape, "the weights' shape"
            assert W.dtype == np.float32, "the weights' type"
            assert np.isfinite(W).all(), "weights are not finite"
            if not config.is_convolutional:
                assert not W[like == 0].any(), "the padding is not zero"
            content += W.tobytes()
    return content


def train_on(path: Path, config: "Config", expected: str | None) -> None:
    """Go on with a run as the commands do. Exits with NOT_AS_BEFORE if its metrics are others."""
    from experiments.running import nets, runs

    dataset = data.limit(data.load("digits"), config.data.n_train)
    engine = nets.make_engine(config, "graph")
    run = runs.train_run(path, config, dataset, engine, runs.Callbacks())
    metrics = json.dumps([getattr(run.metrics, name) for name in METRICS])
    print(metrics, end="")
    if expected is not None and metrics != expected:
        sys.exit(NOT_AS_BEFORE)


def compare(read: Callable[[], str], expected: str | None) -> None:
    """Read something. Exits with NOT_AS_BEFORE if it is not as expected, if that is known."""
    if read() != expected is not None:
        sys.exit(NOT_AS_BEFORE)


class Batch:
    """The damaged inputs of a trial."""

    def __init__(self, trial: dict, shared: Path, own: Path):
        self.kind, self.what = trial["kind"], trial["kind"].split()[0]
        self.trial, self.shared, self.own = trial, shared, own
        mnist.FILES = samples.idx_files()  # so that small files are right
        self.expected: dict[str, str] = {}

    def tries(self) -> Iterator[tuple[str, Callable[[], str | None]]]:
        """Each input by its number."""
        first = self.trial["first"]
        for number in range(first, first + self.trial["inputs"]):
            what = f"{self.kind}, input {number} of seed {self.trial['seed']}"
            yield what, partial(self.attempt, number)
        if self.what in ("run", "weights"):
            self._make_whole(first + self.trial["inputs"])

    def attempt(self, number: int) -> str | None:
        """What is wrong with what a reader does with an input; None if nothing is."""
        rng = random.Random(f"{self.trial['seed']} {number}")
        folder = self.own / str(number)
        make = self._make_records if self.what in ("json", "csv") else self._make_files
        name, main = make(rng, folder)
        provenance.REPOSITORY = folder
        before = listing(folder)
        ended = forks.fork(partial(cli.run, main), [f"{self.kind}: {name}"], folder, LIMIT_SECONDS)
        wrong = ended.complaint((0, 2))
        if not wrong and ended.status == 2 and listing(folder) != before:
            wrong = f"something was written though the status is 2\n{ended}"
        shutil.rmtree(folder)
        return wrong

    def _make_files(self, rng: random.Random, folder: Path) -> tuple[str, Callable[[], Any]]:
        """A folder with damaged files of data, of a run, or a net; what reads it, and its name."""
        if self.what in ("run", "weights"):
            return self._make_run(rng, folder)
        if self.what == "net":
            return self._make_net(rng, folder)
        family = self.what if self.what in ("idx", "norb", "cifar") else ""
        family = family or ("cifar" if self.what == "tar" else rng.choice(("idx", "norb", "cifar")))
        shutil.copytree(self.shared / family, folder)
        path = rng.choice(sorted(folder.iterdir()))
        content = path.read_bytes()
        choice = {"idx": "mnist", "norb": "norb", "cifar": "cifar10"}[family]
        expected = None
        if self.what == "gzip" and content.startswith(b"\x1f\x8b"):
            path.write_bytes(mutations.mutate_gzip(rng, content))
        elif self.what == "tar":
            path.write_bytes(mutations.mutate_tar(rng, content))
        elif self.kind.endswith("content"):
            changed = mutations.mutate_bytes(rng, gzip.decompress(content))
            path.write_bytes(gzip.compress(changed, 1))
        else:
            path.write_bytes(mutations.mutate_bytes(rng, content))
            expected = self._expect(family, lambda: content_of_data(choice, self.shared / family))
        return choice, partial(compare, partial(content_of_data, choice, folder), expected)

    def _expect(self, name: str, read: Callable[[], str]) -> str:
        """What is read of a whole sample; it is read once."""
        if name not in self.expected:
            self.expected[name] = read()
        return self.expected[name]

    def _damage_run(self, rng: random.Random, folder: Path) -> Path:
        """Copy a sample run into a folder, as run.h5, and damage it; returns its path."""
        from experiments.running import store

        net = rng.choice((samples.PERCEPTRON, samples.CONVOLUTIONAL))
        name = rng.choice(("run", "run", "begun"))
        path = folder / "run.h5"
        folder.mkdir()
        shutil.copy(self.shared / net / f"{name}.h5", path)
        shutil.copy(self.shared / net / f"{name}.weights.h5", store.weights_path(path))
        self.sample = self.shared / net / f"{name}.h5"
        self._mutate(rng, path if self.what == "run" else store.weights_path(path))
        return path

    def _mutate(self, rng: random.Random, path: Path) -> None:
        """Damage a sealed file, in the way that the kind of the trial says."""
        mutate = {
            "bytes": mutations.mutate_bytes,
            "sealed": mutations.mutate_sealed,
            "structure": mutations.mutate_structure,
        }[self.kind.split()[1]]
        path.write_bytes(mutate(rng, path.read_bytes()))

    def _make_net(self, rng: random.Random, folder: Path) -> tuple[str, Callable[[], Any]]:
        from experiments import recognise

        sample = self.shared / rng.choice((samples.PERCEPTRON, samples.CONVOLUTIONAL)) / "run.net"
        folder.mkdir()
        path = folder / sample.name
        shutil.copy(sample, path)
        self._mutate(rng, path)
        expected = None
        if self.kind.endswith("bytes"):
            expected = self._expect(sample.parent.name, lambda: content_of_net(sample))
        picture = str(self.shared / samples.PICTURE)
        readers: dict[str, Callable[[], Any]] = {
            "read": partial(compare, partial(content_of_net, path), expected),
            "recognise": partial(recognise.main, [picture, "--net", path.name]),
        }
        name = rng.choice(sorted(readers))
        return name, readers[name]

    def _make_run(self, rng: random.Random, folder: Path) -> tuple[str, Callable[[], Any]]:
        from experiments import export, record, report, watch
        from experiments.running import store

        path = self._damage_run(rng, folder)
        config = store.read_run(self.sample).config
        expected = expected_metrics = None
        if self.kind.endswith("bytes"):
            key = "/".join(self.sample.parts[-2:])
            expected = self._expect(key, lambda: content_of_run(self.sample))
            whole = store.read_run(self.sample.with_name("run.h5")).metrics
            expected_metrics = json.dumps([getattr(whole, name) for name in METRICS])
        readers: dict[str, Callable[[], Any]] = {
            "read": partial(compare, partial(content_of_run, path), expected),
            "train": partial(train_on, path, config, expected_metrics),
            "watch": partial(watch.main, ["--once", "."]),
            "export": partial(export.main, ["--csv", "run.h5", "--out", "out"]),
            "record": partial(record.main, ["run.h5"]),
            "report": partial(report.main, ["--runs", ".", "--out", "report.html"]),
        }
        names = ["read", "read", "train"]
        name = rng.choice([*readers, *names] if self.what == "run" else names)
        return name, readers[name]

    def _make_records(self, rng: random.Random, folder: Path) -> tuple[str, Callable[[], Any]]:
        """A copy of the records of the repository with one that is damaged."""
        from experiments import readme, record, report

        shutil.copytree(self.shared / "results-copy", folder)
        path = rng.choice(sorted((folder / "results").glob(f"*/*.{self.what}")))
        if self.what == "json":
            text = mutations.mutate_json(rng, path.read_text())
            path.write_bytes(text.encode("utf-8", rng.choice(("replace", "surrogatepass"))))
        else:
            path.write_bytes(mutations.mutate_csv(rng, path.read_text()))
        readers: dict[str, Callable[[], Any]] = {
            "readme": partial(readme.main, []),
            "report": partial(report.main, ["--out", "report.html"]),
        }
        if self.what == "csv":
            readers["record"] = partial(record.main, [str(path)])
        else:  # where the record of the sample run goes
            from experiments.running import store

            run = store.read_run(self.shared / samples.CONVOLUTIONAL / "run.h5")
            target = provenance.device_folder(run.provenance[-1].device)
            target = folder / "results" / target.name / f"{samples.CONVOLUTIONAL}-run.json"
            target.parent.mkdir(exist_ok=True)
            text = mutations.mutate_json(rng, json.dumps(run.to_builtins()))
            target.write_text(text, errors="replace")
            shutil.copytree(self.shared / samples.CONVOLUTIONAL, folder / samples.CONVOLUTIONAL)
            readers["record"] = partial(record.main, [f"{samples.CONVOLUTIONAL}/run.h5"])
        name = rng.choice(sorted(readers))
        return name, readers[name]

    def _make_whole(self, number: int) -> None:
        """One more damaged run for a command that is started as users do."""
        rng = random.Random(f"{self.trial['seed']} {number}")
        folder = self.own / "whole"
        self._damage_run(rng, folder)
        shutil.copy(self.sample.with_name("run.h5"), folder / "other.h5")
        digits = "--data-dir=missing"
        command = rng.choice(
            (
                ["watch", "."],
                ["report", "--runs=.", "--out=report.html"],
                ["figure1", "run.h5", digits],
                ["export", "--csv", "run.h5"],
                ["export", "--tensorboard", "run.h5", "--out=out"],
                ["committee", "run.h5", "other.h5", "--out=out", digits],
                ["pictures", "--runs=.", "--out=out", "learning_curves", digits],
            )
        )
        (folder / "command.txt").write_text("\n".join([f"experiments.{command[0]}", *command[1:]]))


def main(trial: str, shared: str, own: str) -> None:
    """Make the tries of a trial, a fork each."""
    content = json.loads(Path(trial).read_text())
    if content["kind"].startswith(("run", "weights", "net")):
        import cnn_gpu.cpu  # noqa: F401 - what a training needs, once
        import deform_gpu.batches  # noqa: F401

        data.load("digits")
    if content["kind"].startswith(("run", "json", "csv")):
        from experiments import readme, report  # noqa: F401
    forks.answer(Batch(content, Path(shared), Path(own)).tries())


if __name__ == "__main__":
    main(*sys.argv[1:])
