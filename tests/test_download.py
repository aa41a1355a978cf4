"""Tests of experiments/running/data.py: how MNIST is downloaded, from a server on this machine."""

import contextlib
import gzip
import http.server
import shutil
import signal
import socket
import sys
import threading
from types import SimpleNamespace

import pytest
from mnist_files import NAMES, check_small, write_idx

import deform_gpu.resize  # noqa: F401 - before a test has another folder for compiled code
from experiments.running import data
from experiments.running.errors import Interrupted, Problem

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture
def server(small_mnist):
    """A local server; `mirror(kind)` is an address at it, `asked` the paths asked for."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            _, kind, name = self.path.split("/")
            content = (small_mnist.folder / name).read_bytes()
            index = NAMES.index(name.removesuffix(".gz"))
            status, length, page = 200, len(content), b"<!doctype html><p>Not now."
            if kind in ("page-200", "page-503", "late-503"):
                if kind != "late-503" or index == 2:
                    status, content = int(kind[-3:]), page
                length = len(content)
            elif kind == "broken-off":
                content = content[:-20]
            elif kind == "endless":
                length = None
            elif kind == "unsized-broken-off":
                content, length = content[:-20], None
            elif kind == "other-content":
                content = gzip.compress(small_mnist.contents[index][:-1] + b"\xff")
                length = len(content)
            self.send_response(status)
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)
            if kind == "endless":
                with contextlib.suppress(OSError):  # nobody listens any more
                    for _ in range(1000):
                        self.wfile.write(bytes(2**16))

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


def check_cached(mnist_cache):
    """The four files, and nothing else, are in the cache."""
    assert sorted(mnist_cache.parent.rglob("*")) == sorted(
        [mnist_cache, *(mnist_cache / f"{n}.gz" for n in NAMES)]
    )


BAD = {
    "page-200": "sent something else (expected b'\\x00\\x00\\x08\\x03' (IDX) at its start",
    "page-503": "answered 503",
    "late-503": f"{NAMES[2]}.gz answered 503",
    "broken-off": "broke off",
    "unsized-broken-off": "ended before",
    "other-content": "expected content of SHA-256",
    "endless": "sent something else (expected up to 65,632 bytes, found more)",
}


def test_download(small_mnist, server, mnist_cache, capsys):
    dataset = data.load("mnist", mirrors=[server.mirror("good")])
    check_small(dataset, small_mnist)
    assert dataset.source == str(mnist_cache)
    check_cached(mnist_cache)
    assert len(server.asked) == 4
    check_small(data.load("auto", mirrors=[server.mirror("good")]), small_mnist)
    assert len(server.asked) == 4  # not downloaded again
    assert capsys.readouterr() == ("", "")  # no terminal, no progress bar, no chatter


def test_progress_on_a_terminal(server, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    data.load("mnist", mirrors=[server.mirror("good")])
    assert "100%" in capsys.readouterr().err


@pytest.mark.parametrize("kind", BAD)
def test_bad_mirror(small_mnist, server, mnist_cache, capsys, kind):
    mirror = server.mirror(kind)
    with pytest.raises(Problem) as caught:
        data.load("mnist", mirrors=[mirror])
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert mirror in sentence
    assert BAD[kind] in sentence
    assert "MNIST_DIR" in sentence
    assert list(mnist_cache.parent.iterdir()) == []

    assert data.load("auto", mirrors=[mirror]).name == "load_digits"
    notice = capsys.readouterr().err
    assert sentence in notice
    assert notice.splitlines()[0] == notice.splitlines()[-1] == "!" * 80
    assert "NOT MNIST" in notice
    assert list(mnist_cache.parent.iterdir()) == []

    check_small(data.load("auto", mirrors=[mirror, server.mirror("good")]), small_mnist)
    check_cached(mnist_cache)
    assert capsys.readouterr().err == ""


def test_mirrors_are_tried_in_turn(small_mnist, server, down, mnist_cache):
    bad = [down, *(server.mirror(kind) for kind in BAD)]
    with pytest.raises(Problem) as caught:
        data.load("mnist", mirrors=bad)
    places = [str(caught.value).index(mirror) for mirror in bad]
    assert places == sorted(places)
    assert f"{down}/{NAMES[0]}.gz could not be reached" in str(caught.value)
    check_small(data.load("mnist", mirrors=[*bad, server.mirror("good"), down]), small_mnist)
    check_cached(mnist_cache)


@pytest.mark.parametrize("choice", ["auto", "mnist"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_download_leaves_nothing(mnist_cache, monkeypatch, choice, signum):
    import pooch

    def interrupted(self, url, output_file, pooch):
        output_file.write(b"half")
        raise Interrupted(signum)

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", interrupted)
    with pytest.raises(Interrupted):
        data.load(choice)
    assert list(mnist_cache.parent.iterdir()) == []


def test_another_process_was_faster(small_mnist, server, mnist_cache, monkeypatch):
    import pooch

    fetch = pooch.HTTPDownloader.__call__

    def race(self, url, output_file, pooch):
        write_idx(mnist_cache, small_mnist.contents)
        return fetch(self, url, output_file, pooch)

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", race)
    check_small(data.load("mnist", mirrors=[server.mirror("good")]), small_mnist)
    check_cached(mnist_cache)


def test_cache_that_cannot_be_written(server, tmp_path, mnist_cache, capsys):
    good = [server.mirror("good")]
    mnist_cache.mkdir(parents=True)
    (mnist_cache / "something").touch()  # os.replace takes no folder that holds something
    with pytest.raises(Problem, match="deepbig/mnist cannot be written"):
        data.load("mnist", mirrors=good)
    assert sorted(mnist_cache.parent.rglob("*")) == [mnist_cache, mnist_cache / "something"]
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
