"""`python -m experiments.recognise`: pictures in, guesses out."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from factories import changed, make_config, make_run
from PIL import Image

from deepbig_runtime.errors import Problem
from deform_gpu import is_narrow, normalize_width
from experiments import cnn, draw, export, recognise, table1
from experiments.datasets import data, ink
from experiments.results import trained
from experiments.training import net_files, nets, store
from experiments.training.net_files import NetFile

TINY = ["--data", "digits", "--limit", "400", "--eta", "2e-3", "--workers", "1", "--out"]


pytestmark = pytest.mark.usefixtures("pictures_are_for_load_digits")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of runs: a perceptron and a convolutional net."""
    folder = tmp_path_factory.mktemp("runs")
    table1.main(["--hidden", "50", "--epochs", "6", *TINY, str(folder / "table1")])
    cnn.main(["--net", "2M5s1-MP5", "--epochs", "1", *TINY, str(folder / "cnn")])
    return folder


@pytest.fixture
def pictures(tmp_path):
    """Paths of pictures of three test digits of load_digits."""
    paths = [tmp_path / f"digit{k}.png" for k in range(3)]
    for path, image in zip(paths, data.load_pixels("digits").test_images, strict=False):
        pixels = (15.9 * image).astype(np.uint8)
        Image.fromarray(255 - np.pad(pixels, 2)).resize((240, 240)).save(path)
    return paths


def expected(path, member):
    """What a net makes of a picture, step by step."""
    image = data.to_29(ink.read_digit(path)[None]) / np.float32(127.5) - 1
    if width := member.config.data.width:
        image = normalize_width(image, width, keep=is_narrow(image))
    return nets.predictor(member.config, member.network).predict(image)[0]


def test_guesses_and_a_drawing_for_each_picture(folder, pictures, capsys):
    best = folder / "table1" / "hidden50-seed0-load_digits.h5"
    assert recognise.main(["--net", str(best), *map(str, pictures)]) == 0
    printed = capsys.readouterr()
    run = store.read_run(best)
    said = f"net: {best}, {run.config.title}, epoch {run.chosen} of 6, {run.chosen_errors} of 360 "
    assert f"{said}test images wrong ({run.chosen_errors / 360:.2%})\n" in printed.err
    lines = printed.out.splitlines()
    for path in pictures:
        outputs = expected(path, trained.load(best))
        likely = outputs.argsort()[::-1][:3]
        said = ", ".join(f"{digit} ({100 * outputs[digit]:.1f} %)" for digit in likely)
        assert f"{path}: {said}" in lines
    assert printed.out.count("@") > 30


