"""The window in PyTorch takes the steps of the NumPy program, and cuBLAS multiplies its shapes."""

from contextlib import contextmanager
from types import SimpleNamespace

import nets
import numpy as np
import pytest
import reference

from experiments.benchmarks import baseline_nets, baseline_window, window
from experiments.benchmarks.baseline_window import TorchWindow, WindowSettings

ETA = float(np.float32(0.05))  # large, so that corrections and steps show
N = 30


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch, an optional baseline, is not installed")


def replayed(step):
    """In place of a CUDA graph: the operations of a step, recorded once, with its shapes."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    def unchanged(x):
        step()
        return x

    nothing = torch.zeros(1)
    recorded = make_fx(unchanged)(nothing)
    return lambda: recorded(nothing)


def make(sizes, settings, device="cpu", capture=replayed):
    """A window with random weights, images, labels, and an order that repeats some images."""
    made = nets.make(TorchWindow(settings, device, capture), sizes, n=N)
    return *made, np.random.default_rng(1).integers(0, N, N)


@pytest.mark.parametrize(
    ("device", "capture"),
    [
        ("cpu", replayed),
        pytest.param("cuda", baseline_nets.capture_step, marks=pytest.mark.gpu),
    ],
    ids=["cpu", "cuda"],
)
@pytest.mark.parametrize(("per_window", "per_block"), [(1, 8), (5, 11), (64, 7), (9, 100)])
@pytest.mark.parametrize("sizes", [(13, 7), (31, 33, 10), (50, 37, 64, 33, 10)], ids=str)
def test_torch_window_matches_float64_and_the_numpy_program(
    sizes, per_window, per_block, device, capture, torch, monkeypatch
):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch does not see the device")
    monkeypatch.setattr(baseline_window, "IMAGES_PER_TICK", 12)
    settings = WindowSettings(per_window, per_block)
    trainer, weights, images, labels, order = make(sizes, settings, device, capture)
    ticks = []
    trainer.train(images, labels, order, ETA, lambda n, loss: ticks.append(n))
    assert sum(ticks) == N
    assert all(n >= 12 for n in ticks[:-1])
    found = SimpleNamespace(unpadded=trainer.weights)
    _, loss = reference.train(weights, images, labels, order, ETA)  # which PyTorch need not know
    nets.assert_trained(found, loss, weights, images, labels, order, ETA)
    if device == "cpu":  # on a GPU rounding may decide whether a delta has changed
        known = [W.astype(np.float32) for W in weights]
        sweeps = window.train_in_windows(
            known, images[order], labels[order], ETA, per_window, per_block
        )
        assert trainer.count_sweeps() == len(sweeps)
    again = [W.copy() for W in trainer.weights()]
    trainer.train(images, labels, order[:4], ETA)  # goes on from there
    known = [W.astype(np.float64) for W in again]
    window.train_plainly(known, images[order[:4]], labels[order[:4]], ETA)
    way = window.weight_distance(known, again)
    assert window.weight_distance(trainer.weights(), known) < 1e-3 * way


def test_image_that_changed_holds_back_those_after_it(torch):
    """Here an image settles before one in front of it: if all that settle counted, 8 sweeps did."""
    settings = WindowSettings(9, N)
    trainer, weights, images, labels, order = make(
        (31, 33, 10), settings, capture=lambda step: step
    )
    trainer.train(images, labels, order, 1e-4)
    sweeps = window.train_in_windows(weights, images[order], labels[order], 1e-4, 9, N)
    assert trainer.count_sweeps() == len(sweeps) == 9


def test_launches_in_vain_change_nothing(torch, monkeypatch):
    weights = []
    for likely in (0, 3):
        monkeypatch.setattr(baseline_window, "LIKELY", likely)
        trainer, _, *examples = make((31, 33, 10), WindowSettings(4, 8), capture=lambda step: step)
        trainer.train(*examples, ETA)
        weights.append(trainer.weights())
    assert all((W == V).all() for W, V in zip(*weights, strict=True))


# --- cuBLAS


def test_products_have_the_shapes_of_the_kernels(torch):
    from torch.utils.flop_counter import FlopCounterMode

    found = baseline_window.products(37, 21, 3, 5, 8, device="cpu")
    flops = {}
    for name, multiply in found.items():
        with FlopCounterMode(display=False) as counter:
            multiply()
        flops[name] = counter.get_total_flops()
    inputs, neurons = 64, 32  # with the bias and the padding
    assert flops == {
        "forward": 2 * 3 * inputs * (neurons + 5),
        "backward": 2 * 3 * neurons * (inputs + 5),
        "update": 2 * 8 * inputs * neurons,
    }


def test_cublas_multiplies_on_the_stream_with_its_precision(torch, monkeypatch):
    @contextmanager
    def stream(handle):
        log.append(handle)
        yield

    def products(*shape):
        log.append(shape)
        return {"forward": lambda: log.append(torch.get_float32_matmul_precision())}

    log, before = [], torch.get_float32_matmul_precision()
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle: handle)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(baseline_window, "products", products)
    for precision in ("high", "highest"):
        enqueue = baseline_window.cublas(precision, "forward", 1, 2)
        assert log == []  # nothing is allocated before it is timed
        for _ in range(2):
            enqueue(SimpleNamespace(handle=7))
        assert log == [7, (1, 2), precision, 7, precision]
        assert torch.get_float32_matmul_precision() == before
        log.clear()
