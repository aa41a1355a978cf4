"""Files like small NORB's and CIFAR-10's, of rendered solids and of coloured shapes."""

import gzip
import io
import struct
import tarfile

import numpy as np

from experiments.running import cifar, norb

SIDE = 96  # of NORB
BYTES, INTEGERS = 0x1E3D4C55, 0x1E3D4C54  # magic numbers


def mat(array, magic=None, sizes=None):
    """A .mat file; magic and sizes: what its header says in their place."""
    magic = magic or {"uint8": BYTES, "int32": INTEGERS}[array.dtype.name]
    sizes = array.shape if sizes is None else sizes
    written = (*sizes, *[1] * (3 - len(sizes)))  # three at least
    header = struct.pack(f"<{2 + len(written)}i", magic, len(sizes), *written)
    return header + array.astype(array.dtype.newbyteorder("<")).tobytes()


def write_norb(folder, contents):
    """contents: of NORB's four files, unpacked."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in zip(norb.FILES, contents, strict=True):
        (folder / file.name).write_bytes(gzip.compress(content, 1))


def make_norb(folder, n_train, n_test, seed=0):
    """Write pairs of solids; returns the four arrays as they are in the files."""
    rng = np.random.default_rng(seed)
    arrays = []
    for n in (n_train, n_test):
        labels = rng.permutation(np.arange(n) % 5).astype(np.int32)
        arrays += [np.array([render_pair(label, rng) for label in labels]), labels]
    write_norb(folder, map(mat, arrays))
    return arrays


def record(label, image):
    """A record of CIFAR-10. image: uint8 (3, 32, 32)."""
    return bytes([label]) + image.tobytes()


def pack(members):
    """An archive of files by their names."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def write_cifar(folder, members):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / cifar.ARCHIVE).write_bytes(gzip.compress(pack(members), 1))


def make_cifar(folder, n_a_file, n_test, seed=0):
    """Write coloured shapes, so many in each of five training files; returns images and labels."""
    rng = np.random.default_rng(seed)
    members, images, labels = {f"{cifar.FOLDER}/readme.html": b"<p>"}, [], []
    for name in (*cifar.TRAINING, cifar.TEST):
        n = n_test if name == cifar.TEST else n_a_file
        labels.append(rng.permutation(np.arange(n) % 10))
        images.append(np.array([draw_shape(label, rng) for label in labels[-1]]))
        pairs = zip(labels[-1], images[-1], strict=True)
        members[name] = b"".join(record(label, image) for label, image in pairs)
    write_cifar(folder, members)
    return images, labels


# Solids as planes: normals (n, 3), z upwards, and their distances from the origin.


def _turned(n, up):
    """n normals around the z axis, of which each has the given height."""
    angles = 2 * np.pi * np.arange(n) / n
    normals = np.column_stack([np.cos(angles), np.sin(angles), np.full(n, up)])
    return normals / np.linalg.norm(normals, axis=1, keepdims=True)


def _ball(n=90):
    z = 1 - (2 * np.arange(n) + 1) / n
    angles = np.pi * (1 + np.sqrt(5)) * np.arange(n)
    radius = np.sqrt(1 - z * z)
    return np.column_stack([radius * np.cos(angles), radius * np.sin(angles), z])


_DOWN, _UP = np.array([[0.0, 0, -1]]), np.array([[0.0, 0, 1]])
_FLAT = np.concatenate([_DOWN, _UP])
SOLIDS = (
    (_ball(), np.full(90, 0.8)),
    (np.concatenate([_turned(4, 0), _FLAT]), np.array([0.6] * 4 + [0.6] * 2)),
    (np.concatenate([_turned(30, 0), _FLAT]), np.array([0.5] * 30 + [0.8] * 2)),
    (np.concatenate([_turned(30, 0.5), _DOWN]), np.array([0.35] * 30 + [0.7])),
    (np.concatenate([_turned(4, 0.5), _DOWN]), np.array([0.35] * 4 + [0.7])),
)


def render_pair(label, rng):
    """What a left and a right eye see of a ball, box, cylinder, cone or pyramid, uint8 (2, 96, 96).

    Pose, size and lighting are random.
    """
    normals, distances = SOLIDS[label]
    azimuth, elevation = rng.uniform(0, 2 * np.pi), np.radians(rng.uniform(15, 50))
    light = rng.normal((0, 0, 2))
    light /= np.linalg.norm(light)
    size, brightness = rng.uniform(0.7, 1), rng.uniform(0.7, 1)
    shift = rng.uniform(-0.15, 0.15, 2)
    places = np.linspace(1.4, -1.4, SIDE)
    y, x = (places[:, None] - shift[0]) / size, (-places - shift[1]) / size
    pair = np.empty((2, SIDE, SIDE))
    for eye, angle in enumerate(azimuth + np.radians([-3, 3])):
        sine, cosine = np.sin(elevation), np.cos(elevation)
        right = np.array([-np.sin(angle), np.cos(angle), 0])
        ray = -np.array([cosine * np.cos(angle), cosine * np.sin(angle), sine])
        up = np.cross(right, ray)
        enter, leave = np.full((SIDE, SIDE), -np.inf), np.full((SIDE, SIDE), np.inf)
        shade = np.zeros((SIDE, SIDE))
        for normal, distance in zip(normals, distances, strict=True):
            slope = normal @ ray
            at = (distance - normal @ right * x - normal @ up * y) / (slope or 1e-9)
            if slope < 0:
                shade = np.where(at > enter, 0.15 + 0.85 * max(normal @ light, 0), shade)
                enter = np.maximum(enter, at)
            else:
                leave = np.minimum(leave, at)
        pair[eye] = np.where(enter < leave, shade * brightness, 0.75 * brightness)
    noisy = 255 * pair + rng.normal(0, 3, pair.shape)
    return noisy.clip(0, 255).astype(np.uint8)


def draw_shape(label, rng):
    """One of ten shapes, brighter than what is behind it, uint8 (3, 32, 32)."""
    radius = rng.uniform(8, 12)
    y, x = np.indices((32, 32)) - rng.uniform(14, 18, (2, 1, 1))
    box, ball = np.maximum(abs(y), abs(x)), np.hypot(y, x)
    wave = 2 * np.pi / radius
    inside = (
        ball < radius,
        (ball < radius) & (ball > radius / 2),
        box < radius,
        (box < radius) & (box > radius / 2),
        (abs(x) < (y + radius) / 2) & (y < radius),
        (box < radius) & (np.minimum(abs(y), abs(x)) < radius / 4),
        (box < radius) & (abs(abs(y) - abs(x)) < radius / 3),
        (box < radius) & (np.sin(2 * wave * y) > 0),
        (box < radius) & (np.sin(2 * wave * x) > 0),
        (box < radius) & (np.sin(wave * y) * np.sin(wave * x) > 0),
    )[label]
    behind, before = rng.uniform(0, 90, 3), rng.uniform(130, 255, 3)
    image = np.where(inside, before[:, None, None], behind[:, None, None])
    return (image + rng.normal(0, 5, image.shape)).clip(0, 255).astype(np.uint8)
