"""HDF5 files that are whole or not there, and whose damage is noticed.

HDF5 itself notices little: it reads damaged bytes as data, and some make the library hang or crash.
So a file is made in memory, gets a checksum header, and replaces the old file in one atomic step.
The header is the SHA-256 of the bytes behind it, in the user block, which HDF5 does not read: to
any other program the file is plain HDF5. A checksum shows damage, not origin. So names, dtypes,
shapes and sizes are checked as well, and no other file is opened; but a file that was forged with
care may hang or crash the library (docs/security.md).

Signals are held while h5py works, because it would make errors of HDF5 of their exceptions.
"""

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from deepbig_runtime.errors import signals
from deepbig_runtime.files import FileFault, Malformed, checked, read_bytes, replace

USER_BLOCK = 512  # bytes, the smallest that HDF5 offers
SEAL = b"deepbig, SHA-256 of the bytes from 512 on: "
DTYPES = [np.dtype(name) for name in ("int64", "float64", "float32", "uint8", "bool")]


@dataclass(frozen=True)
class Group:
    """Named arrays, their attributes, and groups of them.

    name: its path in a file, with a slash at the end. attrs: str, int or tuple of int.
    """

    name: str
    attrs: dict[str, Any]
    arrays: dict[str, np.ndarray]
    groups: dict[str, "Group"] = field(default_factory=dict)

    def check(
        self, attrs: dict[str, type], arrays: Iterable[str], groups: Iterable[str] = ()
    ) -> None:
        """Raise Malformed unless there are attributes of exactly these types, and these members."""
        _compare(
            f"attributes of {self.name}",
            [f"{name} ({type(value).__name__})" for name, value in self.attrs.items()],
            [f"{name} ({kind.__name__})" for name, kind in attrs.items()],
        )
        _compare(f"arrays of {self.name}", self.arrays, arrays)
        _compare(f"groups of {self.name}", self.groups, groups)

    def array(self, name: str, dtype: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """An array that is there. shape: None for one dimension of any length.

        Raises Malformed unless it has that dtype and shape and is finite.
        """
        values = self.arrays[name]
        expected = f"{dtype} {(values.size,) if shape is None else shape}"
        if (found := f"{values.dtype} {values.shape}") != expected:
            raise Malformed(f"{self.name}{name}: expected {expected}, found {found}")
        if not np.isfinite(values).all():
            raise Malformed(f"{self.name}{name}: expected finite numbers, found others")
        return values


def _compare(where: str, found: Iterable[str], expected: Iterable[str]) -> None:
    if (names := sorted(found)) != (known := sorted(expected)):
        raise Malformed(f"{where}: expected {known!a:.200}, found {names!a:.200}")


def write(path: Path, fill: Callable[[h5py.File], None]) -> None:
    """Replace `path` by a new file, atomically and durably; its folder must exist.

    fill: writes the content into the empty file. Whatever goes wrong, the old file stays.

    Raises FileFault if the system refuses (disk full, read-only, ...).
    """
    buffer, options = io.BytesIO(), {"userblock_size": USER_BLOCK, "libver": "earliest"}
    with signals.held(), h5py.File(buffer, "w", **options) as file:
        fill(file)
    with buffer.getbuffer() as content:
        put_seal(content)
        replace(path, content)


def put_seal(content: memoryview | bytearray) -> None:
    """Write the checksum header of a file into its user block."""
    seal = _seal(content)
    content[: len(seal)] = seal


def _seal(content: bytes | memoryview | bytearray) -> bytes:
    return SEAL + hashlib.sha256(memoryview(content)[USER_BLOCK:]).hexdigest().encode() + b"\n"


@contextlib.contextmanager
def opened(path: Path, schema: str, version: int) -> Iterator[Group]:
    """The content of a file, for the body to check. In the body Malformed becomes FileFault.

    schema, version: what the root attributes `schema` and `schema_version` must be. Raises
    FileFault if they are not, if the file cannot be read, if its checksum does not fit, or if it
    holds other than groups of plain arrays.
    """
    content = read_bytes(path)
    if not content.startswith(_seal(content)):
        raise FileFault(
            f"{path} is damaged, or none of this project's files: it does not begin with its "
            "checksum; put a good copy in its place or move it away to start anew"
        )
    with checked(path):
        root = _read(content)
        holds = (root.attrs.get("schema"), root.attrs.get("schema_version"))
        if holds != (schema, version):
            raise FileFault(
                f"{path} holds {holds[0]!r:.60} version {holds[1]!r:.20}, expected {schema!r} "
                f"version {version}; name another file, or read it with the version of deepbig "
                "that wrote it"
            )
        yield root


def _read(content: bytes) -> Group:
    """The root group of a file in memory."""
    with signals.held():
        try:
            with h5py.File(h5py.h5f.open_file_image(content)) as file:
                return _read_group(file, "/", len(content))
        except (Malformed, MemoryError):
            raise
        except Exception as error:  # h5py raises exceptions of many kinds
            raise Malformed(f"HDF5 cannot read it ({str(error)[:200]!a})") from None


def _read_group(group: h5py.Group, where: str, max_bytes: int) -> Group:
    """max_bytes: of all arrays together, since several names may refer to one array."""
    # Lists: an iterator that an exception ends half way keeps h5py's lock, and other threads wait,
    # as long as a traceback keeps the iterator.
    attrs = {name: _as_python(where, value) for name, value in list(group.attrs.items())}
    found = Group(where, attrs, {})
    for name in list(group):
        place = f"{where}{ascii(name)[1:-1]:.80}"
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise Malformed(f"{place}: expected a group or an array, found a link")
        member = group[name]
        if isinstance(member, h5py.Group) and where == "/":
            found.groups[name] = below = _read_group(member, f"{place}/", max_bytes)
            max_bytes -= sum(values.nbytes for values in below.arrays.values())
            continue
        if not (isinstance(member, h5py.Dataset) and _is_plain(member)):
            raise Malformed(f"{place}: expected a plain array of numbers, found something else")
        max_bytes -= member.nbytes
        if max_bytes < 0:
            raise Malformed(f"{place}: expected numbers for which the file has room, found more")
        found.arrays[name] = member[()]
    return found


def _is_plain(dataset: h5py.Dataset) -> bool:
    """Whether it has numbers in one piece in its own file: no other file, chunks or filters."""
    properties = dataset.id.get_create_plist()
    is_whole = properties.get_layout() == h5py.h5d.CONTIGUOUS
    in_its_file = properties.get_external_count() == 0
    return is_whole and in_its_file and bool(dataset.shape) and dataset.dtype in DTYPES


def _as_python(where: str, value: Any) -> str | int | tuple[int, ...]:
    """The value of an attribute."""
    if isinstance(value, str):
        return value
    if isinstance(value, np.int64):
        return int(value)
    if isinstance(value, np.ndarray) and value.dtype == np.int64 and value.ndim == 1:
        return tuple(value.tolist())
    raise Malformed(f"{where}: expected attributes of text or integers, found others")
