"""deepbig_runtime/jit.py: compiled code is kept, and is always that of the sources as they are."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from filelock import FileLock

from deepbig_runtime import compiled_cache, jit
from experiments.training.provenance import REPOSITORY
from mlp_gpu import activation

posix = pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners and modes of files")


@pytest.fixture
def sources(tmp_path):
    """A copy of the packages that compile."""
    for package in ("deepbig_runtime", "mlp_gpu", "deform_gpu"):
        shutil.copytree(
            REPOSITORY / package,
            tmp_path / "sources" / package,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    return tmp_path / "sources"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The user's cache folder, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@posix
def test_folder_for_compiled_code_is_private(home):
    folder, reason = compiled_cache.open_folder()
    assert reason is None
    assert folder == home / "deepbig" / "compiled" / compiled_cache.state_of_sources()
    assert compiled_cache.open_folder() == (folder, None)
    for path in (folder, folder.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    root = folder.parent
    for bit in (0o010, 0o020, 0o040, 0o001, 0o002, 0o004):
        root.chmod(0o700 | bit)
        folder, reason = compiled_cache.open_folder()
        assert (folder, "is open to other users" in reason) == (None, True)


@posix
@pytest.mark.parametrize(
    "why", ["belongs to another user", "is not a folder", "no folder for compiled code can be made"]
)
def test_folder_for_compiled_code_that_is_not_ours_is_refused(home, monkeypatch, why):
    elsewhere, root = home / "elsewhere", home / "deepbig" / "compiled"
    elsewhere.mkdir(mode=0o700)
    if "user" in why:
        compiled_cache.open_folder()
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    elif "made" in why:
        root.parent.write_text("a file")
    else:
        root.parent.mkdir()
        root.symlink_to(elsewhere)
    folder, reason = compiled_cache.open_folder()
    assert (folder, why in reason) == (None, True)
    assert list(elsewhere.iterdir()) == []


def test_the_folders_that_were_used_last_stay(home):
    own = compiled_cache.open_folder()[0]
    shutil.rmtree(own)
    others = [own.with_name(str(k)) for k in range(compiled_cache.FOLDERS_KEPT + 3)]
    for age, folder in enumerate(others):
        folder.mkdir()
        (folder / "file").write_text("")
        os.utime(folder, (10**9 - age, 10**9 - age))
    compiled_cache.open_folder()
    assert set(own.parent.iterdir()) == {own, *others[: compiled_cache.FOLDERS_KEPT - 1]}


@pytest.mark.parametrize(
    ("variable", "counts"),
    [("NUMBA_BOUNDSCHECK", True), ("NUMBA_OPT", True), ("NUMBA_NUM_THREADS", False)],
)
def test_settings_that_change_the_code_have_folders_of_their_own(monkeypatch, variable, counts):
    monkeypatch.delenv(variable, raising=False)
    before = compiled_cache.state_of_sources()
    monkeypatch.setenv(variable, "1")
    assert (compiled_cache.state_of_sources() != before) == counts


@pytest.mark.parametrize("change", ["content", "name", "new"])
def test_every_source_counts(sources, monkeypatch, change):
    monkeypatch.setattr(compiled_cache, "SOURCES", sources)
    before = compiled_cache.state_of_sources()
    path = sources / "deform_gpu" / "kernels" / "cells.py"
    match change:
        case "content":
            path.write_text(path.read_text() + "#")
        case "name":
            path.rename(path.with_name("sells.py"))
        case "new":
            (sources / "cnn_gpu").mkdir()
            (sources / "cnn_gpu" / "cpu.py").write_text("")
    assert compiled_cache.state_of_sources() != before


@posix
def test_a_link_that_leads_nowhere_is_no_source(sources, monkeypatch):
    """As Emacs leaves beside a file with changes that are not saved."""
    monkeypatch.setattr(compiled_cache, "SOURCES", sources)
    before = compiled_cache.state_of_sources()
    (sources / "mlp_gpu" / ".#cpu.py").symlink_to("somebody@somewhere")
    assert compiled_cache.state_of_sources() == before


def increment(x):
    return x + 1


@pytest.fixture
def folder(home, monkeypatch):
    """An empty folder that `jit` keeps code in."""
    found = compiled_cache.open_folder()[0]
    monkeypatch.setattr(jit, "FOLDER", found)
    return found


def test_nothing_is_saved_while_another_process_saves(folder, monkeypatch):
    monkeypatch.setattr(jit, "LOCK_SECONDS", 0.1)
    first = jit.njit(increment)
    with FileLock(os.path.join(first._cache.cache_path, "lock")):
        assert first(1) == 2
    assert not list(folder.rglob("*.nb?"))
    second = jit.njit(increment)
    assert (second(1), second(1.5)) == (2, 2.5)
    assert len(list(folder.rglob("*.nbc"))) == 2
    third = jit.njit(increment)
    assert (third(1.5), third(1)) == (2.5, 2)
    assert sum(third.stats.cache_hits.values()) == 2


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_damaged_files_are_compiled_anew(folder, ending):
    assert jit.njit(increment)(1) == 2
    damaged = list(folder.rglob(f"*increment*.{ending}"))
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:-20])
    for hits in (0, 1):
        function = jit.njit(increment)
        assert function(1) == 2
        assert sum(function.stats.cache_hits.values()) == hits


def test_no_other_folder_of_numbas_is_taken(folder, monkeypatch):
    """It has some, which are open to others and keep code whose sources have changed."""
    locator = numba.core.caching.UserProvidedCacheLocator
    assert "NullCache" not in type(jit.njit(increment)._cache).__name__
    monkeypatch.setattr(locator, "from_function", classmethod(lambda *_: None))
    assert "NullCache" in type(jit.njit(increment)._cache).__name__


PROGRAM = """
from deepbig_runtime import jit, compiled_cache
{before}
from deform_gpu import parts
function = jit.njit(parts.double)
print(function(0.5), sum(function.stats.cache_hits.values()))
"""


def results_of(folder, cache, before=""):
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": ""}
    # Python takes its own kept code for that of a file of equal size from the same second.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    program = [sys.executable, "-c", PROGRAM.format(before=before)]
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout.split()


def test_code_is_found_by_sources_in_another_place_and_never_after_an_edit(sources, tmp_path):
    path = sources / "deform_gpu" / "parts.py"
    path.write_text("def double(x):\n    return x * 2\n")
    other, cache = tmp_path / "elsewhere", tmp_path / "cache"
    shutil.copytree(sources, other, copy_function=shutil.copy)  # whose files are newer
    # The file is edited while the first process runs, and restored.
    edit = f"path = {str(path)!r}; open(path, 'w').write('def double(x):\\n    return x * 3\\n')"
    assert results_of(sources, cache, edit) == ["1.5", "0"]
    path.write_text((other / "deform_gpu" / "parts.py").read_text())
    assert results_of(sources, cache) == ["1.0", "0"]
    assert results_of(other, cache) == ["1.0", "1"]
    assert results_of(sources, cache, edit) == ["1.5", "0"]


def test_code_that_was_typed_has_no_place_among_the_sources(monkeypatch):
    monkeypatch.chdir(REPOSITORY / "mlp_gpu")
    assert compiled_cache.compiled_source(Path("<string>")) is None
    assert compiled_cache.compiled_source(Path("cpu.py")) == Path("mlp_gpu/cpu.py")


def test_options_are_numbas(folder):
    assert jit.njit(error_model="numpy")(lambda x: 1 / x)(0.0) == np.inf
    with pytest.raises(ZeroDivisionError):
        jit.njit(lambda x: 1 / x)(0.0)
    assert jit.njit(activation.scaled_tanh, nogil=True).targetoptions["nogil"]


def test_without_compilation_functions_are_what_they_are(folder, monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    assert jit.njit(increment) is increment


def test_rounding_does_not_depend_on_who_calls_a_function_first(folder):
    """Numba compiles what has no fastmath of its own with that of its first caller."""

    @jit.njit
    def total(x):
        found = np.float32(0)
        for i in range(x.shape[0]):
            found += x[i]
        return found

    @numba.njit(fastmath=True)
    def call(x):
        return total(x)

    x = np.random.default_rng(0).random(1000, dtype=np.float32)
    expected = np.add.accumulate(x)[-1]  # one after another
    assert x.sum() != expected  # in another order
    call(x)
    assert total(x) == expected
