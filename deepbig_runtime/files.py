"""Files that are replaced in one step, so that a reader or a crash never meets half of one.

Only regular files are read: opening a named pipe would wait for ever for a writer.
"""

import contextlib
import errno
import glob
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from deepbig_runtime.faults import Fault


class FileFault(Fault):
    """A file that cannot be written or read, or must not be trusted; one sentence says why."""


class Malformed(ValueError):
    """A fault in the content of a file, as the middle of a sentence."""


@contextlib.contextmanager
def checked(path: Path) -> Iterator[None]:
    """In the body Malformed becomes FileFault, a sentence that names the file."""
    try:
        yield
    except Malformed as fault:
        raise FileFault(
            f"{path} is damaged or not as this version of deepbig writes it: {fault}; put a good "
            "copy in its place or move it away"
        ) from None


def cache_folder() -> Path:
    """The folder of all that this project keeps for a user. Raises FileFault without a home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepbig"
    except RuntimeError:
        raise FileFault("this user has no home folder; set XDG_CACHE_HOME to a folder") from None


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where missing.

    Raises FileFault if the system refuses, or keeps closed a folder that is there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        os.stat(os.path.join(path, "."))  # fails without the permission to search it
    except OSError as error:
        raise FileFault(
            f"cannot make the folder {path} or open it: {error.strerror}; choose another one"
        ) from error


def open_regular(path: str | os.PathLike) -> io.BufferedReader:
    """Open a regular file to read its bytes. Raises OSError for anything else, and waits for none.

    Anything else may lie where a file is looked for: a pipe, a socket, a device, a folder.
    """
    return open(path, "rb", opener=_open_regular)


def _open_regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # Windows has none
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # open() itself refuses folders
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def read_bytes(path: Path) -> bytes:
    """The content of a regular file. Raises FileFault if it cannot be read or is another file."""
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise FileFault(f"cannot read {path}: {error.strerror}") from error


def replace(path: Path, content: bytes | memoryview) -> None:
    """Put `content` in the place of `path`, atomically and durably; its folder must exist.

    Raises FileFault if the system refuses (disk full, read-only, ...); the old file then stays. So
    does anything but a regular file, such as a device.
    """
    if path.exists() and not path.is_file():
        raise FileFault(f"cannot write {path}: it is no regular file; name another one")
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    _remove_half_written(path)
    try:
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise FileFault(
            f"cannot write {path}: {error.strerror}; the file that was there before is unchanged: "
            "make room or choose another folder, then start the same command again"
        ) from error
    # The new name itself must survive a power cut. Not every system can sync a folder.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _remove_half_written(path: Path) -> None:
    """Remove temporary files of `path` whose writers were killed, on Linux."""
    processes = Path("/proc")
    if not (processes / "self").exists():
        return
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.tmp"):
        number = left.name.removeprefix(f"{path.name}.").removesuffix(".tmp")
        if number.isdecimal() and not (processes / number).exists():
            with contextlib.suppress(OSError):
                left.unlink()
