"""How small NORB and CIFAR-10 are downloaded, from a server on this machine."""

import functools
import hashlib
import http.server
import threading

import pytest
from natural_files import make_cifar, make_norb

from experiments.running import cifar, data, norb
from experiments.running.errors import Problem

pytestmark = pytest.mark.usefixtures("sandbox")


@pytest.fixture
def mirror(tmp_path):
    """The address of a server, and the folder that it serves."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Handler, directory=str(folder))
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}", folder
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def serve_norb(folder, monkeypatch):
    """Let 5 solids be all of NORB."""
    make_norb(folder, 5, 5)
    files = (
        file._replace(md5=hashlib.md5((folder / file.name).read_bytes()).hexdigest())
        for file in norb.FILES
    )
    monkeypatch.setattr(norb, "FILES", tuple(files))
    monkeypatch.setattr(norb, "N_PAIRS", 5)
    return [file.name for file in norb.FILES]


def serve_cifar(folder, monkeypatch):
    """Let 4 shapes a file be all of CIFAR-10."""
    make_cifar(folder, 4, 4)
    monkeypatch.setattr(cifar, "SHA256", cifar._digest(folder / cifar.ARCHIVE))
    monkeypatch.setattr(cifar, "N_RECORDS", 4)
    return [cifar.ARCHIVE]


SERVE = {"norb": serve_norb, "cifar10": serve_cifar}
NAMES = {"norb": "NORB", "cifar10": "CIFAR10"}


@pytest.mark.parametrize("choice", SERVE)
def test_download(mirror, tmp_path, monkeypatch, capsys, choice):
    url, folder = mirror
    names = SERVE[choice](folder, monkeypatch)
    dataset = data.load(choice, mirrors=[f"{url}/nothing-here", url])
    cache = tmp_path / "xdg" / "deepbig" / choice
    assert (dataset.name, dataset.source) == (NAMES[choice], str(cache))
    assert sorted(cache.parent.rglob("*")) == sorted([cache, *(cache / name for name in names)])
    again = data.load(choice, mirrors=())
    assert again.sha256 == dataset.sha256
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("choice", SERVE)
def test_wrong_checksum(mirror, tmp_path, monkeypatch, choice):
    """The last file is another: nothing is kept of any."""
    url, folder = mirror
    names = SERVE[choice](folder, monkeypatch)
    path = folder / names[-1]
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(Problem) as caught:
        data.load(choice, mirrors=[url])
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith(f"{NAMES[choice]} cannot be downloaded: {url}/{names[-1]} sent some")
    assert "expected content of " in sentence
    assert f"set {NAMES[choice]}_DIR or --data-dir" in sentence
    assert list((tmp_path / "xdg" / "deepbig").iterdir()) == []


@pytest.mark.parametrize("choice", SERVE)
def test_not_there(mirror, tmp_path, choice):
    url, _ = mirror
    with pytest.raises(Problem, match=f"{NAMES[choice]} cannot be downloaded: .* answered 404; "):
        data.load(choice, mirrors=[url])
    assert list((tmp_path / "xdg" / "deepbig").iterdir()) == []


def test_official_places():
    assert norb.files().mirrors == ("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small",)
    assert cifar.files().mirrors == ("https://www.cs.toronto.edu/~kriz",)
    (archive,) = cifar.files().files
    assert archive.names == ("cifar-10-binary.tar.gz",)
