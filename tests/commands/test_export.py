"""`python -m experiments.export`: runs as CSV files, read back."""

import json

import numpy as np
import pytest
from committee_cases import read_csv
from factories import make_run

from deepbig_runtime.errors import Problem
from deepbig_runtime.files import FileFault
from experiments import export
from experiments.training import store


def write_run(path, epochs=3, n_validation=None):
    """A run file with random numbers in it; returns the run."""
    generator = np.random.default_rng(epochs)
    metrics = {name: generator.random(epochs).tolist() for name in store.METRICS}
    metrics["epoch"] = list(range(1, epochs + 1))
    for name in ("validation_errors", "test_errors"):
        metrics[name] = generator.integers(1, 70, epochs).tolist()
    of_data = {"n_train": 700, "n_validation": n_validation, "n_test": 70}
    run = make_run(epochs, metrics, data=of_data, epochs=7, deformation=None)  # so unfinished
    store.write_run(path, run)
    return run


@pytest.mark.parametrize(("n_validation", "n"), [(None, 700), (90, 90)])
def test_csv_reads_back_to_the_bit(tmp_path, capsys, n_validation, n):
    run = write_run(tmp_path / "net.h5", n_validation=n_validation)
    export.main([str(tmp_path / "net.h5"), "--csv"])
    paths = [tmp_path / "net.metrics.csv", tmp_path / "net.outputs.csv"]
    assert capsys.readouterr().out == "".join(f"{path}\n" for path in paths)

    metrics = {name: getattr(run.metrics, name) for name in store.METRICS}
    metrics["validation_percent"] = [100 * k / n for k in run.metrics.validation_errors]
    metrics["test_percent"] = [100 * k / 70 for k in run.metrics.test_errors]
    rows = read_csv(paths[0])
    assert {name: [json.loads(row[name]) for row in rows] for name in rows[0]} == metrics

    outputs = {f"p{digit}": run.outputs[:, digit].tolist() for digit in range(10)}
    first = {"index": list(range(70)), "label": run.labels.tolist()}
    first["guess"] = run.outputs.argmax(axis=1).tolist()
    rows = read_csv(paths[1])
    assert {name: [json.loads(row[name]) for row in rows] for name in rows[0]} == first | outputs


def test_rows_of_data_of_ones_own_have_the_names_of_classes():
    classes = tuple(f"{k}" for k in range(1, 11))
    run = make_run(data={"name": "mine", "classes": classes})
    row = export.outputs_rows(run)[3]
    names = "index", "label", "guess", *(f"p{name}" for name in classes)
    assert tuple(row) == names
    assert (row["label"], row["guess"]) == (
        classes[run.labels[3]],
        classes[run.outputs[3].argmax()],
    )


def test_runs_of_one_name_are_refused_before_anything_is_written(tmp_path):
    paths = [tmp_path / name / "net.c.h5" for name in "abc"]
    for path in (tmp_path / "other.h5", *paths):
        path.parent.mkdir(exist_ok=True)
        write_run(path)
    out, files = tmp_path / "out", [str(tmp_path / "other.h5"), *map(str, paths)]
    with pytest.raises(Problem, match=f"3 runs would be written to {out}/net.c: export them one"):
        export.main([*files, "--csv", "--out", str(out)])
    assert not out.exists()
    export.main([*files, "--csv"])
    assert all((path.parent / "net.c.metrics.csv").exists() for path in paths)


def test_nothing_is_written_if_a_run_cannot_be_read(tmp_path):
    write_run(tmp_path / "good.h5")
    with pytest.raises(FileFault, match=r"cannot read .*no\.h5"):
        export.main([str(tmp_path / "good.h5"), str(tmp_path / "no.h5"), "--csv"])
    assert [path.name for path in tmp_path.iterdir()] == ["good.h5"]
