"""Gzip files that are read in bounded time."""

import gzip
from typing import Any, BinaryIO

SMALL = 16  # bytes
MAX_SMALL_READS = 100_000


class _FewHeaders:
    """The bytes of a gzip file, as gzip.GzipFile wants them.

    That reads the names in headers byte by byte, which takes seconds for a name of some megabytes.
    So there is a limit to small reads: OSError.
    """

    def __init__(self, packed: BinaryIO):
        self._packed = packed
        self._small_reads = 0

    def read(self, size: int = -1) -> bytes:
        self._small_reads += 0 <= size < SMALL
        if self._small_reads > MAX_SMALL_READS:
            raise OSError("expected gzip headers of some bytes, found longer ones")
        return self._packed.read(size)

    def seek(self, offset: int, whence: int = 0) -> Any:
        return self._packed.seek(offset, whence)


class Unpacked(gzip.GzipFile):
    """The content of an open gzip file. Headers that would take seconds to read raise OSError."""

    def __init__(self, packed: BinaryIO):
        super().__init__(fileobj=_FewHeaders(packed), mode="rb")
