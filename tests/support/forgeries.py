"""Files with a correct checksum and wrong content, and the sentence that refuses them."""

import io

import h5py
import pytest

from deepbig_runtime import hdf5
from deepbig_runtime.faults import Fault


def reseal(path, change):
    """Change the content of a file by a function of an h5py.File, and its checksum with it."""
    buffer = io.BytesIO(path.read_bytes())
    with h5py.File(buffer, "r+") as file:
        change(file)
    content = bytearray(buffer.getvalue())
    hdf5.put_seal(content)
    path.write_bytes(content)


def expect_sentence(read):
    """Reading must raise one sentence of one line, which is returned."""
    with pytest.raises(Fault) as found:
        read()
    sentence = str(found.value)
    assert "\n" not in sentence
    assert len(sentence) < 1500
    return sentence


def put(name, values=None, **options):
    """A change: an array in the place of another."""

    def change(file):
        if name in file:
            del file[name]
        file.create_dataset(name, data=values, **options)

    return change


def edit(name, index, value):
    """A change: another value in an array."""

    def change(file):
        values = file[name][()]
        values[index] = value
        file[name][...] = values

    return change


def attribute(name, value, of="/"):
    """A change: another attribute, or none."""

    def change(file):
        del file[of].attrs[name]
        if value is not None:
            file[of].attrs[name] = value

    return change
