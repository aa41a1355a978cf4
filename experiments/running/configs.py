"""Configurations: what defines a run, as a dictionary that JSON can hold, and what follows."""

import json
from collections.abc import Callable
from dataclasses import asdict, astuple, replace

import numpy as np

from deform_gpu import COMMITTEE, TABLE1, TRANSLATION, Deformation
from experiments.running import data
from experiments.running.dataset import KINDS, Dataset
from experiments.running.errors import Problem
from mlp_gpu.engines import CPU_ARITHMETIC, WINDOW_IMAGES_PER_BLOCK
from mlp_gpu.network import N_CLASSES
from mlp_gpu.training import Schedule


def make_config(
    dataset: Dataset,
    net: tuple[int, ...] | str,
    schedule: Schedule,
    seed: int,
    deformation: Deformation | None,
    engine: str,
    cpu_deformation: bool = False,
    width: int | None = None,
    n_validation: int | None = None,
    windows: bool = False,
) -> dict:
    """Everything that defines a run, with the types that JSON would give back.

    dataset: as it was loaded and limited. `prepare` splits and normalises it later. net: the sizes
    of a perceptron's layers, or a convolutional net's layers as text, as `cnn_gpu.layers` has them.
    deformation: None for undeformed images. engine: one of engines.NAMES. cpu_deformation: whether
    images are deformed on the CPU even if the engine is the GPU's, as images of several maps are.
    width: of normalised bounding boxes, pixels; None: not normalised. n_validation: training images
    that are kept apart to choose the epoch; None: all training images choose it. windows: whether a
    GPU trains by the schedule `window`. Raises Problem if no images would be left to train on.
    """
    deformed_on = "cpu" if cpu_deformation or dataset.train_images.ndim > 3 else engine
    if len(dataset.train_labels) <= (n_validation or 0):
        raise Problem(
            f"of {len(dataset.train_labels)} training images none are left to train on, with "
            f"{n_validation} kept apart for validation; take more with --limit"
        )
    if isinstance(net, str):
        kind = KINDS[dataset.name]
        described: dict = {"layers": net, "source": astuple(kind.source)}
        if kind.n_classes != N_CLASSES:
            described["n_classes"] = kind.n_classes
    else:
        described = {"sizes": net}
        if engine != "cpu" and windows:  # rounding depends on it, and so the bits
            described["images_per_block"] = WINDOW_IMAGES_PER_BLOCK
    if engine == "cpu":
        described["cpu_arithmetic"] = CPU_ARITHMETIC
    config = {
        "data": {
            "name": dataset.name,
            "sha256": dataset.sha256,
            "n_train": len(dataset.train_labels) - (n_validation or 0),
            "n_validation": n_validation,
            "n_test": len(dataset.test_labels),
            "width": width,
        },
        **described,
        **asdict(schedule),
        "seed": seed,
        "deformation": asdict(deformation) if deformation else None,
        "deformed_on": deformed_on if deformation else None,
        "engine": engine,
    }
    return json.loads(json.dumps(config))


def count_validation(config: dict) -> int:
    """The number of images that choose the epoch."""
    return config["data"].get("n_validation") or config["data"]["n_train"]


def prepare(dataset: Dataset, config: dict) -> Dataset:
    """The images of a run: as many as its configuration says, split and normalised.

    dataset: all images, as `data.load` gives them. Raises Problem if they are other data.
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
    """A function from an epoch to the images that the epoch trains on.

    The images are float32, of the shape of the training images on the host, or (n, 841) on the GPU.
    The next call overwrites them. All maps of an image move together.
    """
    if config["deformation"] is None:
        return lambda epoch: dataset.train_images
    deformation = Deformation(**config["deformation"])
    images, labels, seed = dataset.train_images, dataset.train_labels, config["seed"]
    if config["deformed_on"] == "cuda":
        from deform_gpu.cuda import DeformedAhead  # imports numba

        return DeformedAhead(images, labels, deformation, seed, config["epochs"])
    from deform_gpu.batches import BATCH, deform_set  # imports numba

    buffer = np.empty_like(images)

    def deform(epoch: int) -> np.ndarray:
        if images.ndim == 3:
            deform_set(buffer, images, labels, deformation, seed, epoch)
            return buffer
        for start in range(0, len(images), BATCH):  # so that copies of maps stay small
            some = slice(start, start + BATCH)
            for m in range(images.shape[3]):
                one = np.ascontiguousarray(images[some, :, :, m])
                out = np.empty_like(one)
                deform_set(out, one, labels[some], deformation, seed, epoch, first=start)
                buffer[some, :, :, m] = out
        return buffer

    return deform


def net_name(config: dict) -> str:
    """The layers of a run's net as text: 841-1000-500-10, or 20M5s1-MP2-150N."""
    return config.get("layers") or "-".join(map(str, config["sizes"]))


def title(config: dict) -> str:
    """A title for a run: its net, its data, and what is unusual about it."""
    width = config["data"].get("width")
    parts = [f"{net_name(config)} on {config['data']['name']}"]
    parts += [f"WN{width}"] if width else []
    n_apart = config["data"].get("n_validation")
    if not config["deformation"]:
        parts += ["undeformed"]
    else:
        deformation = Deformation(**config["deformation"])
        presets = [replace(preset, translation=0) for preset in (TABLE1, COMMITTEE, TRANSLATION)]
        if replace(deformation, translation=0) not in presets:
            parts += [f"sigma {deformation.sigma:g}, alpha {deformation.alpha:g}"]
        if deformation.translation:
            parts += [f"translated by up to {deformation.translation:g} %"]
    parts += [f"{n_apart:,} images kept apart"] if n_apart else []
    return ", ".join([*parts, f"seed {config['seed']}"])


def schedule_of(config: dict) -> Schedule:
    """The learning-rate schedule that a configuration describes."""
    return Schedule(config["epochs"], config["eta"], config["decay"], config["eta_min"])
