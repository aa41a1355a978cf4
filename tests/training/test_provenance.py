"""Where numbers come from: the commit of the sources, or the version that is installed."""

from importlib import metadata

import pytest

from experiments.training import provenance
from experiments.training.provenance import commit_text, marked


def test_outside_a_clone_the_installed_version_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    version = f"installed, version {metadata.version('deepbig')}"
    assert commit_text(marked(**provenance.commit())) == version
    (tmp_path / "pyproject.toml").write_text("")  # a copy of the sources, which may have changes
    assert provenance.commit() == {"commit": "unknown", "dirty": True}


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
