"""Damage to files: bytes changed, content of HDF5 files changed under a correct seal, JSON, CSV."""

import contextlib
import copy
import csv
import gzip
import io
import json
import random
import tarfile
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from deepbig_runtime.hdf5 import SEAL, USER_BLOCK, put_seal

LARGEST_READ = 2**27  # bytes of a dataset that is changed by its values
FOREIGN = "/proc/version"  # no file of ours may be read by way of a run file

JSON_VALUES: tuple = (
    *(None, True, False, -1, 0, 1, 2, 3, 2**31, 2**63, 2**64, 10**400, -(10**18), 0.5, 1e308, -0.0),
    *(float("nan"), float("inf"), float("-inf"), "", "x", "1", "nan", "\0", "\ud800", "é" * 1000),
    *([], {}, [[]], [None], [1, 2], [-1, 0], {"": 0}, [[1.5]] * 3, "x" * 2_000_000, [0] * 100_000),
)
TEXTS = (
    "",
    "{",
    "[]",
    "null",
    "0",
    '""',
    "{}",
    "[" * 100_000,
    '{"a":' * 50_000,
    "nan",
    "\ufeff{}",
    "\0",
)


def mutate_bytes(rng: random.Random, content: bytes, first: int = 0) -> bytes:
    """The content with some bytes from `first` on flipped, overwritten, moved, lost or added."""
    changed = bytearray(content)
    # Headers are small and say most: half of all damage is among the first bytes.
    end = len(changed) if rng.random() < 0.5 else min(len(changed), first + 4096)
    for _ in range(rng.choice((1, 1, 1, 2, 8, 64))):
        at = rng.randrange(first, max(end, first + 1))
        length = rng.choice((1, 1, 2, 4, 8, 64, 512))
        other = rng.randrange(first, max(end, first + 1))
        kind = rng.choice(("flip", "flip", "set", "random", "zero", "ones", "copy"))
        if kind == "flip" and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == "set":
            changed[at : at + 1] = bytes([rng.choice((0, 1, 2, 127, 128, 254, 255))])
        elif kind == "random":
            changed[at : at + length] = rng.randbytes(length)
        elif kind in ("zero", "ones"):
            changed[at : at + length] = (b"\0" if kind == "zero" else b"\xff") * length
        elif kind == "copy":
            changed[at : at + length] = changed[other : other + length]
    cut = rng.random()
    if cut < 0.1:
        del changed[rng.randrange(first, len(changed)) :]
    elif cut < 0.15:
        changed += rng.randbytes(rng.choice((1, 100, 5000)))
    elif cut < 0.2:
        at = rng.randrange(first, len(changed))
        del changed[at : at + rng.choice((1, 2, 100))]
    elif cut < 0.25:
        at = rng.randrange(first, len(changed))
        changed[at:at] = rng.randbytes(rng.choice((1, 2, 100)))
    elif cut < 0.26:
        return rng.choice((b"", b"\0", bytes(100), b"\x1f\x8b", SEAL, SEAL + b"\n" * 600))
    return bytes(changed)


def seal(content: bytes) -> bytes:
    """The content of an HDF5 file with the seal that fits it."""
    changed = bytearray(content.ljust(USER_BLOCK, b"\0"))
    put_seal(changed)
    return bytes(changed)


def mutate_structure(rng: random.Random, content: bytes) -> bytes:
    """Other objects in the HDF5 file, behind a seal that fits them."""
    buffer = io.BytesIO(content)
    with h5py.File(buffer, "r+") as file:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            names: list[str] = []
            file.visit(names.append)
            owner = file[rng.choice(["/", *names])] if rng.random() < 0.4 else None
            # What was done before HDF5 refuses to go on is damage too.
            with contextlib.suppress(OSError, ValueError, TypeError, RuntimeError, LookupError):
                if owner is not None and len(owner.attrs):
                    _mutate_attribute(rng, owner)
                elif names:
                    _mutate_object(rng, file, rng.choice(names))
    return seal(buffer.getvalue())


