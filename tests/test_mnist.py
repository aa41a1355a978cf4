"""Tests of experiments/running/data.py: where MNIST is looked for, and files that are damaged."""

import gzip
import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mnist_files import NAMES, check_small, idx, interpolated, write_idx

from experiments.running import data, download
from experiments.running.errors import Problem

pytestmark = pytest.mark.usefixtures("sandbox")

REAL = os.environ.get("MNIST_DIR") and Path(os.environ["MNIST_DIR"]).absolute()
fuzz = settings(
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


# Where MNIST is looked for


@pytest.mark.parametrize("compress", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 0)])
def test_plain_and_gzip(small_mnist, tmp_path, compress):
    write_idx(tmp_path / "new", small_mnist.contents, compress)
    dataset = data.load("mnist", tmp_path / "new", mirrors=())
    check_small(dataset, small_mnist)
    assert dataset.source == str(tmp_path / "new")
    assert dataset.train_labels.flags.writeable  # read-only is another type to numba


def test_the_checksum_decides_and_not_the_name(small_mnist, tmp_path):
    """As 7-Zip names them; among other files, and one under the name of another."""
    folder = tmp_path / "new"
    write_idx(folder, small_mnist.contents, (0, 0, 1, 1))
    for path in folder.iterdir():
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    (folder / "notes.txt").write_bytes(small_mnist.contents[1][:8] + b"not labels")
    (folder / "train-images.idx3-ubyte").rename(folder / "a")
    check_small(data.load("mnist", folder, mirrors=()), small_mnist)
    (folder / "a").unlink()
    with pytest.raises(Problem, match=r"only in part: .* found no train-images-idx3-ubyte; add"):
        data.load("mnist", folder, mirrors=())


def test_a_good_file_is_read_beside_an_empty_or_damaged_one(small_mnist):
    for content in (b"", b"damaged"):
        (small_mnist.folder / NAMES[0]).write_bytes(content)
        check_small(data.load("mnist", small_mnist.folder, mirrors=()), small_mnist)


def test_a_large_file_of_another_name_is_not_read(small_mnist, monkeypatch):
    path = small_mnist.folder / f"{NAMES[0]}.gz"
    monkeypatch.setattr(download, "MAX_BYTES", path.stat().st_size - 1)
    path.rename(small_mnist.folder / "large")
    with pytest.raises(Problem, match="only in part"):
        data.load("mnist", small_mnist.folder, mirrors=())


def test_recompressed_files_pass(small_mnist):
    for name, content in zip(NAMES, small_mnist.contents, strict=True):
        half = len(content) // 2
        members = gzip.compress(content[:half], 1, mtime=9) + gzip.compress(content[half:], 0)
        (small_mnist.folder / f"{name}.gz").write_bytes(members)
    check_small(data.load("mnist", small_mnist.folder), small_mnist)


NAMED = gzip.compress(b"")[:3] + b"\x08" + gzip.compress(b"")[4:10]  # a header with a name


@pytest.mark.parametrize("before", [b"", gzip.compress(b"", mtime=0)], ids=["first", "second"])
def test_headers_that_would_take_long_are_refused(small_mnist, before):
    """Python reads the names in them byte by byte. before: a part without content."""
    for name in NAMES:
        path = small_mnist.folder / f"{name}.gz"
        packed = path.read_bytes()
        path.write_bytes(before + NAMED + b"n" * 200_000 + b"\0" + packed[10:])
    with pytest.raises(Problem, match="expected gzip headers of some bytes, found longer ones"):
        data.load("mnist", small_mnist.folder)


def test_a_header_may_have_a_name(small_mnist):
    path = small_mnist.folder / f"{NAMES[0]}.gz"
    path.write_bytes(NAMED + b"n" * 1000 + b"\0" + path.read_bytes()[10:])
    check_small(data.load("mnist", small_mnist.folder), small_mnist)


