"""Trained nets for digits, to use them: the best there is, or those in files."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from deepbig_runtime.errors import Problem
from experiments.datasets import data, own
from experiments.datasets.dataset import KINDS, MNIST, Dataset
from experiments.training import net_files, nets, runs, store
from experiments.training.configs import Config
from experiments.training.net_files import NetFile
from experiments.training.nets import AnyNetwork
from experiments.training.store import Run

N_TRAIN = 60_000  # training images of MNIST
PREPARED_AS = "MNIST"  # pictures and drawings are cut out and centred as the digits of this data
TRAIN = 'make table1 ARGS="--nets 1"'
DEFAULT = (
    "a pretrained net; or the best run of its kind on all of MNIST, deformed, below "
    "$RUNS_DIR, or else runs, if it gets fewer training images wrong than that net"
)
NET_FILE = (
    "a run file, RUN.h5, with its weights file beside it, or a net that 'python -m "
    "experiments.export --net' wrote, RUN.safetensors"
)


def load(path: Path) -> NetFile:
    """The net in a net file, or that of a run file at its chosen epoch.

    Raises files.FileFault if a file is missing or damaged, Problem if a run file and its weights
    file do not belong together, or if it is of a net for images that are prepared in another way.
    """
    found = read(path)
    if found.config.data.name in KINDS and not is_for_pictures(found.config):
        raise Problem(
            f"{path} is of a net for {found.config.data.name}, and pictures are prepared as "
            f"{PREPARED_AS}'s digits; train a net for these with '{TRAIN}'"
        )
    return found


def read(path: Path) -> NetFile:
    """The net in a net file, or that of a run file at its chosen epoch, on any data."""
    if net_files.is_net_file(path):
        return net_files.read(path)
    run = store.read_run(path)
    return of_run(run, runs.load_weights(path, run)["chosen"])


def of_run(run: Run, network: AnyNetwork) -> NetFile:
    """The content of a net file, of a run and its net at the chosen epoch."""
    validation_errors = run.metrics.validation_errors[run.chosen - 1]
    return NetFile(run.config, run.chosen, network, validation_errors, run.chosen_errors)


def is_for_pictures(config: Config) -> bool:
    """Whether a run's net was trained on digits that look as pictures do when they are prepared."""
    return config.data.name == PREPARED_AS


def find_best(
    folder: Path, pretrained: Sequence[Path], fits: Callable[[Config], bool] = is_for_pictures
) -> Path:
    """The first of some net files that fits, or the best run below a folder, if that is better.

    A run counts only if it is of the same kind of net, has ended, has its weights, and was trained
    on all training images, deformed. The best gets the fewest of them wrong, undeformed.
    pretrained: net files, one of which fits. fits: whether a net with that configuration will do.
    """
    members = {path: net_files.read(path) for path in pretrained}
    usual = next(path for path, member in members.items() if fits(member.config))
    kind, least = members[usual].config.is_convolutional, members[usual].validation_errors
    found = {}
    # 'make report' names the damaged files.
    for path, run in store.read_runs(folder, lambda fault: None).items():
        config = run.config
        is_whole = (config.data.n_train, config.data.n_validation) == (N_TRAIN, None)
        is_like = fits(config) and config.is_convolutional == kind and config.deformation
        if run.finished and is_whole and is_like and store.weights_path(path).exists():
            found[path] = run.metrics.validation_errors[run.chosen - 1]
    best = min(found, key=lambda path: found[path], default=usual)
    return best if least is not None and found.get(best, least) < least else usual


def on_test_images(member: NetFile, dataset: Dataset) -> tuple[Dataset, np.ndarray]:
    """The data with the test images as a net sees them, and its outputs for these.

    dataset: the data that it was trained on, as configs.load gives them; it may lack training
    images. The outputs are class probabilities float32 (n_test, n_classes).
    """
    if width := member.config.data.width:
        dataset = data.normalize(dataset, width)
    return dataset, nets.predictor(member.config, member.network).predict(dataset.test_images)


def record_of(member: NetFile, records: Iterable[Run]) -> Run | None:
    """The record of the run that a net file was made of, if it is among the records."""
    made = (run for run in records if (run.config, run.chosen) == (member.config, member.epoch))
    return next(made, None)


def read_picture(path: Path, config: Config) -> np.ndarray:
    """A picture in the form of a run's data, uint8: (28, 28) for digits, else the net's size.

    A digit is cut out and centred, see `ink`; for data of your own the whole picture is resized,
    with --size as those of the data were. Raises Fault, one sentence, if the file cannot be read
    or shows no single digit.
    """
    if config.data.size:
        return own.read_scaled(path, config.data.size, config.kind.source.n)
    if not is_for_pictures(config):
        return own.read_whole(path, config.kind.source)
    from experiments.datasets import ink  # imports scipy.ndimage

    return ink.read_digit(path)


def recognise(members: Sequence[NetFile], pixels: np.ndarray) -> np.ndarray:
    """Class probabilities float32 (n, n_classes) of pictures, the average of all members.

    members: of nets for the same data. pixels: of `read_picture`, uint8 (n, ...).
    """
    config = members[0].config
    name = MNIST if is_for_pictures(config) else config.data.name
    arrays = pixels, np.zeros(len(pixels), np.uint8)
    asked = data.scale(Dataset(name, *arrays, *arrays, "", "", classes=config.data.classes or ()))
    return np.mean([on_test_images(member, asked)[1] for member in members], axis=0)
