"""Compile functions for the CPU, and keep what was compiled for the next process.

Compiling takes each process some seconds. Where the code is kept, and why it is always that of the
sources as they are: see `kept_code`.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from filelock import FileLock, Timeout
from numba.core.caching import FunctionCache

from mlp_gpu.kept_code import FOLDER

ROUNDING = {"fastmath": False, "error_model": "python"}  # Numba's defaults
LOCK_SECONDS = 10  # to wait for another process that saves


class _KeptCode(FunctionCache):
    """The compiled code of a function, in FOLDER.

    Code that cannot be loaded is compiled, and what cannot be saved is compiled again next time.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # a damaged pickle may raise anything
            with suppress(OSError, Timeout), self._lock():
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError, Timeout), self._lock():
            super().save_overload(sig, data)

    def _lock(self) -> FileLock:
        """Held by whoever writes.

        Numba numbers the files of a function's signatures. Without the lock two processes that
        compile two signatures at once would give both the same number, and one the other's code.
        """
        return FileLock(Path(self.cache_path) / "lock", timeout=LOCK_SECONDS)


def njit(function: Callable | None = None, **options: Any) -> Any:
    """numba.njit with the same options, except that compiled code is kept.

    Nor are fastmath and error_model those of whichever function happens to call this one first, as
    they are in Numba where they are not given: rounding would depend on it. Use as a decorator,
    with options or without.
    """
    if function is None:
        return lambda function: njit(function, **options)
    dispatcher = numba.njit(**(ROUNDING | options))(function)
    if FOLDER is None or numba.config.DISABLE_JIT:
        return dispatcher
    # Numba looks at this setting only when it makes a cache; others' functions keep their own.
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(FOLDER)
    try:
        dispatcher._cache = _KeptCode(function)  # as enable_caching() does
    except (OSError, RuntimeError):  # the folder is full or gone
        pass
    finally:
        numba.config.CACHE_DIR = before
    return dispatcher
