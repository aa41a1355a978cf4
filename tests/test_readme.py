"""`python -m experiments.readme`: README.md and results/README.md say what results/ holds."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import factories
import pytest
from committee_cases import of_committees
from factories import changed
from measurements import SOURCE, gpu_measurements, write_bench
from msgspec import structs

from experiments import readme
from experiments.running.errors import Problem
from experiments.running.formatting import csv_text
from experiments.running.provenance import REPOSITORY
from experiments.running.validation import to_json
from experiments.scoring import cnn_tables, committees, tables
from experiments.scoring import findings as scores
from experiments.scoring.records import (
    GpuCheckRecord,
    GpuCheckRow,
    read_benchmarks,
    read_committees,
)
from experiments.timing import findings as speeds
from mlp_gpu.network import NETS

PAGES = (
    "README.md",
    "results/README.md",
    "docs/benchmarks.md",
    "docs/promises.md",
    "docs/ladder.md",
    "docs/recognise.md",
    "docs/online-in-blocks.md",
)
MAX_LINES = 200


def make_run(net=1, name="MNIST", wrong=(35, 33), validation=(60, 70), deformation=True, epochs=2):
    """A run of a net of Table 1 that was never trained, with the error counts given."""
    metrics = {"validation_errors": list(validation), "test_errors": list(wrong)}
    changes = {} if deformation else {"deformation": None}
    of_net = {"data": {"name": name}, "sizes": NETS[net], "epochs": epochs, "seed": 3}
    return factories.make_run(metrics=metrics, session={"device": "Some GPU"}, **of_net, **changes)


def text_of(page):
    return (REPOSITORY / page).read_text(encoding="utf-8")


def records(*runs):
    """Runs with the paths of records as of `make table1`."""
    return {
        REPOSITORY / "results" / "box" / f"table1-net{tables.net_number(run)}-seed{k}.json": run
        for k, run in enumerate(runs)
    }


# --- the pages as they are


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_results_say(page):
    text = text_of(page)
    assert readme.render(text, readme.pages()[page], page) == text, "run 'make readme'"


def test_the_readme_is_short():
    assert len(text_of("README.md").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_lacks_no_marker(page):
    parts = dict.fromkeys(readme.pages()[page], "a part")
    whole = "".join(f"{readme.begin(name)}\nold\n{readme.end(name)}\n" for name in parts)
    assert readme.render(whole, parts, page).count("a part") == len(parts)
    for name in parts:
        for marker in (readme.begin(name), readme.end(name)):
            with pytest.raises(Problem, match=f"{page} lacks the line .*{name}"):
                readme.render(whole.replace(marker, ""), parts, page)


def test_main_writes_all_pages(empty, capsys):
    for page in PAGES:
        (empty / page).parent.mkdir(exist_ok=True)
        parts = readme.pages()[page]
        lines = [f"{readme.begin(name)}\nold\n{readme.end(name)}\n" for name in parts]
        (empty / page).write_text("".join(lines))
    readme.main([])
    assert capsys.readouterr().out == "".join(f"written: {page}\n" for page in PAGES)
    for page in PAGES:
        assert "old" not in (empty / page).read_text()


def test_without_records_nothing_is_measured(empty):
    pages = readme.pages()
    for page in ("results/README.md", "docs/online-in-blocks.md"):
        assert set(pages[page].values()) == {readme.NOT_MEASURED}
    parts = pages["README.md"]
    assert parts["headline"] == parts["speed"] == readme.NOT_MEASURED
    assert parts["durations"].startswith("- Not measured yet: `make test`; `make test-all`; first")
    assert parts["nets"].count("not measured yet") == 9
    assert parts["experiments"].count("not measured yet") == 7


def test_every_record_has_a_name_that_is_explained():
    """Names in the first column of a table. N, S and E are numbers, LAYERS those of a net."""
    cells = re.findall(r"^\| (`.+?) \|", text_of("results/README.md"), re.MULTILINE)
    names = re.findall(r"`(\w[^`]*\.(?:json|csv|png))`", "".join(cells))
    numbers = "(?<=net)N|(?<=cnn)N|(?<=committee)N|(?<=seed)S|(?<=experiment)E"
    patterns = [re.sub(numbers, r"\\d+", name) for name in names]
    patterns = [pattern.replace("LAYERS", r"\d+M[\dMNPscpx-]+") for pattern in patterns]
    results = REPOSITORY / "results"
    found = [path for path in results.rglob("*.*") if path != results / "README.md"]
    assert len(found) > 20
    for path in found:
        by_name = path.parent.name in ("pictures", "deformations")
        name = f"{path.parent.name}/{path.stem}.png" if by_name else path.name
        assert any(re.fullmatch(one, name) for one in patterns), f"what is {name}?"


def test_no_record_names_a_folder_of_the_machine_it_is_from():
    """Command lines are recorded as they were typed; those of records name what is below here."""
    for path in (REPOSITORY / "results").glob("*/*.*"):
        if path.suffix in (".json", ".csv"):
            found = re.findall(
                r"(?<![\w.])/(?:home|root|tmp|work|mnt|Users)/[^\s\"]*", path.read_text()
            )
            assert not found, f"{path.name} names {found[0]}"


# --- what was measured of errors


def test_all_rows_of_records():
    assert readme.table1({}, "MNIST") == readme.NOT_MEASURED
    found = records(make_run(net=4), make_run(net=1, name="load_digits"), make_run(net=2))
    text = readme.table1(found, "MNIST")
    assert [line.split("|")[1].strip() for line in text.splitlines()[2:4]] == ["2", "4"]
    assert "2,300 epochs: not measured yet" in text
    sources = re.findall(r"^- `(.+)`: (net \d).* commit 0123456789ab$", text, re.MULTILINE)
    assert sources == [("table1-net2-seed2.json", "net 2"), ("table1-net4-seed0.json", "net 4")]
    whole = make_run(epochs=2300, wrong=[35] * 2300, validation=[60] * 2300)
    assert "epochs: not " not in readme.table1(records(whole), "MNIST")
    begun = replace(whole, metrics=whole.metrics.first(9))
    assert "2,300 epochs: not finished yet." in readme.table1(records(begun), "MNIST")
    digits = readme.table1(found, "load_digits")
    assert "paper" not in digits
    assert digits.count("\n|") == 2  # under the header
    assert digits.count("commit") == 1


def test_several_sessions_show_all_their_commits():
    run = make_run()
    other = replace(
        run, provenance=[structs.replace(run.provenance[0], commit="f" * 40), *run.provenance]
    )
    assert "commit ffffffffffff, 0123456789ab" in tables.provenance_line(other)


def test_a_row_per_net_is_of_its_best_deformed_run_on_mnist():
    runs = [
        make_run(net=2, wrong=(50, 40), validation=(1, 2)),
        make_run(net=2, wrong=(45, 99), validation=(1, 2)),
        make_run(net=2, wrong=(1, 1), deformation=False),
        make_run(net=2, wrong=(2, 2), name="load_digits"),
        make_run(net=5, wrong=(60, 61), validation=(2, 1)),
    ]
    rows = tables.longest_table(runs)
    assert [row["net"] for row in rows] == list("12345")
    assert [len(row) for row in rows] == [7] * 5
    ours = [row["TEfBV % (95 % interval)"] for row in rows]
    assert ours[1].startswith("0.45 (0.33-0.60)")
    assert ours[4].startswith("0.61 ")
    assert ours[0] == ours[2] == ours[3] == "not measured yet"
    assert [row["paper TEfBV %"] for row in rows] == ["0.49", "0.46", "0.41", "0.35", "0.44"]
    assert rows[1]["epochs x images"] == "2 x 60,000"


def test_a_row_per_convolutional_net_is_of_its_best_run_on_deformed_mnist():
    runs = [
        make_run(wrong=(50, 40), validation=(1, 2)),
        make_run(wrong=(45, 99), validation=(1, 2)),
        make_run(wrong=(1, 1), deformation=False),
        make_run(wrong=(2, 2), name="load_digits"),
        make_run(wrong=(3, 3), validation=(1, 2)),
    ]
    for run in runs:
        run.config = changed(run.config, layers=cnn_tables.PAPER[3].layers)
    runs[-1].config = changed(runs[-1].config, layers="20M5s1-MP2")  # none of the paper's
    rows = cnn_tables.longest_table(runs)
    ours = [row["TEfBV % (95 % interval)"] for row in rows]
    assert ours == [*2 * ["not measured yet"], "0.45 (0.33-0.60)", "not measured yet"]
    assert [row["layers"] for row in rows] == [net.name for net in cnn_tables.PAPER.values()]
    assert [row["paper TEfBV %"] for row in rows] == ["1.02", "0.55", "0.38", "0.35"]
    assert [row["weights"] for row in rows] == ["30,590", "242,240", "179,340", "416,260"]
    assert rows[2]["epochs x images"] == "2 x 60,000"
    assert rows[0].keys() == tables.longest_table([])[0].keys()


def test_the_headline_names_the_best_run_and_the_papers():
    runs = [
        make_run(net=3, wrong=(120, 99, 98), validation=(3, 2, 1), epochs=3),
        make_run(net=1, wrong=(130, 97, 90), validation=(3, 1, 2), epochs=3),
    ]
    net = make_run(wrong=(70, 61), validation=(5, 4))
    net.config = changed(net.config, layers=cnn_tables.PAPER[3].layers)
    text = readme.headline([*runs, make_run(wrong=(0, 0), deformation=False)], [net], {}, False)
    single, convolutional, schedule, gpu = text.splitlines()
    assert "20M-60M-100M-150N gets 61 of 10,000 test digits wrong: 0.61 %" in convolutional
    assert "The paper's has 0.38 %, after 500 epochs." in convolutional
    assert "Net 1 gets 97 of 10,000 test digits wrong: 0.97 % (95 % interval 0.79-1.18)" in single
    assert "after 3 epochs in 0:00:09 on Some GPU" in single
    assert "The paper's net 1 has 0.49 %, after 2,300 epochs in 23.4 hours on a GTX 280." in single
    assert "below 1 % for the first time after epoch 2" in single
    assert schedule.startswith("- **The paper's schedule.** Not measured yet: ")
    assert "hours" not in schedule  # no run of net 4
    assert "never run on a GPU" in gpu
    assert "below 1 %" not in readme.headline([make_run(wrong=(101, 100))], [], {}, True)


def test_the_papers_schedule_is_estimated_by_the_longest_run_of_all_images():
    few = make_run(net=4, epochs=3, wrong=(1, 1, 1), validation=(1, 1, 1))
    few.config = changed(few.config, data={"n_train": 12_000})
    whole = make_run(net=4)
    for part in ("deform_seconds", "train_seconds", "evaluate_seconds"):
        setattr(whole.metrics, part, [100.0, 20.0])
    text = scores.schedule_sentence([few, whole, make_run(net=1)])
    # 360 s for two epochs
    assert "An epoch of net 4 takes 0:03:00 on Some GPU. 2,300 of them would take 115 hours" in text
    assert "GTX 280 took 114.5" in text
    done = make_run(epochs=2300, wrong=[35] * 2300, validation=[60] * 2300)
    other = make_run(epochs=2300, wrong=[9] * 2300, validation=[60] * 2300)
    other.config = changed(other.config, eta=2e-3)  # so long, but not by the paper's rates
    assert scores.schedule_sentence([whole, other]) == scores.schedule_sentence([whole])
    text = scores.schedule_sentence([whole, done])
    assert text.startswith("Net 1 has followed it for 2,300 epochs. Nothing here confirms")
    done4 = make_run(net=4, epochs=2300, wrong=[35] * 2300, validation=[60] * 2300)
    assert scores.schedule_sentence([whole, done, done4]) is None
    begun, barely = (replace(done, metrics=done.metrics.first(n)) for n in (1300, 2))
    text = scores.schedule_sentence([whole, begun, barely])
    assert text.startswith("Net 1 has followed it for 1,300 of 2,300 epochs. Nothing here ")
    assert "confirms or refutes the 0.35 % of net 4. An epoch of net 4 takes 0:03:00" in text


def test_a_row_per_experiment_is_of_its_longest_training_on_mnist():
    found = of_committees({1: (250, 221), 3: (210, 169)})
    found |= of_committees({1: (240, 230)}, device="other")
    found |= of_committees({2: (3, 2)}, data="load_digits")
    rows = committees.experiments_table(found.values())
    assert [row["experiment"] for row in rows] == [*"123456", "Table 4"]
    ours = [row["committee % (95 % interval)"] for row in rows]
    assert ours == ["2.21 (1.00-2.00)", "not measured yet", "1.69 (1.00-2.00)"] + 4 * [ours[1]]
    assert rows[0]["average net %"] == "2.50"
    assert rows[0]["paper: average net %"] == "1.80"
    assert [row["paper: committee %"] for row in rows][3:] == ["0.53", "0.49", "0.43", "0.31"]
    assert rows[2]["epochs x images"] == "8 x 60,000"
    longer = of_committees({1: (260, 231)}, folder="night")
    for row in next(iter(longer.values())):
        row.epochs = "9"
    rows = committees.experiments_table((longer | found).values())
    assert rows[0]["committee % (95 % interval)"] == "2.31 (1.00-2.00)"
    assert rows[0]["epochs x images"] == "9 x 60,000"


def test_committees_stand_folder_by_folder():
    found = of_committees({1: (250, 221)}) | of_committees({1: (240, 230)}, device="other")
    found |= of_committees({1: (245, 225), 2: (240, 230)}, device="other", folder="night")
    *_, another = found.values()
    another[0].eta = "0.5"
    text = readme.committee_rows(found, "MNIST")
    source = r"^- (\w+), engine cpu; a 1; 2026-01-01; commit c{12}$"
    assert re.findall(source, text, re.M) == ["box", "other", "other"]
    assert re.findall("^`(.*)-.*, eta and decay (.*):$", text, re.M) == [
        ("committee", "0.003, 0.9"),
        ("committee", "0.003, 0.9"),
        ("night", "0.003, 0.9; 0.5, 0.9"),
    ]
    own = next(iter(found.values()))
    mixed = {
        Path("mixed-committee.csv"): [structs.replace(row, experiment="committee") for row in own]
    }
    assert "\n| committee | 2.21 " in readme.committee_rows(found | mixed, "MNIST")
    positions = [text.index(part) for part in ("2.21", "- box", "2.30", "- other", "2.25")]
    assert positions == sorted(positions)
    assert readme.committee_rows(found, "load_digits") == readme.NOT_MEASURED


# --- what was measured of times


def test_a_command_takes_from_the_first_start_to_the_last_end():
    runs = []
    for net in range(1, 6):
        run = make_run(net=net, wrong=(10 * net, 1), validation=(1, 2))
        run.provenance[0].start = f"2026-01-01T10:0{net}:00+00:00"
        run.provenance[0].end = f"2026-01-01T10:{20 - net}:30+00:00"
        runs.append(run)
    (text,) = speeds.command_sentences(records(*runs), {})
    assert text == (
        "`make table1`: 0:18:30 on Some GPU; nets 1 to 5 get 10, 20, 30, 40, 50 of 10,000 test "
        "digits wrong."
    )
    assert speeds.command_sentences(records(*runs[:4]), {}) == []
    # Another folder is another command.
    others = {path.with_name(f"whole-{path.name}"): run for path, run in records(*runs).items()}
    assert speeds.command_sentences(others, {}) == []

    found = of_committees({1: (2, 1), 2: (2, 1), 3: (2, 1), 6: (2, 1)}, folder="night")
    assert speeds.command_sentences({}, found) == []
    found |= of_committees({1: (2, 1), 2: (2, 1), 3: (2, 1), 6: (2, 1)})
    first = found[Path("results/box/committee-experiment1.csv")]
    first[0].source.date = "2026-01-01T00:05:00+00:00"  # so it started at 0:04
    assert speeds.command_sentences({}, found) == ["`make committee`: 0:06:00 on box."]


def test_what_of_starts_and_tests_is_not_measured_says_so(empty):
    rows = [
        {"what": "make test", "seconds": "250.4"},
        {"what": "start of a worker", "seconds": "1.24"},
    ]
    measured = {"repeats": "1", "seconds_p20": "1", "seconds_p80": "300"}
    source = {"device": "box", "driver": "", "versions": "", "date": "2026-01-01", "commit": "c"}
    rows = [row | measured | source for row in rows]
    (empty / "results" / "box").mkdir(parents=True)
    (empty / "results" / "box" / "startup.csv").write_text(csv_text(rows))
    assert readme.pages()["README.md"]["durations"] == (
        "- On box: `make test`: 0:04:10; start of a worker: 1.2 s. Not measured yet: `make "
        "test-all`; first training step of `make table1`, code compiled before; first training "
        "step of `make table1` with one net, code compiled before; first training step of `make "
        "table1`, nothing compiled."
    )
    rows = [SimpleNamespace(what=what, seconds=60) for what in speeds.STARTUP]
    text = speeds.startup_sentence("a box", rows)
    assert text.startswith("On a box: ")
    assert text.count("0:01:00") == 6
    assert "ot measured" not in text


@pytest.mark.parametrize("kind", ["run", "bench", "check"])
def test_a_record_of_a_gpu_ends_the_sentence_that_there_is_none(empty, kind):
    folder = empty / "results" / "gpu"
    folder.mkdir(parents=True)
    run = make_run()
    if kind == "run":
        run.config = changed(run.config, engine="cuda")
    (folder / "table1-net1-seed3.json").write_text(json.dumps(run.to_builtins()))
    if kind == "check":
        checks = [GpuCheckRow("GPU", False, "as it is", 61)]
        changes = {"device": "Some GPU", "driver": "1.2", "commit": "c" * 40}
        source = structs.replace(factories.SESSION, **changes)
        record = GpuCheckRecord(False, checks, source)
        (folder / "gpu-check.json").write_bytes(to_json(record))
    assert ("never run" in readme.pages()["README.md"]["headline"]) == (kind == "bench")
    if kind == "bench":
        write_bench(gpu_measurements(), SOURCE, empty / "results" / "other" / "bench.csv")
        assert "never run" not in readme.pages()["README.md"]["headline"]
    if kind == "check":
        text = readme.pages()["results/README.md"]["gpu-check"]
        assert text.startswith(
            "Some GPU, driver 1.2; 2026-01-02T00:00:00+00:00; commit cccccccccccc:\n\n| check "
        )
        assert re.search(r"^\| GPU +\| no +\| as it is +\| 0:01:01 \|$", text, re.MULTILINE)


def test_records_are_there_to_be_compared():
    assert len(read_committees()) == len(list(REPOSITORY.glob("results/*/*-*.csv"))) >= 12
    assert len(read_benchmarks()) >= 1
