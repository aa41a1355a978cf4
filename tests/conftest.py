"""Fixtures and marks that several test files share."""

import os
import signal
from pathlib import Path

import pytest

from deepbig_runtime import compiled_cache

# Several processes test at once, on one core each. Libraries read this when they are loaded.
for library in ("NUMBA", "OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# Programs that tests start import these sources, and share the code that is compiled already.
SOURCES = str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "cuda-on-cpu" / "src")
os.environ["PYTHONPATH"] = os.pathsep.join([*SOURCES, *filter(None, [os.getenv("PYTHONPATH")])])
if compiled_cache.FOLDER:
    os.environ["CUDA_ON_CPU_CACHE"] = str(compiled_cache.FOLDER)

# What starts clusters, opens browsers or executes notebooks is slow, and so is all that needs it.
SLOW_FIXTURES = {"cluster", "browser", "jupyter"}


@pytest.fixture(scope="session")
def cluster():
    """A real Dask cluster: a scheduler and two worker processes, which it starts anew if killed."""
    distributed = pytest.importorskip("distributed", exc_type=ImportError)
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=2, **options) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def browser():
    """A browser.Chromium."""
    from browser import start

    chromium = start()
    yield chromium
    chromium.close()


@pytest.fixture(scope="session")
def digits():
    """scikit-learn's digits; do not modify them."""
    from experiments.datasets import data

    return data.load("digits")


@pytest.fixture(scope="module")
def pictures_are_for_load_digits():
    """Pictures count as prepared for nets of load_digits, which need no MNIST."""
    from experiments.results import trained

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trained, "PREPARED_AS", "load_digits")
        yield


@pytest.fixture
def signals_raise():
    """SIGNALS raise Interrupted, as in every command."""
    from deepbig_runtime.errors import SIGNALS, signals

    before = {signum: signal.getsignal(signum) for signum in SIGNALS}
    signals.install()
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A repository without records."""
    from experiments.training import provenance

    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    return tmp_path


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    """Working folder and cache in a temporary folder, no folders of data sets, no proxy."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    for name in ("MNIST", "NORB", "CIFAR10"):
        monkeypatch.delenv(f"{name}_DIR", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(params=["mnist", "norb", "cifar10"])
def small(request, tmp_path, monkeypatch):
    """A small_sets.SmallSet of each format."""
    import small_sets

    return small_sets.make(request.param, tmp_path / "small", monkeypatch)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    # Processes take whole files in this order: those first that take minutes, not at the end.
    items.sort(key=lambda item: "faults" not in item.path.parts)
    for item in items:
        if not SLOW_FIXTURES.isdisjoint(item.fixturenames):
            item.add_marker("slow")
        # Of tests/support/executed.py.
        if "device" in item.fixturenames or "on_device" in item.function.__code__.co_names:
            item.add_marker("gpu")
