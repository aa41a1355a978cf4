"""HDF5 files with a checksum: whole or not there, and nothing but plain arrays is read."""

import os
import signal
import threading

import h5py
import numpy as np
import pytest
from forgeries import attribute, expect_sentence, put, reseal
from waiting import HANG_SECONDS

from deepbig_runtime import hdf5
from deepbig_runtime.errors import Interrupted
from deepbig_runtime.files import FileFault, Malformed
from deepbig_runtime.hdf5 import Group

DATA = np.arange(60.0).reshape(5, 12)


def fill(file):
    file.attrs.update(schema="test", schema_version=1)
    file.create_group("group").attrs["sizes"] = [3, 4]
    file.create_dataset("data", data=DATA, track_times=False)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.h5"
    hdf5.write(path, fill)
    return path


def read(path):
    with hdf5.opened(path, "test", 1) as file:
        return file


def test_write_is_read_back_by_us_and_by_others(path, tmp_path):
    found = read(path)
    found.check({"schema": str, "schema_version": int}, ["data"], ["group"])
    found.groups["group"].check({"sizes": tuple}, [])
    assert found.groups["group"].attrs["sizes"] == (3, 4)
    assert (found.array("data", "float64", (5, 12)) == DATA).all()
    with h5py.File(path, "r") as file:
        assert (file["data"][()] == DATA).all()
    hdf5.write(tmp_path / "again.h5", fill)
    assert (tmp_path / "again.h5").read_bytes() == path.read_bytes()


def test_opened_damaged_file_is_refused(path):
    content = path.read_bytes()
    damaged = [content[:n] for n in (0, 100, 512, -1)] + [content + b"\0"]
    for place in (0, len(hdf5.SEAL) - 1, len(hdf5.SEAL), 512, 2000, -1):
        damaged.append(bytearray(content))
        damaged[-1][place] ^= 1
    for some in damaged:
        path.write_bytes(some)
        assert "is damaged" in expect_sentence(lambda: read(path))


@pytest.mark.parametrize(("schema", "version"), [("test", 2), ("other", 1)])
def test_opened_other_schema_is_refused(path, schema, version):
    with (
        pytest.raises(FileFault, match=f"holds 'test' version 1, expected '{schema}' version"),
        hdf5.opened(path, schema, version),
    ):
        pass


def in_place_of_data(make):
    """A change: a thing of another kind in the place of the array."""

    def change(file):
        del file["data"]
        make(file)

    return change


def virtual(file):
    layout = h5py.VirtualLayout((3,), "f8")
    layout[...] = h5py.VirtualSource("other.h5", "x", (3,))
    file.create_virtual_dataset("data", layout)


def external(file):
    file.create_dataset("data", (3,), "u1", external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])


def many_names(file):
    """A hundred more names of a group that has an array."""
    file["group/data"] = file["data"]
    for k in range(100):
        file[f"name{k}"] = file["group"]


NOT_PLAIN = {
    "soft link": in_place_of_data(lambda file: file.update(data=h5py.SoftLink("/group"))),
    "virtual": in_place_of_data(virtual),
    "data in another file": in_place_of_data(external),
    "named type": in_place_of_data(lambda file: file.update(data=np.dtype("f8"))),
    "more than the file has": put("data", shape=(2**50,), dtype="f8"),
    "group of many names": many_names,
    "chunked": put("data", DATA, chunks=True),
    "texts": put("data", ["a", "b"]),
    "big-endian": put("data", DATA.astype(">f8")),
    "no values": put("data", h5py.Empty("f8")),
    "group in a group": lambda file: file["group"].create_group("more"),
    "pairs in a name of two lines": put("a\nb", np.zeros(3, [("a", "f8")])),
}


@pytest.mark.parametrize("what", NOT_PLAIN)
def test_opened_other_than_plain_arrays_is_refused(path, what):
    reseal(path, NOT_PLAIN[what])
    assert "is damaged or not as this version of deepbig writes it: /" in expect_sentence(
        lambda: read(path)
    )


def test_opened_with_a_checksum_of_no_hdf5_is_refused(path):
    content = bytearray(path.read_bytes())
    content[512:520] = b"\0" * 8
    hdf5.put_seal(content)
    path.write_bytes(content)
    assert "HDF5 cannot read it" in expect_sentence(lambda: read(path))


OTHER_VALUES = 1.5, [1.5], True, np.bytes_("a"), ["a", "b"], [[1]], h5py.Empty("i8")


@pytest.mark.parametrize("value", OTHER_VALUES)
@pytest.mark.parametrize(("name", "of"), [("schema", "/"), ("sizes", "group")])
def test_opened_attribute_of_another_type_is_refused(path, value, name, of):
    reseal(path, attribute(name, value, of))
    assert "attributes of text or integers" in expect_sentence(lambda: read(path))


def test_group_of_other_names_dtypes_shapes_or_numbers_is_refused():
    group = Group("/", {"n": 1}, {"a": np.array([1.0, np.nan]), "b": np.zeros((2, 3), "f4")}, {})
    for attrs, arrays, groups in (
        ({}, "ab", ()), ({"n": str}, "ab", ()), ({"n": int}, "a", ()), ({"n": int}, "ab", "c")
    ):  # fmt: skip
        with pytest.raises(Malformed, match="of /: expected"):
            group.check(attrs, arrays, groups)
    for name, dtype, shape in (
        ("a", "float64", (2,)), ("b", "float64", (2, 3)), ("b", "float32", (3, 2)),
        ("b", "float32", None),
    ):  # fmt: skip
        with pytest.raises(Malformed, match=f"/{name}: expected"):
            group.array(name, dtype, shape)


@pytest.mark.parametrize("call", ["os.fsync", "os.replace", "open"])
def test_write_that_fails_leaves_the_old_file(path, monkeypatch, call):
    def full(*_):
        raise OSError(28, "No space left on device")

    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(call if "." in call else f"builtins.{call}", full)
        with pytest.raises(FileFault, match=r"cannot write .*: No space left"):
            hdf5.write(path, lambda file: fill(file) or file.attrs.update(more=1))
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["file.h5"]


def test_refused_file_leaves_hdf5_to_other_threads(path, tmp_path):
    reseal(path, attribute("schema", 1.5, "/"))
    with pytest.raises(FileFault) as refused:
        read(path)
    thread = threading.Thread(target=hdf5.write, args=(tmp_path / "b.h5", fill), daemon=True)
    thread.start()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()
    assert "damaged" in str(refused.value)  # which keeps the traceback until here


def test_signal_while_h5py_works_is_raised_after_it(signals_raise, path, monkeypatch):
    """Code in C may make an error of HDF5 of it, as if the file were damaged."""

    def interrupted(*_):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException:
            raise SystemError("returned a result with an exception set") from None

    with pytest.raises(Interrupted):
        hdf5.write(path.with_name("other.h5"), interrupted)
    monkeypatch.setattr(hdf5, "_read_group", interrupted)
    with pytest.raises(Interrupted):
        read(path)