def test_order_of_folders(small_mnist, tmp_path, mnist_cache, monkeypatch):
    explicit, named, local = tmp_path / "explicit", tmp_path / "named", Path("data/mnist")
    monkeypatch.setenv("MNIST_DIR", str(named))
    for folder in (explicit, named, local, mnist_cache):
        write_idx(folder, small_mnist.contents)

    assert data.load("mnist", explicit).source == str(explicit)
    assert data.load("mnist").source == str(named)
    monkeypatch.setenv("MNIST_DIR", "")
    assert data.load("mnist").source == str(local)
    shutil.rmtree(local)
    assert data.load("auto", mirrors=()).source == str(mnist_cache)
    shutil.rmtree(mnist_cache)
    with pytest.raises(Problem, match="MNIST cannot be downloaded"):
        data.load("mnist", mirrors=())


def test_no_home_and_nobody_in_the_list_of_users(mnist_cache, monkeypatch, capsys):
    import pwd

    def nobody(_uid):
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME")
    with pytest.raises(Problem, match="MNIST cannot be downloaded: this user has no home folder"):
        data.load("mnist", mirrors=[])
    assert data.load("auto", mirrors=[]).name == "load_digits"
    assert "set XDG_CACHE_HOME to a folder" in capsys.readouterr().err


def test_cache_below_home(small_mnist, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / ".cache" / "deepbig" / "mnist"
    write_idx(folder, small_mnist.contents)
    assert data.load("mnist", mirrors=()).source == str(folder)


@pytest.mark.parametrize("choice", ["auto", "mnist"])
def test_explicit_folder_without_mnist(small_mnist, tmp_path, mnist_cache, choice):
    write_idx(mnist_cache, small_mnist.contents)  # must not be used
    with pytest.raises(Problem, match=r"no-such: expected .* found no such folder"):
        data.load(choice, tmp_path / "no-such")
    with pytest.raises(Problem, match=r"work: expected .* found none of MNIST's files"):
        data.load(choice, tmp_path / "work")


def test_named_folder_without_mnist_is_passed_over(
    small_mnist, tmp_path, mnist_cache, monkeypatch, capsys
):
    write_idx(mnist_cache, small_mnist.contents)
    monkeypatch.setenv("MNIST_DIR", str(tmp_path / "empty"))
    assert data.load("mnist").source == str(mnist_cache)
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"$MNIST_DIR ({tmp_path / 'empty'})" in err


# Files that are not as they should be


def damage(small_mnist, index, content):
    """Put `content` in the place of a file; return that file's path."""
    path = small_mnist.folder / f"{NAMES[index]}.gz"
    path.write_bytes(content)
    return path


def check_problem(small_mnist, path, *parts):
    """Both choices end in one sentence with the path and `parts`."""
    for choice in ("auto", "mnist"):
        with pytest.raises(Problem) as caught:
            data.load(choice, small_mnist.folder)
        sentence = str(caught.value)
        assert "\n" not in sentence
        for part in (str(path), *parts):
            assert part in sentence


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("where", ["MNIST_DIR", "data/mnist", "cache"])
def test_missing_one_of_four(small_mnist, mnist_cache, monkeypatch, index, where):
    folder = {"MNIST_DIR": small_mnist.folder, "data/mnist": Path(where), "cache": mnist_cache}[
        where
    ]
    write_idx(folder, small_mnist.contents)
    (folder / f"{NAMES[index]}.gz").unlink()
    if where == "MNIST_DIR":
        monkeypatch.setenv(where, str(folder))
    for choice in ("auto", "mnist"):
        with pytest.raises(Problem) as caught:
            data.load(choice, mirrors=())
        assert str(folder) in str(caught.value)
        assert [n for n in NAMES if f"no {n}" in str(caught.value)] == [NAMES[index]]


@pytest.mark.parametrize("index", range(4))
def test_truncated_gzip(small_mnist, index):
    path = damage(small_mnist, index, gzip.compress(small_mnist.contents[index])[:-9])
    check_problem(small_mnist, path, "expected a whole file", "ended before")


def test_damaged_gzip(small_mnist):
    content = bytearray(gzip.compress(small_mnist.contents[0]))
    content[-6] ^= 1
    check_problem(
        small_mnist, damage(small_mnist, 0, content), "expected a whole file", "CRC check failed"
    )


@pytest.mark.parametrize("pack", [gzip.compress, bytes])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: b"", "at its start, found b''"),
        (lambda c: c[:6], "expected dimensions (5, 4, 4), found ()"),
        (lambda c: c[:-1], "expected 96 bytes, found 95"),
        (lambda c: c + b"\0", "expected 96 bytes, found more"),
        (lambda c: c[:-1] + bytes([c[-1] ^ 1]), "expected content of SHA-256"),
        (lambda c: idx(np.zeros((3, 4, 4), np.uint8)), "(5, 4, 4), found (3, 4, 4)"),
        (lambda c: idx(np.zeros(5, np.uint8)), r"found b'\x00\x00\x08\x01'"),
        (lambda c: b"<!doctype html><p>No.", "found b'<!do'"),
    ],
)
def test_wrong_content(small_mnist, change, expected, pack):
    check_problem(
        small_mnist, damage(small_mnist, 0, pack(change(small_mnist.contents[0]))), expected
    )


