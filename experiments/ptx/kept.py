"""Text that compiling takes long for, kept for the next process where compiled code is kept."""

import hashlib
import sys
from collections.abc import Callable
from contextlib import suppress

from deepbig_runtime.compiled_cache import FOLDER
from deepbig_runtime.files import FileFault, read_bytes, replace


def kept_text(name: str, state: str, make: Callable[[], str]) -> str:
    """What `make` returns, or returned to an earlier process. Damaged files are made anew.

    name: that of the file begins with it. state: what the text depends on, apart from Python and
    from what `compiled_cache` names its folder by.
    """
    path = FOLDER and FOLDER / f"{name}-{_sha256(sys.version + state)[:16]}.txt"
    if path:
        with suppress(OSError, ValueError, FileFault):  # it is not there, or damaged
            digest, content = read_bytes(path).decode().split("\n", 1)
            if digest == _sha256(content):
                return content
    content = make()
    if path:
        with suppress(FileFault):
            replace(path, f"{_sha256(content)}\n{content}".encode())
    return content


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
