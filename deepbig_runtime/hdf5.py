"""HDF5 files that are whole or not there, and whose damage is noticed.

HDF5 itself notices little: it reads damaged bytes as data, and some make the library hang or crash.
So a file is made in memory, gets a seal, and replaces the old file in one atomic step. The seal is
the SHA-256 of its bytes, in the user block, which HDF5 does not read. A seal says
that nothing happened to a file, not who wrote it: so our reader checks the seal, then takes nothing
for granted of what is behind it. To any other program the file is plain HDF5.
"""

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py

from deepbig_runtime import hdf5_parts
from deepbig_runtime.files import FileFault, checked, read_bytes, replace
from deepbig_runtime.hdf5_parts import Group

USER_BLOCK = 512  # bytes, the smallest that HDF5 offers
SEAL = b"deepbig, SHA-256 of the bytes from 512 on: "


def write(path: Path, fill: Callable[[h5py.File], None]) -> None:
    """Replace `path` by a new sealed file, atomically and durably; its folder must exist.

    fill: writes the content into the empty file. Whatever goes wrong, the old file stays.

    Raises FileFault if the system refuses (disk full, read-only, ...).
    """
    buffer = io.BytesIO()
    # The oldest of HDF5's forms, which `hdf5_parts` reads.
    with h5py.File(buffer, "w", userblock_size=USER_BLOCK, libver="earliest") as file:
        fill(file)
    with buffer.getbuffer() as content:
        put_seal(content)
        replace(path, content)


def put_seal(content: memoryview | bytearray) -> None:
    """Write the seal of a file into the file's user block."""
    digest = hashlib.sha256(memoryview(content)[USER_BLOCK:]).hexdigest()
    seal = SEAL + digest.encode() + b"\n"
    content[: len(seal)] = seal


@contextlib.contextmanager
def opened(path: Path, schema: str, version: int) -> Iterator[Group]:
    """The content of a sealed file, as it was when it was opened, for the body to check and copy.

    schema, version: what the root attributes `schema` and `schema_version` must be. Raises
    FileFault if they are not, if the file cannot be read, if its seal does not fit, or if it is
    not made as `write` makes files. In the body Malformed becomes FileFault.
    """
    try:
        content = read_bytes(path)
    except OSError as error:
        raise FileFault(f"cannot read {path}: {error.strerror}") from error
    if not content.startswith(SEAL):
        raise FileFault(
            f"{path} is damaged or none of this project's files: expected it to begin with "
            f"'deepbig, SHA-256', found {content[:16]!r}; put a good copy in its place or move it "
            "away"
        )
    expected = content[len(SEAL) : len(SEAL) + 64].decode("ascii", "replace")
    found = hashlib.sha256(memoryview(content)[USER_BLOCK:]).hexdigest()
    if found != expected:
        raise FileFault(
            f"{path} is damaged: expected SHA-256 {expected}, found {found}; put a good copy in "
            "its place or move it away to start anew"
        )
    with checked(path):
        file = hdf5_parts.parse(content, USER_BLOCK)
        holds = (file.attrs.get("schema"), file.attrs.get("schema_version"))
        if holds != (schema, version):
            raise FileFault(
                f"{path} holds {holds[0]!r:.60} version {holds[1]!r:.20}, expected {schema!r} "
                f"version {version}; name another file, or read it with the version of deepbig "
                "that wrote it"
            )
        yield file
