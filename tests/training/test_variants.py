"""The variants of a study against what their names say."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from scipy import ndimage

from deform_gpu import COMMITTEE
from deform_gpu.batches import make_displacement, make_matrices
from deform_gpu.field import gaussian_weights
from experiments.datasets import data
from experiments.training import configs, nets, variants
from mlp_gpu import random
from mlp_gpu.activation import A, B
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.network import Network
from mlp_gpu.squared_error import SquaredErrorEngine
from mlp_gpu.training import Schedule

PIXELS = data.load_pixels("digits")
DIGITS = data.scale(PIXELS)
STRETCHED = replace(COMMITTEE, gamma_x=5.0, gamma_y=20.0)
MATRICES = make_matrices(DIGITS.train_labels, STRETCHED, 0, 1, 29)


def make_config(study, engine="cpu", **values):
    schedule, sizes = Schedule(2, 0.01, 0.9), (841, 20, 10)
    options = {"n_validation": 200, "validation_part": 1, "study": study} | values
    return configs.make_config(DIGITS, sizes, schedule, 3, STRETCHED, engine, **options)


def deform(study, epoch=1):
    """Undeformed and deformed training images."""
    config = make_config(study)
    whole = configs.load(config, None)
    dataset = configs.prepare(whole, config)
    return dataset.train_images, configs.deformer(config, dataset)(epoch).copy()


def scales(matrices):
    return 1 / np.linalg.norm(matrices[:, :, :2], axis=2)


def test_equal_scaling_has_the_scale_of_x_in_both_directions():
    matrices = MATRICES.copy()
    variants.scale_y(matrices)
    np.testing.assert_array_equal(matrices[:, 1], MATRICES[:, 1])
    np.testing.assert_allclose(scales(matrices), scales(MATRICES)[:, [1, 1]], rtol=1e-6)
    determinants = np.linalg.det(matrices[:, :, :2])
    np.testing.assert_allclose(determinants * scales(matrices).prod(axis=1), 1, rtol=1e-5)


def test_fixed_sizes_keep_only_the_signs():
    matrices, beta = MATRICES.copy(), np.full(len(MATRICES), 12.5, np.float32)
    variants.fix_sizes(matrices, beta, STRETCHED)
    known = np.where(scales(MATRICES) > 1, [1.2, 1.05], [0.8, 0.95])
    np.testing.assert_allclose(scales(matrices), known, rtol=1e-6)
    angles, before = (np.degrees(np.arctan2(m[:, 1, 0], m[:, 1, 1])) for m in (matrices, MATRICES))
    np.testing.assert_allclose(angles, 12.5 * np.sign(before), rtol=1e-5)


def test_field_of_an_image_ends_at_its_border():
    rng = np.random.default_rng
    fields = variants.draw_apart(STRETCHED, rng(5), 29)
    noise = rng(5).uniform(-1, 1, (2, 10, 29, 10, 29))
    weights = gaussian_weights(STRETCHED.sigma)
    known = ndimage.convolve(noise[1, 3, :, 7], np.outer(weights, weights), mode="constant")
    found = fields[1, 3 * 29 : 4 * 29, 7 * 29 : 8 * 29]
    np.testing.assert_allclose(found, STRETCHED.alpha * known, atol=1e-5)


def test_field_of_an_epoch_is_one_from_the_middle_of_a_batch():
    whole = make_displacement(STRETCHED, 0, 1, 0, 29)
    tiled = variants.tile(whole, 29)
    for row, column in ((0, 0), (5, 5), (9, 4)):
        found = tiled[:, row * 29 : (row + 1) * 29, column * 29 : (column + 1) * 29]
        np.testing.assert_array_equal(found, whole[:, 145:174, 145:174])


def test_variants_change_what_they_name_and_nothing_else():
    images, usual = deform("")
    found = {name: deform(name)[1] for name in configs.VARIANTS[1:]}
    for name in ("softmax, squared error", "tanh, squared error"):
        np.testing.assert_array_equal(found[name], usual)
    for name in ("field an image", "field an epoch", "equal scaling", "fixed sizes"):
        change = abs(found[name] - usual).mean()
        assert 0.01 < change < abs(found[name] - np.roll(usual, 1, axis=0)).mean() / 2
    tenth = found["a tenth undeformed"]
    undeformed = random.generator(3, random.VARIANTS, 1).random(len(images)) < 0.1
    np.testing.assert_array_equal(tenth[undeformed], images[undeformed])
    np.testing.assert_array_equal(tenth[~undeformed], usual[~undeformed])
    padded, deformed = deform("padded after")
    config = make_config("")
    unscaled = configs.prepare(PIXELS, config).train_images
    np.testing.assert_array_equal(padded[:, 10:18, 10:18], unscaled / np.float32(8) - 1)
    assert (padded > -1).sum() == (unscaled > 0).sum()
    assert (deformed[:, 28:] == -1).all()
    assert (deformed[:, :, 28:] == -1).all()
    assert abs(deformed - padded).mean() > 0.01
    np.testing.assert_array_equal(deform("padded")[0], padded)


@pytest.mark.parametrize("is_tanh", [False, True])
def test_squared_error_is_descended(is_tanh):
    sizes, eta, h = (6, 5, 4, 3), 0.5, 1e-6
    network = Network.initial(sizes, 1)
    for W in network.unpadded():
        W *= 20
    weights = [W.astype(np.float64) for W in network.unpadded()]
    image, label = np.random.default_rng(0).uniform(-1, 1, (1, 6)).astype(np.float32), 2

    def loss():
        y = image[0]
        for layer, W in enumerate(weights):
            y = np.concatenate(([1], y)) @ W
            y = A * np.tanh(B * y) if is_tanh or layer < 2 else np.exp(y) / np.exp(y).sum()
        return 0.5 * ((y - np.where(np.arange(3) == label, 1, -1 if is_tanh else 0)) ** 2).sum()

    known = []
    for W in weights:
        gradient = np.empty_like(W)
        for at in np.ndindex(W.shape):
            W[at] += h
            above = loss()
            W[at] -= 2 * h
            gradient[at] = (above - loss()) / (2 * h)
            W[at] += h
        known.append(W - eta * gradient)
    engine = SquaredErrorEngine(is_tanh)
    engine.set_network(network)
    found = engine.train(image, np.array([label], np.uint8), np.zeros(1, int), eta)
    assert found == pytest.approx(loss(), rel=1e-5)
    for W, expected in zip(engine.get_network().unpadded(), known, strict=True):
        np.testing.assert_allclose(W, expected, atol=2e-6)


def test_outputs_choose_the_engine():
    for name, is_tanh in (("softmax, squared error", False), ("tanh, squared error", True)):
        assert nets.make_engine(make_config(name), "graph")._is_tanh is is_tanh
    assert type(nets.make_engine(make_config("padded"), "graph")) is CpuEngine


def test_unknown_variant_and_a_gpus_are_refused():
    config = make_config("padded")
    for change, reason in (
        ({"study": "a guess"}, "study is 'a guess', expected padded; padded after; "),
        ({"engine": "cuda"}, "engine is 'cuda', expected cpu, on which variants are trained"),
    ):
        with pytest.raises(ValueError, match=reason):
            msgspec.structs.replace(config, **change)
