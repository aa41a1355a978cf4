"""Every kernel against float64, on odd and non-square sizes.

A sum of n products may be off by sqrt(n) eps sum|terms|, times four for four standard deviations.
"""
# ruff: noqa: F401, F811 - fixtures are imported

from itertools import pairwise

import numpy as np
import pytest
from executed import device, on_all_devices
from gpu_arrays import arrays, uniform
from reference import EPS, A, B, off

from deepbig_runtime import gpu
from deepbig_runtime.faults import GpuFault
from mlp_gpu.kernels import backward, evaluate, forward, output, pick, update
from mlp_gpu.kernels.tensor_evaluate import forward_tensor_batch
from mlp_gpu.network import pad32
from mlp_gpu.perceptron import Perceptron
from mlp_gpu.tensor_cores import fastest

SMALL = [(1, 1), (31, 33), (32, 5), (33, 31), (97, 10), (15, 257)]
LARGE = [(501, 97), (841, 2500), (2500, 2000), (1000, 10)]
LAYERS = [pytest.param(*sizes, marks=pytest.mark.small) for sizes in SMALL]
LAYERS += [
    pytest.param(*sizes, id="large-{}-{}".format(*sizes), marks=pytest.mark.slow) for sizes in LARGE
]


def layer(n_in, n_out, seed=0):
    """Weights (n_in + 1, n_out) and states (n_in,) of a layer, both float32."""
    rng = np.random.default_rng([seed, n_in, n_out])
    return uniform(rng, n_in + 1, n_out), uniform(rng, n_in), rng


@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_propagate_forward(arrays, n_in, n_out):
    W, h, _ = layer(n_in, n_out)
    partial = arrays.nans(*forward.partial_shape((pad32(n_in + 1), pad32(n_out)), n_in))
    y = arrays.nans(n_out)
    arrays.run(forward.propagate_forward(y, partial, arrays.padded(W), arrays.put(h)))
    terms = np.concatenate(([1], h))[:, None] * W.astype(np.float64)
    bound = A * B * off(n_in + 1, abs(terms).sum(axis=0)) + 4 * EPS * A
    assert (abs(arrays.get(y) - A * np.tanh(B * terms.sum(axis=0))) <= bound).all()


@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_propagate_back(arrays, n_in, n_out):
    W, _, rng = layer(n_in, n_out)
    delta, y = uniform(rng, n_out), uniform(rng, n_in)
    partial = arrays.nans(*backward.partial_shape((pad32(n_in + 1), pad32(n_out))))
    delta_in = arrays.nans(n_in)
    arrays.run(
        backward.propagate_back(
            delta_in, partial, arrays.padded(W), arrays.put(delta), arrays.put(y)
        )
    )
    terms = W[1:].astype(np.float64) * delta
    slope = (B / A) * (A - y) * (A + y)
    expected = terms.sum(axis=1) * slope
    bound = off(n_out, abs(terms).sum(axis=1)) * slope + 4 * EPS * abs(expected)
    assert (abs(arrays.get(delta_in) - expected) <= bound).all()


@pytest.mark.parametrize(("n_in", "n_out"), LAYERS)
def test_update(arrays, n_in, n_out):
    W, h, rng = layer(n_in, n_out)
    delta, eta = uniform(rng, n_out), float(np.float32(0.1))
    there = arrays.padded(W)
    arrays.run(update.update(there, *map(arrays.put, (h, delta, np.full(1, eta, np.float32)))))
    found = arrays.get(there)
    step = eta * np.outer(np.concatenate(([1], h)).astype(np.float64), delta)
    assert (abs(found[: n_in + 1, :n_out] - (W - step)) <= EPS * (abs(W) + 2 * abs(step))).all()
    assert (found[n_in + 1 :] == 0).all()  # padding
    assert (found[:, n_out:] == 0).all()


@pytest.mark.parametrize("n_in", [pytest.param(n, marks=pytest.mark.small) for n in (1, 33, 257)])
def test_pick(arrays, n_in):
    rng = np.random.default_rng(n_in)
    images, order = uniform(rng, 5, n_in), np.array([4, 0, 3, 3, 1, 2])
    for step in (0, 2, 5):
        h = arrays.nans(n_in)
        arrays.run(
            pick.pick(h, arrays.put(images), arrays.put(order), arrays.put(np.array([step])))
        )
        assert (arrays.get(h) == images[order[step]]).all()


