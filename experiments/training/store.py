"""Run files: the configuration of a training, its results, and its provenance.

`<run>.h5` has the configuration, the provenance, one metrics row per epoch and the outputs of the
chosen epoch. `<run>.weights.h5` has what a resume needs: the latest weights and those of the
chosen epoch. Both are replaced whole after each epoch, on a GPU after up to 5 seconds of them, the
run file first. So after a crash between the two the run file is one save ahead; its epochs are
repeated, bit-identically.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Annotated, Any, get_args, get_type_hints

import h5py
import msgspec
import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace

from deepbig_runtime import files, hdf5
from deepbig_runtime.errors import Problem
from experiments.datasets.dataset import name_parts
from experiments.training import configs
from experiments.training.configs import MOST_EPOCHS, Config
from experiments.training.provenance import Session
from experiments.training.validation import LONG, Count, Seconds, convert, parse_json
from mlp_gpu.training import Epoch, chosen_epoch

SCHEMA, STUDY_SCHEMA, SCHEMA_VERSION = "deepbig run", "deepbig study run", 1
WEIGHTS_SUFFIX = ".weights.h5"
MAX_NAME = 120  # letters of a run file's name that describe the net
STUDY_SUFFIX = ".study.h5"  # of a study's runs, which nothing but `experiments.study` shows

EpochNumber = Annotated[int, Meta(ge=1, le=MOST_EPOCHS)]
LearningRate = Annotated[float, Meta(ge=1e-300, le=1e9)]
Loss = Annotated[float, Meta(ge=-1e300, le=1e300)]
Sessions = Annotated[list[Session], Meta(min_length=1)]  # the processes that trained a run
SomeSeconds = Annotated[float, Meta(ge=1e-12, le=LONG)]  # rates are divided by it


class Metrics(Struct, forbid_unknown_fields=True):
    """One value per epoch in each list, with its units and its long name in run files.

    The names are fields of Epoch.
    """

    epoch: Annotated[list[EpochNumber], "1", "epoch, from 1"]
    eta: Annotated[list[LearningRate], "1", "learning rate of the epoch"]
    train_loss: Annotated[list[Loss], "nat", "mean cross-entropy over the deformed training images"]
    validation_errors: Annotated[
        list[Count], "images", "wrong among the undeformed validation images"
    ]
    test_errors: Annotated[list[Count], "images", "wrong among the test images"]
    deform_seconds: Annotated[
        list[Seconds], "s", "time that training waited for its deformed images"
    ]
    train_seconds: Annotated[list[SomeSeconds], "s", "time for the on-line steps"]
    evaluate_seconds: Annotated[list[Seconds], "s", "time for validation and test"]

    def append(self, row: Epoch) -> None:
        """Add an epoch."""
        for name in METRICS:
            getattr(self, name).append(getattr(row, name))

    def first(self, n: int) -> "Metrics":
        """The first n epochs."""
        return Metrics(**{name: getattr(self, name)[:n] for name in METRICS})


METRICS = {  # name: (dtype, units, long name)
    name: (np.dtype(get_args(kind)[0]).name, *Metrics.__annotations__[name].__metadata__)
    for name, kind in get_type_hints(Metrics).items()
}
EPOCH_PARTS = "deform_seconds", "train_seconds", "evaluate_seconds"
assert [*METRICS, "outputs"] == [field.name for field in fields(Epoch)]


@dataclass
class Run:
    """A run as its file holds it.

    config: everything that defines the run. provenance: the processes that worked on it, in order.
    outputs: class probabilities of the test images, chosen epoch, float32 (n_test, n_classes).
    labels: of the test images, uint8 (n_test,).
    """

    config: Config
    provenance: list[Session]
    metrics: Metrics
    outputs: np.ndarray
    labels: np.ndarray

    @classmethod
    def new(cls, config: Config, labels: np.ndarray) -> "Run":
        """A run without any epoch."""
        metrics = Metrics(**{name: [] for name in METRICS})
        return cls(config, [], metrics, np.empty((len(labels), 0), np.float32), labels)

    @property
    def epochs(self) -> int:
        """Epochs done."""
        return len(self.metrics.epoch)

    @property
    def finished(self) -> bool:
        """Whether all epochs that the configuration asks for are done."""
        return self.epochs == self.config.epochs

    @property
    def chosen(self) -> int:
        """The epoch with the fewest validation errors."""
        return chosen_epoch(self.metrics.validation_errors)

    @property
    def chosen_errors(self) -> int:
        """Test errors at the chosen epoch: TEfBV as a count."""
        return self.metrics.test_errors[self.chosen - 1]

    @property
    def best_errors(self) -> int:
        """The fewest test errors of any epoch: BTE as a count."""
        return min(self.metrics.test_errors)

    @property
    def epoch_seconds(self) -> list[float]:
        """Time that each epoch took: to wait for its images, to train, and to evaluate."""
        return [
            sum(epoch)
            for epoch in zip(*(getattr(self.metrics, part) for part in EPOCH_PARTS), strict=True)
        ]

    @property
    def seconds(self) -> float:
        """Time that all epochs took; a standstill of the machine included."""
        # In this order of additions, because records in results/ hold the last digit.
        return sum(sum(getattr(self.metrics, part)) for part in EPOCH_PARTS)

    @property
    def seconds_by_median(self) -> float:
        """The time of the run in tables and pictures: epochs done times the median of one."""
        return self.epochs * median(self.epoch_seconds)

    def to_builtins(self) -> dict[str, Any]:
        """The run without its predictions as JSON's values, as records hold it."""
        provenance, metrics = msgspec.to_builtins((self.provenance, self.metrics))
        return {
            "config": self.config.to_builtins(),
            "provenance": provenance,
            "metrics": metrics,
        }