def test_several_nets_are_a_committee(folder, pictures, tmp_path, capsys):
    """One of them convolutional, one that sees normalised digits, one from a net file."""
    perceptron = folder / "table1" / "hidden50-seed0-load_digits.h5"
    export.main([str(perceptron), "--net", "--out", str(tmp_path)])
    (convolutional,) = store.run_files(folder / "cnn")
    files = [tmp_path / f"{perceptron.stem}.safetensors", convolutional, tmp_path / "a.safetensors"]
    found = trained.load(perceptron)
    narrow = replace(found, config=changed(found.config, data={"width": 10}))
    net_files.write(files[2], narrow, half=False)
    capsys.readouterr()
    options = [argument for path in files for argument in ("--net", str(path))]
    assert recognise.main([*map(str, pictures), "--csv", *options]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("net: ") == 3
    members = [trained.load(path) for path in files]
    assert [m.config.data.width for m in members] == [None, None, 10]
    for path, row in zip(pictures, csv.DictReader(io.StringIO(printed.out)), strict=True):
        outputs = np.mean([expected(path, member) for member in members], axis=0)
        np.testing.assert_allclose([float(row[f"p{k}"]) for k in range(10)], outputs, rtol=1e-5)
        assert (row["image"], int(row["guess"])) == (str(path), outputs.argmax())
    other = replace(found, config=changed(found.config, data={"sha256": "0" * 64}))
    net_files.write(files[2], other, half=False)
    with pytest.raises(Problem, match="are of nets for different data; name the same"):
        recognise.main([str(pictures[0]), *options])


def test_a_picture_that_shows_no_digit_does_not_stop_the_others(folder, pictures, capsys, tmp_path):
    empty = tmp_path / "empty.png"
    Image.new("L", (50, 50), 255).save(empty)
    run = folder / "table1" / "hidden50-seed0-load_digits.h5"
    assert recognise.main([str(empty), str(pictures[0]), "--net", str(run)]) == 2
    printed = capsys.readouterr()
    assert f"error: {empty}: it shows no ink" in printed.err
    assert f"{pictures[0]}: " in printed.out


@pytest.fixture
def pretrained_nets(tmp_path, monkeypatch):
    """Pretrained nets, a convolutional one and a better perceptron."""
    monkeypatch.setattr(trained, "PREPARED_AS", "MNIST")
    nets_of = {"cnn": make_config(layers="2M5s1-MP5"), "net1": make_config(sizes=(841, 7, 10))}
    for (name, config), errors in zip(nets_of.items(), (90, 70), strict=True):
        found = NetFile(config, 1, nets.initial(config), errors, 50)
        net_files.write(tmp_path / f"{name}.safetensors", found, half=False)
    return [tmp_path / f"{name}.safetensors" for name in nets_of]


def write(path, errors=(69, 60), *, done=None, **changes):
    run = make_run(done=done, metrics={"validation_errors": list(errors)[:done]}, **changes)
    path.parent.mkdir(exist_ok=True)
    store.write_run(path, run)
    store.weights_path(path).touch()


def test_own_run_answers_if_it_beats_the_net_of_its_kind(tmp_path, pretrained_nets):
    (cnn_file, perceptron), folder = pretrained_nets, tmp_path / "runs"
    path, layers = folder / "own.h5", "2M5s1-MP5"
    for values in (
        {"errors": (70, 70)},  # as many
        {"deformation": None},
        {"data": {"n_train": 59_999}},
        {"data": {"n_validation": 10_000}},
        {"data": {"name": "load_digits"}},
        {"done": 1},
        {"layers": layers},
    ):
        write(path, **values)
        assert trained.find_best(folder, pretrained_nets, draw.fits) == perceptron
    write(path)
    write(folder / "better.h5", (68, 59))
    (folder / "damaged.h5").write_text("damaged")
    store.weights_path(folder / "damaged.h5").touch()
    assert trained.find_best(folder, pretrained_nets, draw.fits) == folder / "better.h5"
    store.weights_path(folder / "better.h5").unlink()
    assert trained.find_best(folder, pretrained_nets, draw.fits) == path
    assert trained.find_best(folder, pretrained_nets) == cnn_file  # no perceptron stands for it
    write(folder / "cnn.h5", (89, 89), layers=layers)
    assert trained.find_best(folder, pretrained_nets) == folder / "cnn.h5"


def test_nets_of_load_digits_are_refused(folder, pictures, monkeypatch):
    monkeypatch.setattr(trained, "PREPARED_AS", "MNIST")
    net = folder / "table1" / "hidden50-seed0-load_digits.h5"
    refusal = "is of a net for load_digits, and pictures are prepared as MNIST's digits; train a "
    refusal += "net for these with 'make table1 ARGS=\"--nets 1\"'"
    with pytest.raises(Problem, match=refusal):
        recognise.main([str(pictures[0]), "--net", str(net)])


def test_the_drawing_has_the_ink_where_it_is():
    pixels = np.zeros((28, 28), np.uint8)
    pixels[6:22, 10:12] = 255
    pixels[6:8, 10:20] = 128
    lines = recognise.drawing(pixels).splitlines()
    assert lines[0] == " " * 12 + "+" * 10
    assert lines[1:] == [" " * 12 + "@@"] * 7
