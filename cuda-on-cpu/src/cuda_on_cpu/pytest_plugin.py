"""Plugin of pytest: tests run on the fake driver, and a launch that fails fails its test.

pytest -p cuda_on_cpu
"""

import ctypes
import os
import sys
from collections.abc import Generator

import pytest

from cuda_on_cpu.driver import build

FAKE_DRIVER = "fake_cuda_driver"  # the module that Python imports as it starts on the fake driver
_findings: list[str] = []  # of launches since the last look


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Start Python anew on the fake driver. Pytest calls this before it captures output."""
    if FAKE_DRIVER not in sys.modules:
        if pluginmanager.hasplugin("capturemanager"):
            raise pytest.UsageError(
                "a conftest.py is too late for cuda_on_cpu: name it by -p cuda_on_cpu or in addopts"
            )
        build.start(sys.orig_argv[1:])
    sys.modules[FAKE_DRIVER].report = _findings.append  # type: ignore[attr-defined]


def _fail_if_found() -> None:
    """Run all that waits on streams. Fail if a launch failed, and make the GPU usable again."""
    driver = ctypes.CDLL(os.environ["CUDA_ON_CPU_LIBRARY"])
    driver.finish_all()
    if _findings:
        sentences = "\n".join(_findings)
        _findings.clear()
        driver.fake_recover()
        pytest.fail(sentences, pytrace=False)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    try:
        result = yield
    except (KeyboardInterrupt, pytest.exit.Exception):
        raise
    except BaseException:
        _fail_if_found()
        raise
    _fail_if_found()
    return result


pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef) -> Generator[None, object, object]:
    """Of a fixture that several tests share, a launch that failed fails each of them."""
    result = yield
    if fixturedef.scope != "function":
        try:
            _fail_if_found()
        except BaseException as error:  # else the next test would get what was not written
            assert fixturedef.cached_result is not None
            key = fixturedef.cached_result[1]
            fixturedef.cached_result = None, key, (error, error.__traceback__)
            raise
    return result
