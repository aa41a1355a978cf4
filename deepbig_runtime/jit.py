"""Compile functions for the CPU, and cache compiled code, kernels too, for the next process.

Compiling takes each process some seconds. `compiled_cache` says where the code is cached, and why
it always belongs to the present sources.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numba
from filelock import FileLock, Timeout
from numba.core.caching import FunctionCache, _CacheLocator

from deepbig_runtime.compiled_cache import FOLDER, SOURCES, compiled_source, state_of_sources

ROUNDING = {"fastmath": False, "error_model": "python"}  # Numba's defaults
LOCK_SECONDS = 10  # to wait for another process that saves


class _Locator(_CacheLocator):
    """The place of a function's compiled code in FOLDER, whose name tells the state of the sources.

    Numba's own place depends on the path and the time of the source file: code that was carried to
    another machine would not be found.
    """

    def __init__(self, source: Path, line: int):
        self._source, self._line = source, line

    @classmethod
    def from_function(cls, py_func: Callable, py_file: str) -> "_Locator | None":
        source = compiled_source(Path(py_file))
        return None if source is None else cls(source, py_func.__code__.co_firstlineno)

    def get_cache_path(self) -> str:
        assert FOLDER is not None  # else `keep` makes no cache
        return str(FOLDER / ".".join(self._source.parent.parts))

    def get_source_stamp(self) -> str:
        return hashlib.sha256((SOURCES / self._source).read_bytes()).hexdigest()

    def get_disambiguator(self) -> str:
        return str(self._line)


class Kept:
    """Mixin for one of Numba's caches, to hold a function's or kernel's compiled code in FOLDER.

    Code that cannot be loaded is compiled; code that cannot be saved is compiled again next time.
    """

    cache_path: str
    flush: Callable[[], None]
    _impl_class: ClassVar[Any]  # of Numba's cache

    def __init_subclass__(cls) -> None:
        usual = cls._impl_class
        locators = {"_locator_classes": [_Locator, *usual._locator_classes]}
        cls._impl_class = type(usual.__name__, (usual,), locators)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[misc]
        except Exception:  # a damaged pickle may raise anything
            with suppress(OSError, Timeout), self._lock():
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(Exception):
            if FOLDER is None or state_of_sources() != FOLDER.name:
                return  # a source was edited since this process began
            with self._lock():
                super().save_overload(sig, data)  # type: ignore[misc]

    def _lock(self) -> FileLock:
        """Held by a process that writes.

        Numba numbers the files of a function's signatures. Without the lock two processes that
        compile two signatures at once would give both the same number, and one the other's code.
        """
        return FileLock(
            Path(self.cache_path) / "lock", timeout=LOCK_SECONDS, fallback_to_soft=False
        )


class _KeptCode(Kept, FunctionCache):
    """The cache of a function for the CPU."""


def keep(dispatcher: Any, cache: type[Kept], function: Callable) -> None:
    """Let a dispatcher of Numba's look for compiled code in FOLDER, and put it there."""
    if FOLDER is None:
        return
    # Numba looks at this setting only when it makes a cache; others' functions keep their own.
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(FOLDER)
    try:
        made = cache(function)  # type: ignore[call-arg]
        if FOLDER in Path(made.cache_path).parents:  # Numba takes other folders if it must
            dispatcher._cache = made  # as enable_caching() does
    except (OSError, RuntimeError):  # the folder is full or gone
        pass
    finally:
        numba.config.CACHE_DIR = before


def njit(function: Callable | None = None, **options: Any) -> Any:
    """numba.njit with the same options, except that compiled code is kept.

    fastmath and error_model are always explicit: if unset, Numba inherits them from the first
    caller, and rounding would depend on it. Use as a decorator, with options or without.
    """
    if function is None:
        return lambda function: njit(function, **options)
    dispatcher = numba.njit(**(ROUNDING | options))(function)
    if not numba.config.DISABLE_JIT:
        keep(dispatcher, _KeptCode, function)
    return dispatcher