def _mutate_attribute(rng: random.Random, owner: h5py.HLObject) -> None:
    name = rng.choice(sorted(owner.attrs))
    value = owner.attrs[name]
    if isinstance(value, str) and value.startswith(("{", "[")) and rng.random() < 0.85:
        # What an attribute can hold.
        text = mutate_json(rng, value).encode("utf-8", "replace").decode().replace("\0", "")
        owner.attrs[name] = text[:60_000]
        return
    other: Any = rng.choice(
        (
            *(
                None,
                "",
                "x",
                0,
                -1,
                1,
                2**40,
                1.5,
                float("nan"),
                b"\xff\xfe",
                [1, 2],
                [-1, 0],
                [[1]],
            ),
            *([10**9, 10**9], [841, 10**6, 10], np.bool_(True), ["a", "b"], h5py.Empty("f8")),
            *(h5py.Empty(h5py.string_dtype()), np.zeros(3, "i1"), "{}", "null", owner.ref),
        )
    )
    del owner.attrs[name]
    if other is not None:
        owner.attrs[name] = other


def _mutate_object(rng: random.Random, file: h5py.File, name: str) -> None:
    """Replace or change a dataset or a group."""
    old = file[name]
    shape, dtype = getattr(old, "shape", (3,)), getattr(old, "dtype", np.dtype("f4"))
    values = old[()] if _is_plain(old) else np.zeros(3, "f4")
    kinds: dict[str, Callable[[], object]] = {
        "lost": lambda: None,
        "values": lambda: file.create_dataset(name, data=_other_values(rng, values)),
        "type": lambda: file.create_dataset(name, data=_other_type(rng, values)),
        "shape": lambda: file.create_dataset(name, data=_other_shape(rng, values)),
        "empty": lambda: file.create_dataset(name, data=h5py.Empty(dtype)),
        "group": lambda: file.create_group(name),
        "named type": lambda: file.__setitem__(name, np.dtype("f8")),
        "soft": lambda: file.__setitem__(name, h5py.SoftLink(rng.choice((f"/{name}", "/no", "/")))),
        "hard": lambda: file.__setitem__(name, file["/"]),
        "external link": lambda: file.__setitem__(name, h5py.ExternalLink(FOREIGN, "/")),
        "external data": lambda: file.create_dataset(
            name, shape or (1,), dtype, external=[(FOREIGN, 0, h5py.h5f.UNLIMITED)]
        ),
        "virtual": lambda: _make_virtual(rng, file, name, shape or (1,), dtype),
        "huge": lambda: file.create_dataset(
            name, (2 ** rng.choice((20, 31, 40)), 2**10), dtype, chunks=(2**10, 2**10)
        ),
        "packed": lambda: file.create_dataset(
            name, data=np.zeros(2**22, "u1"), chunks=(2**22,), compression="gzip"
        ),
        "chunked": lambda: np.ndim(values) and file.create_dataset(name, data=values, chunks=True),
        "more": lambda: file.create_dataset(f"{name}-more", data=values),
        "moved": lambda: file.move(name, f"{name}-moved"),
    }
    kind = rng.choice([*kinds, "values", "type", "shape"])
    attributes = {key: old.attrs[key] for key in old.attrs}
    if kind not in ("more", "moved"):
        del file[name]
    kinds[kind]()
    if rng.random() < 0.5 and name in file and kind not in ("hard", "soft", "external link"):
        for key, value in attributes.items():
            file[name].attrs[key] = value


def _is_plain(found: h5py.HLObject) -> bool:
    """Whether it can be read here: earlier mutations may have made it huge, or of other files."""
    if not isinstance(found, h5py.Dataset) or found.nbytes > LARGEST_READ:
        return False
    return not found.is_virtual and found.external is None


