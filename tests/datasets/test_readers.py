"""Readers of data sets: where files are looked for, what is read, and files that are refused."""

import gzip
import hashlib
import io
import os
import re
import shutil
import struct
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import small_sets
from mnist_files import REAL, idx, interpolated, needs_mnist
from natural_files import BYTES, mat, pack, record

import deform_gpu.resize  # noqa: F401 - before a test has another folder for compiled code
from deepbig_runtime.errors import Problem
from deepbig_runtime.files import FileFault
from experiments.datasets import cifar, data

pytestmark = pytest.mark.usefixtures("sandbox")

MEMBERS = (*cifar.TRAINING, cifar.TEST)


def only(*choices):
    """The test is about these data sets."""
    return pytest.mark.parametrize("small", choices, indirect=True)


def choices(small):
    return {small.choice, "auto" if small.choice == "mnist" else small.choice}


def cache(small):
    return Path(os.environ["XDG_CACHE_HOME"]) / "deepbig" / small.choice


# Whole files


def test_whole_files_are_read_in_place(small):
    before = sorted(small.folder.rglob("*"))
    dataset = data.load_pixels(small.choice, small.folder)
    small.check(dataset)
    assert dataset.name == (small.name if small.choice == "mnist" else f"{small.name}-like")
    assert dataset.source == str(small.folder)
    assert sorted(small.folder.rglob("*")) == before


def test_images_are_scaled_and_only_digits_change_their_size(small):
    dataset = data.load(small.choice, small.folder)
    for images, pixels in zip(
        (dataset.train_images, dataset.test_images), small.arrays[::2], strict=True
    ):
        expected = (interpolated(pixels) if small.choice == "mnist" else pixels) / 127.5 - 1
        assert (images.shape, images.dtype) == (expected.shape, np.float32)
        assert images.flags.c_contiguous
        assert (np.abs(images - expected) <= 1e-5).all()


def test_sha256_is_of_the_content_of_all_files(small):
    """Of CIFAR-10 it is of the archive."""
    contents = [path.read_bytes() for path in small.paths]
    expected = hashlib.sha256(contents[0]).hexdigest()
    if small.choice != "cifar10":
        digests = [hashlib.sha256(gzip.decompress(packed)).hexdigest() for packed in contents]
        expected = hashlib.sha256("".join(digests).encode()).hexdigest()
    assert data.load_pixels(small.choice, small.folder).sha256 == expected


@only("norb", "cifar10")
def test_as_many_images_as_the_set_has_must_be_the_sets(small, monkeypatch):
    content = small.paths[-1].read_bytes()
    small.be_whole(monkeypatch)
    assert data.load_pixels(small.choice, small.folder).name == small.name
    small.paths[-1].write_bytes(content + gzip.compress(b""))
    with pytest.raises(Problem, match=r"expected content of (MD5|SHA256) .*, found") as caught:
        data.load_pixels(small.choice, small.folder)
    assert str(small.paths[-1]) in str(caught.value)


@needs_mnist
def test_real_mnist():
    dataset = data.load("mnist", REAL)
    assert dataset.sha256 == "c65580678af93f1ea48c2c0d01d543ec89307c6b8a0eb7ca542d7c18c5f4c681"
    assert dataset.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert dataset.test_labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert dataset.train_images.shape == (60_000, 29, 29)
    expected = interpolated(data.load_pixels("mnist", REAL).test_images[::200]) / 127.5 - 1
    assert (np.abs(dataset.test_images[::200] - expected) <= 1e-6).all()


# Where the files are looked for


def test_order_of_folders(small, tmp_path, monkeypatch):
    named, local, variable = tmp_path / "named", Path("data") / small.choice, f"{small.name}_DIR"
    for folder in (named, local, cache(small)):
        shutil.copytree(small.folder, folder)
    monkeypatch.setenv(variable, str(named))
    assert data.load_pixels(small.choice, small.folder).source == str(small.folder)
    assert data.load_pixels(small.choice).source == str(named)
    monkeypatch.setenv(variable, "")
    assert data.load_pixels(small.choice).source == str(local)
    shutil.rmtree(local)
    assert data.load_pixels(small.choice, mirrors=()).source == str(cache(small))
    shutil.rmtree(cache(small))
    advice = f"set {variable} or --data-dir to a folder with {small.name}'s "
    with pytest.raises(Problem, match=f"{small.name} cannot be downloaded: .*{advice}"):
        data.load_pixels(small.choice, mirrors=())


