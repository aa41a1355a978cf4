"""Strategies of hypothesis: files with other bytes, or with other content behind a right seal."""

import io
import json

import h5py
import numpy as np
from hypothesis import strategies as st

from deepbig_runtime.hdf5 import put_seal

# As JSON may hold them.
ODD = (
    *(None, True, -1, 0, 1, 2, 2**31, 2**63, 10**400, 0.5, 1e308, float("nan"), float("inf"), ""),
    *("x", "1", "nan", "\0", "\ud800", "é" * 1000, "9" * 5000, "x" * 200_000, [], {}, [[]], [1, 2]),
    *({"": 0}, [[1.5]] * 3, [0] * 100_000),
)
NUMBERS = st.sampled_from((np.nan, np.inf, -1, 0, 1, 9, 10, 255, 1e30, 1e-40, 2.0**62))


class Content(bytes):
    """Of a file; a failed test prints no more of it than the length."""

    def __repr__(self):
        return f"{len(self):,} bytes"


@st.composite
def changed_bytes(draw, content):
    """The content with parts changed, lost, repeated or inserted."""
    content = bytearray(content)
    rng = draw(st.randoms(use_true_random=True))  # hypothesis itself prefers small numbers
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 8)))):
        # Headers are small and say most: much damage is among the first bytes.
        at = rng.randrange(rng.choice((2000, len(content) + 1, len(content) + 1)))
        new = rng.randbytes(rng.choice((1, 1, 2, 8)))
        length = rng.choice((*[len(new)] * 9, 0, 512, len(content)))
        copied = content[rng.randrange(len(content) + 1) :][:length]
        content[at : at + length] = rng.choice((*[new] * 6, bytes(length), copied, b""))
    return Content(content)


@st.composite
def forged_json(draw, text):
    """The JSON text with a value changed, lost or renamed, or another text."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(("", "{", "[]", "null", "{}", "[" * 50_000, "nan")))
    tree = [json.loads(text)]
    holder, key = tree, 0
    while isinstance(holder[key], dict | list) and holder[key] and draw(st.integers(0, 4)):
        holder = holder[key]
        keys = list(holder) if isinstance(holder, dict) else range(min(len(holder), 10))
        key = draw(st.sampled_from(keys))
    how = draw(st.sampled_from(("other", "other", "text", "lost", "renamed")))
    value = holder.pop(key) if holder is not tree else holder[key]
    if how == "renamed" and isinstance(holder, dict):
        holder[f"{key}x"] = value
    elif how != "lost":
        value = json.dumps(value) if how == "text" else draw(st.sampled_from(ODD) | st.text())
        holder.insert(key, value) if isinstance(holder, list) else holder.update({key: value})
    return json.dumps(tree[0])


@st.composite
def forged_hdf5(draw, content):
    """Other objects in an HDF5 file, behind a seal that fits them."""
    buffer = io.BytesIO(content)
    with h5py.File(buffer, "r+") as file:
        names = []
        file.visit(names.append)
        if draw(st.booleans()):
            owner = file[draw(st.sampled_from(["/", *names]))]
            if len(owner.attrs):
                _forge_attribute(draw, owner.attrs)
        else:
            name = draw(st.sampled_from(names))
            old, attributes = file[name], dict(file[name].attrs)
            values = old[()] if isinstance(old, h5py.Dataset) else np.zeros(3, "f4")
            del file[name]
            draw(st.sampled_from(FORGERIES))(draw, file, name, values)
            if isinstance(file.get(name), h5py.Dataset) and draw(st.booleans()):
                file[name].attrs.update(attributes)
    forged = bytearray(buffer.getvalue())
    put_seal(forged)
    return Content(forged)


def _forge_attribute(draw, attributes):
    name = draw(st.sampled_from(sorted(attributes)))
    value = attributes[name]
    if isinstance(value, str) and value.startswith(("{", "[")) and draw(st.integers(0, 4)):
        text = draw(forged_json(value)).encode("utf-8", "replace").decode().replace("\0", "")
        attributes[name] = text[:60_000]  # as much as an attribute can hold
        return
    odd = (
        *(None, "", "x", "{}", 0, -1, 2**40, 1.5, np.nan, b"\xff", [1, 2], [-1, 0], [[1]]),
        *([10**9] * 2, h5py.Empty("f8"), np.zeros(3, "i1"), ["a", "b"]),
    )
    value = draw(st.sampled_from(odd))
    del attributes[name]
    if value is not None:
        attributes[name] = value


def _other_values(draw, file, name, values):
    with np.errstate(all="ignore"):
        value = np.array(draw(NUMBERS)).astype(values.dtype)
    values = np.array(values)
    values.reshape(-1)[draw(st.integers(0, max(values.size - 1, 0))) : draw(st.integers(1, 9))] = (
        value
    )
    file[name] = values


def _other_type(draw, file, name, values):
    kinds = "f8", "f2", "i1", "i8", "u8", "S5", ">f4", ">i8", "bool", "c8"
    with np.errstate(all="ignore"):
        file[name] = np.asarray(values).astype(draw(st.sampled_from(kinds)))


def _other_shape(draw, file, name, values):
    shapes = values.reshape(-1), values[:-1], values[..., None], values.T, values[:0], values[0]
    file[name] = draw(st.sampled_from([*shapes, np.concatenate([values, values])]))


FORGERIES = [
    *[_other_values, _other_type, _other_shape] * 2,
    lambda draw, file, name, values: None,  # it is lost
    lambda draw, file, name, values: file.create_group(name),
    lambda draw, file, name, values: file.__setitem__(f"{name}x", values),
    lambda draw, file, name, values: file.__setitem__(name, values.dtype),
    lambda draw, file, name, values: file.create_dataset(name, data=h5py.Empty("f8")),
]
