"""Whether this interpreter has the packages of pyproject.toml, in the versions that it names.

As a program it fails, with a sentence on stderr, where they are missing, too old or too new.
"""

import platform
import re
import sys
from importlib import metadata
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def unmet(path: Path = PYPROJECT) -> list[str]:
    """Requirements of a pyproject.toml that this interpreter does not meet, as sentences have them.

    Those of the extra cu12 count only if installed, since numba loads an installed numba-cuda.
    Raises ModuleNotFoundError before Python 3.11.
    """
    import tomllib

    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]["cu12"]
    found = []
    for text in ["Python" + project["requires-python"], *project["dependencies"], *optional]:
        needed = text.partition(";")[0]
        name, versions = re.findall(r"^([\w-]+)(?:\[\w+\])?(.*)", needed)[0]
        installed = platform.python_version() if name == "Python" else _version(name)
        if installed is None and text not in optional:
            found.append(needed)
        elif installed is not None and not _fits(installed, versions):
            found.append(f"{needed} (it has {installed})")
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _fits(version: str, versions: str) -> bool:
    try:
        from packaging.specifiers import SpecifierSet
    except ModuleNotFoundError:  # matplotlib brings it: so that is missing too, and named
        return True
    return SpecifierSet(versions).contains(version, prereleases=True)


if __name__ == "__main__":
    try:
        lacking = unmet()
    except ModuleNotFoundError:
        lacking = ["Python>=3.11"]
    if lacking:
        sys.exit(f"error: {sys.executable} lacks {'; '.join(lacking)}")
