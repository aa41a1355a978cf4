"""Networks as data: Table 1's weight counts, initial weights, padding, files."""

import numpy as np
import pytest

from mlp_gpu.network import NETS, Network, count_weights, pad32


def test_weight_counts_are_the_papers():
    printed = {1: 1.34, 2: 3.26, 3: 6.69, 4: 12.11, 5: 8.86}  # millions, cut off
    assert {net: count_weights(sizes) // 10_000 / 100 for net, sizes in NETS.items()} == printed


def test_initial_weights():
    sizes = (97, 501, 32, 10)  # with the bias, 32 inputs need 33 rows
    net = Network.initial(sizes, seed=3)
    assert net.n_weights == 98 * 501 + 502 * 32 + 33 * 10
    for W, (n_in, n_out) in zip(net.weights, [(97, 501), (501, 32), (32, 10)], strict=True):
        assert W.shape == (pad32(n_in + 1), pad32(n_out))
        used = W[: n_in + 1, :n_out]
        assert (abs(used) <= np.float32(0.05)).all()
        # Uniform in [-0.05, 0.05]: within five standard deviations of the mean and variance.
        n, variance = used.size, 0.1**2 / 12
        assert abs(used.mean()) < 5 * np.sqrt(variance / n)
        assert abs(used.var() / variance - 1) < 5 * np.sqrt(0.8 / n)
        assert (W[n_in + 1 :] == 0).all()
        assert (W[:, n_out:] == 0).all()


def test_initial_weights_depend_on_the_seed_alone():
    first, second, other = (Network.initial((31, 33, 7), seed) for seed in (5, 5, 6))
    assert all((a == b).all() for a, b in zip(first.weights, second.weights, strict=True))
    assert not (first.weights[0] == other.weights[0]).all()
    assert Network.initial((31, 7), 2**64 - 1).n_weights == 32 * 7
    (W, _) = Network.initial((4, 3, 2), 1).weights  # the same for ever
    assert W[:2, 0].tolist() == [float(np.float32(w)) for w in (-0.04248488321900368, 0.019764641)]


W = np.zeros((32, 32), np.float32)


@pytest.mark.parametrize(
    ("sizes", "weights", "message"),
    [
        ((3,), (), "two or more positive sizes"),
        ((3, 0, 2), (), "two or more positive sizes"),
        ((40, 3), (W,), "must have the shapes"),
        ((3, 3), (W.astype(np.float64),), "float32"),
    ],
)
def test_network_of_impossible_sizes_or_weights_is_refused(sizes, weights, message):
    with pytest.raises(ValueError, match=message):
        Network(sizes, weights)