def test_a_named_folder_without_the_files_is_passed_over(small, tmp_path, monkeypatch, capsys):
    shutil.copytree(small.folder, cache(small))
    monkeypatch.setenv(f"{small.name}_DIR", str(tmp_path / "empty"))
    assert data.load_pixels(small.choice).source == str(cache(small))
    (note,) = capsys.readouterr().err.splitlines()
    assert f"${small.name}_DIR ({tmp_path / 'empty'})" in note


def test_an_explicit_folder_must_have_the_files(small, tmp_path):
    shutil.copytree(small.folder, cache(small))  # must not be used
    for choice in choices(small):
        for folder, found in ((tmp_path / "no-such", "no such folder"), (tmp_path, "none of them")):
            with pytest.raises(
                Problem, match=rf"{folder}: expected {small.name}'s .*, found {found}"
            ):
                data.load_pixels(choice, folder)


@only("mnist", "norb")
def test_a_folder_with_a_part_of_the_files_is_refused(small):
    folder = cache(small)
    shutil.copytree(small.folder, folder)
    names = [path.name.removesuffix(".gz") for path in small.paths]
    for path, name in zip(small.paths, names, strict=True):
        (folder / path.name).rename("elsewhere")
        for choice in choices(small):
            with pytest.raises(Problem, match=f"^{folder} holds {small.name} only in part") as e:
                data.load_pixels(choice, mirrors=())
            assert [n for n in names if f"no {n}" in str(e.value)] == [name]
        Path("elsewhere").rename(folder / path.name)


@only("mnist")
def test_the_cache_is_below_home_unless_there_is_none(small, tmp_path, monkeypatch):
    import pwd

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / ".cache" / "deepbig" / "mnist"
    shutil.copytree(small.folder, folder)
    assert data.load_pixels("mnist", mirrors=()).source == str(folder)

    def nobody(_uid):
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("HOME")
    with pytest.raises(FileFault, match="this user has no home folder; set XDG_CACHE_HOME to a fo"):
        data.load_pixels("auto", mirrors=())


@only("mnist")
def test_mnist_may_be_packed_or_plain(small):
    plain, dotted = (path.with_suffix("") for path in small.paths[:2])
    for path, packed in ((plain, small.paths[0]), (dotted, small.paths[1])):
        path.write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    dotted.rename(dotted.with_name(dotted.name.replace("-idx", ".idx")))
    os.rename(small.paths[2], small.paths[2].with_suffix(""))  # some programs leave its name
    last = small.paths[3]
    last.rename(last.with_name(last.name.replace("t10k", "test")))
    small.check(data.load_pixels("mnist", small.folder))


# Files that are not as they should be


def complaint(small, index, content):
    """The sentence on a file with that content, packed."""
    path = small.paths[index]
    path.write_bytes(content)
    sentences = set()
    for choice in choices(small):
        with pytest.raises(Problem) as caught:
            data.load_pixels(choice, small.folder)
        sentences.add(str(caught.value))
    (sentence,) = sentences
    assert "\n" not in sentence
    assert sentence.startswith(f"{path} is damaged or wrong: ")
    return sentence


def flipped(packed):
    """With another checksum of its content."""
    return packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda packed: packed[:-9], "ended before"),
        (flipped, "CRC check failed"),
        (lambda packed: b"", "expected .*, found|empty file"),
        (lambda packed: gzip.compress(b""), "expected .*, found|empty file"),
        (lambda packed: b"<!doctype html><p>No.", "found 3c21646f|Not a gzipped file"),
    ],
    ids=["cut", "checksum", "empty", "nothing", "page"],
)
def test_damaged_gzip_is_refused(small, change, expected):
    for index, path in enumerate(small.paths):
        packed = path.read_bytes()
        assert re.search(expected, complaint(small, index, change(packed)))
        path.write_bytes(packed)


