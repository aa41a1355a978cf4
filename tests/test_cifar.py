"""Tests of experiments/running/cifar.py: what is read, and archives that are damaged."""

import gzip
import io
import tarfile
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from natural_files import make_cifar, pack, record, write_cifar

from experiments.running import cifar, data
from experiments.running.errors import Problem

pytestmark = pytest.mark.usefixtures("sandbox")

fuzz = settings(
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
MEMBERS = (*cifar.TRAINING, cifar.TEST)
ONE = record(3, np.arange(3072).astype(np.uint8).reshape(3, 32, 32))
GOOD = dict.fromkeys(MEMBERS, ONE)


def check(dataset, images, labels):
    """images, labels: of the six files."""
    for found, expected in (
        (dataset.train_images, np.concatenate(images[:5])),
        (dataset.test_images, images[5]),
    ):
        assert found.dtype == np.uint8
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, expected.transpose(0, 2, 3, 1))
    for found, expected in (
        (dataset.train_labels, np.concatenate(labels[:5])),
        (dataset.test_labels, labels[5]),
    ):
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, expected)


def test_images_are_read_by_y_x_and_map(tmp_path):
    images, labels = make_cifar(tmp_path, 7, 5)
    before = sorted(tmp_path.rglob("*"))
    dataset = data.load_pixels("cifar10", tmp_path)
    check(dataset, images, labels)
    assert (dataset.name, dataset.source) == ("CIFAR10-like", str(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before  # nothing was extracted
    scaled = data.scale(dataset).test_images
    assert scaled.shape == (5, 32, 32, 3)
    expected = images[5].transpose(0, 2, 3, 1) / 127.5 - 1
    assert (np.abs(scaled - expected) <= 1e-6).all()


def test_order_in_the_archive_plays_no_part(tmp_path):
    images, labels = make_cifar(tmp_path, 4, 3)
    found = cifar._read(tmp_path / cifar.ARCHIVE)
    write_cifar(tmp_path, {name: found[name].tobytes() for name in reversed(MEMBERS)})
    check(data.load_pixels("cifar10", tmp_path), images, labels)


def test_as_many_images_as_cifar_has_must_be_cifars(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "N_RECORDS", 1)
    write_cifar(tmp_path, GOOD)
    with pytest.raises(Problem, match=f"expected content of SHA-256 {cifar.SHA256}, found"):
        data.load_pixels("cifar10", tmp_path)
    monkeypatch.setattr(cifar, "SHA256", cifar._digest(tmp_path / cifar.ARCHIVE))
    dataset = data.load_pixels("cifar10", tmp_path)
    assert (dataset.name, dataset.sha256) == ("CIFAR10", cifar.SHA256)


def test_folder_without_the_archive(tmp_path):
    with pytest.raises(Problem, match=rf"expected {cifar.ARCHIVE}, found none of CIFAR10's files"):
        data.load_pixels("cifar10", tmp_path)
    advice = f"set CIFAR10_DIR or --data-dir to a folder with CIFAR10's {cifar.ARCHIVE}"
    with pytest.raises(Problem, match=f"CIFAR10 cannot be downloaded: .*{advice}"):
        data.load_pixels("cifar10", mirrors=())


def say(folder, content):
    """What is said of an archive with that content."""
    (folder / cifar.ARCHIVE).write_bytes(content)
    with pytest.raises(Problem) as caught:
        data.load_pixels("cifar10", folder)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith(f"{folder / cifar.ARCHIVE} is damaged or wrong: ")
    return sentence


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({MEMBERS[2]: None, MEMBERS[5]: None}, f"found no {MEMBERS[2]} and no {MEMBERS[5]}"),
        ({MEMBERS[0]: ONE + b"\0"}, f"{MEMBERS[0]} to have 1 to 10000 records of 3073 bytes"),
        ({MEMBERS[0]: ONE[:-1]}, "found 3072 bytes"),
        ({MEMBERS[0]: b""}, "found 0 bytes"),
        ({MEMBERS[1]: bytes(3073 * 10_001)}, "found 30733073 bytes"),
        ({MEMBERS[5]: ONE + b"\x0a" + ONE[1:]}, f"labels from 0 to 9 in {MEMBERS[5]}, found 10"),
    ],
)
def test_wrong_members(tmp_path, changes, expected):
    members = {name: data for name, data in (GOOD | changes).items() if data is not None}
    assert expected in say(tmp_path, gzip.compress(pack(members), 1))


