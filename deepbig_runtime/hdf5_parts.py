"""The few parts of HDF5 that our files have, read without the HDF5 library.

The library follows what a file says: links to other files, storage elsewhere, references in
circles. Of 3,000 files with a few changed bytes one made it hang. So our files are read here, and
only what `hdf5.write` makes is accepted: groups and contiguous, unfiltered arrays below each other;
attributes that are a text, an integer or a row of integers. Nothing else is followed, and no size
is believed that the file has no bytes for.

Names and numbers: "HDF5 File Format Specification", version 3.0, sections II to IV; the oldest of
its forms, which the library writes unless it is asked for newer ones.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from struct import unpack_from
from typing import Any

import numpy as np

from deepbig_runtime.files import Malformed

# Types of elements, as datatype messages have them.
TYPES: dict[bytes, np.dtype] = {
    bytes.fromhex("10080000 08000000 00004000"): np.dtype("<i8"),
    bytes.fromhex("11203f00 08000000 00004000 340b0034 ff030000"): np.dtype("<f8"),
    bytes.fromhex("11200f00 02000000 00001000 0a05000a 0f000000"): np.dtype("<f2"),
    bytes.fromhex("11201f00 04000000 00002000 17080017 7f000000"): np.dtype("<f4"),
    bytes.fromhex("10000000 01000000 00000800"): np.dtype("u1"),
    # As h5py writes bool: an enumeration of int8, FALSE and TRUE.
    bytes.fromhex("18020000 01000000 10080000 01000000 00000800")
    + b"FALSE\0\0\0TRUE\0\0\0\0"
    + b"\0\1": np.dtype(bool),
}
TEXT = bytes.fromhex("19010100 10000000 10000000 01000000 00000800")  # of variable length, UTF-8

SUPERBLOCK = b"\x89HDF\r\n\x1a\n" + bytes.fromhex("00000000 00080800 04001000 00000000")
NO_ADDRESS = b"\xff" * 8
MESSAGES = NIL, DATASPACE, DATATYPE, FILL_VALUE, LAYOUT, ATTRIBUTE, CONTINUATION, SYMBOL_TABLE = (
    *(0x00, 0x01, 0x03, 0x05, 0x08, 0x0C, 0x10, 0x11),
)
OF_DATASET = {NIL, DATASPACE, DATATYPE, FILL_VALUE, LAYOUT, ATTRIBUTE, CONTINUATION}
OF_GROUP = {NIL, ATTRIBUTE, CONTINUATION, SYMBOL_TABLE}

# More than any of our files has; what a file says is read in a bounded time.
MAX_OBJECTS, MAX_MESSAGES, MAX_TEXTS, MAX_CHILDREN, MAX_RANK = 500, 100, 500, 32, 4


@dataclass(frozen=True)
class Dataset:
    """An array and its attributes, texts, integers and tuples of integers.

    values: a view of the file's bytes, which cannot be written to.
    """

    values: np.ndarray
    attrs: dict[str, Any]


@dataclass(frozen=True)
class Group:
    """name: its path in the file, with a slash at the end. members: by their names."""

    name: str
    attrs: dict[str, Any]
    members: dict[str, "Group | Dataset"]

    def check(self, names: set[str], attributes: dict[str, type]) -> None:
        """Raise Malformed unless there are exactly these members, and attributes of these types."""
        found = set(self.members)
        require(found == names, f"members of {self.name}", _listed(names), found)
        expected = {f"{name} ({kind.__name__})" for name, kind in attributes.items()}
        found = {f"{name} ({type(value).__name__})" for name, value in self.attrs.items()}
        require(found == expected, f"attributes of {self.name}", _listed(expected), found)

    def group(self, name: str) -> "Group":
        """The member of that name. Raises Malformed if it is no group."""
        member = self.members.get(name)
        if not isinstance(member, Group):
            raise Malformed(f"{self.name}{name} is not there or no group")
        return member

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """A copy of a dataset. Raises Malformed unless it is of that type and shape and finite."""
        values = self._dataset(name).values
        found, expected = (values.dtype, values.shape), (np.dtype(dtype), shape)
        require(
            found == expected, self.name + name, "{} {}".format(*expected), "{} {}".format(*found)
        )
        require(np.isfinite(values).all(), self.name + name, "finite numbers", "others")
        return values.copy()

    def row(self, name: str, dtype: str, units: str) -> np.ndarray:
        """As `array`, of any length. units: that its attribute of that name must say."""
        dataset = self._dataset(name)
        found = dataset.attrs.get("units")
        require(found == units, f"units of {self.name}{name}", units, str(found))
        return self.array(name, dtype, (dataset.values.size,))

    def _dataset(self, name: str) -> Dataset:
        member = self.members.get(name)
        if not isinstance(member, Dataset):
            raise Malformed(f"{self.name}{name} is not there or no array")
        return member


def require(holds: bool | np.bool_, where: str, expected: object, found: object) -> None:
    """Raise Malformed with what was found unless something holds."""
    if not holds:
        text = found if isinstance(found, str) else _listed(found)
        raise Malformed(f"{where}: expected {expected}, found {text}")


def _listed(found: object) -> str:
    text = ", ".join(sorted(found)) or "none" if isinstance(found, set) else str(found)
    return text if len(text) < 200 else f"{text[:200]}..."


def parse(content: bytes, start: int) -> Group:
    """The root group of a file. start: of HDF5's part, the size of the user block.

    Raises Malformed if it is not as `hdf5.write` makes files.
    """
    try:
        return _Parser(content, start).root()
    except UnicodeDecodeError as error:
        raise Malformed(f"a text is no UTF-8 ({error.reason})") from None


class _Parser:
    """Addresses count from `start`."""

    def __init__(self, content: bytes, start: int):
        self._content, self._start = content, start
        self._n_objects = 0

    def root(self) -> Group:
        head = self._bytes(0, 96)
        end = (self._start + len(self._rest)).to_bytes(8, "little")
        base = self._start.to_bytes(8, "little")
        expected = SUPERBLOCK + base + NO_ADDRESS + end + NO_ADDRESS
        require(head[:56] == expected, "the superblock", "that of this file", "another one")
        found = self._object(unpack_from("<Q", head, 64)[0], "/")
        if not isinstance(found, Group):
            raise Malformed("/ is no group")
        return found

    @property
    def _rest(self) -> memoryview:
        return memoryview(self._content)[self._start :]

    def _bytes(self, address: int, n: int, begin: bytes = b"") -> bytes:
        """n bytes at an address, which begin as given."""
        found = bytes(self._rest[address : address + n])
        if len(found) < n or not found.startswith(begin):
            raise Malformed(f"no {n} bytes {begin!r} at {self._start + address}")
        return found

    def _object(self, address: int, name: str) -> Group | Dataset:
        self._n_objects += 1
        require(self._n_objects <= MAX_OBJECTS, name, f"at most {MAX_OBJECTS} objects", "more")
        attrs: dict[str, Any] = {}
        single: dict[int, bytes] = {}
        for kind, data in self._messages(address, name):
            if kind == ATTRIBUTE:
                key, value = self._attribute(data, name)
                require(key not in attrs, name, f"one attribute {key}", "several")
                attrs[key] = value
            elif kind not in (NIL, CONTINUATION):
                require(kind not in single, name, f"one message {kind:#x}", "several")
                single[kind] = data
        if SYMBOL_TABLE in single:
            require(single.keys() <= OF_GROUP, name, "a group", "messages of other objects")
            # Groups in groups in groups are none of ours.
            require(name.count("/") == 1, name, "no group in a group", "one")
            members = dict(self._members(single[SYMBOL_TABLE], name))
            return Group(name if name == "/" else f"{name}/", attrs, members)
        need = {DATASPACE, DATATYPE, LAYOUT}
        require(need <= single.keys(), name, "an array", "an object of another kind")
        require(single.keys() <= OF_DATASET, name, "an array", "messages of other objects")
        return Dataset(self._values(single, name), attrs)

    def _messages(self, address: int, name: str) -> Iterator[tuple[int, bytes]]:
        head = self._bytes(address, 16, b"\1\0")
        blocks = [(address + 16, unpack_from("<I", head, 8)[0])]
        n = 0
        for place, size in blocks:  # grows as continuations are met
            block, at = self._bytes(place, size), 0
            while at + 8 <= size:
                kind, length, flags = unpack_from("<HHB", block, at)
                data = block[at + 8 : at + 8 + length]
                n += 1
                known = kind in MESSAGES and flags in (0, 1) and len(data) == length
                require(known, name, "messages as we write them", f"{kind:#x}, flags {flags}")
                require(n <= MAX_MESSAGES, name, f"at most {MAX_MESSAGES} messages", "more")
                if kind == CONTINUATION:
                    require(length == 16, name, "a continuation of 16 bytes", length)
                    blocks.append(unpack_from("<QQ", data))
                yield kind, data
                at += 8 + length

    def _members(self, table: bytes, name: str) -> Iterator[tuple[str, Group | Dataset]]:
        require(len(table) == 16, name, "a symbol table of 16 bytes", len(table))
        tree, heap = unpack_from("<QQ", table)
        names_size, _, names_at = unpack_from("<QQQ", self._bytes(heap, 32, b"HEAP\0\0\0\0"), 8)
        names = self._bytes(names_at, names_size)
        head = self._bytes(tree, 24, b"TREE\0\0")
        (n,) = unpack_from("<H", head, 6)
        siblings = head[8:] != 2 * NO_ADDRESS
        require(n <= MAX_CHILDREN and not siblings, name, "a tree of one node", "more")
        children = self._bytes(tree + 24, 16 * n)
        before = ""
        for child in range(n):
            (at,) = unpack_from("<Q", children, 16 * child + 8)
            (n_entries,) = unpack_from("<H", self._bytes(at, 8, b"SNOD\1\0"), 6)
            require(n_entries <= 8, name, "at most 8 entries a node", n_entries)
            entries = self._bytes(at + 8, 40 * n_entries)
            for entry in range(n_entries):
                begin, address, kind = unpack_from("<QQI", entries, 40 * entry)
                key = names[begin:].partition(b"\0")[0].decode()
                plain = key.isidentifier() and kind in (0, 1)
                require(plain, f"{name} {key!r}", "a group or an array", "a link")
                require(before < key, name, "names in order", key)
                before = key
                yield key, self._object(address, f"{name.rstrip('/')}/{key}")

    def _values(self, messages: dict[int, bytes], name: str) -> np.ndarray:
        shape = _shape(messages[DATASPACE], name)
        dtype = TYPES.get(_unpadded(messages[DATATYPE]))
        layout = messages[LAYOUT]
        contiguous = len(layout) >= 18 and layout[:2] == b"\3\1"
        require(contiguous, name, "an array in one piece, not filtered", "another one")
        if dtype is None:
            raise Malformed(f"{name} has elements of a type that ours have not")
        address, size = unpack_from("<QQ", layout, 2)
        n = math.prod(shape)
        fits = 0 < size == n * dtype.itemsize and address + size <= len(self._rest)
        require(fits, name, f"{n} elements in the file", f"{size} bytes at {address}")
        raw = np.frombuffer(self._content, np.uint8, size, self._start + address)
        if dtype.kind == "b":
            require(raw.max() <= 1, name, "0 or 1", "other values")
        return raw.view(dtype).reshape(shape)

    def _attribute(self, message: bytes, name: str) -> tuple[str, Any]:
        require(len(message) >= 8 and message[0] == 1, name, "attributes of version 1", "others")
        parts, at = [], 8
        for size in unpack_from("<HHH", message, 2):
            parts.append(message[at : at + size])
            at += -(-size // 8) * 8
        key = parts[0].partition(b"\0")[0].decode()
        where = f"attribute {key} of {name}"
        require(key.isidentifier(), where, "a name", "none")
        shape, data = _shape(parts[2], where), message[at:]
        if parts[1] == TEXT and shape == () and len(data) >= 16:
            length, heap, index = unpack_from("<IQI", data)
            return key, self._text(length, heap, index, where)
        if TYPES.get(parts[1]) != np.int64 or len(shape) > 1 or len(data) < 8 * math.prod(shape):
            raise Malformed(f"{where} is neither a text nor integers")
        values = unpack_from(f"<{math.prod(shape)}q", data)
        return key, values if shape else values[0]

    def _text(self, length: int, heap: int, index: int, where: str) -> str:
        """The text of that index in a heap."""
        (size,) = unpack_from("<Q", self._bytes(heap, 16, b"GCOL\1\0\0\0"), 8)
        at = heap + 16
        for _ in range(MAX_TEXTS):
            if at + 16 > heap + size:
                break
            found, _, _, n = unpack_from("<HHIQ", self._bytes(at, 16))
            if found == index and index:
                require(n == length, where, f"a text of {length} bytes", n)
                return self._bytes(at + 16, n).decode()
            at += 16 + -(-n // 8) * 8
        raise Malformed(f"{where} leads nowhere")


def _unpadded(datatype: bytes) -> bytes:
    """A datatype message without the zeros that fill it up to a multiple of 8 bytes."""
    for known in (*TYPES, TEXT):
        if datatype.startswith(known) and not any(datatype[len(known) :]):
            return known
    return datatype


def _shape(dataspace: bytes, where: str) -> tuple[int, ...]:
    """A dataspace message as the shape of an array that cannot be extended."""
    simple = len(dataspace) >= 8 and dataspace[0] == 1 and dataspace[2] in (0, 1)
    rank = dataspace[1] if simple else MAX_RANK + 1
    n_sizes = rank * (1 + dataspace[2]) if simple else 0
    fits = rank <= MAX_RANK and len(dataspace) >= 8 + 8 * n_sizes
    require(fits, where, "a shape", "none")
    sizes = unpack_from(f"<{n_sizes}Q", dataspace, 8)
    require(not n_sizes > rank or sizes[:rank] == sizes[rank:], where, "a fixed shape", sizes)
    return sizes[:rank]
