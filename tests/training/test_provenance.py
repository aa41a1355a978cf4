"""Where numbers come from: the commit of the sources, or the version that is installed."""

import os
import shutil
import subprocess
import time
from importlib import metadata

import pytest

from experiments.training import provenance
from experiments.training.provenance import commit_text, marked


def test_outside_a_clone_the_installed_version_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    version = f"installed, version {metadata.version('deepbig')}"
    assert commit_text(marked(**provenance.commit())) == version
    (tmp_path / "pyproject.toml").write_text("")  # a copy of the sources, which may have changes
    provenance._commit.cache_clear()
    assert provenance.commit() == {"commit": "unknown", "dirty": True}


def test_only_changes_of_sources_count_and_only_those_before_they_were_imported(
    tmp_path, monkeypatch
):
    def git(*arguments):
        command = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        subprocess.run(command, check=True, capture_output=True)

    if shutil.which("git") is None:
        pytest.skip("there is no git")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)  # a hook's would name the developer's clone
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)

    def found():
        provenance._commit.cache_clear()
        return provenance.commit()

    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path.resolve())
    source = tmp_path / "experiments" / "a.py"
    source.parent.mkdir()
    source.touch()
    git("init")
    git("add", ".")
    git("commit", "-m", "a")
    clean = found()
    assert (len(clean["commit"]), clean["dirty"]) == (40, False)
    (tmp_path / "runs").touch()
    assert found() == clean
    source.write_text("changed = True\n")
    assert provenance.commit() == clean
    assert found() == clean | {"dirty": True}


def test_times_are_those_of_greenwich(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert provenance.now().endswith("+00:00")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_change_of_any_package_marks_the_sources_as_changed():
    packages = {path.parent.name for path in provenance.REPOSITORY.glob("*/__init__.py")}
    assert packages <= set(provenance.SOURCES)


@pytest.mark.parametrize(
    ("commits", "text"),
    [
        (["unknown-dirty"], "commit unknown"),
        (["0" * 40, "1" * 40 + "-dirty"], "commit 000000000000, 111111111111 with changes"),
        (["installed, version 1", "2" * 40], "commit 222222222222, installed, version 1"),
    ],
)
def test_commits_are_named_for_people(commits, text):
    assert commit_text(*commits) == text