def weights_path(path: Path) -> Path:
    """The weights file that belongs to a run file."""
    return path.with_suffix(WEIGHTS_SUFFIX)


def run_files(folder: Path) -> list[Path]:
    """All files below a folder that are named like run files, sorted; none of a study."""
    others = WEIGHTS_SUFFIX, STUDY_SUFFIX
    return sorted(path for path in folder.rglob("*.h5") if not path.name.endswith(others))


def read_runs(folder: Path, damaged: Callable[[files.FileFault], object]) -> dict[Path, Run]:
    """The runs below a folder that can be read, by the paths of their files; sorted.

    damaged: called with the fault of each other file.
    """
    runs = {}
    for path in run_files(folder):
        try:
            runs[path] = read_run(path)
        except files.FileFault as fault:
            damaged(fault)
    return runs


def find_folder(folder: Path | None = None) -> Path:
    """Where runs are: `folder`, or else $RUNS_DIR or runs/.

    Raises Problem if `folder` is given and does not exist; the other two may be missing.
    """
    if folder is not None and not folder.is_dir():
        raise Problem(f"there is no folder {folder}: name one with run files in or below it")
    return folder or Path(os.environ.get("RUNS_DIR") or "runs")


def net_part(net: str) -> str:
    """The layers of a net in names of files, which have a limit."""
    name = re.sub(r"[^\w-]", "", net.replace("%", "p"))
    if len(name) > MAX_NAME:
        name = f"{name[:MAX_NAME]}-{hashlib.sha256(net.encode()).hexdigest()[:8]}"
    return name


def table1_path(
    folder: Path, net: str, seed: int, data_name: str, settings: Iterable[str] = ()
) -> Path:
    """The run file of a net, and of a seed. settings: what the run has otherwise than usual."""
    parts = [net, f"seed{seed}", *settings, *name_parts(data_name)]
    return folder / ("-".join(parts) + ".h5")


def without_weights(paths: list[Path]) -> list[Path]:
    """The paths without those of weights files, which a shell's *.h5 finds beside run files."""
    return [path for path in paths if not path.name.endswith(WEIGHTS_SUFFIX)] or paths


def write_run(path: Path, run: Run) -> None:
    """Replace the run file. Raises files.FileFault if that fails; the old file then stays."""

    is_study = run.config.study is not None

    def fill(file: h5py.File) -> None:
        file.attrs.update(
            schema=STUDY_SCHEMA if is_study else SCHEMA,
            schema_version=SCHEMA_VERSION,
            config=run.config.to_json(),
            provenance=json.dumps(msgspec.to_builtins(run.provenance)),
        )
        metrics = file.create_group("metrics")
        for field, (name, dtype, units, long_name) in _columns(is_study).items():
            values = np.asarray(getattr(run.metrics, field), dtype)
            dataset = metrics.create_dataset(name, data=values, track_times=False)
            dataset.attrs.update(units=units, long_name=long_name)
        predictions = file.create_group("predictions")
        predictions.attrs["epoch"] = run.chosen
        predictions.create_dataset("outputs", data=run.outputs, track_times=False)
        predictions.create_dataset("labels", data=run.labels, track_times=False)

    hdf5.write(path, fill)


