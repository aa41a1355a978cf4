"""What run files, weights files and records may hold, because anybody can write a file.

A rule takes a place, for its message, and a value as JSON gives it. It raises files.Malformed if
the value is not as expected. `CONFIG`, `PROVENANCE`, `METRICS` and `LIMITS` say what is in a run.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np

from cnn_gpu.layers import Maps, parse
from cnn_gpu.network import MAX_LETTERS
from deform_gpu import Deformation
from experiments.running import nets
from experiments.running.configs import count_validation
from experiments.running.dataset import KINDS
from mlp_gpu import engines
from mlp_gpu.files import Malformed
from mlp_gpu.network import N_INPUTS
from mlp_gpu.training import chosen_epoch

Rule: TypeAlias = Callable[[str, Any], None]

MANY = 10**9  # more than any count
MOST_EPOCHS = 1_000_000
LONG = 1e7  # seconds of an epoch, 115 days: with a million epochs a duration can still be printed
ROUNDING = 1e-3  # more than class probabilities and their sums are off by


def _rule(expected: str, holds: Callable[[Any], bool]) -> Rule:
    def check(where: str, value: object) -> None:
        if not holds(value):
            raise Malformed(f"{where} is {_shown(value)}, expected {expected}")

    return check


def _shown(value: object) -> str:
    """A value of JSON, or the beginning of it, in ASCII on one line."""
    if isinstance(value, dict | list):
        return f"a JSON {'object' if isinstance(value, dict) else 'array'}"
    return f"{value!a:.80}"


def integer(low: int, high: int) -> Rule:
    """An integer from low to high, both included."""
    return _rule(f"an integer from {low} to {high}", lambda v: type(v) is int and low <= v <= high)


def number(low: float, high: float) -> Rule:
    """A finite number from low to high, both included."""
    is_number = (int, float)
    return _rule(
        f"a number from {low:g} to {high:g}", lambda v: type(v) in is_number and low <= v <= high
    )


_CONTROLS = re.compile("[\0-\x1f\x7f-\x9f]")
_HALVES = re.compile("[\ud800-\udfff]")  # of letters, which UTF-8 has not


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or len(value) > 10_000:
        return False
    return not (_CONTROLS.search(value) or _HALVES.search(value))


def _time(value: object) -> datetime | None:
    """A time of these centuries; None if a value is none."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found and 1970 <= found.year < 3000 else None


def _is_time(value: object) -> bool:
    found = _time(value)
    return found is not None and found.tzinfo is not None


def _is_device(value: object) -> bool:
    # A folder is named after it.
    return (
        _is_text(value) and len(str(value)) <= 200 and bool(re.search("(?i)[a-z0-9]", str(value)))
    )


def _are_places(value: object) -> bool:
    return isinstance(value, str) and bool(re.fullmatch("([0-9]{1,9}( [0-9]{1,9})*)?", value))


TEXT = _rule("a text of one line", _is_text)
LINES = _rule("a text", lambda value: isinstance(value, str) and not _HALVES.search(value))
DEVICE = _rule("a name with letters or digits, of at most 200", _is_device)
PLACES = _rule("whole numbers with spaces between them", _are_places)
DATE = _rule("a time, ISO 8601", lambda value: _time(value) is not None)
TIME = _rule("a time with its zone, ISO 8601", _is_time)
ANY: Rule = _rule("anything", lambda value: True)
FLAG = _rule("true or false", lambda value: isinstance(value, bool))
SHA256 = _rule(
    "64 hexadecimal digits",
    lambda value: isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value)),
)


def one_of(*values: str) -> Rule:
    """One of some texts."""
    return _rule(f"one of {', '.join(values)}", lambda v: isinstance(v, str) and v in values)


def nullable(rule: Rule) -> Rule:
    """null, or what another rule asks for."""

    def check(where: str, value: object) -> None:
        if value is not None:
            rule(where, value)

    return check


def array(rule: Rule, shortest: int = 0, longest: int = MANY) -> Rule:
    """An array of values for a rule."""

    def check(where: str, value: object) -> None:
        if not isinstance(value, list) or not shortest <= len(value) <= longest:
            raise Malformed(f"{where} is no array of a length from {shortest} to {longest}")
        for place, item in enumerate(value):
            rule(f"{where}[{place}]", item)

    return check


