"""A convolutional net and its on-line training in plain float64, map by map as in the 2011 paper.

Maps are (height, width), and nothing is gathered or multiplied at once: deltas are pulled by the
paper's inequalities (section 3). Weights are those of `cnn_gpu.network`, in float64.
"""

import math

import numpy as np
from reference import A, B

from cnn_gpu import filters
from cnn_gpu.layers import IMAGE_PROCESSING, MAX_POOLING


def as_maps(image, source):
    """An image by y, x and map as maps (n, height, width)."""
    return image.reshape(source.height, source.width, source.n).transpose(2, 0, 1).astype(float)


def kernel(W, layer, i, m):
    """The weights (height, width) of the connection from map i to map m."""
    return W[1:].reshape(*layer.kernel, layer.source.n, layer.maps.n)[:, :, i, m]


def activations(layer, W, table, maps):
    found = np.empty((layer.maps.n, layer.maps.height, layer.maps.width))
    (height, width), (dy, dx) = layer.kernel, layer.step
    for m, y, x in np.ndindex(found.shape):
        patch = maps[:, y * dy : y * dy + height, x * dx : x * dx + width]
        terms = [(patch[i] * kernel(W, layer, i, m)).sum() for i in np.flatnonzero(table[:, m])]
        found[m, y, x] = W[0, m] + sum(terms)
    return found


def pooled(layer, maps):
    found = np.empty((layer.maps.n, layer.maps.height, layer.maps.width))
    (height, width), (dy, dx) = layer.kernel, layer.step
    for m, y, x in np.ndindex(found.shape):
        found[m, y, x] = maps[m, y * dy : y * dy + height, x * dx : x * dx + width].max()
    return found


def processed(layer, maps):
    """The source, then what each filter makes of each of its maps."""
    bank, size = filters.bank(layer.filters).astype(float), layer.kernel[0]
    wide = np.pad(maps, [(0, 0), *[(size // 2, size // 2)] * 2], mode="edge")
    found = [maps]
    for weights in bank.reshape(-1, size, size):
        made = np.zeros(maps.shape)
        for i, y, x in np.ndindex(made.shape):
            made[i, y, x] = (wide[i, y : y + size, x : x + size] * weights).sum()
        found.append(made)
    return np.concatenate(found)


def forward(network, weights, image):
    """The maps of the input and of each layer, and the class probabilities."""
    states = [as_maps(image, network.source)]
    for layer, W, table in zip(network.layers, weights, network.connections, strict=True):
        if layer.kind == MAX_POOLING:
            states.append(pooled(layer, states[-1]))
        elif layer.kind == IMAGE_PROCESSING:
            states.append(processed(layer, states[-1]))
        else:
            a = activations(layer, W, table, states[-1])
            states.append(A * np.tanh(B * a))
    a -= a.max()
    p = np.exp(a.ravel()) / np.exp(a).sum()
    return states, p


def loss(network, weights, image, label):
    return -np.log(forward(network, weights, image)[1][label])


def pulled_range(i, kernel, step, n_out):
    """Neurons x of a map that read neuron i of the map before: from, and to with the last."""
    return max(math.ceil((i - kernel + 1) / step), 0), min(i // step, n_out - 1)


def pull(layer, W, table, delta):
    """Derivatives of the loss by the states of a layer's source, from the layer's own deltas."""
    found = np.zeros((layer.source.n, layer.source.height, layer.source.width))
    (height, width), (dy, dx) = layer.kernel, layer.step
    for i, v, u in np.ndindex(found.shape):
        y0, y1 = pulled_range(v, height, dy, layer.maps.height)
        x0, x1 = pulled_range(u, width, dx, layer.maps.width)
        for m in np.flatnonzero(table[i]):
            w = kernel(W, layer, i, m)
            for y in range(y0, y1 + 1):
                for x in range(x0, x1 + 1):
                    found[i, v, u] += delta[m, y, x] * w[v - y * dy, u - x * dx]
    return found


def unpooled(layer, maps, gradient):
    """The gradient of each rectangle for its largest pixel, the first by y, then x."""
    found = np.zeros(maps.shape)
    (height, width), (dy, dx) = layer.kernel, layer.step
    for m, y, x in np.ndindex(gradient.shape):
        part = maps[m, y * dy : y * dy + height, x * dx : x * dx + width]
        v, u = np.unravel_index(part.argmax(), part.shape)
        found[m, y * dy + v, x * dx + u] = gradient[m, y, x]
    return found


def weight_gradient(layer, table, maps, delta):
    found = np.zeros((*layer.kernel, layer.source.n, layer.maps.n))
    (dy, dx), (n_y, n_x) = layer.step, (layer.maps.height, layer.maps.width)
    for ky, kx, i, m in np.ndindex(found.shape):
        if table[i, m]:
            read = maps[i, ky : ky + dy * n_y : dy, kx : kx + dx * n_x : dx][:n_y, :n_x]
            found[ky, kx, i, m] = (read * delta[m]).sum()
    bias = delta.sum(axis=(1, 2))
    return np.concatenate((bias[None], found.reshape(-1, layer.maps.n)))


def gradients(network, weights, image, label):
    """Derivatives of the loss by all weights, None for layers that are not trained."""
    states, p = forward(network, weights, image)
    delta = (p - np.eye(len(p))[label]).reshape(-1, 1, 1)
    found = []
    for k in reversed(range(len(weights))):
        layer, table, maps = network.layers[k], network.connections[k], states[k]
        if layer.kind == IMAGE_PROCESSING:
            return [None, *found]
        if layer.kind == MAX_POOLING:
            found.insert(0, None)
            gradient = unpooled(layer, maps, delta)
        else:
            found.insert(0, weight_gradient(layer, table, maps, delta))
            gradient = pull(layer, weights[k], table, delta)
        if k > 0 and network.layers[k - 1].has_weights:
            gradient = gradient * (B / A) * (A - maps) * (A + maps)
        delta = gradient
    return found


def train(network, weights, images, labels, order, eta):
    """Weights after one step for each image of order, and the mean loss."""
    weights = [None if W is None else W.copy() for W in weights]
    total = 0.0
    for image in order:
        total += loss(network, weights, images[image], labels[image])
        steps = gradients(network, weights, images[image], labels[image])
        for W, step in zip(weights, steps, strict=True):
            if W is not None:
                W -= eta * step
    return weights, total / len(order)