def _make_virtual(
    rng: random.Random, file: h5py.File, name: str, shape: tuple[int, ...], dtype: np.dtype
) -> None:
    layout = h5py.VirtualLayout(shape, dtype)
    where = rng.choice((FOREIGN, ".", "missing.h5"))
    layout[...] = h5py.VirtualSource(where, rng.choice(("x", f"/{name}")), shape)
    file.create_virtual_dataset(name, layout)


def _other_values(rng: random.Random, values: np.ndarray) -> np.ndarray:
    changed = np.array(values)
    if changed.dtype.kind == "f":
        other = rng.choice((np.nan, np.inf, -np.inf, -1, 0, 1e30, 1e-40, 2, 0.5))
    else:
        other = rng.choice((0, 1, 9, 10, 255, 99, 10**6, -1, 2**62))
    with np.errstate(all="ignore"):
        value = np.array(other).astype(changed.dtype)
    if rng.random() < 0.3:
        changed[...] = value
    elif changed.size:
        changed.reshape(-1)[rng.randrange(changed.size)] = value
    return changed


def _other_type(rng: random.Random, values: np.ndarray) -> np.ndarray:
    kind = rng.choice(("f8", "f2", "i1", "i8", "u8", "S5", ">f4", ">i8", "bool", "c8", "pair"))
    if kind == "pair":
        return np.zeros(np.shape(values), [("a", "f4"), ("b", "i4")])
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(kind)


