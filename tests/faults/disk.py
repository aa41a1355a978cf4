"""What a power cut can leave of a folder, from what a program asked the system to do there.

A file's content is safe once the file was synced, and a name once its folder was. Before that a
content may be there as a whole, in part or not at all, and names may be old or new: what was done
to one file in its order, what was done to several in any.
"""

import builtins
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

from tries import tries

SECTOR, PAGE = 512, 4096  # bytes, of which a disk or a system writes all or nothing
EVEN_CUTS = tries(2, 40)  # multiples of a sector where a content is torn, beside its ends

State = Mapping[str, bytes]  # contents by names


@dataclass
class _File:
    """safe: the content that a cut cannot take any more. content: with what was written since."""

    safe: bytes = b""
    content: bytes = b""

    def possible(self) -> list[bytes]:
        """The contents that a cut can leave, some of them several times."""
        if self.content == self.safe:
            return [self.content]
        return [self.safe, *torn(self.content)]


@dataclass(frozen=True)
class _Change:
    """Of names. file: the name that it had at first. names: new files, None for names that go."""

    file: str
    names: Mapping[str, _File | None]


def torn(content: bytes) -> list[bytes]:
    """A content cut off, with a tail of zeros, and with zeros before it; and the whole of it.

    Where: around the first and last sectors and pages, and at EVEN_CUTS sectors between. How many
    there are does not depend on the content.
    """
    size = len(content)
    near = (0, 1, SECTOR - 1, SECTOR, SECTOR + 1, PAGE - 1, PAGE, PAGE + 1)
    cuts = [length for edge in near for length in (edge, size - edge)]
    sectors = size // SECTOR
    cuts += [SECTOR * (sectors * part // EVEN_CUTS) for part in range(EVEN_CUTS)]
    states = []
    for cut in (min(max(cut, 0), size) for cut in cuts):
        states += [content[:cut], content[:cut] + bytes(size - cut), bytes(cut) + content[cut:]]
    return states


class Disk:
    """A folder, and what is safe in it.

    names: the safe ones. changes: those of names since the folder was synced.
    """

    def __init__(self, content: State):
        self._names = {name: _File(data, data) for name, data in content.items()}
        self._changes: list[_Change] = []

    def _now(self) -> dict[str, _File]:
        return _changed(self._names, self._changes)

    def create(self, name: str) -> None:
        self._changes.append(_Change(name, {name: _File()}))

    def write(self, name: str, data: bytes) -> None:
        self._now()[name].content += data

    def sync(self, name: str) -> None:
        file = self._now()[name]
        file.safe = file.content

    def rename(self, old: str, new: str) -> None:
        self._changes.append(_Change(old, {old: None, new: self._now()[old]}))

    def remove(self, name: str) -> None:
        self._changes.append(_Change(name, {name: None}))

    def sync_folder(self) -> None:
        self._names, self._changes = self._now(), []

    def content(self) -> dict[str, bytes]:
        """What programs see as long as there is power."""
        return {name: file.content for name, file in self._now().items()}

    def after_a_cut(self) -> Iterator[dict[str, bytes]]:
        """All that can be found after a power cut now, some of it several times.

        Of several files that are not safe, one is torn in all ways, the others are new or old.
        """
        for kept in _kept(self._changes):
            names = _changed(self._names, kept)
            unsafe = [name for name, file in names.items() if file.content != file.safe]
            for torn_one in unsafe or [""]:
                contents = [
                    file.possible() if name == torn_one else {file.safe, file.content}
                    for name, file in names.items()
                ]
                for some in product(*contents):
                    yield dict(zip(names, some, strict=True))


def _changed(names: Mapping[str, _File], changes: list[_Change]) -> dict[str, _File]:
    changed: dict[str, _File | None] = dict(names)
    for change in changes:
        changed |= change.names
    return {name: file for name, file in changed.items() if file is not None}


def _kept(changes: list[_Change]) -> Iterator[list[_Change]]:
    """Which changes of names can be safe: for each file all before any of them."""
    files = sorted({change.file for change in changes})
    own = {file: [change for change in changes if change.file == file] for file in files}
    for numbers in product(*(range(len(own[file]) + 1) for file in files)):
        kept = [own[file][:n] for file, n in zip(files, numbers, strict=True)]
        yield [change for change in changes if any(change in some for some in kept)]


class _Watched:
    """A file, opened for writing, that tells what is written and that it is closed."""

    def __init__(self, file: Any, write: Callable[[bytes], None], opened: dict[int, str]):
        self._file, self._write, self._opened = file, write, opened

    def write(self, data: Any) -> int:
        written = self._file.write(data)
        self._write(bytes(data))
        return written

    def flush(self) -> None:
        self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()

    def __enter__(self) -> "_Watched":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.pop(self._file.fileno())
        self._file.close()


@contextmanager
def recorded(folder: Path, asked: Callable[[Disk], None]) -> Iterator[Disk]:
    """Follow what this process does to the files of a folder, except locks, on a Disk.

    asked: called after each thing that it asks the system for. Only what Python's own functions do
    is noticed, and only by the thread that waits for them.
    """
    disk = Disk(read(folder))
    opened: dict[int, str] = {}  # names by file descriptors, "" for the folder

    def own(path: Any) -> str | None:
        """The name of a file of the folder that is followed."""
        if not isinstance(path, str | os.PathLike):
            return None
        found = Path(path)
        is_own = found.parent == folder and found.suffix != ".lock"
        return found.name if is_own else None

    def follow(module: Any, function: str, then: Callable) -> Any:
        """Replace a function by one that calls it, and then `then` with result and arguments."""
        real = getattr(module, function)

        def followed(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            return then(result, *arguments, **options)

        return mock.patch.object(module, function, followed)

    def open_file(file: Any, path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        name = own(path)
        if name is None or not set(mode) & set("wax+"):
            return file
        assert mode == "wb", f"{name} is opened in a way that is not followed: {mode}"
        disk.create(name)
        asked(disk)
        opened[file.fileno()] = name

        def write(data: bytes) -> None:
            disk.write(name, data)
            asked(disk)

        return _Watched(file, write, opened)

    def open_descriptor(descriptor: int, path: Any, *rest: Any, **options: Any) -> int:
        if not isinstance(path, int) and Path(path) == folder:
            opened[descriptor] = ""
        return descriptor

    def close_descriptor(result: None, descriptor: int) -> None:
        opened.pop(descriptor, None)

    def sync(result: None, descriptor: int) -> None:
        name = opened.get(descriptor)
        if name is None:
            return
        if name:
            disk.sync(name)
        else:
            disk.sync_folder()
        asked(disk)

    def rename(result: None, old: Any, new: Any) -> None:
        if (name := own(old)) is not None:
            disk.rename(name, Path(new).name)
            asked(disk)

    def remove(result: None, path: Any, **options: Any) -> None:
        if (name := own(path)) is not None:
            disk.remove(name)
            asked(disk)

    with (
        follow(builtins, "open", open_file),
        follow(os, "open", open_descriptor),
        follow(os, "close", close_descriptor),
        follow(os, "fsync", sync),
        follow(os, "replace", rename),
        follow(os, "rename", rename),
        follow(os, "unlink", remove),
        follow(os, "remove", remove),
    ):
        yield disk
    if disk.content() != read(folder):
        raise AssertionError("the folder was changed in a way that is not followed")


def read(folder: Path) -> dict[str, bytes]:
    """The contents of a folder's files by their names, without locks."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}
