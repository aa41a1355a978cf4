"""Descriptions of convolutional nets: sizes, connections and weights, and what is refused."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from cnn_gpu import filters
from cnn_gpu.layers import Maps, fit_layers, parse
from cnn_gpu.network import ConvNetwork
from experiments.datasets.dataset import KINDS
from experiments.results.cnn_tables import TABLES

MNIST, NORB, CIFAR = Maps(1, 29, 29), Maps(2, 96, 96), Maps(3, 32, 32)


def sizes(description, source, n_classes=10):
    return [layer.maps.width for layer in parse(description, source, n_classes)]


def test_the_papers_nets_have_its_sizes_and_numbers_of_weights():
    assert sizes("20M5s1-60M5s1-100M3-150N", MNIST) == [13, 5, 3, 1, 1]
    for net in TABLES["norb"].nets.values():
        assert sizes(net, NORB, 5)[-6:] == [46, 23, 20, 5, 1, 1]
    nets = list(TABLES["cifar10"].nets.values())[:4]
    assert sizes(nets[0], CIFAR) == [30, 10, 8, 4, 2, 1, 1, 1, 1]
    weights = [ConvNetwork.initial(net, CIFAR, 10, 0).n_weights for net in nets]
    assert weights == [244_410, 817_410, 1_750_410, 3_043_410]  # of Table 3


def test_x_comes_first_and_is_apart_from_y():
    convolution, pooling, _ = parse("2M5x3s1x0-MP2x4", MNIST, 10)
    assert (convolution.kernel, convolution.step) == ((3, 5), (1, 2))
    assert str(convolution.maps) == "2 of 13x27"
    assert str(pooling.maps) == "2 of 6x6"  # 1 and 3 pixels are left over


@pytest.mark.parametrize(("connections", "reads"), [("", 20), ("c7", 7), ("c50%", 10), ("c1", 1)])
def test_each_map_reads_as_many_maps_as_it_should(connections, reads):
    network = ConvNetwork.initial(f"20M5s1-60M5s1{connections}-150N", MNIST, 10, 3)
    layer, table, W = network.layers[1], network.connections[1], network.weights[1]
    assert (table.sum(axis=0) == reads).all()
    assert layer.n_connections == 60 * reads
    assert layer.n_weights == np.count_nonzero(W) == 60 * (25 * reads + 1)
    assert layer.n_multiply_adds == 25 * 60 * 25 * reads
    present = W[1:].reshape(25, 20, 60) != 0
    assert (present == table).all()


def test_the_seed_draws_connections_and_weights():
    same, again, other = (ConvNetwork.initial("4M5-8M5c2-9N", MNIST, 10, s) for s in (1, 1, 2))
    assert (same.connections[1] == again.connections[1]).all()
    assert same.weights[1].tobytes() == again.weights[1].tobytes()
    assert (same.connections[1] != other.connections[1]).any()
    W = same.weights[2]
    assert W.dtype == np.float32
    assert -0.05 <= W.min() < -0.049 < 0.049 < W.max() <= 0.05


def test_image_processing_has_the_papers_maps():
    assert parse("IP(hat21)-300M6s1", NORB, 5)[0].maps == Maps(6, 96, 96)
    layer = parse("IP(sobel+scharr)", CIFAR, 10)[0]
    assert (layer.maps, layer.kernel) == (Maps(15, 32, 32), (3, 3))
    assert layer.n_multiply_adds == 12 * 9 * 32 * 32
    assert not layer.has_weights


def test_fitted_nets_of_the_paper_can_be_made_for_every_side():
    for table, n_maps in ((TABLES["mnist"], 1), (TABLES["cifar10"], 3)):
        for net, side in product(table.nets.values(), range(8, 65)):
            source = Maps(n_maps, side, side)
            trained = [layer.has_weights for layer in parse(fit_layers(net, source), source, 2)]
            assert sum(trained) == len(re.findall("[MN](?!P)", net)) + 1
        assert all(fit_layers(net, KINDS[table.data].source) == net for net in table.nets.values())


@pytest.mark.parametrize(
    ("net", "source", "expected"),
    [
        ("20M5s1-60M5s1c50%-150N", Maps(1, 32, 32), "20M6s1-60M6s1c50%-150N"),
        ("20M5s1-60M5s1c50%-100M3", Maps(1, 8, 8), "20M6s1-60M2s1c50%-100M1"),
        ("IP(hat13)-9M3-MP3-9M3-MP2-9M3-MP2", Maps(3, 12, 12), "IP(hat11)-9M3-MP3-9M3-9M1"),
    ],
)
def test_fitted_net_differs_where_its_maps_require_it(net, source, expected):
    assert fit_layers(net, source) == expected


def test_filters_are_what_their_names_say():
    hats = filters.bank(("hat21",)).reshape(2, 21, 21)
    assert hats[0, 10, 10] == hats[0].max()  # on-centre
    assert hats[0, 10, 0] < 0 or abs(hats[0, 10, 0]) < 1e-3
    assert hats[0, 10, 10 + 5] < 0 < hats[0, 10, 11]
    np.testing.assert_array_equal(hats[1], -hats[0])
    np.testing.assert_allclose(hats[0], hats[0].T)
    edges = filters.bank(("sobel", "scharr", "hat5"))
    assert edges.shape == (6, 25)
    ramp = np.tile(np.arange(5.0), (5, 1)).ravel()  # brighter to the right, a unit a pixel
    np.testing.assert_allclose(edges[:4] @ ramp, [2, 0, 2, 0], atol=1e-6)
    assert edges[0].reshape(5, 5)[2, 3] == 0.5
    assert edges[2].reshape(5, 5)[2, 3] == 0.625
    for one in (*hats.reshape(2, -1), *edges):
        assert one.sum() == pytest.approx(0, abs=1e-6)
        assert one[one > 0].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("weights", lambda W: W[:-1]),
        ("weights", lambda W: W.astype(float)),
        ("weights", lambda W: None),
        ("connections", lambda table: table[:, 1:]),
        ("connections", lambda table: table.astype(np.uint8)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(part, change):
    network = ConvNetwork.initial("4M5-8M5c2-9N", MNIST, 10, 1)
    arrays = list(getattr(network, part))
    arrays[1] = change(arrays[1])
    with pytest.raises(ValueError, match="must be"):
        replace(network, **{part: tuple(arrays)})


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        ("", "layer 1 of '', '': expected layers such as 20M5"),
        ("20Q", "'20Q': expected layers such as 20M5"),
        ("20M30", "30x30 must be at least 1x1 and fit into maps of 29x29"),
        ("20M0", "0x0 must be at least 1x1"),
        ("MP2x40", "2x40 must be at least 1x1 and fit into maps of 29x29"),
        (
            "20M4x5s1",
            "in x a kernel of 4 that skips 1 does not divide a map of 29; take a kernel of 5",
        ),
        ("20M4s0x2-9N", "in y a kernel of 4 that skips 2 does not divide"),
        ("20M5-9N-MP1", "only fully connected layers can follow one"),
        ("IP(hat4)", "'IP(hat4)': a Mexican hat has an odd number of pixels, 3 or more"),
        ("IP(laplace)", "expected hat21, sobel or scharr, joined by +"),
        ("IP(hat31)", "'IP(hat31)': a filter can have at most 29x29 pixels, as a map has"),
        ("3000000N", "a layer can have at most 100,000,000 weights or neurons"),
        ("-".join(["1M1"] * 31), "31 layers: a net can have at most 30 hidden ones"),
        ("IP()", "expected hat21, sobel or scharr, joined by +"),
        ("20M5-IP(sobel)", "image processing can only be the first layer"),
        ("0M3", "a layer needs a map or more"),
        ("0N", "a layer needs a neuron or more"),
        ("20M5-9M5c21", "a map can read 1 to 20 maps, not 21"),
        ("20M5-9M5c1%", "a map can read 1 to 20 maps, not 0"),
    ],
)
def test_what_cannot_be_made_is_said_in_a_sentence(description, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse(description, MNIST, 10)