def _other_shape(rng: random.Random, values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    shapes = {
        "scalar": lambda: values.reshape(-1)[:1].reshape(()),
        "flat": lambda: values.reshape(-1),
        "deep": lambda: values.reshape((1,) * 30 + values.shape),
        "turned": lambda: values.T,
        "fewer": lambda: values.reshape(-1)[:-1] if values.ndim < 2 else values[:-1],
        "narrow": lambda: values[..., :-1] if values.ndim else values,
        "none": lambda: values[:0] if values.ndim else values,
        "doubled": lambda: np.concatenate([values.reshape(-1)] * 2),
    }
    return np.ascontiguousarray(shapes[rng.choice(list(shapes))]())


def mutate_json(rng: random.Random, text: str) -> str:
    """The text with values, names or letters changed."""
    if rng.random() < 0.1:
        return rng.choice(TEXTS)
    if rng.random() < 0.15:
        return mutate_bytes(rng, text.encode()).decode("utf-8", "replace")
    tree = {"": json.loads(text)}
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places: list[tuple[Any, Any]] = []
        _collect(tree, places)
        holder, key = rng.choice(places)
        kind = rng.choice(("set", "set", "set", "lose", "text", "copy", "rename"))
        if kind == "set":
            holder[key] = copy.deepcopy(rng.choice(JSON_VALUES))
        elif kind == "lose" and holder is not tree:
            del holder[key]
        elif kind == "text":
            holder[key] = json.dumps(holder[key])
        elif kind == "copy":
            other, name = rng.choice(places)
            holder[key] = copy.deepcopy(other[name])
        elif kind == "rename" and isinstance(holder, dict) and holder is not tree:
            holder[f"{key}x"] = holder.pop(key)
    return json.dumps(tree[""])


def _collect(tree: Any, places: list[tuple[Any, Any]], depth: int = 0) -> None:
    """All places of a tree: what holds a value, and its key. Of long lists only the first ten."""
    if depth < 6 and isinstance(tree, (dict, list)):
        keys = list(tree)[:50] if isinstance(tree, dict) else range(min(len(tree), 10))
        for key in keys:
            places.append((tree, key))
            _collect(tree[key], places, depth + 1)


def mutate_csv(rng: random.Random, text: str) -> bytes:
    """A CSV file with cells, columns, rows or bytes changed."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, text.encode())
    if rng.random() < 0.1:
        odd = ("", "\n", '"', "a", "\ufeff" + text, text + '"', text.replace("\n", "\r"), "\0")
        return rng.choice(odd).encode()
    rows = list(csv.reader(io.StringIO(text)))
    for _ in range(rng.choice((1, 1, 2, 5))):
        row = rng.randrange(len(rows))
        if not rows[row]:
            continue
        column = rng.randrange(len(rows[row]))
        kind = rng.choice(("cell", "cell", "cell", "lose", "add", "column", "row", "swap", "again"))
        if kind == "cell":
            cells = (
                "",
                " ",
                "x",
                "nan",
                "inf",
                "-1",
                "0",
                "1e999",
                "1/2",
                "\0",
                "é",
                "\n",
                '"',
                "True",
            )
            rows[row][column] = rng.choice((*cells, "9" * 400, "x" * 140_000, "9" * 5000))
        elif kind == "lose":
            del rows[row][column]
        elif kind == "add":
            rows[row].insert(column, "1")
        elif kind == "column":
            rows = [[*cells[:column], *cells[column + 1 :]] for cells in rows]
        elif kind == "row" and len(rows) > 1:
            del rows[row]
        elif kind == "swap":
            other = rng.randrange(len(rows[row]))
            rows[row][column], rows[row][other] = rows[row][other], rows[row][column]
        elif kind == "again":
            rows.append(list(rows[row]))
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "replace")


def mutate_gzip(rng: random.Random, content: bytes) -> bytes:
    """Packed bytes whose header, members or size are odd; the content may be the same."""
    plain = gzip.decompress(content)
    flags = {"name": 8, "comment": 16, "extra": 4, "reserved": 0xE0, "crc": 2, "text": 1}
    kind = rng.choice(("bomb", "members", "rubbish", "cut", *flags))
    if kind == "bomb":
        return gzip.compress(plain + bytes(300_000_000), 1)
    if kind == "members":
        at = rng.randrange(len(plain) + 1)
        return b"".join(gzip.compress(part, 1) for part in (plain[:at], b"", plain[at:]))
    if kind == "rubbish":
        return content + rng.choice((b"\0" * 100, b"x", content, b"\x1f\x8b\x08"))
    if kind == "cut":
        return content[: rng.randrange(len(content))]
    header = bytearray(content[:10])
    header[3] |= flags[kind]
    length = rng.choice((0, 1, 10, 5_000_000))
    odd = {"extra": b"\xff\xff" + b"x" * rng.choice((10, 65535))}.get(kind, b"x" * length + b"\0")
    return bytes(header) + odd + content[10:]


def mutate_tar(rng: random.Random, content: bytes) -> bytes:
    """A packed archive whose members are others."""
    kinds = {"link": tarfile.LNKTYPE, "symbolic": tarfile.SYMTYPE}
    kinds |= {"folder": tarfile.DIRTYPE, "pipe": tarfile.FIFOTYPE}
    source, out = io.BytesIO(gzip.decompress(content)), io.BytesIO()
    with tarfile.open(fileobj=source) as archive, tarfile.open(fileobj=out, mode="w") as other:
        members = archive.getmembers()
        chosen = rng.randrange(len(members))
        for number, member in enumerate(members):
            file: Any = archive.extractfile(member)
            if number == chosen:
                kind = rng.choice(
                    ("lost", "link", "symbolic", "size", "name", "twice", "folder", "pipe")
                )
                if kind == "lost":
                    continue
                if kind == "twice":
                    other.addfile(member, archive.extractfile(member))
                member.type = kinds.get(kind, member.type)
                member.linkname = FOREIGN if kind in ("link", "symbolic") else ""
                if kind == "size":
                    member.size = rng.choice((0, 1, member.size // 2))
                if kind == "name":
                    member.name = rng.choice(("../x", "/etc/x", "x" * 5000, "", "é"))
            other.addfile(member, file if member.isreg() else None)
    changed = out.getvalue()
    if rng.random() < 0.3:
        changed = mutate_bytes(rng, changed)
    return gzip.compress(changed, 1)