def test_members_that_are_no_plain_files_or_there_twice(tmp_path):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        member = tarfile.TarInfo(MEMBERS[0])
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    assert "found 0 bytes and no plain file" in say(tmp_path, gzip.compress(content.getvalue()))
    twice = pack({MEMBERS[0]: ONE})[:4096] + pack(GOOD)  # without the blocks that end an archive
    assert f"expected {MEMBERS[0]} once, found it twice" in say(tmp_path, gzip.compress(twice))


def test_damaged_gzip_and_tar(tmp_path):
    packed = gzip.compress(pack(GOOD))
    assert "ended before" in say(tmp_path, packed[:-9])
    flipped = bytearray(packed)
    flipped[-6] ^= 1
    assert "CRC check failed" in say(tmp_path, flipped)
    assert "Not a gzipped file" in say(tmp_path, pack(GOOD))
    assert say(tmp_path, b"")
    assert say(tmp_path, gzip.compress(b""))
    assert "unexpected end of data" in say(tmp_path, gzip.compress(pack(GOOD)[:5000]))
    (tmp_path / cifar.ARCHIVE).unlink()
    (tmp_path / cifar.ARCHIVE).mkdir()
    with pytest.raises(Problem, match="Is a directory"):
        data.load_pixels("cifar10", tmp_path)


def claims(size):
    """An archive whose first file says that it has so many bytes, and has few."""
    member = tarfile.TarInfo(MEMBERS[0])
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT) + bytes(100_000)


@pytest.mark.parametrize("size", [2**62, 3073 * 2**31])
def test_nothing_is_allocated_for_what_a_header_claims(tmp_path, size):
    content = gzip.compress(claims(size), 1)
    tracemalloc.start()
    try:
        assert f"found {size} bytes" in say(tmp_path, content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_no_more_is_unpacked_than_needed(tmp_path, monkeypatch):
    """Neither within a member nor after the last one."""
    monkeypatch.setattr(cifar, "LIMIT", 100_000)
    for content in (pack({"other": bytes(200_000)} | GOOD), pack(GOOD) + bytes(200_000)):
        found = say(tmp_path, gzip.compress(content))
        assert "expected up to 100000 bytes when unpacked, found more" in found


@fuzz
@given(source=st.data())
def test_damage_ends_in_a_sentence(tmp_path, source):
    """Of the archive as it is packed, and of what is in it."""
    images, labels = make_cifar(tmp_path, 1, 1)
    path = tmp_path / cifar.ARCHIVE
    packed = path.read_bytes()
    is_packed = source.draw(st.booleans())
    content = bytearray(packed if is_packed else gzip.decompress(packed))
    if source.draw(st.booleans()):
        # Among headers, which say more than pixels.
        where = source.draw(st.integers(0, min(len(content) - 1, 5000)))
        content[where] ^= source.draw(st.integers(1, 255))
    else:
        content = content[: source.draw(st.integers(0, len(content) - 1))]
    path.write_bytes(content if is_packed else gzip.compress(content, 1))
    dataset, sentence = None, ""
    try:
        dataset = data.load_pixels("cifar10", tmp_path)
    except Problem as problem:
        sentence = str(problem)
    assert dataset or str(path) in sentence
    if dataset and is_packed:  # what was changed says nothing, such as gzip's time stamp
        check(dataset, images, labels)