def mapping(
    rules: Mapping[str, Rule], optional: Mapping[str, Rule] = {}, others: Rule | None = None
) -> Rule:
    """An object. optional: of names that may be missing. others: of all other names, if allowed."""

    def check(where: str, value: object) -> None:
        if not isinstance(value, dict):
            raise Malformed(f"{where} is {_shown(value)}, expected a JSON object")
        if missing := sorted(rules.keys() - value.keys()):
            raise Malformed(f"{where} lacks {missing[0]}")
        for name, item in value.items():
            rule = rules.get(name) or optional.get(name) or others
            if rule is None:
                raise Malformed(f"{where} has {name!a:.80}, which is not known here")
            rule(f"{where}.{name!a:.80}".replace("'", ""), item)

    return check


CONFIG = mapping(
    {
        "data": mapping(
            {
                "name": one_of(*KINDS),
                "sha256": SHA256,
                "n_train": integer(1, MANY),
                "n_test": integer(1, MANY),
            },
            # Configurations of older runs lack these.
            {"n_validation": nullable(integer(0, MANY)), "width": nullable(integer(1, 29))},
        ),
        "epochs": integer(1, MOST_EPOCHS),
        "eta": number(1e-300, 1e9),
        "decay": number(0, 1e9),
        "eta_min": number(0, 1e9),
        "seed": integer(0, 2**64 - 1),
        "deformation": nullable(ANY),
        "engine": one_of(*engines.NAMES),
    },
    {
        "sizes": array(integer(1, 1_000_000), 2, 100),
        "images_per_block": integer(1, 10_000),
        "cpu_arithmetic": integer(1, 1000),
        "layers": TEXT,
        "source": array(integer(1, 1000), 3, 3),
        "n_classes": integer(1, 256),
        "deformed_on": nullable(one_of(*engines.NAMES)),
    },
)

PROVENANCE = array(
    mapping(
        {
            "commit": TEXT,
            "dirty": FLAG,
            "device": DEVICE,
            "versions": mapping({}, others=TEXT),
            "start": TIME,
            "end": nullable(TIME),
            "why": TEXT,
        },
        {
            "driver": nullable(TEXT),
            "engine": TEXT,
            "schedule": nullable(TEXT),
            "peak_memory_bytes": nullable(integer(0, 2**63)),
        },
        others=ANY,
    ),
    shortest=1,
)

# The smallest and the largest value of each metric. Rates are divided by the time of training.
LIMITS = {
    "epoch": (1, MOST_EPOCHS),
    "eta": (1e-300, 1e9),
    "train_loss": (-1e300, 1e300),
    "validation_errors": (0, MANY),
    "test_errors": (0, MANY),
    "deform_seconds": (0, LONG),
    "train_seconds": (1e-12, LONG),
    "evaluate_seconds": (0, LONG),
}
_COUNTS = "epoch", "validation_errors", "test_errors"
_COUNT, _NUMBER = integer(-MANY, MANY), number(-1e300, 1e300)
# As JSON has them; `check_metrics` compares them with the limits.
METRICS = mapping({name: array(_COUNT if name in _COUNTS else _NUMBER, 1) for name in LIMITS})


def parsed_number(where: str, text: str, largest: float) -> None:
    """Raise files.Malformed unless a text is a finite number, of at most such a size."""
    try:
        is_number = abs(float(text)) <= largest
    except ValueError:
        is_number = False
    if not is_number:
        raise Malformed(f"{where} is {text!a:.80}, expected a number up to {largest:g}")


