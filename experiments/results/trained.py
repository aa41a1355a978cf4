"""Trained nets for digits, to use them: the best there is, or those in files."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from deepbig_runtime.errors import Problem
from experiments.datasets import data
from experiments.datasets.dataset import KINDS, MNIST, Dataset
from experiments.results.tables import best_of
from experiments.training import net_files, nets, runs, store
from experiments.training.configs import Config
from experiments.training.net_files import NetFile
from experiments.training.store import Run

PREPARED_AS = "MNIST"  # pictures and drawings are cut out and centred as the digits of this data
OLD_SUFFIX = ".net"  # of nets in sealed HDF5 files, which no version writes any more
TRAIN = 'make table1 ARGS="--nets 1"'
NET_FILE = (
    "a run file, RUN.h5, with its weights file beside it, or a net that 'python -m "
    "experiments.export --net' wrote, RUN.safetensors"
)


def load(path: Path) -> NetFile:
    """The net in a net file, or that of a run file at its chosen epoch.

    Raises files.FileFault if a file is missing or damaged, Problem if it is of a net for images
    that are prepared in another way, or of an older version.
    """
    if path.suffix == OLD_SUFFIX:
        raise Problem(
            f"{path} is of an older version of this program; write the net of its run anew with "
            f"'python -m experiments.export --net RUN.h5', as RUN{net_files.SUFFIX}"
        )
    if path.suffix == net_files.SUFFIX:
        found = net_files.read(path)
    else:
        run = store.read_run(path)
        network = runs.load_weights(path, run)["chosen"]
        found = NetFile(run.config, run.chosen, network)
    if found.config.data.name in KINDS and not is_for_pictures(found.config):
        raise Problem(
            f"{path} is of a net for {found.config.data.name}, and pictures are prepared as "
            f"{PREPARED_AS}'s digits; train a net for these with '{TRAIN}'"
        )
    return found


def is_for_pictures(config: Config) -> bool:
    """Whether a run's net was trained on digits that look as pictures do when they are prepared."""
    return config.data.name == PREPARED_AS


def find_best(
    folder: Path, pretrained: Sequence[Path], fits: Callable[[Config], bool] = is_for_pictures
) -> Path:
    """The best of the runs below a folder whose weights are there, a deformed one if there is one.

    pretrained: net files, of which the first that fits is taken if no run does. fits: whether a net
    with that configuration will do. Raises Problem if there is none.
    """
    runs = store.read_runs(folder, lambda fault: None)  # 'make report' names damaged files
    found = {
        path: run
        for path, run in runs.items()
        if fits(run.config) and run.epochs and store.weights_path(path).exists()
    }
    if not found:
        for path in pretrained:
            if fits(net_files.read(path).config):
                return path
        raise Problem(
            f"there is no net for this below {folder}, trained on {PREPARED_AS}: train one with "
            f"'{TRAIN}', which takes some minutes, or name one with --net"
        )
    return best_of({path: run for path, run in found.items() if run.config.deformation} or found)


def on_test_images(member: NetFile, dataset: Dataset) -> tuple[Dataset, np.ndarray]:
    """The data with the test images as a net sees them, and its outputs for these.

    dataset: the data that it was trained on, as jobs.load_known gives them; it may lack training
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

    A digit is cut out and centred, see `ink`; for data of your own the whole picture is resized.
    Raises Problem, one sentence, if the file cannot be read or shows no single digit.
    """
    from experiments.datasets import ink  # imports scipy.ndimage

    if is_for_pictures(config):
        return ink.read_digit(path)
    return ink.read_whole(path, config.kind.source)


def recognise(members: Sequence[NetFile], pixels: np.ndarray) -> np.ndarray:
    """Class probabilities float32 (n, n_classes) of pictures, the average of all members.

    members: of nets for the same data. pixels: of `read_picture`, uint8 (n, ...).
    """
    config = members[0].config
    name = MNIST if is_for_pictures(config) else config.data.name
    arrays = pixels, np.zeros(len(pixels), np.uint8)
    asked = data.scale(Dataset(name, *arrays, *arrays, "", "", classes=config.data.classes or ()))
    return np.mean([on_test_images(member, asked)[1] for member in members], axis=0)
