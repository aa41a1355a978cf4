"""Configurations: everything that defines a run, and what follows from it."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, fields, replace
from math import isqrt
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from cnn_gpu.layers import Maps, parse
from cnn_gpu.network import MAX_LETTERS
from deepbig_runtime.errors import Problem
from deepbig_runtime.files import Malformed
from deform_gpu import COMMITTEE, TABLE1, TRANSLATION, Deformation, epochs
from deform_gpu.parameters import SIDE
from experiments.datasets import data
from experiments.datasets.dataset import KINDS, LARGEST, SMALLEST, Dataset, Kind, own_kind
from experiments.training.validation import Positive, Rate, Sha256, Text, convert, parse_json
from mlp_gpu.engine import (
    CONV_CPU_ARITHMETIC,
    CPU_ARITHMETIC,
    ENGINE_NAMES,
    WINDOW_ARITHMETIC,
    WINDOW_IMAGES_PER_BLOCK,
)
from mlp_gpu.network import N_CLASSES
from mlp_gpu.training import Schedule

# Variants of a run that a study tries, see `variants`; "" is none.
VARIANTS = (
    "",
    "padded",
    "padded after",
    "softmax, squared error",
    "tanh, squared error",
    "field an image",
    "field an epoch",
    "equal scaling",
    "fixed sizes",
    "a tenth undeformed",
)
MOST_EPOCHS = 1_000_000
MOST_NEURONS, MOST_LAYERS = 1_000_000, 100  # of a layer, of a perceptron
Neurons = Annotated[int, Meta(ge=1, le=MOST_NEURONS)]


class DataConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The data of a run.

    name: one of dataset.KINDS, or that of a folder of your own. classes: names of the classes of
    such a folder, in the order of labels; UNSET for KINDS. sha256: of the whole data set. n_train,
    n_test: numbers of images; n_train does not count those held out. n_validation: number of
    training images held out to choose the epoch; None: all training images choose it.
    validation_part: of which classes have their shares, see `data.stratified`; UNSET: sampled at
    random. width: width of normalised bounding boxes, pixels; None: not normalised. size: side that
    the pictures of such a folder are scaled to, pixels; UNSET: not scaled.
    """

    name: str
    sha256: Sha256
    n_train: Positive
    n_validation: Positive | None = None
    validation_part: Annotated[int, Meta(ge=1, le=2)] | msgspec.UnsetType = msgspec.UNSET
    n_test: Positive
    width: Annotated[int, Meta(ge=1, le=29)] | None = None
    classes: tuple[Text, ...] | msgspec.UnsetType = msgspec.UNSET  # so that others' JSON lacks it
    size: Annotated[int, Meta(ge=SMALLEST, le=LARGEST)] | msgspec.UnsetType = msgspec.UNSET