def _columns(is_study: bool) -> dict[str, tuple[str, str, str, str]]:
    """The name, dtype, units and long name in run files of each field of Metrics."""
    columns = {name: (name, *rest) for name, rest in METRICS.items()}
    if is_study:
        name, (dtype, units, _) = "training_errors", METRICS["test_errors"]
        columns["test_errors"] = name, dtype, units, "wrong among the undeformed training images"
    return columns


def to_metrics(value: object, config: Config) -> Metrics:
    """The metrics of a run in values of JSON. Raises files.Malformed if they are of no run."""
    metrics = convert("metrics", value, Metrics)
    n = len(metrics.epoch)
    lengths = {len(getattr(metrics, name)) for name in METRICS}
    if lengths != {n} or not 1 <= n <= config.epochs or metrics.epoch != list(range(1, n + 1)):
        raise files.Malformed(
            f"metrics have {min(lengths)} to {max(lengths)} epochs, expected a value of each for "
            f"every epoch from 1 to at most {config.epochs}"
        )
    for errors, images in (
        (metrics.validation_errors, config.n_validation),
        (metrics.test_errors, config.data.n_test),
    ):
        if max(errors) > images:
            raise files.Malformed(f"metrics count {max(errors)} errors of {images} images")
    return metrics


class _Record(Struct, forbid_unknown_fields=True):
    config: object
    provenance: object
    metrics: object


def run_of_builtins(value: object) -> Run:
    """A run without its predictions in values of JSON, as `Run.to_builtins` gives them.

    Raises files.Malformed if it is of no run.
    """
    record = convert("it", value, _Record)
    config = configs.from_builtins("config", record.config)
    nothing = np.empty((0, 0), np.float32), np.empty(0, np.uint8)
    sessions = convert("provenance", record.provenance, Sessions)
    return Run(config, sessions, to_metrics(record.metrics, config), *nothing)


def read_run(path: Path, is_study: bool = False) -> Run:
    """Read a run file. is_study: whether it must be of a study, or must not.

    Raises files.FileFault if it is missing, damaged or something else, or holds what no run can.
    """
    with hdf5.opened(path, STUDY_SCHEMA if is_study else SCHEMA, SCHEMA_VERSION) as file:
        attributes = {"schema": str, "schema_version": int, "config": str, "provenance": str}
        file.check(attributes, (), groups=("metrics", "predictions"))
        config = configs.from_json("config", str(file.attrs["config"]))
        sessions = parse_json("provenance", str(file.attrs["provenance"]))

        if (config.study is not None) != is_study:
            raise files.Malformed(f"its configuration has the study {config.study!a}")
        group, columns = file.groups["metrics"], _columns(is_study)
        group.check({}, [name for name, *_ in columns.values()])
        rows = {
            field: group.array(name, dtype).tolist() for field, (name, dtype, *_) in columns.items()
        }
        metrics = to_metrics(rows, config)

        group = file.groups["predictions"]
        group.check({"epoch": int}, {"outputs", "labels"})
        if group.attrs["epoch"] != (chosen := chosen_epoch(metrics.validation_errors)):
            raise files.Malformed(f"its outputs are not of the chosen epoch, {chosen}")
        n_test, n_classes = config.data.n_test, config.n_classes
        outputs = group.array("outputs", "float32", (n_test, n_classes))
        labels = group.array("labels", "uint8", (n_test,))
        if labels.max() >= n_classes:
            raise files.Malformed(f"labels are up to {labels.max()}, of {n_classes} classes")
        return Run(config, convert("provenance", sessions, Sessions), metrics, outputs, labels)


def check_config(path: Path, found: Config, expected: Config) -> None:
    """Raise Problem with the differences if the file's configuration is not the requested one.

    The file may be of fewer epochs, which more would go on from: their learning rates are the same.
    """
    engines = [(run.engine, run.images_per_block) for run in (found, expected)]
    versions = [(run.cpu_arithmetic, run.window_arithmetic) for run in (found, expected)]
    if engines[0] == engines[1] and versions[0] != versions[1]:
        raise Problem(
            f"{path} was trained by another version of this program, which rounds otherwise: it "
            "can be shown, exported and used in committees, but not resumed; choose another folder "
            "with --out, or move that file away"
        )
    fewer = found.epochs < expected.epochs
    compared = replace(found, epochs=expected.epochs) if fewer else found
    differences = list(configs.differences(compared.to_builtins(), expected.to_builtins()))
    if differences:
        raise Problem(
            f"{path} holds another run than the one asked for: {'; '.join(differences)}; choose "
            "another folder with --out, or move that file away"
        )
