"""Compiled texts are kept for the next process, each for the state that it depends on."""

from importlib.metadata import version

import numpy as np
import pytest
from llvmlite.binding import FeatureMap
from numba import cuda
from programs import CACHE, needs_toolkit

from cuda_on_cpu import Executor, cache, machine_code
from cuda_on_cpu.parse import ERROR_CODE
from cuda_on_cpu.run import Allocation, Program, View

BEGINNING = ".version 7.0\n.target sm_75\n.address_size 64\n"
TABLE = ".const .align 4 .b8 table[8] = {7, 0, 0, 0, 0, 0, 0, 0};\n"
FROM_TABLE = "mov.u64 %x, table; ld.const.b64 %x, [%x];"


@pytest.fixture(autouse=True)
def _helpers_are_kept(monkeypatch):
    """Compiled functions that each kernel links come from the usual folder: they take seconds."""
    helpers = machine_code._helpers(CACHE)
    monkeypatch.setattr(machine_code, "_helpers", lambda cache: helpers)


def kernel(name, body):
    """A kernel that writes the number that the body leaves in %x."""
    return (
        f".visible .entry {name}(.param .u64 p) {{ .reg .b64 %a; .reg .b64 %x; {body} "
        "ld.param.u64 %a, [p]; st.global.b64 [%a], %x; ret; }\n"
    )


def written(program, name):
    """The number that a kernel writes."""
    found = np.zeros(1, np.uint64)
    there = Allocation.at(found.ctypes.data, found.nbytes, found.itemsize)
    address = np.uint64(found.ctypes.data).tobytes()
    program.kernel(name).launch((1,), (1,), [address], [View(there, 0, found.nbytes, "found")])
    return found[0]


def test_machine_code_is_kept_for_the_same_kernel_and_processor(tmp_path, monkeypatch):
    translate, translated = machine_code.translate, []

    def count(kernel, module):
        translated.append(kernel.name)
        return translate(kernel, module)

    monkeypatch.setattr(machine_code, "translate", count)
    ptx = BEGINNING + TABLE + kernel("first", FROM_TABLE) + kernel("second", "mov.u64 %x, 8;")
    # All at once, so that each has its table at another address.
    programs = [Program(ptx, tmp_path) for _ in range(3)]
    for name, number in (("first", 7), ("second", 8)):
        assert [written(program, name) for program in programs] == [number] * 3
    assert translated == ["first", "second"]
    changed = Program(ptx.replace("{7", "{9").replace("8;", "6;"), tmp_path)
    assert written(changed, "second") == 6
    assert len(translated) == 3
    for name, value in ("get_host_cpu_features", FeatureMap()), ("get_host_cpu_name", "generic"):
        monkeypatch.setattr(machine_code.llvm, name, lambda value=value: value)
        assert written(Program(ptx, tmp_path), "first") == 7
    assert len(translated) == 5
    # Of a kernel of numba-cuda-mlir the lines of the source decide which of its reads are volatile.
    for start, n_keys in ("", 1), (ERROR_CODE, 2):
        assert (
            len({machine_code._key("f", f"{start}\n\t.loc\t1 {k} 1\n") for k in (6, 7)}) == n_keys
        )


def test_cached_text_makes_a_damaged_file_anew(tmp_path):
    made = []

    def text(key="key", folder=tmp_path):
        return cache.cached_text(folder, "name", key, lambda: made.append(1) or "some\ncode")

    assert {text(), text()} == {"some\ncode"}
    assert len(made) == 1
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for content in (b"", b"a\nb", whole[:-1], whole.replace(b"some", b"sane"), b"\xff"):
        path.write_bytes(content)
        assert text() == "some\ncode"
        assert path.read_bytes() == whole
    assert len(made) == 6
    for key, folder in (("another", tmp_path), ("key", tmp_path / "gone"), ("key", None)):
        assert text(key, folder) == "some\ncode"
    assert len(made) == 9


@pytest.mark.parametrize("changed", ["numba", "numba-cuda", "source"])
def test_cached_text_depends_on_compilers_and_on_this_package(changed, tmp_path, monkeypatch):
    before = cache._toolchain()
    if changed != "source":
        versions = {changed: "0.1"}
        monkeypatch.setattr(cache, "version", lambda name: versions.get(name) or version(name))
    else:
        (tmp_path / "cache.py").write_text("another source")
        monkeypatch.setattr(cache, "__file__", str(tmp_path / "cache.py"))
    assert cache._toolchain.__wrapped__() != before


@needs_toolkit
def test_ptx_is_kept_for_each_kernel_signature_and_compute_capability(tmp_path, monkeypatch):
    compiled, compile_ptx = [], cuda.compile_ptx

    def count(function, signature, cc, lineinfo):
        compiled.append((function.__name__, str(signature), cc))
        return compile_ptx(function, signature, cc=cc, lineinfo=lineinfo)

    def first(out):
        out[0] = 1

    def second(out):
        out[0] = 2

    monkeypatch.setattr(cuda, "compile_ptx", count)
    for _ in range(2):
        for number, function in enumerate((first, second), 1):
            for cc in ((7, 5), (10, 0)):
                for dtype in (np.float32, np.int64):
                    out = np.zeros(1, dtype)
                    Executor(cc, cache=tmp_path).launch(cuda.jit(function), 1, 1, (out,))
                    assert out[0] == number
    assert len(compiled) == len(set(compiled)) == 8
