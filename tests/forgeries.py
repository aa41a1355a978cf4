"""Files with a correct seal and wrong content: changes of them, as functions of an h5py.File."""

import io
import json

import h5py
import numpy as np
import pytest

from deepbig_runtime import hdf5
from deepbig_runtime.faults import Fault


def reseal(path, change):
    """Change the content of a file with h5py, as a writer with a fault would, and seal it."""
    buffer = io.BytesIO(path.read_bytes())
    with h5py.File(buffer, "r+") as file:
        change(file)
    content = bytearray(buffer.getvalue())
    hdf5.put_seal(content)
    path.write_bytes(content)


def expect_sentence(read):
    """Whatever reads must raise one sentence of one line."""
    with pytest.raises(Fault) as found:
        read()
    sentence = str(found.value)
    assert "\n" not in sentence
    assert len(sentence) < 1500
    return sentence


def put(name, values, **options):
    """A change: an array in the place of another."""

    def change(file):
        attributes = dict(file[name].attrs) if name in file else {}
        if name in file:
            del file[name]
        dataset = file.create_dataset(name, data=values, **{"track_times": False, **options})
        dataset.attrs.update(attributes)

    return change


def edit(name, edit_values):
    """A change: other values of the same type and shape."""

    def change(file):
        values = file[name][()]
        edit_values(values)
        file[name][...] = values

    return change


def item(index, value):
    return lambda values: values.__setitem__(index, value)


def remove(name):
    return lambda file: file.__delitem__(name)


def attribute(name, value, of="/"):
    def change(file):
        del file[of].attrs[name]
        if value is not None:
            file[of].attrs[name] = value

    return change


def link(name, kind):
    def change(file):
        file.move(name, "elsewhere")
        file[name] = kind

    return change


def virtual(name):
    def change(file):
        dataset = file[name]
        layout = h5py.VirtualLayout(dataset.shape, dataset.dtype)
        layout[...] = h5py.VirtualSource("other.h5", "x", dataset.shape)
        del file[name]
        file.create_virtual_dataset(name, layout)

    return change


def outside(name):
    """Storage in another file: /etc/passwd, say."""

    def change(file):
        shape, dtype = file[name].shape, file[name].dtype
        del file[name]
        file.create_dataset(name, shape, dtype, external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])

    return change


def huge(name):
    """A petabyte in some bytes."""

    def change(file):
        del file[name]
        file.create_dataset(name, (2**50,), "u1", chunks=(2**20,), compression="gzip")

    return change


def as_json(name, edit_value):
    """A change of what JSON says: edit_value changes the value, or gives another one."""

    def change(file):
        value = json.loads(file.attrs[name])
        other = edit_value(value)
        file.attrs[name] = json.dumps(value if other is None else other)

    return change


def at(*keys, value):
    """Sets the item at these keys."""

    def change(found):
        for key in keys[:-1]:
            found = found[key]
        found[keys[-1]] = value

    return change


def without(*keys):
    def change(found):
        for key in keys[:-1]:
            found = found[key]
        del found[keys[-1]]

    return change


OF_ANY_ARRAY = {
    "missing": remove,
    "soft link": lambda name: link(name, h5py.SoftLink("/elsewhere")),
    "dangling link": lambda name: link(name, h5py.SoftLink("/nowhere")),
    "external link": lambda name: link(name, h5py.ExternalLink("other.h5", "/x")),
    "virtual": virtual,
    "external storage": outside,
    "huge": huge,
    "chunked": lambda name: lambda file: put(name, file[name][()], chunks=True)(file),
    "compressed": lambda name: lambda file: put(name, file[name][()], compression="gzip")(file),
    "extendible": lambda name: (
        lambda file: put(name, file[name][()], maxshape=(None,) * file[name].ndim)(file)
    ),
    "other type": lambda name: lambda file: put(name, file[name][()].astype("f2"))(file),
    "big-endian": lambda name: lambda file: put(name, file[name][()].astype(">i4"))(file),
    "texts": lambda name: put(name, ["a", "b"]),
    "references": lambda name: put(name, None, shape=(2,), dtype=h5py.ref_dtype),
    "scalar": lambda name: put(name, 1.0),
    "empty": lambda name: put(name, h5py.Empty("f8")),
    "none": lambda name: lambda file: put(name, file[name][:0])(file),
    "too few": lambda name: lambda file: put(name, file[name][:1])(file),
    "one more axis": lambda name: lambda file: put(name, file[name][()][None])(file),
    "a group": lambda name: lambda file: (file.__delitem__(name), file.create_group(name)),
    "a named type": lambda name: (
        lambda file: (file.__delitem__(name), file.__setitem__(name, np.dtype("f8")))
    ),
}
