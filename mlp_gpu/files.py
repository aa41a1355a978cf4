"""Files that are replaced in one step, so that a reader or a crash never meets half of one."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from mlp_gpu.faults import Fault


class FileFault(Fault):
    """A file that cannot be written or read, or must not be trusted; one sentence says why."""


class Malformed(ValueError):
    """What is wrong with the content of a file, the middle of a sentence."""


@contextlib.contextmanager
def checked(path: Path) -> Iterator[None]:
    """In the body Malformed becomes FileFault, a sentence that names the file."""
    try:
        yield
    except Malformed as what:
        raise FileFault(
            f"{path} is damaged or not as this version of deepbig writes it: {what}; put a good "
            "copy in its place or move it away"
        ) from None


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where missing. Raises FileFault if the system refuses."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileFault(
            f"cannot make the folder {path}: {error.strerror}; choose another one"
        ) from error


def replace(path: Path, content: bytes | memoryview) -> None:
    """Put `content` in the place of `path`, atomically and durably; its folder must exist.

    Raises FileFault if the system refuses (disk full, read-only, ...); the old file then stays.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
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
