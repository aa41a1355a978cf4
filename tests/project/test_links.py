"""The documents: links lead somewhere, paths exist, commands are right, quick ones run.

A command whose comment begins with "seconds" says that it takes seconds; it is run here.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from waiting import HANG_SECONDS

from experiments.drawing.figures import dark_variant
from experiments.drawing.thread_maps import DRAWINGS
from experiments.training.provenance import REPOSITORY

DOCUMENTS = ("README.md", "CHANGES.md", "CONTRIBUTING.md")
DOCUMENTS += ("results/README.md", "cuda-on-cpu/README.md", "cuda-on-cpu/CHANGES.md")
for pages in ("docs/*.md", "cuda-on-cpu/docs/*.md"):
    DOCUMENTS += tuple(path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob(pages))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text_of(name):
    return (REPOSITORY / name).read_text(encoding="utf-8")


def prose(name):
    """A document without its blocks of code."""
    return FENCE.sub("", text_of(name))


def anchors(text):
    """What headings are called in links, as GitHub makes it."""
    found = []
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return found


def links(text):
    """The targets of links and pictures."""
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src(?:set)?="([^"]+)"', text)
    return [target for target in found if not re.match(r"https?:", target)]


def commands(name):
    """The lines of the blocks of shell commands, each with its comment."""
    for language, code in FENCE.findall(text_of(name)):
        if language == "sh":
            for line in filter(None, code.splitlines()):
                command, _, comment = line.partition(" # ")
                yield command.strip(), comment.strip()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    found = links(prose(name))
    assert found
    for target in found:
        path, _, anchor = target.partition("#")
        there = (REPOSITORY / name).parent / path if path else REPOSITORY / name
        assert there.exists(), f"{name} links to {target}"
        assert there.resolve().is_relative_to(REPOSITORY), f"{name} links to {target}"
        if anchor:
            assert anchor in anchors(there.read_text(encoding="utf-8")), f"{name}: {target}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_paths_in_backquotes_exist(name):
    ours = "deepbig_runtime|mlp_gpu|deform_gpu|cnn_gpu|cuda-on-cpu|experiments|tests|notebooks|docs"
    for path in re.findall(rf"`((?:{ours})/[^` ]*)`", prose(name)):
        assert (REPOSITORY / path).exists(), f"{name} names {path}"


def test_every_document_can_be_reached_from_the_readme():
    reached, new = set(), {"README.md"}
    while new:
        reached |= new
        paths = {
            os.path.normpath(Path(name).parent / target.partition("#")[0])
            for name in new
            for target in links(prose(name))
        }
        new = {path for path in paths if path.endswith(".md")} - reached
    assert reached == set(DOCUMENTS)


def test_every_drawing_is_shown():
    names = "kernels", "ladder", "online-in-blocks"
    pages = [target for name in names for target in links(prose(f"docs/{name}.md"))]
    shown = {target for target in pages if ".png" in target}
    assert shown == {f"pictures/{name}{end}.png" for name in DRAWINGS for end in ("", "-dark")}


def test_gallery_shows_every_picture():
    shown = set(re.findall(r"\]\(([^)]*\.png)\)", text_of("docs/gallery.md")))
    folders = (REPOSITORY / name for name in ("docs", "results"))
    there = {path for folder in folders for path in folder.rglob("*.png")}
    light = {path for path in there if not path.stem.endswith("-dark")}
    assert there - light == {dark_variant(path) for path in light if path.name != "three.png"}
    assert {(REPOSITORY / "docs" / target).resolve() for target in shown} == light


@pytest.mark.parametrize("name", DOCUMENTS)
def test_pages_show_pictures_with_their_dark_variants(name):
    dark = r'<picture><source media="\(prefers-color-scheme: dark\)" srcset="(\S+)-dark\.png">'
    rest = re.sub(rf'{dark}<img src="\1\.png"', "", prose(name))
    shown = re.findall(r'!\[[^]]*\]\(([^)]*)|<img src="([^"]*)', rest)
    assert shown in ([], [("", "pictures/three.png")])  # no figure, but a digit to recognise


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_name_targets_modules_and_options_that_exist(name):
    makefile = text_of("Makefile")
    sources = REPOSITORY.glob("experiments/**/*.py")
    source = "".join(path.read_text(encoding="utf-8") for path in sources)
    for command, _ in commands(name):
        if target := re.match(r"make ([\w-]+)", command):
            assert re.search(rf"^{target[1]}:", makefile, re.MULTILINE), command
        for module in re.findall(r"-m experiments\.(\w+)", command):
            assert (REPOSITORY / "experiments" / f"{module}.py").exists(), command
        if re.match(r"make|.*-m experiments\.", command):
            for option in set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", command)) - {"--help"}:
                assert f'"{option}"' in source, f"{command}: {option}"
    for option in re.findall(r"`(--[a-z][a-z0-9-]*)", prose(name)):
        assert f'"{option}"' in source, f"{name}: {option}"


QUICK = {
    name: [one for one, what in commands(name) if what.startswith("seconds")] for name in DOCUMENTS
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DOCUMENTS if QUICK[name]])
def test_quick_commands_run(name, tmp_path):
    """In another folder, of these sources, with this interpreter."""
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    for command in QUICK[name]:
        ours = command.replace(".venv/bin/python", sys.executable)
        ours = re.sub(r"^make ", f"make PYTHON={sys.executable} VENV= ", ours)
        done = subprocess.run(
            ours, shell=True, capture_output=True, text=True, timeout=HANG_SECONDS, cwd=tmp_path
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
        assert done.stdout, command


def test_the_library_example_runs():
    (code,) = (
        code for kind, code in FENCE.findall(text_of("docs/deformation.md")) if kind == "python"
    )
    assert 'device="cuda"' in code
    rng = np.random.default_rng(0)
    names = {
        "images": rng.uniform(-1, 1, (50, 29, 29)).astype(np.float32),
        "labels": rng.integers(0, 10, 50),
        "icons": rng.random((3, 16, 16)),
    }
    exec(code.replace('device="cuda"', 'device="cpu"'), names)
    assert (names["one"][0] == names["more"][42]).all()
    assert names["bent"].shape == (3, 16, 16)
    assert names["narrow"].shape == (50, 29, 29)
