"""What defines a run, as a dictionary that JSON can hold, and what follows from it."""

import json
from collections.abc import Callable
from dataclasses import asdict

import numpy as np

from deform_gpu import COMMITTEE, TABLE1, Deformation
from experiments.running import data
from experiments.running.data import Dataset
from experiments.running.errors import Problem
from mlp_gpu.training import Schedule


def make_config(
    dataset: Dataset,
    sizes: tuple[int, ...],
    schedule: Schedule,
    seed: int,
    deformation: Deformation | None,
    engine: str,
    cpu_deformation: bool = False,
    width: int | None = None,
    n_validation: int | None = None,
) -> dict:
    """Everything that defines a run, as JSON would give it back; deformation None means none.

    dataset: as it was loaded and limited; `prepare` does with it what the configuration says.
    engine: one of engines.NAMES. Images are deformed where the engine is, unless on the CPU all
    the same: cpu_deformation. width: of the bounding boxes, pixels; None: as they are.
    n_validation: training images that are kept apart to choose the epoch by; None: the epoch is
    chosen by all training images. Raises Problem if none would be left to train on.
    """
    deformed_on = "cpu" if cpu_deformation else engine
    if len(dataset.train_labels) <= (n_validation or 0):
        raise Problem(
            f"of {len(dataset.train_labels)} training images none are left to train on, with "
            f"{n_validation} kept apart for validation; take more with --limit"
        )
    config = {
        "data": {
            "name": dataset.name,
            "sha256": dataset.sha256,
            "n_train": len(dataset.train_labels) - (n_validation or 0),
            "n_validation": n_validation,
            "n_test": len(dataset.test_labels),
            "width": width,
        },
        "sizes": sizes,
        **asdict(schedule),
        "seed": seed,
        "deformation": asdict(deformation) if deformation else None,
        "deformed_on": deformed_on if deformation else None,
        "engine": engine,
    }
    return json.loads(json.dumps(config))


def count_validation(config: dict) -> int:
    """The number of images by which the epoch is chosen."""
    return config["data"].get("n_validation") or config["data"]["n_train"]


def prepare(dataset: Dataset, config: dict) -> Dataset:
    """What the run trains on and is tested on: as many images as it asks for, split, normalised.

    dataset: all there is, as `data.load` gives it. Raises Problem if it is other data.
    """
    wanted = config["data"]
    if dataset.sha256 != wanted["sha256"]:
        raise Problem(
            f"expected data of SHA-256 {wanted['sha256']}, found {dataset.sha256} in "
            f"{dataset.source}"
        )
    apart, width = wanted.get("n_validation"), wanted.get("width")
    dataset = data.limit(dataset, wanted["n_train"] + (apart or 0))
    if apart:
        dataset = data.split(dataset, apart, config["seed"])
    if width:
        dataset = data.normalize(dataset, width)
    return dataset


def deformer(config: dict, dataset: Dataset) -> Callable[[int], object]:
    """The function from an epoch to the images that it trains on.

    They are float32 (n, 29, 29) on the host or (n, 841) on the GPU, and stay until the next call.
    """
    if config["deformation"] is None:
        return lambda epoch: dataset.train_images
    deformation = Deformation(**config["deformation"])
    images, labels, seed = dataset.train_images, dataset.train_labels, config["seed"]
    if config["deformed_on"] == "cuda":
        from deform_gpu.cuda import Ahead  # imports numba

        return Ahead(images, labels, deformation, seed, config["epochs"])
    from deform_gpu.batches import deform_set  # imports numba

    buffer = np.empty_like(images)

    def deform(epoch: int) -> np.ndarray:
        deform_set(buffer, images, labels, deformation, seed, epoch)
        return buffer

    return deform


def title(config: dict) -> str:
    """What a run is, for people."""
    width = config["data"].get("width")
    parts = [f"{'-'.join(map(str, config['sizes']))} on {config['data']['name']}"]
    parts += [f"WN{width}"] if width else []
    deformation, n_apart = config["deformation"], config["data"].get("n_validation")
    if not deformation:
        parts += ["undeformed"]
    elif Deformation(**deformation) not in (TABLE1, COMMITTEE):
        parts += [f"sigma {deformation['sigma']:g}, alpha {deformation['alpha']:g}"]
    parts += [f"{n_apart:,} images kept apart"] if n_apart else []
    return ", ".join([*parts, f"seed {config['seed']}"])


def schedule_of(config: dict) -> Schedule:
    """The learning-rate schedule that a configuration describes."""
    return Schedule(config["epochs"], config["eta"], config["decay"], config["eta_min"])