@pytest.mark.parametrize(
    ("n_in", "n_out"), [pytest.param(*s, marks=pytest.mark.small) for s in [(33, 10), (5, 71)]]
)
@pytest.mark.parametrize("scale", [1, 30], ids=["mild", "steep"])  # steep: exp(a) would overflow
def test_output(arrays, n_in, n_out, scale):
    W, h, rng = layer(n_in, n_out)
    W *= scale
    labels = rng.integers(0, n_out, 4).astype(np.uint8)
    labels[2] = n_out - 1
    order, step = np.array([1, 2, 0]), arrays.put(np.array([1]))
    partial = arrays.nans(*forward.partial_shape((pad32(n_in + 1), pad32(n_out)), n_in))
    delta, losses = arrays.nans(n_out), arrays.nans(3)
    arrays.run(
        output.output_deltas(
            delta,
            losses,
            step,
            partial,
            arrays.padded(W),
            arrays.put(h),
            arrays.put(labels),
            arrays.put(order),
        )
    )
    terms = np.concatenate(([1], h))[:, None] * W.astype(np.float64)
    a = terms.sum(axis=0)
    p = np.exp(a - a.max()) / np.exp(a - a.max()).sum()
    e_a = off(n_in + 1, abs(terms).sum(axis=0))
    bound = p * (e_a + p @ e_a + (n_out + 4 + abs(a - a.max())) * EPS) + EPS
    assert (abs(arrays.get(delta) - (p - np.eye(n_out)[n_out - 1])) <= bound).all()
    found = arrays.get(losses)
    bound = e_a[-1] + p @ e_a + 4 * EPS * (n_out + abs(a - a.max()).max())
    assert abs(found[1] + np.log(p[-1])) <= bound
    assert np.isnan(found[[0, 2]]).all()
    assert arrays.get(step) == 2


@on_all_devices
@pytest.mark.parametrize(
    ("n", "sizes"),
    [
        pytest.param(3, (17, 5), marks=pytest.mark.small, id="one-layer"),
        pytest.param(66, (33, 68, 10), marks=pytest.mark.small, id="two-layers"),
        pytest.param(300, (841, 501, 97, 10), id="large", marks=pytest.mark.slow),
    ],
)
def test_evaluate(arrays, n, sizes):
    rng = np.random.default_rng(n)
    images = uniform(rng, n, sizes[0])
    weights = [uniform(rng, a + 1, b) / np.float32(np.sqrt(a)) for a, b in pairwise(sizes)]
    states = [arrays.put(images)] + [arrays.nans(n, size) for size in sizes[1:]]
    launches = evaluate.evaluate(states, [arrays.padded(W) for W in weights])
    arrays.run(fastest(launches, gpu.compute_capability()))
    h, e_h = images.astype(np.float64), np.zeros(images.shape)
    for number, W in enumerate(weights):
        one = np.ones((n, 1))
        terms = abs(np.hstack((one, h))) @ abs(W)
        a = np.hstack((one, h)) @ W.astype(np.float64)
        e_a = np.sqrt(e_h**2 @ W[1:] ** 2 + off(len(W), terms) ** 2)
        if number + 1 < len(weights):
            h, e_h = A * np.tanh(B * a), A * B * e_a + 4 * EPS * A
            assert (abs(arrays.get(states[number + 1]) - h) <= e_h).all()
    p = np.exp(a - a.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    bound = p * (e_a + (p * e_a).sum(axis=1, keepdims=True) + (sizes[-1] + 8) * EPS)
    assert (abs(arrays.get(states[-1]) - p) <= bound).all()


@on_all_devices
def test_perceptrons_are_evaluated_on_tensor_cores_from_compute_capability_8_on(device):
    net = Perceptron((5, 3), 4)
    _, (product, _) = net.evaluate(net.batch[0])
    on_tensor_cores = gpu.compute_capability() >= (8, 0)
    assert product.kernel is (forward_tensor_batch if on_tensor_cores else evaluate.forward_batch)


def test_more_inputs_than_a_grid_has_rows_are_refused():
    assert -(-(update.MAX_INPUTS + 1) // update.ROWS) == 65_535
    with pytest.raises(GpuFault, match="a layer has 1,048,560 inputs; the GPU's kernels take at m"):
        Perceptron((update.MAX_INPUTS + 1, 2), 1)
