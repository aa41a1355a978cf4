"""Whole files of every kind, small, from which damaged ones are made. A program: FOLDER."""

import gzip
import hashlib
import io
import shutil
import struct
import sys
import tarfile
from pathlib import Path

import numpy as np

from experiments.running import cifar, data, mnist, norb, provenance

PAGES = (
    *("README.md", "results/README.md"),
    *("docs/promises.md", "docs/ladder.md", "docs/online-in-blocks.md"),
)
IDX_SHAPES = (6, 28, 28), (6,), (4, 28, 28), (4,)
SIZES, CNN = (841, 12, 10), "2M5s1-MP5-9N"
PERCEPTRON, CONVOLUTIONAL = "mlp", "cnn"  # names of the folders with their run files
PICTURE = "three.png"  # of a digit, whole


def idx_files() -> tuple[mnist.IdxFile, ...]:
    """What the samples are, as mnist.FILES describes MNIST."""
    found: list[mnist.IdxFile] = []
    for content, file in zip(_idx_contents(), mnist.FILES, strict=True):
        digest = hashlib.sha256(content).hexdigest()
        found.append(mnist.IdxFile(file.name, IDX_SHAPES[len(found)], digest))
    return tuple(found)


def _idx_contents() -> list[bytes]:
    rng = np.random.default_rng(1)
    contents = []
    for shape in IDX_SHAPES:
        array = rng.integers(0, 10 if len(shape) == 1 else 256, shape, np.uint8)
        header = struct.pack(f">{1 + len(shape)}I", 0x0800 + len(shape), *shape)
        contents.append(header + array.tobytes())
    return contents


def write_idx(folder: Path) -> None:
    """Files like MNIST's, two of them packed."""
    for file, content in zip(mnist.FILES, _idx_contents(), strict=True):
        (folder / file.name).write_bytes(content)
    for file in mnist.FILES[1:3]:
        plain = folder / file.name
        plain.with_name(f"{file.name}.gz").write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
        plain.unlink()


def write_norb(folder: Path) -> None:
    """Files like small NORB's, of few pairs of noise in few grey levels."""
    rng = np.random.default_rng(2)
    for n, (pairs, labels) in ((5, norb.FILES[:2]), (3, norb.FILES[2:])):
        arrays = (rng.integers(0, 4, (n, 2, 96, 96)).astype("u1"), np.arange(n, dtype="<i4") % 5)
        for file, array in zip((pairs, labels), arrays, strict=True):
            sizes = (*array.shape, 1, 1)[: max(3, array.ndim)]
            header = struct.pack(f"<{2 + len(sizes)}i", file.magic, array.ndim, *sizes)
            packed = gzip.compress(header + array.tobytes(), 1, mtime=0)
            (folder / file.name).write_bytes(packed)


def write_cifar(folder: Path) -> None:
    """An archive like CIFAR-10's, of few records of noise."""
    rng, content = np.random.default_rng(3), io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in (f"{cifar.FOLDER}/readme.html", *cifar.TRAINING, cifar.TEST):
            records = rng.integers(0, 10, (3, cifar.RECORD), np.uint8)
            member = tarfile.TarInfo(name)
            member.size = records.nbytes
            archive.addfile(member, io.BytesIO(records.tobytes()))
    (folder / cifar.ARCHIVE).write_bytes(gzip.compress(content.getvalue(), 1, mtime=0))


def train(path: Path, net: tuple[int, ...] | str) -> None:
    """A run of two epochs on few of load_digits' images, its weights, and its net as float16."""
    from deform_gpu import TABLE1
    from experiments.running import net_files, nets, runs, store
    from experiments.running.configs import make_config
    from mlp_gpu.training import Schedule

    path.parent.mkdir()
    dataset = data.limit(data.load("digits"), 40)
    config = make_config(dataset, net, Schedule(3, 0.01, 0.9), 1, TABLE1, "cpu")
    engine = nets.make_engine(config, "graph")

    class Stop(runs.Callbacks):
        def epoch(self, row: object) -> None:
            shutil.copy(path, path.parent / "begun.h5")
            shutil.copy(store.weights_path(path), path.parent / "begun.weights.h5")

    class StopAfterTwo(Stop):
        def epoch(self, row: object) -> None:
            if row.epoch == 2:  # type: ignore[attr-defined]
                super().epoch(row)

    run = runs.train_run(path, config, dataset, engine, StopAfterTwo())
    for session in run.provenance:  # so that it may be recorded
        session.dirty, session.commit = False, "0" * 40
    store.write_run(path, run)
    path.with_suffix(".lock").unlink()
    chosen = runs.load_weights(path, run)[0]["chosen"]
    found = net_files.NetFile(config, run.chosen, chosen)
    net_files.write(path.with_suffix(net_files.SUFFIX), found, half=True)


def copy_results(folder: Path) -> None:
    """The records of the repository and the pages that are made of them, without pictures."""
    for page in PAGES:
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(provenance.REPOSITORY / page, folder / page)
    for path in (provenance.REPOSITORY / "results").glob("*/*"):
        if path.suffix in (".json", ".csv"):
            target = folder / path.relative_to(provenance.REPOSITORY)
            target.parent.mkdir(exist_ok=True)
            shutil.copy(path, target)


def main(shared: Path) -> None:
    """Write all of them into folders of a folder, and expected.json: the digests of what is read"""
    for name, write in (("idx", write_idx), ("norb", write_norb), ("cifar", write_cifar)):
        (shared / name).mkdir()
        write(shared / name)
    train(shared / PERCEPTRON / "run.h5", SIZES)
    train(shared / CONVOLUTIONAL / "run.h5", CNN)
    shutil.copy(provenance.REPOSITORY / "docs" / "pictures" / PICTURE, shared)
    (shared / "results-copy").mkdir()
    copy_results(shared / "results-copy")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
