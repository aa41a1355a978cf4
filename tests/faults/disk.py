"""What a power cut can leave of a folder, from what a program asked the system to do there.

A file's content is safe once the file was synced, and a name once its folder was. Before that a
content may be there as a whole, in part or not at all, and names may be old or new: what was done
to one file in its order, what was done to several in any.
"""

import builtins
import io
import os
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from unittest import mock

from tries import tries

SECTOR, PAGE = 512, 4096  # bytes, of which a disk or a system writes all or nothing
EVEN_CUTS = tries(2, 40)  # multiples of a sector where a content is torn, beside its ends


@dataclass
class _File:
    """safe: the content that a cut cannot take any more. content: with what was written since."""

    safe: bytes = b""
    content: bytes = b""

    def possible(self):
        """The contents that a cut can leave, some of them several times."""
        if self.content == self.safe:
            return [self.content]
        return [self.safe, *torn(self.content)]


@dataclass(frozen=True)
class _Change:
    """Of names. file: the name that it had at first. names: new files, None for names that go."""

    file: str
    names: dict


def torn(content):
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

    def __init__(self, content):
        self._names = {name: _File(data, data) for name, data in content.items()}
        self._changes = []

    def _now(self):
        return _changed(self._names, self._changes)

    def create(self, name):
        self._changes.append(_Change(name, {name: _File()}))

    def write(self, name, data):
        self._now()[name].content += data

    def sync(self, name):
        file = self._now()[name]
        file.safe = file.content

    def rename(self, old, new):
        self._changes.append(_Change(old, {old: None, new: self._now()[old]}))

    def remove(self, name):
        self._changes.append(_Change(name, {name: None}))

    def sync_folder(self):
        self._names, self._changes = self._now(), []

    def content(self):
        """What programs see as long as there is power."""
        return {name: file.content for name, file in self._now().items()}

    def after_a_cut(self):
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


def _changed(names, changes):
    changed = dict(names)
    for change in changes:
        changed |= change.names
    return {name: file for name, file in changed.items() if file is not None}


def _kept(changes):
    """Which changes of names can be safe: for each file all before any of them."""
    files = sorted({change.file for change in changes})
    own = {file: [change for change in changes if change.file == file] for file in files}
    for numbers in product(*(range(len(own[file]) + 1) for file in files)):
        kept = [own[file][:n] for file, n in zip(files, numbers, strict=True)]
        yield [change for change in changes if any(change in some for some in kept)]


class _Watched(io.FileIO):
    """A file, opened for writing, that reports what is written."""

    def __init__(self, path, report):
        super().__init__(path, "w")
        self._report = report

    def write(self, data):
        self._report(bytes(data))
        return super().write(data)


@contextmanager
def recorded(folder, asked):
    """Follow what this process does to the files of a folder, except locks, on a Disk.

    asked: called after each thing that it asks the system for. Only what Python's own functions do
    is noticed, and only by the thread that waits for them.
    """
    disk = Disk(read(folder))

    def is_own(path):
        """Whether it is a file of the folder that is followed."""
        if not isinstance(path, str | os.PathLike):
            return False
        return Path(path).parent == folder and Path(path).suffix != ".lock"

    def follow(function, then):
        """Replace a function of os by one that calls it, and then `then` with the arguments."""
        real = getattr(os, function)

        def followed(path, *arguments, **options):
            result = real(path, *arguments, **options)
            if function == "fsync" or is_own(path):
                then(path, *arguments)
                asked(disk)
            return result

        return mock.patch.object(os, function, followed)

    def open_file(path, mode="r", *arguments, **options):
        if not is_own(path) or mode in ("r", "rb"):
            return real_open(path, mode, *arguments, **options)
        assert mode == "wb", f"{path} is opened in a way that is not followed: {mode}"

        def report(data):
            disk.write(Path(path).name, data)
            asked(disk)

        file = _Watched(path, report)
        disk.create(Path(path).name)
        asked(disk)
        return file

    def sync(descriptor):
        synced = os.fstat(descriptor)
        if os.path.samestat(synced, folder.stat()):
            disk.sync_folder()
        for name in disk.content():
            if os.path.samestat(synced, (folder / name).stat()):
                disk.sync(name)

    def rename(old, new):
        disk.rename(Path(old).name, Path(new).name)

    def remove(path):
        disk.remove(Path(path).name)

    real_open = open
    with (
        mock.patch.object(builtins, "open", open_file),
        follow("fsync", sync),
        follow("replace", rename),
        follow("unlink", remove),
    ):
        yield disk
    assert disk.content() == read(folder), "the folder was changed in a way that is not followed"


def read(folder):
    """The contents of a folder's files by their names, without locks."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}
