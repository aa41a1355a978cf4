"""Downloads of data sets, from a server on this machine."""

import gzip
import http.server
import shutil
import signal
import socket
import sys
import threading
from types import SimpleNamespace

import pytest

from deepbig_runtime.errors import Interrupted, Problem
from experiments.datasets import data

pytestmark = pytest.mark.usefixtures("sandbox")

only_mnist = pytest.mark.parametrize("small", ["mnist"], indirect=True)


@pytest.fixture
def server(small, monkeypatch):
    """A local server of the small set; mirror(kind): an address; asked: the paths asked for."""
    small.be_whole(monkeypatch)
    asked, last = [], small.paths[-1].name

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            _, kind, name = self.path.split("/")
            content = (small.folder / name).read_bytes()
            status, length = 200, len(content)
            if kind == "page-200" or (kind == "late-503" and name == last):
                status, content = int(kind[-3:]), b"<!doctype html><p>Not now."
                length = len(content)
            elif kind == "broken-off":
                content = content[:-20]
            elif kind == "unsized-broken-off":
                content, length = content[:-20], None
            elif kind == "other-content" and name == last:
                content = gzip.compress(gzip.decompress(content)[:-1] + b"\xff")
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
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


@pytest.fixture
def cache(small, tmp_path):
    """The folder for the files in the sandbox."""
    return tmp_path / "xdg" / "deepbig" / small.choice


def check_cached(small, cache):
    """The files, and nothing else, are in the cache."""
    files = [cache / path.name for path in small.paths]
    assert sorted(cache.parent.rglob("*")) == sorted([cache, *files])


BAD = {
    "page-200": "sent something else (expected ",
    "late-503": "answered 503",
    "broken-off": "broke off",
    "unsized-broken-off": "sent something else (",
    "other-content": "sent something else (expected content of ",
}


def test_a_set_is_downloaded_once(small, server, cache, capsys):
    dataset = data.load_pixels(small.choice, mirrors=[server.mirror("good")])
    small.check(dataset)
    assert (dataset.name, dataset.source) == (small.name, str(cache))
    check_cached(small, cache)
    assert len(server.asked) == len(small.paths)
    small.check(data.load_pixels(small.choice, mirrors=[server.mirror("good")]))
    assert len(server.asked) == len(small.paths)
    assert capsys.readouterr() == ("", "")  # no terminal, no progress bar, no chatter


@only_mnist
def test_a_terminal_shows_progress(server, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    data.load_pixels("mnist", mirrors=[server.mirror("good")])
    assert "100%" in capsys.readouterr().err


@pytest.mark.parametrize("kind", BAD)
def test_nothing_stays_of_a_bad_mirror(small, server, cache, kind):
    with pytest.raises(Problem) as caught:
        data.load_pixels(small.choice, mirrors=[server.mirror(kind)])
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith(f"{small.name} cannot be downloaded: {server.mirror(kind)}/")
    assert BAD[kind] in sentence
    if kind in ("late-503", "other-content"):
        assert f"/{small.paths[-1].name} " in sentence
    assert f"set {small.name}_DIR or --data-dir to a folder with" in sentence
    assert list(cache.parent.iterdir()) == []


@only_mnist
def test_mirrors_are_tried_in_turn(small, server, down, cache, capsys):
    bad = [down, *(server.mirror(kind) for kind in BAD)]
    with pytest.raises(Problem) as caught:
        data.load_pixels("mnist", mirrors=bad)
    places = [str(caught.value).index(mirror) for mirror in bad]
    assert places == sorted(places)
    assert f"{down}/{small.paths[0].name} could not be reached" in str(caught.value)

    assert data.load_pixels("auto", mirrors=bad).name == "load_digits"
    notice = capsys.readouterr().err
    assert str(caught.value) in notice
    assert notice.splitlines()[0] == notice.splitlines()[-1] == "!" * 80
    assert "NOT MNIST" in notice
    assert list(cache.parent.iterdir()) == []

    small.check(data.load_pixels("auto", mirrors=[*bad, server.mirror("good"), down]))
    check_cached(small, cache)
    assert capsys.readouterr().err == ""


@only_mnist
@pytest.mark.parametrize("choice", ["auto", "mnist"])
def test_an_interrupted_download_leaves_nothing(cache, monkeypatch, choice):
    import pooch

    def interrupted(self, url, output_file, pooch):
        output_file.write_bytes(b"half")
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", interrupted)
    with pytest.raises(Interrupted):
        data.load_pixels(choice)
    assert list(cache.parent.iterdir()) == []


@only_mnist
def test_another_process_may_be_faster(small, server, cache, monkeypatch):
    import pooch

    fetch = pooch.HTTPDownloader.__call__

    def race(self, url, output_file, pooch):
        shutil.copytree(small.folder, cache, dirs_exist_ok=True)
        return fetch(self, url, output_file, pooch)

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", race)
    small.check(data.load_pixels("mnist", mirrors=[server.mirror("good")]))
    check_cached(small, cache)


@only_mnist
def test_a_cache_that_cannot_be_written_is_named(server, tmp_path, cache, capsys):
    good = [server.mirror("good")]
    cache.mkdir(parents=True)
    (cache / "something").touch()  # os.replace takes no folder that holds something
    with pytest.raises(Problem, match="deepbig/mnist cannot be written"):
        data.load_pixels("mnist", mirrors=good)
    assert sorted(cache.parent.rglob("*")) == [cache, cache / "something"]
    shutil.rmtree(tmp_path / "xdg")
    (tmp_path / "xdg").touch()
    with pytest.raises(Problem, match="deepbig/mnist cannot be written"):
        data.load_pixels("mnist", mirrors=good)
    assert data.load_pixels("auto", mirrors=good).name == "load_digits"
    assert "NOT MNIST" in capsys.readouterr().err
