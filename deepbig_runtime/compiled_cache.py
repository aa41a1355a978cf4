"""The folder where compiled code is cached for the next process; it does not import numba.

Numba can keep compiled code in files, but it compiles anew only when the file of the function
itself changes: a formula that the function takes from another module could be edited without any
effect. So each state of our sources has a folder of its own, named by the SHA-256 of all packages
that compile, of the compilers' versions, and of numba's settings. So the code that is loaded is
always that of these sources.

The files are pickles and machine code: anybody who can write them can run code as the user. So they
are in the user's cache folder, in a folder that belongs to the user and that nobody else may enter
(mode 700). If it cannot be such a folder, nothing is kept: `NOT_KEPT` says why.
"""

import hashlib
import os
import shutil
import stat
from contextlib import suppress
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from deepbig_runtime import files

SOURCES = Path(__file__).resolve().parent.parent
FOLDERS_KEPT = 8  # cached versions of the sources; the least recently used one is evicted
COMPILED = "deepbig_runtime", "*_gpu"  # packages with formulas that jitted code may import
COMPILERS = ("numba", "llvmlite", "numba-cuda", "cuda-toolkit")
# Settings that no compiled code depends on.
INDIFFERENT = ("NUMBA_NUM_THREADS", "NUMBA_CACHE_DIR", "NUMBA_ENABLE_CUDASIM")


def _version(package: str) -> str:
    """A package's version; none for one that is not installed."""
    with suppress(PackageNotFoundError):
        return version(package)
    return ""


def state_of_sources() -> str:
    """SHA-256 of everything that compiled code depends on, as hexadecimal digits."""
    digest = hashlib.sha256(" ".join(map(_version, COMPILERS)).encode())
    for name, value in sorted(os.environ.items()):
        if name.startswith("NUMBA_") and name not in INDIFFERENT:
            digest.update(f"{name}={value}\0".encode())
    for path in sorted(path for folder in COMPILED for path in SOURCES.glob(f"{folder}/**/*.py")):
        if not path.is_file():  # such as an editor's link that leads nowhere
            continue
        content = path.read_bytes()
        digest.update(f"{path.relative_to(SOURCES).as_posix()} {len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def compiled_source(path: Path) -> Path | None:
    """The path below SOURCES of a source file that `state_of_sources` counts; None for others."""
    with suppress(ValueError):
        found = path.resolve().relative_to(SOURCES)
        is_counted = any(fnmatch(found.parts[0], package) for package in COMPILED)
        if is_counted and found.suffix == ".py" and path.is_file():  # code that was typed is not
            return found
    return None


def why_not_private(folder: Path) -> str | None:
    """Why compiled code in a folder must not be trusted, in a sentence; None if it may be."""
    if not hasattr(os, "getuid"):  # Windows: profiles are private
        return None
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not a folder; move it away"
    if found.st_uid != os.getuid():
        return f"{folder} belongs to another user; name another folder with XDG_CACHE_HOME"
    if stat.S_IMODE(found.st_mode) & 0o077:
        return f"{folder} is open to other users; remove it, or close it with chmod 700"
    return None


def open_folder() -> tuple[Path | None, str | None]:
    """The folder for the compiled code of these sources; or None, and why there is none.

    Makes the folder if it is missing, and then removes those that were not used for longest.
    """
    try:
        str(SOURCES).encode()  # Numba names its files by it
    except UnicodeEncodeError:
        return None, f"the name of the folder {SOURCES} is not UTF-8; rename it"
    try:
        root = files.cache_folder() / "compiled"  # the folder for all states of the sources
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
        if reason := why_not_private(root):
            return None, reason
        folder = root / state_of_sources()
        is_new = not folder.exists()
        folder.mkdir(mode=0o700, exist_ok=True)
        os.utime(folder)
        if is_new:
            _remove_old_folders(root)
    except (OSError, files.FileFault) as error:
        return None, f"no folder for compiled code can be made: {error}"
    return folder, None


def _remove_old_folders(root: Path) -> None:
    """Keep the folders that were used last; a process that uses another one compiles anew."""
    folders = {}
    for folder in root.iterdir():
        with suppress(OSError):  # another process removes it too
            folders[folder] = folder.stat().st_mtime
    for folder in sorted(folders, key=lambda folder: folders[folder], reverse=True)[FOLDERS_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


def lacks(name: str) -> bool:
    """Whether no functions whose names begin so are kept yet, though code can be."""
    return FOLDER is not None and not any(FOLDER.rglob(f"*.{name}*.nbi"))  # Numba's indices


FOLDER, NOT_KEPT = open_folder()
