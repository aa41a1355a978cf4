"""Tests of experiments/running/norb.py: what is read, and files that are damaged."""

import gzip
import shutil
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from natural_files import BYTES, INTEGERS, mat, write_norb

from experiments.running import data, norb
from experiments.running.errors import Problem

pytestmark = pytest.mark.usefixtures("sandbox")

fuzz = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
NAMES = [file.name for file in norb.FILES]


@pytest.fixture
def small(tmp_path):
    """Random pairs, more than are read at once: their arrays, and the folder of their files."""
    rng = np.random.default_rng(3)
    arrays = []
    for n in (103, 3):
        arrays.append(rng.integers(0, 256, (n, 2, 96, 96), np.uint8))
        arrays.append((np.arange(n) % 5).astype(np.int32))
    write_norb(tmp_path / "small", map(mat, arrays))
    return arrays, tmp_path / "small"


def check(dataset, arrays):
    found = [dataset.train_images, dataset.train_labels, dataset.test_images, dataset.test_labels]
    for pixels, images in zip(arrays[::2], found[::2], strict=True):
        assert images.dtype == np.uint8
        assert images.flags.c_contiguous
        np.testing.assert_array_equal(images, pixels.transpose(0, 2, 3, 1))
    for expected, labels in zip(arrays[1::2], found[1::2], strict=True):
        assert labels.dtype == np.uint8
        np.testing.assert_array_equal(labels, expected)


def test_pairs_are_read_by_y_x_and_map(small):
    arrays, folder = small
    dataset = data.load_pixels("norb", folder)
    check(dataset, arrays)
    assert (dataset.name, dataset.source) == ("NORB-like", str(folder))


def test_pairs_are_scaled_and_keep_their_size(small):
    arrays, folder = small
    images = data.load("norb", folder).test_images
    assert images.dtype == np.float32
    assert images.flags.c_contiguous
    expected = arrays[2].transpose(0, 2, 3, 1) / 127.5 - 1
    assert (np.abs(images - expected) <= 1e-6).all()


def test_limit_and_split_take_pairs(small):
    arrays, folder = small
    some = data.limit(data.load_pixels("norb", folder), 50)
    check(some, [arrays[0][:50], arrays[1][:50], *arrays[2:]])
    train = data.split(some, 10, 1)
    assert train.train_images.shape == (40, 96, 96, 2)
    apart, labels = train.validation
    kept = [int((apart[0] == image).all()) for image in some.train_images]
    assert sum(kept) == 1
    assert labels[0] == arrays[1][np.argmax(kept)]


def test_sha256_tells_contents_apart(small):
    arrays, folder = small
    first = data.load_pixels("norb", folder).sha256
    for name in NAMES:  # packed anew: the same content
        content = gzip.decompress((folder / name).read_bytes())
        (folder / name).write_bytes(gzip.compress(content, 9, mtime=1))
    assert data.load_pixels("norb", folder).sha256 == first
    found = {first}
    for i in range(4):
        changed = [array.copy() for array in arrays]
        changed[i].flat[-1] = (changed[i].flat[-1] + 1) % 5
        write_norb(folder, map(mat, changed))
        found.add(data.load_pixels("norb", folder).sha256)
    assert len(found) == 5


def test_as_many_pairs_as_norb_has_must_be_norbs(small, monkeypatch):
    arrays, folder = small
    monkeypatch.setattr(norb, "N_PAIRS", 103)
    with pytest.raises(Problem, match=f"{NAMES[0]} .* expected content of MD5 {norb.FILES[0].md5}"):
        data.load_pixels("norb", folder)
    short = [array[:102] for array in arrays]
    write_norb(folder, map(mat, short))
    assert data.load_pixels("norb", folder).name == "NORB-like"


