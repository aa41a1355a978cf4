"""Records that somebody damaged or made up: one sentence, and nothing is written."""

import csv
import json

import pytest
from factories import make_run
from forgeries import expect_sentence
from msgspec import structs

from experiments import readme, record
from experiments.results.rows import BenchRow, CommitteeRow, StartupRow, StudyRow
from experiments.training import provenance, store
from experiments.training.formatting import csv_text
from experiments.training.provenance import SourceColumns

OURS = provenance.REPOSITORY / "results" / "amd-epyc-2-cores"
BYTES = {
    "half": b"{",
    "empty": b"",
    "array": b"[]",
    "null": b"null",
    "number": b"3",
    "no text": b"\xff\xfe{}",
    "deep": b"[" * 100_000,
    "long number": b"9" * 5000,
    "object": b"{}",
}


@pytest.fixture
def folder(empty):
    """A folder of records, of no machine's, in a repository without any other."""
    folder = empty / "results" / "some-cpu"
    folder.mkdir(parents=True)
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("what", BYTES)
def test_damaged_json_record_is_named_and_kept(folder, tmp_path, what):
    path = tmp_path / "runs" / "a.h5"
    path.parent.mkdir()
    store.write_run(path, make_run(data={"n_test": 50}, metrics={"test_errors": [5, 5]}))
    for name in ("gpu-check.json", "ladder.json", "runs-a.json"):
        (folder / name).write_bytes(BYTES[what])
        before = contents(folder)
        assert name in expect_sentence(readme.pages)
        if name == "runs-a.json":
            assert name in expect_sentence(lambda: record.write_record(path))
        assert contents(folder) == before
        (folder / name).unlink()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *(("ladder.json", part) for part in ("hidden", "times.0.us.0", "provenance.device")),
        *(
            ("table1-longer-net1-seed0.json", part)
            for part in ("config.sizes.1", "metrics.test_errors.0")
        ),
        *(("blocks.json", part) for part in ("rows.0.distances", "rows.0.sweeps_per_image")),
    ],
)
def test_json_record_of_other_types_is_named(folder, name, part):
    *above, last = (int(key) if key.isdigit() else key for key in part.split("."))
    for value in (None, "\ud800", -1, {}, 10**400):
        record = found = json.loads((OURS / name).read_text())
        for key in above:
            found = found[key]
        found[last] = value
        (folder / name).write_text(json.dumps(record))
        assert name in expect_sentence(readme.pages), value


KINDS = {
    "committee-experiment6.csv": CommitteeRow,
    "bench.csv": BenchRow,
    "startup.csv": StartupRow,
    "study.csv": StudyRow,
}
STARTUP = "what,repeats,seconds,seconds_p20,seconds_p80,device,driver,versions,date,commit\n"
STARTUP += "make test,1,3,3,3,box,,,2026-01-01,c\n"


@pytest.mark.parametrize("name", KINDS)
def test_row_of_other_cells_is_named(folder, name):
    own = STARTUP if name == "startup.csv" else (OURS / name).read_text()
    rows, kind = list(csv.DictReader(own.splitlines())), KINDS[name]
    for field in (*structs.fields(SourceColumns), *structs.fields(kind)):
        if field.name in ("source", "shared", "wrong_digits", "finished"):
            continue
        is_text = "str" in str(field.type)
        bad = ["\x1b[31m", "a\nb"] if is_text else ["x", "nan", "1.5e99", "-1"]
        bad += ["3"] if field.name == "validation_part" else []
        bad += [""] if field.required else []
        for cell in bad:
            *others, last = ({field.name: ""} | row for row in rows)  # older rows lack columns
            (folder / name).write_text(csv_text([*others, last | {field.name: cell}]))
            assert name in expect_sentence(readme.pages), (field.name, cell)


def test_two_columns_of_a_name_are_refused(folder):
    text = (OURS / "bench.csv").read_text().replace(",paper_gb_a_second,", ",flops,", 1)
    (folder / "bench.csv").write_text(text)
    assert "two columns have the same name" in expect_sentence(readme.pages)


CSV = {
    "empty": b"",
    "no rows": b"experiment,device\n",
    "no text": b"\xff\xfe",
    "a long field": b'a,b\n1,"' + b"x" * 200_000 + b'"\n',
    "a NUL": b"a,b\n1,\0\n",
    "one column": b"experiment\nexperiment6\n",
    "more cells than columns": b"experiment,device\n1,2,3\n",
    "quotes without end": b'experiment,"device\n',
}


@pytest.mark.parametrize("what", CSV)
def test_damaged_table_is_named(folder, tmp_path, what):
    for name in KINDS:
        (folder / name).write_bytes(CSV[what])
        assert name in expect_sentence(readme.pages)
        (folder / name).unlink()
    (tmp_path / "a.csv").write_bytes(CSV[what])
    assert "a.csv" in expect_sentence(lambda: record.write_committee(tmp_path / "a.csv"))
    assert not contents(folder)
