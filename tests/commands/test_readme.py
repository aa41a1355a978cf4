"""`python -m experiments.readme`: README.md and results/README.md say what results/ holds."""

import io
import re
from statistics import median

import factories
import pytest
from PIL import Image

from deepbig_runtime.errors import Problem
from experiments import readme
from experiments.drawing import figures
from experiments.results.record_tables import gpu_check_table
from experiments.results.records import GpuCheckRecord, GpuCheckRow, read_results
from experiments.training import jobs
from experiments.training.provenance import REPOSITORY

MAX_LINES = 130


def text_of(page):
    return (REPOSITORY / page).read_text(encoding="utf-8")


# --- the pages as they are


@pytest.fixture(scope="module")
def pages():
    return readme.pages()


def test_pages_say_what_results_say(pages):
    for page, parts in pages.items():
        text = text_of(page)
        assert readme.render(text, parts, page) == text, f"{page}: run 'make readme'"


@pytest.mark.slow
def test_dark_variants_are_of_the_pictures_as_they_are():
    for path in readme.light_pictures():
        with Image.open(path) as light, Image.open(figures.dark_variant(path)) as dark:
            expected = Image.open(io.BytesIO(figures.darken(light))).convert("RGB")
            assert dark.convert("RGB") == expected, f"{path.name}: run 'make readme'"


def test_time_of_the_first_compilation_is_the_longest_on_record():
    rows = [row for own in read_results().startups.values() for row in own]
    first_steps = [row for row in rows if row.what.endswith("make table1, nothing compiled")]
    slowest = max(first_steps, key=lambda row: row.seconds)
    assert f"{slowest.seconds:.0f} s on {slowest.source.device}" == jobs.FIRST_COMPILED


def test_standstills_of_recorded_trainings_are_told():
    """A minute or more in epochs of more than five times the median."""
    text = " ".join(text_of("results/README.md").split())
    told = re.findall(r"([\d,]+) of ([\d,]+)(?: of)? `([\w-]+)` \(([\d,]+) of ([\d,]+) s\)", text)
    expected = set()
    for path, run in read_results().runs.items():
        seconds = run.epoch_seconds
        slow = [one for one in seconds if one > 5 * median(seconds)]
        if len(seconds) > 5 and sum(slow) > 60:
            sums = f"{sum(slow):,.0f}", f"{sum(seconds):,.0f}"
            expected.add((f"{len(slow):,}", f"{len(seconds):,}", path.stem, *sums))
    assert set(told) == expected


def test_the_first_table_has_one_seed_of_each_net_whatever_else_is_on_record():
    results = read_results()
    path, run = next(
        (path, run) for path, run in results.runs.items() if path.stem == "table1-net1-seed0"
    )
    results.runs[path.with_stem("table1-net1-seed1")] = run
    assert readme.printed(results) == readme.printed(read_results())


def test_the_readme_is_short():
    assert len(text_of("README.md").splitlines()) <= MAX_LINES


def test_a_missing_marker_is_named():
    parts = dict.fromkeys("ab", "a part")
    whole = page_of(parts)
    assert readme.render(whole, parts, "README.md").count("a part") == 2
    for name in parts:
        for marker in (readme.begin(name), readme.end(name)):
            with pytest.raises(Problem, match=f"README.md lacks the line .*{name}"):
                readme.render(whole.replace(marker, ""), parts, "README.md")


def page_of(parts):
    """A page with the markers of these parts."""
    return "".join(f"{readme.begin(name)}\nold\n{readme.end(name)}\n" for name in parts)


def test_without_records_main_writes_that_nothing_is_measured(empty, capsys):
    pages = readme.pages()
    for page, parts in pages.items():
        (empty / page).parent.mkdir(exist_ok=True)
        (empty / page).write_text(page_of(parts))
    readme.main([])
    assert capsys.readouterr().out == "".join(f"written: {page}\n" for page in pages)
    for page, parts in pages.items():
        assert (empty / page).read_text() == readme.render(page_of(parts), parts, page)
    texts = [item for parts in pages.values() for item in parts.items()]
    others = {name for name, text in texts if "not measured yet" not in text.lower()}
    assert others == {"times", "columns", "cnn-columns", "expectations"}


def test_no_record_names_a_folder_of_the_machine_it_is_from():
    """Command lines are recorded as they were typed; those of records name what is below here."""
    for path in (REPOSITORY / "results").glob("*/*.[jc]s*"):
        folder = re.search(r"(?<![\w.])/(?:home|root|tmp|work|mnt|Users)/", path.read_text())
        assert not folder, f"{path.name} names a folder below {folder[0]}"


def test_a_failed_check_of_a_gpu_and_an_old_record_are_shown():
    row = GpuCheckRow("GPU", False, "as it is", 61)
    text = gpu_check_table(GpuCheckRecord(False, [row], factories.SESSION))
    assert text.endswith("| GPU   | no     | as it is | 0:01:01 | not recorded | not recorded |")
