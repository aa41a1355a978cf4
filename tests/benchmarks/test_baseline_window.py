"""The window in PyTorch takes the steps of the NumPy program, and cuBLAS multiplies its shapes."""

from contextlib import nullcontext
from types import SimpleNamespace

import nets
import numpy as np
import pytest
import reference

from experiments.benchmarks import baseline_nets, baseline_window, window
from experiments.benchmarks.baseline_window import TorchWindow

ETA = float(np.float32(0.05))  # large, so that corrections and steps show
N = 30


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch, an optional baseline, is not installed")


def replayed(step):
    """In place of a CUDA graph: the operations of a step, recorded once, with its shapes."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    nothing = torch.zeros(1)
    recorded = make_fx(lambda x: (x, step()))(nothing)
    return lambda: recorded(nothing)


def make(sizes, *settings):
    """A window with random weights, images, labels, and an order that repeats some images."""
    made = nets.make(TorchWindow(*settings), sizes, n=N)
    return *made, np.random.default_rng(1).integers(0, N, N)


ON_GPU = pytest.param("cuda", baseline_nets.capture_step, marks=pytest.mark.gpu, id="cuda")


@pytest.mark.parametrize(("device", "capture"), [("cpu", replayed), ON_GPU])
@pytest.mark.parametrize(
    ("per_window", "per_block", "eta"),
    [(1, 8, ETA), (5, 11, ETA), (64, 7, ETA), (9, 100, ETA), (9, 100, 1e-4)],
)
@pytest.mark.parametrize("sizes", [(13, 7), (31, 33, 10), (50, 37, 64, 33, 10)], ids=str)
def test_torch_window_matches_float64_and_the_numpy_program(
    sizes, per_window, per_block, eta, device, capture, torch, monkeypatch
):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch does not see the device")
    monkeypatch.setattr(baseline_window, "IMAGES_PER_TICK", 12)
    settings, ticks = (per_window, per_block), []
    trainer, weights, images, labels, order = make(sizes, *settings, device, capture)
    trainer.train(images, labels, order, eta, lambda n, loss: ticks.append(n))
    assert (sum(ticks), min(ticks[:-1], default=12) >= 12) == (N, True)
    found = SimpleNamespace(unpadded=trainer.weights)
    _, loss = reference.train(weights, images, labels, order, eta)  # which PyTorch need not know
    nets.assert_trained(found, loss, weights, images, labels, order, eta)
    known = [W.astype(np.float32) for W in weights]
    sweeps = window.train_in_windows(known, images[order], labels[order], eta, *settings)
    if device == "cpu":  # on a GPU rounding may decide whether a delta has changed
        assert int(trainer._sweeps) == len(sweeps)


def test_launches_in_vain_change_nothing(torch, monkeypatch):
    weights = []
    for likely in (0, 3):
        monkeypatch.setattr(baseline_window, "LIKELY", likely)
        trainer, _, *examples = make((31, 33, 10), 4, 8, "cpu", lambda step: step)
        trainer.train(*examples, ETA)
        weights.append(trainer.weights())
    assert all((W == V).all() for W, V in zip(*weights, strict=True))


# --- cuBLAS


def test_products_have_the_shapes_of_the_kernels(torch):
    from torch.utils.flop_counter import FlopCounterMode

    found = baseline_window.products(37, 21, 3, 5, 8, device="cpu")
    inputs, neurons = 64, 32  # with the bias and the padding
    multiply_adds = {"forward": 3 * inputs * (neurons + 5), "update": 8 * inputs * neurons}
    multiply_adds["backward"] = 3 * neurons * (inputs + 5)
    for name, multiply in found.items():
        with FlopCounterMode(display=False) as counter:
            multiply()
        assert counter.get_total_flops() == 2 * multiply_adds[name], name


def test_cublas_multiplies_on_the_stream_with_its_precision(torch, monkeypatch):
    def products(*shape):
        log.append(shape)
        return {"forward": lambda: log.append(torch.get_float32_matmul_precision())}

    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle: handle)
    monkeypatch.setattr(torch.cuda, "stream", lambda handle: nullcontext(log.append(handle)))
    monkeypatch.setattr(baseline_window, "products", products)
    for precision in ("high", "highest"):
        log = []
        enqueue = baseline_window.cublas(precision, "forward", 1, 2)
        assert log == []  # nothing is allocated before it is timed
        for _ in range(2):
            enqueue(SimpleNamespace(handle=7))
        assert log == [7, (1, 2), precision, 7, precision]
        assert torch.get_float32_matmul_precision() == "highest"