class Config(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Everything that defines a run.

    A multi-layer perceptron has `sizes`, the neurons of each layer; a convolutional net has
    `layers`, as `cnn_gpu.layers` describes them, and `source`, the maps, height and width of its
    input. images_per_block: of a GPU's launch mode `window`. cpu_arithmetic, window_arithmetic:
    version of the order of sums on the CPU, and in that mode; older runs have none. eta, decay,
    eta_min: learning rate, factor per epoch, lower bound. deformed_on: the engine that deforms
    images; None with undeformed ones. study: of VARIANTS the one that a run of a study trains;
    None: no such run. Of a study no test image is looked at: the undeformed training
    images take their place.
    Raises ValueError if no run of this program can have such a configuration.
    """

    data: DataConfig
    sizes: Annotated[tuple[Neurons, ...], Meta(min_length=2, max_length=MOST_LAYERS)] = ()
    images_per_block: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    layers: Text = ""
    source: tuple[int, ...] = ()
    n_classes: Annotated[int, Meta(ge=1, le=256)] = N_CLASSES
    cpu_arithmetic: Annotated[int, Meta(ge=1, le=1000)] | None = None
    window_arithmetic: Annotated[int, Meta(ge=1, le=1000)] | None = None
    epochs: Annotated[int, Meta(ge=1, le=MOST_EPOCHS)]
    eta: Annotated[float, Meta(ge=1e-300, le=1e9)]
    decay: Rate
    eta_min: Rate
    seed: int
    deformation: Deformation | None
    deformed_on: str | None
    engine: str
    study: str | None = None

    def __post_init__(self) -> None:
        engines = ", ".join(ENGINE_NAMES)
        _require(self.engine in ENGINE_NAMES, "engine", self.engine, engines)
        if self.deformed_on is not None:
            _require(self.deformed_on in ENGINE_NAMES, "deformed_on", self.deformed_on, engines)
        # msgspec compares no integers above int64.
        _require(0 <= self.seed < 2**64, "seed", self.seed, "an integer from 0 to 2**64 - 1")
        name, classes = self.data.name, self.data.classes
        is_own = name not in KINDS and re.fullmatch(r"[\w.-]{1,70}", name) is not None
        _require(is_own or name in KINDS, "data.name", name, ", ".join(KINDS))
        _require(is_own == bool(classes), "data.classes", classes, "names of classes of own data")
        if self.study is not None:
            valid = self.data.n_validation is not None and self.data.n_test == self.data.n_train
            _require(valid, "study", self.study, "images held out, and n_test as n_train")
            _require(self.study in VARIANTS, "study", self.study, "; ".join(VARIANTS[1:]))
            valid = not self.study or self.engine == "cpu"
            _require(valid, "engine", self.engine, "cpu, on which variants are trained")
        kind = self.kind
        size, side = self.data.size, kind.source.width
        valid = not size or (is_own and (size == side or (size, side) == (28, SIDE)))
        _require(valid, "data.size", size, "the side of the images, of own data")
        n_classes = f"{kind.n_classes}, the classes of {name}"
        _require(self.n_classes == kind.n_classes, "n_classes", self.n_classes, n_classes)
        if self.sizes:
            ends = kind.source.n_neurons, kind.n_classes
            valid = (self.sizes[0], self.sizes[-1], self.layers, self.source) == (*ends, "", ())
            expected = f"{ends} at the ends, and neither layers nor source"
            _require(valid, "sizes", self.sizes, expected)
        else:
            source = astuple(kind.source)
            _require(self.source == source, "source", self.source, f"{source}, or else sizes")
            length = len(self.layers)
            _require(0 < length <= MAX_LETTERS, "layers", length, f"1 to {MAX_LETTERS} letters")
            parse(self.layers, Maps(*source), kind.n_classes)

    @property
    def kind(self) -> Kind:
        """The properties of the data that are known without them."""
        if self.data.name in KINDS:
            return KINDS[self.data.name]
        classes = self.data.classes or ()
        source = Maps(*self.source) if len(self.source) == 3 else _square(self.sizes[:1])
        return own_kind(source, len(classes))

    @property
    def is_convolutional(self) -> bool:
        return bool(self.layers)

    @property
    def net_name(self) -> str:
        """The layers of the net as text: 841-1000-500-10, or 20M5s1-MP2-150N."""
        return self.layers or "-".join(map(str, self.sizes))

    @property
    def learning_rates(self) -> Schedule:
        """The learning-rate schedule."""
        return Schedule(self.epochs, self.eta, self.decay, self.eta_min)

    @property
    def tested_on(self) -> str:
        """The images in the place of test images: test, or of a study training."""
        return "test" if self.study is None else "training"

    @property
    def n_validation(self) -> int:
        """The number of images that choose the epoch."""
        return self.data.n_validation or self.data.n_train

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of labels: numbers, except of your own data."""
        return self.data.classes or tuple(map(str, range(self.n_classes)))

    @property
    def noun(self) -> str:
        """The noun for one of the images: digit or image."""
        return "digit" if self.data.name in ("MNIST", "load_digits") else "image"

    @property
    def title(self) -> str:
        """A title for the run: its net, its data, and everything unusual about it."""
        parts = [f"{self.net_name} on {self.data.name}"]
        parts += [f"WN{self.data.width}"] if self.data.width else []
        parts += [] if self.deformation else ["undeformed"]
        return ", ".join([*parts, *self.unusual, f"seed {self.seed}"])

    @property
    def unusual(self) -> list[str]:
        """What no preset of a deformation has, and the images held out, in words."""
        deformation, n_validation, parts = self.deformation, self.data.n_validation, []
        if deformation:
            presets = (fit_deformation(one, self.kind) for one in (TABLE1, COMMITTEE, TRANSLATION))
            found = [changes(deformation, preset) for preset in presets]
            of_field = [one for one in found if dict(one).keys() <= {"sigma", "alpha"}]
            nearest = min(of_field, key=len, default=found[0])
            parts = [f"{name} {value}" for name, value in nearest]
            if deformation.translation:
                parts += [f"translated by up to {deformation.translation:g} %"]
        if n_validation:
            parts += [f"{n_validation:,} images held out"]
        if self.data.validation_part == 2:
            parts += ["the second part"]
        return parts

    def to_builtins(self) -> dict[str, Any]:
        """The configuration as JSON's values, in the order of the fields."""
        deformation = self.deformation and asdict(self.deformation)
        return msgspec.to_builtins(self) | {"deformation": deformation}

    def to_json(self) -> str:
        """The configuration as JSON, as run files have it."""
        return json.dumps(self.to_builtins())


def _square(n_inputs: tuple[int, ...]) -> Maps:
    """Grey or colour images of as many pixels. Raises ValueError if there are none such."""
    for maps in (1, 3):
        side = isqrt(sum(n_inputs) // maps)
        if n_inputs == (maps * side * side,):
            return Maps(maps, side, side)
    raise ValueError(f"sizes begin with {n_inputs}, expected the pixels of a square image")


def _require(valid: bool, name: str, value: object, expected: str) -> None:
    if not valid:
        raise ValueError(f"{name} is {value!a:.80}, expected {expected}")


def from_builtins(where: str, value: object) -> Config:
    """The configuration in values of JSON. Raises files.Malformed if it is of no run.

    Unknown names raise it too: a setting of another version must not be ignored.
    """
    if isinstance(value, dict):
        value = {"deformed_on": None} | value  # older runs have none
        deformation = value.get("deformation")
        if isinstance(deformation, dict):  # of a dataclass msgspec ignores unknown names
            unknown = deformation.keys() - {field.name for field in fields(Deformation)}
            if unknown:
                raise Malformed(f"{where}.deformation has {min(unknown)!a:.80}, which is unknown")
    return convert(where, value, Config)


def from_json(where: str, text: str) -> Config:
    """The configuration in a JSON text. Raises files.Malformed if it is of no run."""
    return from_builtins(where, parse_json(where, text))


def differences(found: dict, expected: dict, prefix: str = "") -> Iterator[str]:
    """The settings that two configurations do not share, as "eta is 0.1 there and 0.2 here".

    found, expected: as `Config.to_builtins` gives them. prefix: of the names of settings.
    """
    for name in sorted(found.keys() | expected.keys()):
        stored, requested = found.get(name), expected.get(name)
        if isinstance(stored, dict) and isinstance(requested, dict):
            yield from differences(stored, requested, f"{prefix}{name}.")
        elif stored != requested:
            yield f"{prefix}{name} is {stored} there and {requested} here"


def make_config(
    dataset: Dataset,
    net: tuple[int, ...] | str,
    schedule: Schedule,
    seed: int,
    deformation: Deformation | None,
    engine: str,
    width: int | None = None,
    n_validation: int | None = None,
    validation_part: int | None = None,
    windows: bool = False,
    study: str | None = None,
) -> Config:
    """The configuration of a run.

    dataset: as it was loaded and limited. `prepare` splits and normalises it later. net: the sizes
    of a perceptron's layers, or a convolutional net's layers as text, as `cnn_gpu.layers` has them.
    deformation: None for undeformed images; its background becomes that of grey images of your own.
    engine: one of ENGINE_NAMES. width: of normalised bounding boxes, pixels; None: not normalised.
    n_validation: number of training images held out to choose the epoch; None: all training images
    choose it. validation_part: as `data.stratified` has it; None: sampled at random by the seed.
    windows: whether a GPU trains by the launch mode `window`. study: as `Config` has it. Raises
    Problem if no images would be left to train on, or too few.
    """
    deformed_on = "cpu" if dataset.train_images.ndim > 3 else engine  # maps only there
    n_train = len(dataset.train_labels) - (n_validation or 0)
    if n_train <= 0:
        raise Problem(
            f"of {len(dataset.train_labels)} training images none are left to train on, with "
            f"{n_validation} held out to choose the epoch; hold out fewer with --validation"
        )
    if n_validation and validation_part:
        data.stratified(dataset, n_validation, validation_part)
    kind = dataset.kind
    if deformation and dataset.classes and kind.source.n == 1:
        deformation = replace(deformation, background=dataset.background)
    shape: dict[str, Any] = {"layers": net, "source": astuple(kind.source)}
    cpu_arithmetic = CONV_CPU_ARITHMETIC
    if not isinstance(net, str):
        cpu_arithmetic = CPU_ARITHMETIC
        by_windows = windows and engine != "cpu"  # the bits depend on the size of the blocks
        shape = {
            "sizes": net,
            "images_per_block": WINDOW_IMAGES_PER_BLOCK if by_windows else None,
            "window_arithmetic": WINDOW_ARITHMETIC if by_windows else None,
        }
    return Config(
        data=DataConfig(
            name=dataset.name,
            sha256=dataset.sha256,
            n_train=n_train,
            n_validation=n_validation,
            validation_part=validation_part or msgspec.UNSET,
            n_test=len(dataset.test_labels) if study is None else n_train,
            width=width,
            classes=dataset.classes or msgspec.UNSET,
            size=dataset.size or msgspec.UNSET,
        ),
        **shape,
        n_classes=kind.n_classes,
        cpu_arithmetic=cpu_arithmetic if engine == "cpu" else None,
        **asdict(schedule),
        seed=seed,
        deformation=deformation,
        deformed_on=deformed_on if deformation else None,
        engine=engine,
        study=study,
    )


def fit_deformation(deformation: Deformation, kind: Kind) -> Deformation:
    """A preset for digits of 29x29 pixels, fitted to images of a kind.

    Colour images are only translated, as in 2011 (section 4). For grey images of your own all
    classes have the largest beta. In images smaller than digits sigma and the displacement, which
    is proportional to alpha / sigma, shrink with the side. In larger ones both stay, for the kernel
    of 21x21 pixels would cut off a wider Gaussian, and the field would be rough.
    """
    if kind in KINDS.values():
        return deformation
    if kind.source.n > 1:
        return TRANSLATION
    scale = min(kind.source.width / SIDE, 1)
    return replace(
        deformation,
        sigma=deformation.sigma * scale,
        alpha=deformation.alpha * scale**2,
        beta=(max(deformation.beta),) * len(deformation.beta),
    )


def settings(deformation: Deformation) -> list[tuple[str, str]]:
    """The parameters of a deformation that the commands have options for: names and values."""
    return [
        ("sigma", f"{deformation.sigma:g}"),
        ("alpha", f"{deformation.alpha:g}"),
        ("beta", _joined(deformation.beta)),
        ("gamma", _joined((deformation.gamma_x, deformation.gamma_y))),
        ("shear", f"{deformation.shear_probability:g}"),
    ]


def changes(deformation: Deformation, preset: Deformation) -> list[tuple[str, str]]:
    """The settings of a deformation that a preset has otherwise.

    sigma and alpha, which make one field, are both there if one differs.
    """
    own, others = settings(deformation), settings(preset)
    field = own[:2] if own[:2] != others[:2] else []
    return field + [
        value for value, other in zip(own[2:], others[2:], strict=True) if value != other
    ]


def _joined(values: tuple[float, ...]) -> str:
    """Values with commas between them, one if all are the same."""
    return ",".join(f"{value:g}" for value in (values[:1] if len(set(values)) == 1 else values))


def load(config: Config, data_dir: Path | None) -> Dataset:
    """All images of the data that a run was trained on, scaled, not normalised.

    config: the run's. data_dir: as data.load takes it. Raises Problem if other data are found.
    """
    expected = config.data
    scaling: tuple[Callable[[np.ndarray], np.ndarray], ...] = ()
    if (config.study or "").startswith("padded"):
        from experiments.training import variants  # imports numba

        scaling = (variants.pad,)
    choice = data.choice_of(expected.name, data_dir)
    dataset = data.cached(choice, data_dir, expected.size or None, *scaling)
    if dataset.sha256 != expected.sha256:
        raise Problem(
            f"the run was trained on other data than {dataset.source} holds: expected SHA-256 "
            f"{expected.sha256}, found {dataset.sha256}"
        )
    return dataset


def prepare(dataset: Dataset, config: Config) -> Dataset:
    """The images of a run, of all the images of its data, split and normalised."""
    wanted = config.data
    dataset = data.limit(dataset, wanted.n_train + (wanted.n_validation or 0))
    if wanted.n_validation:
        part = wanted.validation_part or None
        dataset = data.split(dataset, wanted.n_validation, config.seed, part)
    if wanted.width:
        dataset = data.normalize(dataset, wanted.width)
    if config.study is not None:
        images, labels = dataset.train_images, dataset.train_labels
        dataset = replace(dataset, test_images=images, test_labels=labels)
    return dataset


def deformer(config: Config, dataset: Dataset) -> Callable[[int], object]:
    """A function from an epoch to the images that the epoch trains on: `deform_gpu.epochs`."""
    images, labels = dataset.train_images, dataset.train_labels
    if config.study and config.deformation:
        from experiments.training import variants  # imports numba

        return variants.deformer(config.study, images, labels, config.deformation, config.seed)
    return epochs.deformer(
        images,
        labels,
        config.deformation,
        config.seed,
        config.epochs,
        config.deformed_on or "cpu",
    )