IMAGES, LABELS = np.zeros((5, 4, 4), np.uint8), np.zeros(5, np.uint8)
START = "expected 00000803 at its start (IDX, uint8, 3 dimensions), found"


@only("mnist")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (idx(IMAGES)[:-1], "expected 80 bytes after its header, found 79"),
        (idx(IMAGES) + b"\0", "expected 80 bytes after its header, found more"),
        (idx(IMAGES), "expected content of SHA256 "),
        (idx(LABELS), f"{START} 00000801 00000005"),
    ],
)
def test_wrong_idx_is_refused(small, content, expected):
    assert expected in complaint(small, 0, content)


PAIRS, CLASSES = np.zeros((2, 2, 96, 96), np.uint8), np.zeros(3, np.int32)
HEADER = "expected a header of 0x1e3d4c55, 4, 1 to 24300, 2, 96, 96 (uint8), found"


@only("norb")
@pytest.mark.parametrize(
    ("index", "content", "expected"),
    [
        (0, mat(CLASSES), f"{HEADER} 0x1e3d4c54, 1, 3"),
        (0, mat(PAIRS, sizes=(24301, 2, 96, 96)), f"{HEADER} 0x1e3d4c55, 4, 24301, 2"),
        (0, struct.pack("<4i", BYTES, 4, 2, 2), f"{HEADER} 0x1e3d4c55, 4, 2, 2, 0, 0"),
        (0, mat(PAIRS)[:-1], "cannot reshape array of size 36863"),
        (0, mat(PAIRS) + b"\0", "expected 2 items, found more"),
        (1, mat(CLASSES), "expected 5 labels, one for each image, found 3"),
        (3, mat(np.full(5, 5, np.int32)), "expected labels from 0 to 4, found 5 to 5"),
        (3, mat(np.full(5, -1, np.int32)), "expected labels from 0 to 4, found -1 to -1"),
    ],
)
def test_wrong_mat_is_refused(small, index, content, expected):
    assert expected in complaint(small, index, gzip.compress(content))


ONE = record(3, np.arange(3072).astype(np.uint8).reshape(32, 32, 3))
GOOD = dict.fromkeys(MEMBERS, ONE)


def link():
    """An archive whose first file is a symbolic link."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        member = tarfile.TarInfo(MEMBERS[0])
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    return content.getvalue()


@only("cifar10")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (pack({n: ONE for n in MEMBERS[1:5]}), f"found no {MEMBERS[0]} and no {MEMBERS[5]}"),
        (pack(GOOD | {MEMBERS[0]: ONE + b"\0"}), "to have 1 to 10000 records of 3073 bytes, found"),
        (
            pack(GOOD | {MEMBERS[5]: ONE + b"\x0a" + ONE[1:]}),
            f"labels in {MEMBERS[5]} from 0 to 9, found 3 to 10",
        ),
        (link(), "found 0 bytes and no plain file"),
        # Twice, without the blocks that end an archive.
        (pack(GOOD)[:4096] + pack(GOOD), f"expected {MEMBERS[0]} once, found it twice"),
    ],
)
def test_wrong_archive_is_refused(small, content, expected):
    assert re.search(expected, complaint(small, 0, gzip.compress(content, 1)))


@pytest.mark.parametrize(
    ("choice", "content"),
    [
        ("mnist", lambda: idx(IMAGES) + bytes(50_000_000)),
        ("norb", lambda: mat(PAIRS, sizes=(2**31 - 1, 2, 96, 96)) + bytes(50_000_000)),
    ],
)
def test_little_is_read_of_a_file_that_is_too_large(tmp_path, monkeypatch, choice, content):
    small = small_sets.make(choice, tmp_path / "small", monkeypatch)
    small.paths[0].write_bytes(gzip.compress(content(), 1))
    tracemalloc.start()
    try:
        with pytest.raises(Problem):
            data.load_pixels(choice, small.folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
