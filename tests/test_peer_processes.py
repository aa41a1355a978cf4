"""timing/peer_processes.py: peers train in processes with other settings, the fastest is taken."""

import io
import os
import pickle
import sys

import numpy as np
import pytest

from experiments.timing import host, peer_processes, peers
from experiments.timing.peer_processes import PeerProcess, Settings
from mlp_gpu.network import Network

ETA = 0.05


@pytest.fixture
def case():
    """A net, images, labels and eta: the arguments of a peer."""
    return Network.initial((33, 21, 10), 0), *host.random_examples(3, 33), ETA


def test_settings_as_variables():
    assert Settings(2).variables == {
        "NUMBA_NUM_THREADS": "2",
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "NPROC": "2",
    }
    more = {"MALLOC_MMAP_THRESHOLD_": str(32 * 1024**2), "MALLOC_TRIM_THRESHOLD_": str(1024**3)}
    assert Settings(1, True).variables == Settings(1).variables | more
    assert [str(one) for one in (Settings(1), Settings(2, True))] == [
        "1 thread",
        "2 threads, memory kept",
    ]


def test_all_settings_are_tried(monkeypatch):
    monkeypatch.setattr(peer_processes.provenance, "cores", lambda: 4)
    monkeypatch.setattr(peer_processes.platform, "libc_ver", lambda: ("glibc", "2.36"))
    kept = Settings(1), Settings(1, True), Settings(4), Settings(4, True)
    assert peer_processes.all_settings() == list(kept)
    monkeypatch.setattr(peer_processes.platform, "libc_ver", lambda: ("", ""))
    assert peer_processes.all_settings() == [Settings(1), Settings(4)]
    monkeypatch.setattr(peer_processes.provenance, "cores", lambda: 1)
    assert peer_processes.all_settings() == [Settings(1)]


def fail(*_arguments):
    raise ValueError("no such net")


def test_a_peer_is_made_once_and_trained_as_often_as_asked(case):
    """The processes' side, in this process."""
    requests, answers = io.BytesIO(), io.BytesIO()
    for request in (
        (peers.numpy_loop, "make", case),
        (fail, "make", case),
        (peers.numpy_loop, "train", ()),
        (peers.numpy_loop, "train", ()),
        (peers.numpy_loop, "weights", ()),
    ):
        pickle.dump(request, requests)
    requests.seek(0)
    peer_processes.answer(requests, answers)
    answers.seek(0)
    *found, (failure, weights) = (pickle.load(answers) for _ in range(5))
    assert found == [("", None), ("ValueError: no such net", None), ("", None), ("", None)]
    expected = peers.numpy_loop(*case)
    expected.train()
    expected.train()
    assert failure == ""
    for W, V in zip(weights, expected.weights(), strict=True):
        assert (W == V).all()


def environment(*_arguments):
    """In place of a peer: its weights are the process's number and its variables."""
    print("this is no answer")
    return peers.Peer(lambda: os._exit(3), lambda: (os.getpid(), dict(os.environ)))


def test_a_process_has_its_settings_and_ends(case, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.path.dirname(__file__), *sys.path]))
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    process = PeerProcess(Settings(7, True))
    try:
        with pytest.raises(RuntimeError, match="ValueError: no such net"):
            process.ask(fail, "make", *case)
        process.ask(environment, "make", *case)
        pid, variables = process.ask(environment, "weights")
        assert pid != os.getpid()
        assert variables.items() >= Settings(7, True).variables.items()
        assert variables["PATH"] == os.environ["PATH"]
        assert "OPENBLAS_CORETYPE" not in variables
        for _ in range(2):
            with pytest.raises(RuntimeError, match="its process ended, status 3"):
                process.ask(environment, "train")
    finally:
        process.close()


def test_a_peer_trains_in_the_process_in_which_it_is_fastest(case, monkeypatch):
    asked, closed = [], []

    class Process:
        def __init__(self, settings):
            self.settings = settings

        def ask(self, make, what, *arguments):
            asked.append((self.settings, make, what, arguments))

        def close(self):
            closed.append(self.settings)

    choices = [Settings(1), Settings(2)]
    monkeypatch.setattr(peer_processes, "PeerProcess", Process)
    monkeypatch.setattr(peer_processes, "all_settings", lambda: choices)
    monkeypatch.setattr(peers, "fastest", lambda *given, make, choices: make(*given, choices[1]))
    with peer_processes.started({"a": peers.numpy_loop, "b": fail}) as makers:
        for name, make in (("a", peers.numpy_loop), ("b", fail)):
            peer = makers[name](*case)
            assert peer.note == "2 threads"
            peer.train()
            peer.weights()
            assert asked == [
                (Settings(2), make, "make", case),
                (Settings(2), make, "train", ()),
                (Settings(2), make, "weights", ()),
            ]
            asked.clear()
        assert not closed
    assert sorted(one.threads for one in closed) == [1, 2]


def test_processes_train_the_same_net(case, monkeypatch):
    monkeypatch.setattr(peer_processes, "all_settings", lambda: [Settings(), Settings(1, True)])
    with peer_processes.started({"NumPy": peers.numpy_loop}) as makers:
        peer = makers["NumPy"](*case)
        peer.train()
        found = peer.weights()
    expected = peers.numpy_loop(*case)
    expected.train()
    for W, V in zip(found, expected.weights(), strict=True):
        assert np.allclose(W, V, rtol=1e-4, atol=1e-6)
    assert peer.note in ("1 thread", "1 thread, memory kept")
    with pytest.raises(ValueError, match="closed file"):
        peer.train()
