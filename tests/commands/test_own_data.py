"""--data DIR: every trainer, the report and recognise on data of your own."""
# ruff: noqa: F401, F811 - fixtures are imported

from dataclasses import replace

import numpy as np
import pytest
from factories import changed
from own_folders import IMAGES, RNG, letters, save, things

from cnn_gpu.layers import Maps
from deepbig_runtime.errors import Problem
from deform_gpu import COMMITTEE, TABLE1, TRANSLATION
from experiments import cnn, committee, figure1, recognise, report, table1
from experiments.datasets import data
from experiments.datasets.dataset import MNIST, own_kind
from experiments.results import trained
from experiments.training import cli, store
from experiments.training.configs import fit_deformation, make_config
from mlp_gpu.training import Schedule

QUICK = "--engine", "cpu", "--eta-decay", "0.9", "--epochs", "1"


@pytest.fixture(autouse=True)
def forgotten():
    """Nothing is kept of the data of another test."""
    yield
    data.cached.cache_clear()
    data._pixels.clear()


@pytest.fixture
def run_of_letters(letters, tmp_path):
    out = tmp_path / "runs"
    assert table1.main(["--data", str(letters), "--nets", "1", "--out", str(out), *QUICK]) == 0
    return out / "net1-seed0-my-letters.h5"


def test_perceptron_has_the_inputs_and_classes_of_a_folder(run_of_letters, letters, capsys):
    run = store.read_run(run_of_letters)
    assert run.config.sizes == (144, 1000, 500, 3)
    assert run.config.data.classes == ("1", "6", "11")
    pixels = data.load_pixels(str(letters))
    fitted = fit_deformation(TABLE1, pixels.kind)
    assert run.config.deformation == replace(fitted, background=pixels.background)
    table = (run_of_letters.parent / "table1-my-letters.md").read_text()
    assert "on my-letters, which is NOT MNIST" in table
    assert "paper TEfBV" not in table
    same = ["--data", str(letters), "--nets", "1", "--out", str(run_of_letters.parent), *QUICK]
    assert table1.main([*same[:-1], "2"]) == 0  # resumes
    assert store.read_run(run_of_letters).epochs == 2
    assert "epoch 1/2" not in capsys.readouterr().err


def test_strengths_scale_with_the_side_and_colours_only_move(letters, things):
    found = fit_deformation(TABLE1, data.load(str(letters)).kind)
    assert found.sigma == pytest.approx(5.5 * 12 / 29)
    assert found.alpha == pytest.approx(37 * (12 / 29) ** 2)
    assert set(found.beta) == {15}
    large = fit_deformation(TABLE1, own_kind(Maps(1, 64, 64), 3))
    assert (large.sigma, large.alpha) == (TABLE1.sigma, TABLE1.alpha)
    assert fit_deformation(TABLE1, data.load(str(things)).kind) == TRANSLATION
    assert fit_deformation(TABLE1, data.load("digits").kind) == TABLE1


def test_ink_on_white_is_deformed_on_white(letters):
    pixels = data.load_pixels(str(letters))
    framed = np.full_like(pixels.train_images, 200)
    framed[:, 2:-2, 2:-2] = 0
    dataset = replace(pixels, train_images=framed)
    config = make_config(dataset, (144, 5, 3), Schedule(1), 0, COMMITTEE, "cpu")
    assert config.deformation.background == 200 / 127.5 - 1
    assert replace(dataset, name=MNIST).background == -1


def test_images_of_a_folder_are_scaled_as_mnists(letters):
    assert (data.load(str(letters)).train_images == IMAGES[:30] / np.float32(127.5) - 1).all()


