"""Net files: the net of a run at its chosen epoch, alone, to keep or to hand on.

RUN.safetensors is a safetensors file of half the size of the weights where half precision changes
no answer; a run file and its weights file have four times as much. Its tensors are the arrays that
the net is stored with: weights as F16 or F32, connection tables as U8. Its metadata have one entry,
JSON: the run's configuration, the epoch and its errors, and the SHA-256 of the file with dashes in
the place of these 64 digits. As in a run file, the checksum shows damage, not origin.

Where files must be small, it is cut into parts, RUN.safetensors.1of2 and so on. Each begins with
the 64 digits; the file itself follows, part by part.
"""

import hashlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import safetensors.numpy
from msgspec import Meta, Struct

from deepbig_runtime import files
from deepbig_runtime.hdf5 import Group
from experiments.training import configs, nets
from experiments.training.configs import MOST_EPOCHS, Config
from experiments.training.nets import AnyNetwork
from experiments.training.validation import Count, Sha256, convert, parse_json

SUFFIX = ".safetensors"
ENTRY = "deepbig net"  # of the metadata
NO_DIGITS = "-" * 64
PART = re.compile(rf"(.+{re.escape(SUFFIX)})\.\d+of([1-9]\d?)")  # a name; the net file's, and n
PART_BYTES = 15_000_000
WEIGHT = np.dtype(np.float32)


@dataclass(frozen=True)
class NetFile:
    """The configuration of a run, its chosen epoch, and its net there.

    validation_errors, test_errors: numbers of wrong images at that epoch; None in older files.
    """

    config: Config
    epoch: int
    network: AnyNetwork
    validation_errors: int | None = None
    test_errors: int | None = None

    @property
    def described(self) -> str:
        """The net, how long it was trained, and its test error."""
        text = f"{self.config.title}, epoch {self.epoch:,} of {self.config.epochs:,}"
        if self.test_errors is None:
            return text
        wrong, n = self.test_errors, self.config.data.n_test
        return f"{text}, {wrong:,} of {n:,} test images wrong ({wrong / n:.2%})"


class _Entry(Struct, forbid_unknown_fields=True):
    version: Literal[1]
    epoch: Annotated[int, Meta(ge=1, le=MOST_EPOCHS)]
    config: object
    sha256: Sha256
    validation_errors: Count | None = None
    test_errors: Count | None = None


def is_net_file(path: Path) -> bool:
    """Whether a path is, by its name, a net file or a part of one."""
    return path.suffix == SUFFIX or PART.fullmatch(path.name) is not None


def halved(network: AnyNetwork) -> AnyNetwork:
    """The net with all weights rounded to float16, as float32.

    Raises ValueError if a weight is too large for float16.
    """
    with np.errstate(over="ignore"):
        weights: list[Any] = [
            None if W is None else W.astype(np.float16).astype(WEIGHT) for W in network.weights
        ]
    if not all(W is None or np.isfinite(W).all() for W in weights):
        raise ValueError("a weight is beyond float16's largest number, 65,504")
    return replace(network, weights=tuple(weights))


def write(path: Path, found: NetFile, half: bool, in_parts: bool = False) -> list[Path]:
    """Replace a net file, or its parts; returns their paths. Raises files.FileFault if that fails.

    half: weights as float16. in_parts: in parts of at most PART_BYTES, if it is larger.
    """
    dtypes = {WEIGHT: np.float16 if half else WEIGHT, np.dtype(bool): np.uint8}
    arrays = found.network.stored().arrays
    tensors = {name: W.astype(dtypes[W.dtype], order="C") for name, W in arrays.items()}
    entry = {"version": 1, "epoch": found.epoch, "config": found.config.to_builtins()}
    if found.test_errors is not None:
        entry |= {"validation_errors": found.validation_errors, "test_errors": found.test_errors}
    # One entry, because the library writes several in any order.
    text = json.dumps(entry | {"sha256": NO_DIGITS})
    content = safetensors.numpy.save(tensors, {ENTRY: text})
    digits = hashlib.sha256(content).hexdigest()
    content = content.replace(NO_DIGITS.encode(), digits.encode(), 1)
    if not in_parts or len(content) <= PART_BYTES:
        files.replace(path, content)
        written = [path]
    else:
        step = PART_BYTES - len(digits)
        starts = range(0, len(content), step)
        written = _part_paths(path, len(starts))
        for part, start in zip(written, starts, strict=True):
            files.replace(part, digits.encode() + content[start : start + step])
    for other in path.parent.iterdir():  # of an earlier export
        name = PART.fullmatch(other.name)
        if (other == path or (name and name[1] == path.name)) and other not in written:
            other.unlink()
    return written


def _part_paths(path: Path, n: int) -> list[Path]:
    return [path.with_name(f"{path.name}.{number}of{n}") for number in range(1, n + 1)]


def read(path: Path) -> NetFile:
    """The content of a net file. path: its own, or that of one of its parts.

    Raises files.FileFault if it or a part is missing, damaged or something else, or if it holds
    weights that no net can have.
    """
    part = PART.fullmatch(path.name)
    content = _joined(path.with_name(part[1]), int(part[2])) if part else files.read_bytes(path)
    with files.checked(path):
        entry, tensors = _parse(content)
        blank = content.replace(entry.sha256.encode(), NO_DIGITS.encode(), 1)
        if (found := hashlib.sha256(blank).hexdigest()) != entry.sha256:
            raise files.Malformed(f"expected SHA-256 {entry.sha256}, found {found}")
        config = configs.from_builtins("config", entry.config)
        if entry.epoch > config.epochs:
            raise files.Malformed(f"its epoch is {entry.epoch}, expected 1 to {config.epochs}")
        arrays = {name: _widened(name, values) for name, values in tensors.items()}
        network = nets.kind(config).read(Group("", nets.attributes(config), arrays))
        errors = entry.validation_errors, entry.test_errors
        for wrong, n in zip(errors, (config.n_validation, config.data.n_test), strict=True):
            if (wrong or 0) > n:
                raise files.Malformed(f"{wrong} of {n} images are wrong there")
        return NetFile(config, entry.epoch, network, *errors)


def _joined(path: Path, n: int) -> bytes:
    """The net file at `path` that was cut into n parts."""
    parts = _part_paths(path, n)
    contents = [files.read_bytes(part) for part in parts]
    digits = len(NO_DIGITS)
    for part, content in zip(parts, contents, strict=True):
        if content[:digits] != contents[0][:digits]:
            raise files.FileFault(f"{part} is not a part of the same net as {parts[0]}")
    return b"".join(content[digits:] for content in contents)


def _parse(content: bytes) -> tuple[_Entry, dict[str, np.ndarray]]:
    try:
        tensors = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ArithmeticError, LookupError, ValueError) as error:
        raise files.Malformed(f"it is no safetensors file ({str(error)[:200]!a})") from None
    size = int.from_bytes(content[:8], "little")
    metadata = parse_json("its header", content[8 : 8 + size].decode()).get("__metadata__") or {}
    value = parse_json(f"the metadata entry {ENTRY!r}", metadata.get(ENTRY, ""))
    return convert(ENTRY, value, _Entry), tensors


def _widened(name: str, values: np.ndarray) -> np.ndarray:
    """Weights as float32, connection tables as bool."""
    if values.dtype in (np.float16, WEIGHT):
        return values.astype(WEIGHT)
    if values.dtype != np.uint8 or values.max(initial=0) > 1:
        raise files.Malformed(f"{name}: expected F16, F32, or U8 of 0 and 1, found others")
    return values.astype(bool)