def test_unreadable_file(small_mnist):
    path = small_mnist.folder / f"{NAMES[0]}.gz"
    path.unlink()
    path.mkdir()
    check_problem(small_mnist, path, "Is a directory")


def test_no_more_is_unpacked_than_needed(small_mnist):
    damage(small_mnist, 1, gzip.compress(bytes(50_000_000)))
    tracemalloc.start()
    try:
        with pytest.raises(Problem):
            data.load("mnist", small_mnist.folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000


@fuzz
@given(source=st.data())
def test_any_changed_byte_is_noticed(small_mnist, source):
    index = source.draw(st.integers(0, 3))
    content = small_mnist.contents[index]
    packed = source.draw(st.booleans())
    content = bytearray(gzip.compress(content, mtime=0) if packed else content)
    where = source.draw(st.integers(0, len(content) - 1))
    content[where] ^= source.draw(st.integers(1, 255))
    path = damage(small_mnist, index, content)
    dataset, sentence = None, ""
    try:
        dataset = data.load("auto", small_mnist.folder)
    except Problem as problem:
        sentence = str(problem)
    write_idx(small_mnist.folder, small_mnist.contents)
    if packed and dataset:  # a byte that says nothing, such as gzip's time stamp
        check_small(dataset, small_mnist)
    else:
        assert str(path) in sentence


@fuzz
@given(source=st.data())
def test_any_truncation_is_noticed(small_mnist, source):
    index = source.draw(st.integers(0, 3))
    content = small_mnist.contents[index]
    content = gzip.compress(content) if source.draw(st.booleans()) else content
    path = damage(small_mnist, index, content[: source.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(Problem) as caught:
        data.load("auto", small_mnist.folder)
    write_idx(small_mnist.folder, small_mnist.contents)
    assert str(path) in str(caught.value)


# The real MNIST


@pytest.mark.skipif(not REAL, reason="$MNIST_DIR is not set: no real MNIST")
def test_real_mnist():
    mnist = data.load("mnist", REAL)
    assert mnist.name == "MNIST"
    assert mnist.source == str(REAL)
    assert mnist.sha256 == "c65580678af93f1ea48c2c0d01d543ec89307c6b8a0eb7ca542d7c18c5f4c681"
    assert mnist.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert mnist.test_labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    for images, labels, name, n in (
        (mnist.train_images, mnist.train_labels, NAMES[0], 60_000),
        (mnist.test_images, mnist.test_labels, NAMES[2], 10_000),
    ):
        path = REAL / name
        plain = path.exists()
        raw = path.read_bytes() if plain else gzip.decompress(Path(f"{path}.gz").read_bytes())
        pixels = np.frombuffer(raw, np.uint8, offset=16).reshape(n, 28, 28)
        assert images.shape == (n, 29, 29)
        assert images.dtype == np.float32
        assert images.flags.c_contiguous
        assert labels.shape == (n,)
        assert labels.dtype == np.uint8
        assert (images >= -1).all()
        assert (images <= 1).all()
        # Inner pixel (i, j) of the 29 lies between pixels i - 1, i and j - 1, j of the 28.
        some = slice(None, None, 7)
        windows = np.lib.stride_tricks.sliding_window_view(pixels[some], (2, 2), (1, 2))
        empty = (windows == 0).all((3, 4))
        assert (images[some, 1:-1, 1:-1][empty] == -1).all()
        expected = interpolated(pixels[:: n // 50]) / 127.5 - 1
        assert (np.abs(images[:: n // 50] - expected) <= 1e-6).all()