def test_little_memory_is_needed(tmp_path):
    arrays = [np.zeros((900, 2, 96, 96), np.uint8), np.zeros(900, np.int32)] * 2
    write_norb(tmp_path, map(mat, arrays))
    tracemalloc.start()
    try:
        dataset = data.load_pixels("norb", tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * dataset.train_images.nbytes + 10e6  # both sets, and blocks of 100 pairs


# Where the files are looked for


def test_order_of_folders(small, tmp_path, monkeypatch):
    _, folder = small
    named, local = tmp_path / "named", Path("data/norb")
    cache = tmp_path / "xdg" / "deepbig" / "norb"
    for place in (named, local, cache):
        shutil.copytree(folder, place)
    monkeypatch.setenv("NORB_DIR", str(named))
    assert data.load_pixels("norb", folder).source == str(folder)
    assert data.load_pixels("norb").source == str(named)
    monkeypatch.delenv("NORB_DIR")
    assert data.load_pixels("norb").source == str(local)
    shutil.rmtree(local)
    assert data.load_pixels("norb").source == str(cache)
    shutil.rmtree(cache)
    with pytest.raises(Problem, match=r"NORB cannot be downloaded: .*NORB_DIR .* four files"):
        data.load_pixels("norb", mirrors=())


def test_missing_file_and_folder(small, tmp_path):
    _, folder = small
    (folder / NAMES[3]).unlink()
    with pytest.raises(Problem, match=rf"NORB only in part: .*\.mat\.gz, found no {NAMES[3]};"):
        data.load_pixels("norb", folder)
    expected = f"expected {NAMES[0]} and its three companions, found"
    with pytest.raises(Problem, match=f"{expected} none of NORB's files"):
        data.load_pixels("norb", tmp_path)
    with pytest.raises(Problem, match=f"{expected} no such folder"):
        data.load_pixels("norb", tmp_path / "no-such")


# Files that are not as they should be


def read_damaged(small, index, content, pack=gzip.compress):
    """What is said of a file with that content."""
    path = small[1] / NAMES[index]
    path.write_bytes(pack(content))
    with pytest.raises(Problem) as caught:
        data.load_pixels("norb", small[1])
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert str(path) in sentence
    return sentence


PAIRS, LABELS = np.zeros((2, 2, 96, 96), np.uint8), np.zeros(3, np.int32)
SIZES = "expected sizes up to 24300 x 2 x 96 x 96, found"


@pytest.mark.parametrize(
    ("index", "content", "expected"),
    [
        (
            0,
            b"",
            "expected the magic number 0x1e3d4c55 (uint8) at its start, found the end of the file",
        ),
        (0, mat(LABELS), "0x1e3d4c55 (uint8) at its start, found 1e3d4c54"),
        (1, mat(PAIRS), "0x1e3d4c54 (int32) at its start, found 1e3d4c55"),
        (0, b"<!doctype html><p>No.", "at its start, found 6f64213c"),
        (0, mat(PAIRS[:, 0]), f"{SIZES} 3 dimensions"),
        (0, mat(PAIRS, sizes=(2, 2, 96, 95)), f"{SIZES} 2 x 2 x 96 x 95"),
        (0, mat(PAIRS, sizes=(2, 96, 96, 2)), f"{SIZES} 2 x 96 x 96 x 2"),
        (0, mat(PAIRS, sizes=(0, 2, 96, 96)), f"{SIZES} 0 x 2"),
        (0, mat(PAIRS, sizes=(-1, 2, 96, 96)), f"{SIZES} -1 x 2"),
        (0, mat(PAIRS, sizes=(24301, 2, 96, 96)), f"{SIZES} 24301 x 2"),
        (0, mat(PAIRS, sizes=(2**31 - 1, 2, 96, 96)), f"{SIZES} 2147483647 x 2"),
        (0, struct.pack("<2i", BYTES, 2**31 - 1), f"{SIZES} 2147483647 dimensions"),
        (0, struct.pack("<4i", BYTES, 4, 2, 2), f"{SIZES} the end of the file"),
        (0, mat(PAIRS)[:-1], "expected 2 items, found the end of the file"),
        (0, mat(PAIRS) + b"\0", "expected 2 items, found more"),
        (1, mat(LABELS), "expected 103 labels, one for each pair of images, found 3"),
        (3, mat(LABELS + 5), "expected labels from 0 to 4, found 5 to 5"),
        (3, mat(LABELS - 1), "expected labels from 0 to 4, found -1 to -1"),
        (3, struct.pack("<5i", INTEGERS, 1, 3, 1, 1), "expected 3 items, found the end"),
    ],
)
def test_wrong_content(small, index, content, expected):
    assert expected in read_damaged(small, index, content)


def test_damaged_gzip(small):
    content = mat(PAIRS)
    cut = read_damaged(small, 0, content, lambda c: gzip.compress(c)[:-9])
    assert "expected a whole gzip file" in cut
    assert "ended before" in cut

    def flip(content):
        packed = bytearray(gzip.compress(content))
        packed[-6] ^= 1
        return packed

    assert "CRC check failed" in read_damaged(small, 0, content, flip)
    assert "Not a gzipped file" in read_damaged(small, 0, content, bytes)
    path = small[1] / NAMES[0]
    path.unlink()
    path.mkdir()
    with pytest.raises(Problem, match="Is a directory"):
        data.load_pixels("norb", small[1])


@pytest.mark.parametrize("n", [2**31 - 1, 24_301])
def test_nothing_is_allocated_for_what_a_header_claims(small, n):
    content = mat(PAIRS, sizes=(n, 2, 96, 96)) + bytes(50_000_000)
    (small[1] / NAMES[0]).write_bytes(gzip.compress(content, 1))
    del content
    tracemalloc.start()
    try:
        with pytest.raises(Problem):
            data.load_pixels("norb", small[1])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


@fuzz
@given(source=st.data())
def test_any_changed_byte_is_noticed(small, source):
    arrays, folder = small
    index = source.draw(st.integers(1, 3))
    path = folder / NAMES[index]
    whole = path.read_bytes()
    content = bytearray(whole)
    if source.draw(st.booleans()):
        where = source.draw(st.integers(0, len(content) - 1))
        content[where] ^= source.draw(st.integers(1, 255))
    else:
        content = content[: source.draw(st.integers(0, len(content) - 1))]
    path.write_bytes(content)
    dataset, sentence = None, ""
    try:
        dataset = data.load_pixels("norb", folder)
    except Problem as problem:
        sentence = str(problem)
    path.write_bytes(whole)
    if dataset:  # the byte says nothing, such as gzip's time stamp
        check(dataset, arrays)
    else:
        assert str(path) in sentence
