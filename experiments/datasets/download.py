"""The files of data sets: where they are looked for, and how they are downloaded."""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from deepbig_runtime.errors import Problem, tell
from deepbig_runtime.files import cache_folder
from experiments.datasets.reading import NOT_AS_EXPECTED

TIMEOUT = 3, 20  # seconds to connect to an address of a mirror, and of silence later


class NotDownloaded(Problem):
    """Files of a data set are nowhere, and no mirror gave them."""


class File(NamedTuple):
    """A file of a data set.

    names: it has one of these; the last is its name on mirrors. check: called with the path of a
    download, raises OSError or one of NOT_AS_EXPECTED if that is not the file.
    """

    names: tuple[str, ...]
    check: Callable[[Path], object]


class Files(NamedTuple):
    """The files of a data set.

    name: of the data set; the folder of its files in ./data and in the cache folder, and an
    environment variable for another folder, are named after it. form: all files in a few words.
    mirrors: addresses to download them from.
    """

    name: str
    form: str
    mirrors: Sequence[str]
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
    cache = cache_folder() / files.folder
    return _paths(files, cache) or _fetch(files, cache)


def _paths(files: Files, folder: Path) -> list[Path] | None:
    """The paths of the files in `folder`, None where there is none at all."""
    found = {
        file.names[0]: [folder / name for name in file.names if os.path.exists(folder / name)]
        for file in files.files
    }
    missing = [name for name, paths in found.items() if not paths]
    if 0 < len(missing) < len(found):
        raise Problem(
            f"{folder} holds {files.name} only in part: expected its {files.form}, found no "
            f"{' and no '.join(missing)}; add the missing files"
        )
    return None if missing else [paths[0] for paths in found.values()]


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
