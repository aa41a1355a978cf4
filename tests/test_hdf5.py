"""Sealed files: whole or not there, and no damage goes unseen."""

import os
import stat

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepbig_runtime import hdf5
from deepbig_runtime.files import FileFault

DATA = np.arange(60.0).reshape(5, 12)


def fill(file):
    file.attrs.update(schema="test", schema_version=1)
    file.create_dataset("data", data=DATA, track_times=False)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.h5"
    hdf5.write(path, fill)
    return path


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("hdf5") / "file.h5"
    hdf5.write(path, fill)
    return path.read_bytes()


def test_round_trip(path):
    with hdf5.opened(path, "test", 1) as file:
        assert (file.array("data", "float64", (5, 12)) == DATA).all()
    assert [p.name for p in path.parent.iterdir()] == ["file.h5"]


def test_any_other_program_can_read_it(path):
    with h5py.File(path, "r") as file:
        assert (file["data"][()] == DATA).all()


def test_same_content_gives_the_same_bytes(path, content):
    assert path.read_bytes() == content


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_every_changed_byte_is_seen(content, tmp_path_factory, data):
    used = len(hdf5.SEAL) + 65  # after the seal the user block is empty
    places = st.integers(0, len(content) - 1).filter(lambda i: i < used or i >= hdf5.USER_BLOCK)
    place = data.draw(places)
    value = data.draw(st.integers(0, 255).filter(lambda v: v != content[place]))
    damaged = bytearray(content)
    damaged[place] = value
    path = tmp_path_factory.getbasetemp() / "damaged.h5"
    path.write_bytes(damaged)
    if place == used - 1:  # the line feed that ends the seal
        return
    with pytest.raises(FileFault, match="damaged"), hdf5.opened(path, "test", 1):
        pass


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_every_wrong_length_is_seen(content, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.h5"
    longer = content + data.draw(st.binary(min_size=1, max_size=100))
    shorter = content[: data.draw(st.integers(0, len(content) - 1))]
    for damaged in (longer, shorter):
        path.write_bytes(damaged)
        with pytest.raises(FileFault, match="damaged"), hdf5.opened(path, "test", 1):
            pass


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        fill(file)
    with (
        pytest.raises(FileFault, match="none of this project's files"),
        hdf5.opened(path, "test", 1),
    ):
        pass


@pytest.mark.parametrize(("schema", "version"), [("test", 2), ("other", 1)])
def test_other_schema_is_refused(path, schema, version):
    with (
        pytest.raises(FileFault, match=f"holds 'test' version 1, expected '{schema}' version"),
        hdf5.opened(path, schema, version),
    ):
        pass


def test_failure_while_filling_leaves_the_old_file(path, content):
    def broken(file):
        fill_otherwise(file)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hdf5.write(path, broken)
    assert path.read_bytes() == content
    assert [p.name for p in path.parent.iterdir()] == ["file.h5"]


def fill_otherwise(file):
    fill(file)
    file["data"][0, 0] = 99


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
def test_failure_while_writing_leaves_the_old_file(path, content, monkeypatch, call):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(call, full)
    with pytest.raises(FileFault, match=r"cannot write .*file\.h5: No space left"):
        hdf5.write(path, fill_otherwise)
    assert path.read_bytes() == content
    assert [p.name for p in path.parent.iterdir()] == ["file.h5"]


def test_file_is_on_disk_before_its_name_and_then_the_folder(path, monkeypatch):
    calls, fsync, replace = [], os.fsync, os.replace

    def note_fsync(descriptor):
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        if calls[-1] == "folder":
            raise OSError(22, "Invalid argument")  # as some file systems do; no harm
        fsync(descriptor)

    def note_replace(source, target):
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr("os.fsync", note_fsync)
    monkeypatch.setattr("os.replace", note_replace)
    hdf5.write(path, fill_otherwise)
    assert calls == ["file", "replace", "folder"]
    with hdf5.opened(path, "test", 1) as file:
        assert file.array("data", "float64", (5, 12))[0, 0] == 99


def test_missing_folder(tmp_path):
    with pytest.raises(FileFault, match=r"cannot write .*nowhere"):
        hdf5.write(tmp_path / "nowhere" / "file.h5", fill)