def parse_json(where: str, text: str) -> Any:
    """The value of a JSON text. Raises files.Malformed if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{where} is no JSON ({error})") from None


def check_config(where: str, config: Any) -> None:
    """Raise files.Malformed unless this program can train the run that a configuration describes.

    So do names that are not known: a setting of another version must not be passed over.
    """
    CONFIG(where, config)
    kind = KINDS[config["data"]["name"]]
    n_classes = nets.count_classes(config)
    if n_classes != kind.n_classes:
        raise Malformed(f"{where} has {n_classes} classes, expected {kind.n_classes}")
    described = sorted(config.keys() & {"sizes", "layers", "source"})
    if described == ["sizes"]:
        ends = config["sizes"][0], config["sizes"][-1]
        if ends != (N_INPUTS, n_classes):
            raise Malformed(f"{where}.sizes must begin with {N_INPUTS} and end with {n_classes}")
    elif described == ["layers", "source"]:
        source = tuple(config["source"])
        if source != astuple(kind.source) or len(config["layers"]) > MAX_LETTERS:
            raise Malformed(f"{where} has a source or layers that no net on its data has")
        try:
            parse(config["layers"], Maps(*source), n_classes)
        except ValueError as error:
            raise Malformed(f"{where}.layers: {error}") from None
    else:
        raise Malformed(f"{where} has {described}, expected sizes, or layers and source")
    if (deformation := config["deformation"]) is not None:
        mapping({"beta": array(ANY)}, others=number(-1e38, 1e38))(
            f"{where}.deformation", deformation
        )
        array(number(-1e38, 1e38))(f"{where}.deformation.beta", deformation["beta"])
        try:
            Deformation(**deformation)
        except (TypeError, ValueError) as error:
            raise Malformed(f"{where}.deformation: {str(error)!a:.200}") from None


def check_metrics(metrics: Mapping[str, Sequence], config: Mapping) -> None:
    """Raise files.Malformed unless lists of numbers, of one epoch or more, are those of a run."""
    n = len(metrics["epoch"])
    for name, (low, high) in LIMITS.items():
        if len(metrics[name]) != n or n > config["epochs"]:
            raise Malformed(
                f"metrics.{name} has {len(metrics[name])} epochs, expected those of metrics.epoch "
                f"and at most {config['epochs']}"
            )
        smallest, largest = min(metrics[name]), max(metrics[name])
        if not (low <= smallest and largest <= high):
            raise Malformed(
                f"metrics.{name} is from {smallest:g} to {largest:g}, expected at least {low:g} "
                f"and at most {high:g}"
            )
    if list(metrics["epoch"]) != list(range(1, n + 1)):
        raise Malformed(f"metrics.epoch must count from 1 to {n}")
    n_images = {"validation": count_validation(dict(config)), "test": config["data"]["n_test"]}
    for name, images in n_images.items():
        if max(metrics[f"{name}_errors"]) > images:
            raise Malformed(f"metrics.{name}_errors has more errors than images, {images}")


def check_predictions(
    outputs: np.ndarray, labels: np.ndarray, epoch: object, metrics: Mapping[str, Sequence]
) -> None:
    """Raise files.Malformed unless finite outputs are probabilities, as wrong as the metrics say.

    outputs: float32 (n, classes). labels: uint8 (n,). epoch: of the outputs.
    """
    chosen = chosen_epoch(metrics["validation_errors"])
    if epoch != chosen:
        raise Malformed(f"predictions are of epoch {epoch}, expected the chosen one, {chosen}")
    if labels.max() >= outputs.shape[1]:
        raise Malformed(f"labels are up to {labels.max()}, of {outputs.shape[1]} classes")
    if outputs.min() < 0 or abs(outputs.sum(axis=1, dtype=np.float64) - 1).max() > ROUNDING:
        raise Malformed("outputs are no probabilities that add up to 1")
    n = metrics["test_errors"][chosen - 1]
    if not may_be_wrong(outputs, labels, n):
        raise Malformed(f"outputs are wrong for other than {n} test images, as metrics say")


def may_be_wrong(outputs: np.ndarray, labels: np.ndarray, n: int) -> bool:
    """Whether n errors may have been counted of a net that has such outputs, (n, classes), here.

    On another processor they differ by rounding, and with them now and then what is most likely.
    """
    rows = np.arange(len(labels))
    others = outputs.copy()
    others[rows, labels] = -np.inf
    ahead = outputs[rows, labels] - others.max(axis=1)
    least, most = np.count_nonzero(ahead < -ROUNDING), np.count_nonzero(ahead <= ROUNDING)
    return bool(least <= n <= most)
