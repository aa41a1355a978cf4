"""deepbig_runtime/driver.py: which extra of pyproject.toml fits a driver."""

import pytest

from deepbig_runtime import driver


class Library:
    """A driver's library that knows a version of CUDA, or answers with an error."""

    def __init__(self, version, status=0):
        self.version, self.status = version, status

    def cuDriverGetVersion(self, pointer):
        pointer._obj.value = self.version
        return self.status


@pytest.mark.parametrize(
    ("library", "extra"),
    [
        (None, ""),
        (Library(12090), "cu12"),
        (Library(13000), "cu13"),
        (Library(13000, status=999), ""),
    ],
)
def test_cuda_extra_fits_the_driver(monkeypatch, library, extra):
    monkeypatch.setattr(driver, "_load", lambda: library)
    assert driver.cuda_extra() == extra