def test_convolutional_net_learns_colour_pictures(things, tmp_path, capsys):
    out = tmp_path / "runs"
    options = ["--data", str(things), "--net", "4M3-MP2-9N", "--out", str(out), *QUICK]
    assert cnn.main(options) == 0
    (path,) = store.run_files(out)
    config = store.read_run(path).config
    assert (config.source, config.n_classes, config.deformation) == ((3, 10, 10), 2, TRANSLATION)
    capsys.readouterr()
    picture = things / "test" / "hat" / "1.png"
    assert recognise.main(["--net", str(path), str(picture)]) == 0
    assert "hat (" in capsys.readouterr().out
    assert recognise.main(["--net", str(path), str(picture), "--csv"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header == "image,guess,pcup,phat"
    assert row.split(",")[1] == ("cup" if float(row.split(",")[2]) > 0.5 else "hat")


def test_nets_of_the_paper_fit_the_side_of_pictures(things, capsys):
    assert cnn.main(["--data", str(things), "--nets", "1", "--describe"]) == 0
    net = "100M3-MP3-100M2-100M1-300N-100N"
    said = capsys.readouterr()
    assert said.err == f"net 1 of Table 3, fitted to 10x10 pixels: {net}\n"
    assert said.out.startswith(f"{net}, input 3 of 10x10\n")


def test_commands_read_pictures_in_the_size_of_the_run(things, tmp_path, capsys):
    for path in things.rglob("*.png"):
        save(path, RNG.integers(0, 256, (30, 50), np.uint8))
    out, picture = tmp_path / "runs", things / "test" / "hat" / "1.png"
    options = ["--data", str(things), "--size", "28", "--hidden", "9", "--out", str(out), *QUICK]
    assert table1.main(options) == 0
    (path,) = store.run_files(out)
    assert path.name == "hidden9-seed0-things-size28.h5"
    config = store.read_run(path).config
    assert (config.sizes[0], config.data.size) == (29 * 29, 28)
    data.cached.cache_clear()
    images = data.load_pixels(str(things), size=28).test_images
    np.testing.assert_array_equal(trained.read_picture(picture, config), images[-1])
    assert recognise.main(["--net", str(path), str(picture)]) == 0
    figure1.main([str(path), "--data-dir", str(things)])
    assert recognise.main(["--net", str(path), str(tmp_path)]) == 2
    assert f"error: cannot read {tmp_path}: Is a directory" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"data\.size is 30, expected the side of the images"):
        changed(config, data={"size": 30})


@pytest.mark.parametrize("choice", ["digits", "auto"])
def test_size_without_a_folder_is_refused(choice):
    with pytest.raises(Problem, match="--size scales pictures of a folder of your own; name"):
        data.load_pixels(choice, size=16)


def test_a_folder_has_no_other_folder_of_data(letters, tmp_path):
    options = ["--data", str(letters), "--data-dir", str(tmp_path), "--out", str(tmp_path / "runs")]
    with pytest.raises(Problem, match=r"--data names the folder of the data, .*; leave --data-dir"):
        table1.main(options)


def test_images_in_colour_have_no_elastic_deformation(things, tmp_path):
    options = ["--data", str(things), "--nets", "1", "--out", str(tmp_path), *QUICK]
    with pytest.raises(Problem, match="images in colour are only translated"):
        table1.main([*options, "--alpha", "20"])


def test_ten_angles_are_for_digits(letters, tmp_path):
    options = ["--data", str(letters), "--nets", "1", "--out", str(tmp_path), *QUICK, "--beta"]
    with pytest.raises(Problem, match="an angle for each digit; give one for all of my-letters"):
        table1.main([*options, "1,2,3,4,5,6,7,8,9,10"])
    assert table1.main([*options, "4"]) == 0


@pytest.mark.parametrize(("experiment", "why"), [(2, "equally wide"), (5, "elastic deformations")])
def test_committee_refuses_variations_that_images_lack(things, tmp_path, experiment, why):
    options = ["--data", str(things), "--experiment", str(experiment), *QUICK]
    with pytest.raises(Problem, match=f"{why}.*; expected --experiment 1, 3 or 4"):
        committee.main([*options, "--out", str(tmp_path / "runs")])


def test_committee_makes_only_digits_on_black_equally_wide(sandbox, tmp_path):
    for part in ("train", "test"):
        for name in ("cup", "hat"):
            save(tmp_path / "white" / part / name / "1.png", np.full((28, 28), 255, np.uint8))
    options = ["--data", str(tmp_path / "white"), "--experiment", "6", *QUICK]
    with pytest.raises(Problem, match="on black equally wide; expected --experiment 1, 3, 4 or 5"):
        committee.main([*options, "--out", str(tmp_path / "runs")])


def test_report_and_figure_1_have_runs_on_own_data(run_of_letters, letters, empty, capsys):
    page = run_of_letters.parent / "report.html"
    report.main(["--runs", str(run_of_letters.parent), "--out", str(page)])
    text = page.read_text()
    assert "my-letters, data of your own" in text
    assert "the files of my-letters that the run was tested on are not found" in text
    with pytest.raises(Problem, match="name its folder with --data-dir"):
        figure1.main([str(run_of_letters)])
    figure1.main([str(run_of_letters), "--data-dir", str(letters)])
    assert "wrong; second guess right" in capsys.readouterr().out


def test_changed_data_are_refused(run_of_letters, letters, tmp_path):
    (letters / "t10k-labels-idx1-ubyte").write_bytes(
        (letters / "t10k-labels-idx1-ubyte").read_bytes()[:-1] + b"\x06"
    )
    data.cached.cache_clear()
    data._pixels.clear()
    with pytest.raises(Problem, match=r"data.sha256 is \w+ there"):
        table1.main(
            ["--data", str(letters), "--nets", "1", "--out", str(run_of_letters.parent), *QUICK]
        )


def test_name_of_a_data_set_is_no_folder_even_beside_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mnist", "letters"):
        (tmp_path / name).mkdir()
    assert not cli.is_folder("mnist")
    assert cli.is_folder("letters")
