"""The files of data sets: where they are looked for, and how they are downloaded."""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from deepbig_runtime.errors import Problem, tell
from deepbig_runtime.files import cache_folder
from experiments.datasets.reading import NOT_AS_EXPECTED

MAX_BYTES = 64 * 2**20  # of a file with an unknown name, to be read all the same
SLACK = 2**16  # bytes that a packed file may have more than its content
TIMEOUT = 3, 20  # seconds to connect to an address of a mirror, and of silence later


class NotDownloaded(Problem):
    """Files of a data set are nowhere, and no mirror gave them."""


class File(NamedTuple):
    """A file of a data set.

    names: it may have one of these, or another name; the last is its name on mirrors. check: called
    with a path, raises OSError or one of NOT_AS_EXPECTED if that is not the file.
    """

    names: tuple[str, ...]
    check: Callable[[Path], object]

    def find(self, folder: Path, limit: int) -> Path | None:
        """Its path in a folder: the only file with a known name, or the first that `check` accepts,
        or the first with a known name; else None. Other names are checked up to `limit` bytes.
        """
        named = [folder / name for name in self.names if os.path.exists(folder / name)]
        if len(named) == 1 and named[0].stat().st_size:
            return named[0]
        return next(filter(self._is, (*named, *_others(folder, limit))), (*named, None)[0])

    def _is(self, path: Path) -> bool:
        try:
            self.check(path)
        except (OSError, *NOT_AS_EXPECTED):
            return False
        return True


class Files(NamedTuple):
    """The files of a data set.

    name: of the data set; the folder of its files in ./data and in the cache folder, and an
    environment variable for another folder, are named after it. form: all files in a few words.
    mirrors: addresses to download them from. limit: the most bytes that one of them may have.
    """

    name: str
    form: str
    mirrors: Sequence[str]
    limit: int
    files: Sequence[File]

    @property
    def folder(self) -> str:
        return self.name.lower()

    @property
    def variable(self) -> str:
        return f"{self.name}_DIR"

    @property
    def advice(self) -> str:
        return f"set {self.variable} or --data-dir to a folder with {self.name}'s {self.form}"


def find(files: Files, data_dir: str | os.PathLike | None) -> list[Path]:
    """The paths of the files in the first folder that has them, in order.

    They are looked for in `data_dir`; where that is None in the environment variable's folder,
    ./data and the cache folder; then they are downloaded into the cache folder from the first of
    the mirrors that has them.
    Raises NotDownloaded if no mirror has them, Problem if a folder is not as it should be.
    """
    if data_dir is not None:
        if paths := _paths(files, Path(data_dir)):
            return paths
        found = "none of them" if os.path.isdir(data_dir) else "no such folder"
        raise Problem(
            f"--data-dir {data_dir}: expected {files.name}'s {files.form}, found {found}; name the "
            f"folder that holds {files.files[0].names[0]}"
        )
    if named := os.environ.get(files.variable):
        if paths := _paths(files, Path(named)):
            return paths
        tell(f"note: ${files.variable} ({named}) holds no {files.name}; looking elsewhere")
    if paths := _paths(files, Path("data") / files.folder):
        return paths
    cache = _cache_folder(files)
    return _paths(files, cache) or _fetch(files, cache)


def _cache_folder(files: Files) -> Path:
    try:
        return cache_folder() / files.folder
    except RuntimeError:
        raise NotDownloaded(
            f"{files.name} cannot be downloaded: this user has no home folder; set XDG_CACHE_HOME "
            f"to a folder for downloads, or {files.advice}"
        ) from None


def _paths(files: Files, folder: Path) -> list[Path] | None:
    """The paths of the files in `folder`, None where there is none at all."""
    limit = min(files.limit, MAX_BYTES)
    found = {file.names[0]: file.find(folder, limit) for file in files.files}
    paths = [path for path in found.values() if path]
    missing = [name for name, path in found.items() if not path]
    if paths and missing:
        raise Problem(
            f"{folder} holds {files.name} only in part: expected its {files.form}, found no "
            f"{' and no '.join(missing)}; add the missing files"
        )
    return paths or None


def _others(folder: Path, limit: int) -> list[Path]:
    """The regular files in a folder that have from 1 to `limit` bytes."""
    with suppress(OSError):  # it is missing or closed
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        return [path for path in paths if 0 < path.stat().st_size <= limit]
    return []


def _fetch(files: Files, folder: Path) -> list[Path]:
    """Make `folder`, with the files in it, or raise NotDownloaded and leave nothing."""
    reasons = []
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for mirror in files.mirrors:
            with tempfile.TemporaryDirectory(prefix="download-", dir=folder.parent) as temporary:
                new = Path(temporary) / folder.name
                new.mkdir()
                failures = (_download(mirror, file, new) for file in files.files)
                if failure := next(filter(None, failures), None):
                    reasons.append(failure)
                    continue
                try:
                    os.replace(new, folder)  # the whole folder at once: nobody ever sees half of it
                except OSError:
                    if not _paths(files, folder):  # else another process was faster
                        raise
                return _paths(files, folder) or []
    except OSError as error:
        reasons.append(f"{folder} cannot be written ({error})")
    raise NotDownloaded(
        f"{files.name} cannot be downloaded: {' and '.join(reasons)}; {files.advice}"
    )


def _download(mirror: str, file: File, folder: Path) -> str | None:
    """Write a file of a mirror into a folder; returns the reason if the mirror does not have it."""
    import pooch
    import requests  # pooch's own dependency

    url, path = f"{mirror}/{file.names[-1]}", folder / file.names[-1]
    fetch = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=TIMEOUT)
    try:
        fetch(url, path, None)
        file.check(path)
    except requests.HTTPError as error:
        return f"{url} answered {getattr(error.response, 'status_code', error)}"
    except requests.exceptions.ChunkedEncodingError:
        return f"{url} broke off"
    except requests.RequestException as error:
        return f"{url} could not be reached ({type(error).__name__})"
    except NOT_AS_EXPECTED as fault:
        return f"{url} sent something else ({fault})"
    return None
