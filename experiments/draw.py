"""Write a sketchpad for digits, which a net recognises in the browser: runs/draw.html.

It is one file, which needs no network. It shows the net's answer while one draws, the input that
the net sees, and its answer for the same digit deformed, by the formulas of training. The net is
that of --net, or else the pretrained net 1, or a better perceptron among the runs that is small
enough for the file.
"""

import base64
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from deepbig import pretrained
from deepbig_runtime import files
from deepbig_runtime.errors import Problem
from experiments.results import trained
from experiments.training import cli, configs, net_files, store
from experiments.training.configs import Config
from experiments.training.net_files import NetFile
from mlp_gpu import activation
from mlp_gpu.network import Network, count_weights

TEMPLATES = Path(__file__).parent / "drawing"
DRAW = "draw.html"  # in the folder of the runs
MAX_BYTES = 8_000_000  # of the page
OTHER_BYTES = 100_000  # of the page without the weights
N_EXAMPLES = 24
SLIDERS = (  # of the deformation; values are those of 2012, section 5
    {"name": "sigma", "label": "σ, smooth", "unit": "pixels", "low": 2, "high": 10, "value": 6},
    {"name": "alpha", "label": "α, elastic", "unit": "pixels", "low": 0, "high": 80, "value": 36},
    {"name": "beta", "label": "β, angle", "unit": "°", "low": 0, "high": 45, "value": 12.5},
    {"name": "gamma", "label": "γ, size", "unit": "%", "low": 0, "high": 40, "value": 12.5},
)


def page_bytes(config: Config) -> int:
    """The size of a page with a perceptron, about: weights of two bytes, in base64."""
    return OTHER_BYTES + 8 * count_weights(config.sizes) // 3


def fits(config: Config) -> bool:
    """Whether the page can compute a run's net."""
    return not refusal(config)


def refusal(config: Config) -> str:
    """Why the page cannot compute a run's net; empty if it can."""
    if not trained.is_for_pictures(config):
        return (
            f"the page prepares drawings as {trained.PREPARED_AS}'s digits; name the run of a net "
            "for these"
        )
    if config.is_convolutional:
        return "the page computes perceptrons alone; name the run of one"
    if (n_bytes := page_bytes(config)) > MAX_BYTES:
        return (
            f"a page with {config.net_name} has {n_bytes / 1e6:.1f} MB, at most "
            f"{MAX_BYTES / 1e6:.0f} are sensible; name the run of a smaller net, such as net 1"
        )
    if config.data.width:
        return "the net sees digits made equally wide, which the page does not make"
    return ""


def encoded(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def hardest(member: NetFile, data_dir: Path | None) -> list[dict]:
    """Test digits that the net gets wrong, the worst first: pixels, label and guess of each."""
    known = configs.load(member.config, data_dir)
    dataset, outputs = trained.on_test_images(member, known)
    guesses, labels = outputs.argmax(axis=1), dataset.test_labels
    believed = outputs[np.arange(len(labels)), labels]
    order = np.argsort(believed, kind="stable")
    order = order[guesses[order] != labels[order]][:N_EXAMPLES]
    pixels = np.round(127.5 * (dataset.test_images[order] + 1)).astype(np.uint8)
    return [
        {"pixels": encoded(image), "label": int(labels[k]), "guess": int(guesses[k])}
        for k, image in zip(order, pixels, strict=True)
    ]


def usable(member: NetFile) -> NetFile:
    """The net as the page computes it: its weights are of half precision.

    Raises Problem if the page cannot compute it.
    """
    if reason := refusal(member.config):
        raise Problem(reason)
    try:
        return replace(member, network=net_files.halved(member.network))
    except ValueError as error:
        raise Problem(f"the page has no room for the net's weights: {error}") from None


def page(member: NetFile, found: list[dict]) -> str:
    """The page as HTML. member: as `usable` gives it. found: its examples, from `hardest`."""
    assert isinstance(member.network, Network)
    content = {
        "title": f"{member.described}, weights in half precision",
        "sizes": member.config.sizes,
        "weights": [encoded(W.astype("<f2")) for W in member.network.unpadded()],
        "A": float(activation.A),
        "B": float(activation.B),
        "sliders": [slider | {"step": 0.5} for slider in SLIDERS],
        "examples": found,
    }
    script = files.read_bytes(TEMPLATES / "draw.js").decode()
    text = files.read_bytes(TEMPLATES / "draw.html").decode()
    # A text in a script must not end the script.
    data = json.dumps(content).replace("</", "<\\/")
    return text.replace("@SCRIPT@", script).replace('"@DATA@"', data)


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("draw", __doc__)
    parser.add_argument(
        "--net",
        type=Path,
        metavar="FILE",
        help=f"{trained.NET_FILE} (default: {trained.DEFAULT} and its page has at most "
        f"{MAX_BYTES / 1e6:.0f} MB)",
    )
    cli.add_data_dir_argument(parser)
    default = f"the page (default: {DRAW} in $RUNS_DIR, or else in runs)"
    cli.add_out_argument(parser, default, metavar="FILE")
    arguments = parser.parse_args(argv)
    path = arguments.net or trained.find_best(store.find_folder(), pretrained.FILES, fits)
    member = usable(trained.load(path))
    text = page(member, hardest(member, arguments.data_dir))
    out = arguments.out or store.find_folder() / DRAW
    files.make_folder(out.parent)
    files.replace(out, text.encode())
    print(f"written to {out}, with the net of {path}, {member.described}; open it in a browser")


if __name__ == "__main__":
    cli.run(main)
