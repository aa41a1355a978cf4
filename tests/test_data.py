"""Tests of experiments/running/data.py. Nothing outside pytest's temporary folder is written."""

import gzip
import hashlib
import http.server
import os
import shutil
import signal
import socket
import struct
import sys
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.ndimage import map_coordinates

from deform_gpu import is_narrow
from experiments.running import data
from experiments.running.errors import Interrupted, Problem
from mlp_gpu.training import image_order

REAL = os.environ.get("MNIST_DIR") and Path(os.environ["MNIST_DIR"]).absolute()
NAMES = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
]
fuzz = settings(
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def sandbox(tmp_path, monkeypatch):
    """Working folder and cache in a temporary folder, no $MNIST_DIR, no proxy."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("MNIST_DIR", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "xdg" / "deepbig" / "mnist"


def write_idx(folder, contents, compress=(True, True, True, True)):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content, packed in zip(NAMES, contents, compress, strict=True):
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


def idx(array):
    header = struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape)
    return header + array.tobytes()


@pytest.fixture
def small(tmp_path, monkeypatch):
    """FILES made to describe 5 training and 3 test images of 4x4, and a folder with them."""
    rng = np.random.default_rng(1)
    arrays = [
        rng.integers(0, 256, (5, 4, 4), np.uint8),
        np.array([3, 1, 4, 1, 5], np.uint8),
        rng.integers(0, 256, (3, 4, 4), np.uint8),
        np.array([9, 2, 6], np.uint8),
    ]
    contents = [idx(array) for array in arrays]
    files = tuple(
        data.IdxFile(name, 0x0800 + a.ndim, a.shape, hashlib.sha256(content).hexdigest())
        for name, a, content in zip(NAMES, arrays, contents, strict=True)
    )
    monkeypatch.setattr(data, "FILES", files)
    folder = tmp_path / "small"
    write_idx(folder, contents)
    return SimpleNamespace(arrays=arrays, contents=contents, folder=folder)


def check_small(dataset, small):
    assert dataset.name == "MNIST"
    np.testing.assert_array_equal(dataset.train_labels, small.arrays[1])
    np.testing.assert_array_equal(dataset.test_labels, small.arrays[3])
    for images, pixels in (
        (dataset.train_images, small.arrays[0]),
        (dataset.test_images, small.arrays[2]),
    ):
        expected = interpolated(pixels) / 127.5 - 1
        assert images.shape == expected.shape
        assert (np.abs(images - expected) <= 1e-5).all()


def interpolated(images):
    """Bilinear, corners on corners, by SciPy in float64."""
    at = np.linspace(0, images.shape[1] - 1, 29)
    grid = np.meshgrid(at, at, indexing="ij")
    return np.array(
        [map_coordinates(i.astype(float), grid, order=1, mode="nearest") for i in images]
    )


# Scaling


@pytest.mark.parametrize(("n", "side"), [(1, 1), (7, 2), (2003, 8), (33, 28), (3, 29), (2, 31)])
def test_scaling_is_bilinear(n, side):
    images = np.random.default_rng(side).uniform(-1, 1, (n, side, side)).astype(np.float32)
    scaled = data.to_29(images)
    assert scaled.dtype == np.float32
    assert scaled.flags.c_contiguous
    assert scaled.shape == (n, 29, 29)
    # Two interpolations of four roundings, each of values of at most 2 in magnitude.
    assert (np.abs(scaled - interpolated(images)) <= 16 * np.finfo(np.float32).eps).all()


def test_scaling_keeps_corners_and_range():
    images = np.random.default_rng(2).integers(0, 256, (50, 28, 28), np.uint8)
    scaled = data.to_29(images)
    np.testing.assert_array_equal(scaled[:, ::28, ::28], images[:, ::27, ::27])
    assert (scaled >= images.min(axis=(1, 2), keepdims=True)).all()
    assert (scaled <= images.max(axis=(1, 2), keepdims=True)).all()


@given(value=st.floats(width=32, min_value=-1e6, max_value=1e6), side=st.integers(1, 40))
def test_scaling_keeps_constants(value, side):
    assert (data.to_29(np.full((2, side, side), value, np.float32)) == np.float32(value)).all()


def test_scaling_needs_little_memory():
    images = np.zeros((20_000, 28, 28), np.uint8)
    tracemalloc.start()
    try:
        scaled = data.to_29(images)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - scaled.nbytes < 32e6  # a float32 copy of the images would be 63e6


# load_digits


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def test_digits_are_split_1437_to_360(digits):
    from sklearn.datasets import load_digits

    whole = load_digits()
    assert digits.name == "load_digits"
    assert digits.source.startswith("scikit-learn ")
    assert digits.train_images.shape == (1437, 29, 29)
    assert digits.test_images.shape == (360, 29, 29)
    assert digits.train_images.dtype == digits.test_images.dtype == np.float32
    assert digits.train_labels.dtype == digits.test_labels.dtype == np.uint8
    # Every fourth pixel of the 29 is one of the 8, unchanged: the two parts make up the whole.
    images = np.concatenate([digits.train_images, digits.test_images])[:, ::4, ::4]
    labels = np.concatenate([digits.train_labels, digits.test_labels])
    rows = np.column_stack([labels, images.reshape(-1, 64)])
    expected = np.column_stack([whole.target, whole.data / 8 - 1])
    np.testing.assert_array_equal(rows[np.lexsort(rows.T)], expected[np.lexsort(expected.T)])


def test_digits_are_stratified(digits):
    train, test = np.bincount(digits.train_labels), np.bincount(digits.test_labels)
    assert (np.abs(test - (train + test) * 360 / 1797) <= 1).all()


def test_digits_split_is_fixed(digits):
    """A change of scikit-learn that changed the split would change every result."""
    assert digits.sha256 == "4edecd175a422bfe39fd13da68449907835e81668e391592146bbcb4a92b43df"
    labels = hashlib.sha256(digits.train_labels.tobytes()).hexdigest()
    assert labels == "8045d56acaec0a8b755102923824266cfaa5a4d8d426e211e2345aa886a6a502"


def test_digits_need_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(Problem, match="scikit-learn is not installed"):
        data.load("digits")


# Options


@pytest.mark.parametrize("limit", [1, 100, 1437])
def test_limit_keeps_the_first_training_images(digits, limit):
    some = data.limit(digits, limit)
    np.testing.assert_array_equal(some.train_images, digits.train_images[:limit])
    np.testing.assert_array_equal(some.train_labels, digits.train_labels[:limit])
    np.testing.assert_array_equal(some.test_images, digits.test_images)
    assert some.sha256 == digits.sha256


@pytest.mark.parametrize("limit", [-1, 0, 1438])
def test_limit_out_of_range(digits, limit):
    with pytest.raises(Problem, match=f"{limit}, expected 1 to 1437, .* load_digits"):
        data.limit(digits, limit)


def test_limit_of_mnist(small):
    some = data.limit(data.load("mnist", small.folder), 2)
    assert some.train_images.shape == (2, 29, 29)
    assert some.train_labels.tolist() == [3, 1]
    assert len(some.test_labels) == len(some.test_images) == 3
    with pytest.raises(Problem, match=r"6, expected 1 to 5, .* MNIST"):
        data.limit(data.load("mnist", small.folder), 6)


def numbered(n, name="load_digits"):
    """n training images that are known by their values, labels 0 to 9 in turn, 4 test images."""
    images = np.repeat(np.arange(n, dtype=np.float32), 29 * 29).reshape(n, 29, 29)
    labels = np.arange(n, dtype=np.uint8) % 10
    return data.Dataset(name, images, labels, images[:4], labels[:4], "0" * 64, "here")


def numbers(images):
    assert (images == images[:, :1, :1]).all()
    return images[:, 0, 0].astype(int).tolist()


@settings(deadline=None, max_examples=60)
@given(n_train=st.integers(2, 60), seed=st.integers(0, 2**64 - 1), source=st.data())
def test_split_is_disjoint_and_complete(n_train, seed, source):
    n = source.draw(st.integers(1, n_train - 1))
    whole = numbered(n_train)
    found = data.split(whole, n, seed)
    apart, apart_labels = found.validation
    train = numbers(found.train_images)
    assert len(apart) == n
    assert sorted(train + numbers(apart)) == list(range(n_train))
    assert train == sorted(train)  # the others keep their order
    # Every image keeps its label.
    assert found.train_labels.tolist() == [i % 10 for i in train]
    assert apart_labels.tolist() == [i % 10 for i in numbers(apart)]
    assert found.train_images.flags.c_contiguous
    assert apart.flags.c_contiguous
    assert found.train_labels.dtype == apart_labels.dtype == np.uint8
    # All else stays, and so does what was given.
    assert found.test_images is whole.test_images
    assert found.test_labels is whole.test_labels
    assert (found.name, found.sha256, found.source) == (whole.name, whole.sha256, whole.source)
    assert numbers(whole.train_images) == list(range(n_train))
    assert whole.validation is None


def test_split_is_a_function_of_the_seed():
    sets = [set(numbers(data.split(numbered(60), 10, seed).validation[0])) for seed in range(7)]
    again = [set(numbers(data.split(numbered(60), 10, seed).validation[0])) for seed in range(7)]
    assert sets == again
    assert len(set(map(frozenset, sets))) == 7
    assert sets[0] != set(range(10))  # drawn at random, not the first


def test_split_draws_every_image_equally_often():
    drawn = [
        i for seed in range(600) for i in numbers(data.split(numbered(12), 2, seed).validation[0])
    ]
    counts = np.bincount(drawn, minlength=12)
    assert (abs(counts - 100) <= 5 * np.sqrt(100 * 10 / 12)).all()  # five standard deviations


def test_split_is_not_the_order_of_the_images():
    """The same seed must not draw the same numbers for two purposes."""
    apart = numbers(data.split(numbered(60), 10, 3).validation[0])
    for epoch in (0, 1):
        assert apart != image_order(60, 3, epoch)[:10].tolist()


@pytest.mark.parametrize("n", [-1, 0, 60, 61])
def test_split_out_of_range(n):
    with pytest.raises(Problem, match=rf"^{n} images .* expected 1 to 59, .* 60 .* of MNIST$"):
        data.split(numbered(60, "MNIST"), n, 0)


def boxes(*sizes):
    """An image for each (width, height) of a bounding box, with ink all over it."""
    images = np.full((len(sizes), 29, 29), -1, np.float32)
    for image, (width, height) in zip(images, sizes, strict=True):
        ink = np.linspace(-0.5, 1, width * height, dtype=np.float32)
        image[2 : 2 + height, 3 : 3 + width] = ink.reshape(height, width)
    return images


def widths(images):
    return [int(np.ptp(np.nonzero((image != -1).any(axis=0))[0])) + 1 for image in images]


@pytest.fixture
def mixed():
    """Narrow digits and others in all three parts."""
    labels = np.array([1, 7, 1, 0], np.uint8)
    train = boxes((4, 20), (5, 20), (6, 20), (20, 20))
    test = boxes((20, 9), (5, 20), (13, 20), (4, 18))
    apart = boxes((1, 2), (2, 2), (20, 20), (3, 20))
    return data.Dataset("MNIST", train, labels, test, labels, "", "", (apart, labels))


@pytest.mark.parametrize("width", [1, 10, 20, 29])
def test_normalize_has_one_rule_for_all_parts(mixed, width):
    found = data.normalize(mixed, width)
    parts = {
        "train": (mixed.train_images, found.train_images, [True, True, False, False]),
        "test": (mixed.test_images, found.test_images, [False, True, False, True]),
        "validation": (mixed.validation[0], found.validation[0], [True, False, False, True]),
    }
    for before, after, narrow in parts.values():
        assert is_narrow(before).tolist() == narrow
        narrow = np.array(narrow)
        assert after[narrow].tobytes() == before[narrow].tobytes()
        assert widths(after[~narrow]) == [width] * np.count_nonzero(~narrow)
        assert after.dtype == np.float32
        assert after.flags.c_contiguous
    assert found.train_labels is mixed.train_labels
    assert found.test_labels is mixed.test_labels
    assert found.validation[1] is mixed.validation[1]
    assert widths(mixed.train_images) == [4, 5, 6, 20]  # what was given stays


def test_normalize_uses_no_label(mixed):
    others = np.array([0, 1, 3, 1], np.uint8)
    relabelled = replace(
        mixed, train_labels=others, test_labels=others, validation=(mixed.validation[0], others)
    )
    found, expected = data.normalize(relabelled, 12), data.normalize(mixed, 12)
    assert (found.train_images == expected.train_images).all()
    assert (found.test_images == expected.test_images).all()
    assert (found.validation[0] == expected.validation[0]).all()
    assert (found.validation[1] == others).all()


def test_normalize_without_validation_images(digits):
    found = data.normalize(digits, 14)
    assert found.validation is None
    wide = ~is_narrow(digits.test_images)
    assert wide.any()
    assert widths(found.test_images[wide]) == [14] * np.count_nonzero(wide)


def test_unknown_choice():
    with pytest.raises(Problem, match="'MNIST', expected auto, mnist or digits"):
        data.load("MNIST")


# Where MNIST is looked for


@pytest.mark.parametrize("compress", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 0)])
def test_plain_and_gzip(small, tmp_path, compress):
    write_idx(tmp_path / "new", small.contents, compress)
    dataset = data.load("mnist", tmp_path / "new", mirrors=())
    check_small(dataset, small)
    assert dataset.source == str(tmp_path / "new")
    assert dataset.train_labels.flags.writeable  # read-only is another type to numba


def test_recompressed_files_pass(small):
    for name, content in zip(NAMES, small.contents, strict=True):
        half = len(content) // 2
        members = gzip.compress(content[:half], 1, mtime=9) + gzip.compress(content[half:], 0)
        (small.folder / f"{name}.gz").write_bytes(members)
    check_small(data.load("mnist", small.folder), small)


def test_order_of_folders(small, tmp_path, cache, monkeypatch):
    explicit, named, local = tmp_path / "explicit", tmp_path / "named", Path("data/mnist")
    monkeypatch.setenv("MNIST_DIR", str(named))
    for folder in (explicit, named, local, cache):
        write_idx(folder, small.contents)

    assert data.load("mnist", explicit).source == str(explicit)
    assert data.load("mnist").source == str(named)
    monkeypatch.setenv("MNIST_DIR", "")
    assert data.load("mnist").source == str(local)
    shutil.rmtree(local)
    assert data.load("auto", mirrors=()).source == str(cache)
    shutil.rmtree(cache)
    with pytest.raises(Problem, match="MNIST cannot be downloaded"):
        data.load("mnist", mirrors=())


def test_cache_below_home(small, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / ".cache" / "deepbig" / "mnist"
    write_idx(folder, small.contents)
    assert data.load("mnist", mirrors=()).source == str(folder)


@pytest.mark.parametrize("choice", ["auto", "mnist"])
def test_explicit_folder_without_mnist(small, tmp_path, cache, choice):
    write_idx(cache, small.contents)  # must not be used
    with pytest.raises(Problem, match=r"no-such: expected .* found no such folder"):
        data.load(choice, tmp_path / "no-such")
    with pytest.raises(Problem, match=r"work: expected .* found none of MNIST's files"):
        data.load(choice, tmp_path / "work")


def test_named_folder_without_mnist_is_passed_over(small, tmp_path, cache, monkeypatch, capsys):
    write_idx(cache, small.contents)
    monkeypatch.setenv("MNIST_DIR", str(tmp_path / "empty"))
    assert data.load("mnist").source == str(cache)
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"$MNIST_DIR ({tmp_path / 'empty'})" in err


# Files that are not as they should be


def damage(small, index, content):
    """Put `content` in the place of a file; return that file's path."""
    path = small.folder / f"{NAMES[index]}.gz"
    path.write_bytes(content)
    return path


def check_problem(small, path, *parts):
    """Both choices end in one sentence with the path and `parts`."""
    for choice in ("auto", "mnist"):
        with pytest.raises(Problem) as caught:
            data.load(choice, small.folder)
        sentence = str(caught.value)
        assert "\n" not in sentence
        for part in (str(path), *parts):
            assert part in sentence


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("where", ["MNIST_DIR", "data/mnist", "cache"])
def test_missing_one_of_four(small, cache, monkeypatch, index, where):
    folder = {"MNIST_DIR": small.folder, "data/mnist": Path(where), "cache": cache}[where]
    write_idx(folder, small.contents)
    (folder / f"{NAMES[index]}.gz").unlink()
    if where == "MNIST_DIR":
        monkeypatch.setenv(where, str(folder))
    for choice in ("auto", "mnist"):
        with pytest.raises(Problem) as caught:
            data.load(choice, mirrors=())
        assert str(folder) in str(caught.value)
        assert [n for n in NAMES if f"no {n}" in str(caught.value)] == [NAMES[index]]


@pytest.mark.parametrize("index", range(4))
def test_truncated_gzip(small, index):
    path = damage(small, index, gzip.compress(small.contents[index])[:-9])
    check_problem(small, path, "expected a whole file", "ended before")


def test_damaged_gzip(small):
    content = bytearray(gzip.compress(small.contents[0]))
    content[-6] ^= 1
    check_problem(small, damage(small, 0, content), "expected a whole file", "CRC check failed")


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
def test_wrong_content(small, change, expected, pack):
    check_problem(small, damage(small, 0, pack(change(small.contents[0]))), expected)


def test_unreadable_file(small):
    path = small.folder / f"{NAMES[0]}.gz"
    path.unlink()
    path.mkdir()
    check_problem(small, path, "Is a directory")


def test_no_more_is_unpacked_than_needed(small):
    damage(small, 1, gzip.compress(bytes(50_000_000)))
    tracemalloc.start()
    try:
        with pytest.raises(Problem):
            data.load("mnist", small.folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000


@fuzz
@given(source=st.data())
def test_any_changed_byte_is_noticed(small, source):
    index = source.draw(st.integers(0, 3))
    content = small.contents[index]
    packed = source.draw(st.booleans())
    content = bytearray(gzip.compress(content, mtime=0) if packed else content)
    where = source.draw(st.integers(0, len(content) - 1))
    content[where] ^= source.draw(st.integers(1, 255))
    path = damage(small, index, content)
    dataset, sentence = None, ""
    try:
        dataset = data.load("auto", small.folder)
    except Problem as problem:
        sentence = str(problem)
    write_idx(small.folder, small.contents)
    if packed and dataset:  # a byte that says nothing, such as gzip's time stamp
        check_small(dataset, small)
    else:
        assert str(path) in sentence


@fuzz
@given(source=st.data())
def test_any_truncation_is_noticed(small, source):
    index = source.draw(st.integers(0, 3))
    content = small.contents[index]
    content = gzip.compress(content) if source.draw(st.booleans()) else content
    path = damage(small, index, content[: source.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(Problem) as caught:
        data.load("auto", small.folder)
    write_idx(small.folder, small.contents)
    assert str(path) in str(caught.value)


# Download


@pytest.fixture
def server(small):
    """A local server; `mirror(kind)` is an address at it, `asked` the paths asked for."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            _, kind, name = self.path.split("/")
            content = (small.folder / name).read_bytes()
            index = NAMES.index(name.removesuffix(".gz"))
            status, length, page = 200, len(content), b"<!doctype html><p>Not now."
            if kind in ("page-200", "page-503", "late-503"):
                if kind != "late-503" or index == 2:
                    status, content = int(kind[-3:]), page
                length = len(content)
            elif kind == "broken-off":
                content = content[:-20]
            elif kind == "unsized-broken-off":
                content, length = content[:-20], None
            elif kind == "other-content":
                content = gzip.compress(small.contents[index][:-1] + b"\xff")
                length = len(content)
            self.send_response(status)
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield SimpleNamespace(
        asked=asked, mirror=lambda kind: f"http://127.0.0.1:{httpd.server_port}/{kind}"
    )
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def down():
    """An address where nobody listens."""
    with socket.socket() as holder:  # bound, not listening: nobody else gets the port
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}/mnist"


def check_cached(cache):
    """The four files, and nothing else, are in the cache."""
    assert sorted(cache.parent.rglob("*")) == sorted([cache, *(cache / f"{n}.gz" for n in NAMES)])


BAD = {
    "page-200": "sent something else (expected b'\\x00\\x00\\x08\\x03' (IDX) at its start",
    "page-503": "answered 503",
    "late-503": f"{NAMES[2]}.gz answered 503",
    "broken-off": "broke off",
    "unsized-broken-off": "ended before",
    "other-content": "expected content of SHA-256",
}


def test_download(small, server, cache, capsys):
    dataset = data.load("mnist", mirrors=[server.mirror("good")])
    check_small(dataset, small)
    assert dataset.source == str(cache)
    check_cached(cache)
    assert len(server.asked) == 4
    check_small(data.load("auto", mirrors=[server.mirror("good")]), small)
    assert len(server.asked) == 4  # not downloaded again
    assert capsys.readouterr() == ("", "")  # no terminal, no progress bar, no chatter


def test_progress_on_a_terminal(server, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    data.load("mnist", mirrors=[server.mirror("good")])
    assert "100%" in capsys.readouterr().err


@pytest.mark.parametrize("kind", BAD)
def test_bad_mirror(small, server, cache, capsys, kind):
    mirror = server.mirror(kind)
    with pytest.raises(Problem) as caught:
        data.load("mnist", mirrors=[mirror])
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert mirror in sentence
    assert BAD[kind] in sentence
    assert "MNIST_DIR" in sentence
    assert list(cache.parent.iterdir()) == []

    assert data.load("auto", mirrors=[mirror]).name == "load_digits"
    notice = capsys.readouterr().err
    assert sentence in notice
    assert notice.splitlines()[0] == notice.splitlines()[-1] == "!" * 80
    assert "NOT MNIST" in notice
    assert list(cache.parent.iterdir()) == []

    check_small(data.load("auto", mirrors=[mirror, server.mirror("good")]), small)
    check_cached(cache)
    assert capsys.readouterr().err == ""


def test_mirrors_are_tried_in_turn(small, server, down, cache):
    bad = [down, *(server.mirror(kind) for kind in BAD)]
    with pytest.raises(Problem) as caught:
        data.load("mnist", mirrors=bad)
    places = [str(caught.value).index(mirror) for mirror in bad]
    assert places == sorted(places)
    assert f"{down}/{NAMES[0]}.gz could not be reached" in str(caught.value)
    check_small(data.load("mnist", mirrors=[*bad, server.mirror("good"), down]), small)
    check_cached(cache)


@pytest.mark.parametrize("choice", ["auto", "mnist"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_download_leaves_nothing(cache, monkeypatch, choice, signum):
    import pooch

    def interrupted(self, url, output_file, pooch):
        Path(output_file).write_bytes(b"half")
        raise Interrupted(signum)

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", interrupted)
    with pytest.raises(Interrupted):
        data.load(choice)
    assert list(cache.parent.iterdir()) == []


def test_another_process_was_faster(small, server, cache, monkeypatch):
    import pooch

    fetch = pooch.HTTPDownloader.__call__

    def race(self, url, output_file, pooch):
        write_idx(cache, small.contents)
        return fetch(self, url, output_file, pooch)

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", race)
    check_small(data.load("mnist", mirrors=[server.mirror("good")]), small)
    check_cached(cache)


def test_cache_that_cannot_be_written(server, tmp_path, cache, capsys):
    good = [server.mirror("good")]
    cache.mkdir(parents=True)
    (cache / "something").touch()  # os.replace takes no folder that holds something
    with pytest.raises(Problem, match="deepbig/mnist cannot be written"):
        data.load("mnist", mirrors=good)
    assert sorted(cache.parent.rglob("*")) == [cache, cache / "something"]
    shutil.rmtree(tmp_path / "xdg")
    (tmp_path / "xdg").touch()
    with pytest.raises(Problem, match="deepbig/mnist cannot be written"):
        data.load("mnist", mirrors=good)
    assert data.load("auto", mirrors=good).name == "load_digits"
    assert "NOT MNIST" in capsys.readouterr().err


def test_without_pooch(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(Problem, match="pooch is not installed"):
        data.load("mnist")
    assert data.load("auto").name == "load_digits"
    assert "pooch is not installed" in capsys.readouterr().err


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
        empty = (np.lib.stride_tricks.sliding_window_view(pixels, (2, 2), (1, 2)) == 0).all((3, 4))
        assert (images[:, 1:-1, 1:-1][empty] == -1).all()
        expected = interpolated(pixels[:: n // 50]) / 127.5 - 1
        assert (np.abs(images[:: n // 50] - expected) <= 1e-6).all()
