"""`python -m experiments.figure1`: the digits that a run gets wrong."""

import pytest
from factories import make_run

from experiments import figure1
from experiments.results import trained, voting
from experiments.training import net_files, store
from mlp_gpu.network import Network


@pytest.fixture(scope="module")
def path(tmp_path_factory, digits):
    """A run file."""
    data = {"name": digits.name, "sha256": digits.sha256, "n_train": 70, "n_test": 360}
    path = tmp_path_factory.mktemp("figure1") / "net1-seed0-load_digits.h5"
    metrics = {"test_errors": [14, 11]}
    store.write_run(path, make_run(data=data, labels=digits.test_labels, metrics=metrics))
    return path


def test_figure1_is_saved_beside_its_run_or_as_named(path, tmp_path, capsys):
    figure1.main([str(path), "--out", str(tmp_path / "new" / "v1.0")])
    assert {one.name for one in (tmp_path / "new").iterdir()} == {"v1.0.png", "v1.0.pdf"}
    capsys.readouterr()
    figure1.main([str(path)])
    run = store.read_run(path)
    said = capsys.readouterr().out
    counted = voting.count_sentence(run.outputs, run.labels)
    assert said.startswith(f"841-1000-500-10 on load_digits, seed 0:\n{counted}\n")
    for form, begin in (("png", b"\x89PNG"), ("pdf", b"%PDF-")):
        picture = path.with_suffix(f".figure1.{form}")
        assert picture.read_bytes().startswith(begin)
        assert str(picture) in said


def test_figure1_of_a_net_file_is_of_the_data_that_the_net_is_for(path, tmp_path, capsys):
    run = store.read_run(path)
    member = trained.of_run(run, Network.initial(run.config.sizes, 0))
    (net,) = net_files.write(tmp_path / "net.safetensors", member, half=True)
    figure1.main([str(net)])
    assert capsys.readouterr().out.startswith("841-1000-500-10 on load_digits, seed 0:\n")
