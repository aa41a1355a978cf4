"""Kernels as machine code of this CPU."""

import base64
import ctypes
import functools
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba

from cuda_on_cpu import async_copies, interleaving, memory_checks
from cuda_on_cpu.cache import cached_text
from cuda_on_cpu.parse import ERROR_CODE, Module
from cuda_on_cpu.translate import ACCESS, FINISH_COPIES, FUNCTION, START_COPY, Layout, translate

RUN_BLOCKS = "run_blocks"
INLINED = "_ZN", "cfunc.", ACCESS, START_COPY, FINISH_COPIES
PLACES = re.compile(r"^\s*\.(?:file|loc)\s.*$", re.MULTILINE)  # lines of sources
# Numba's number of a function that the process compiles, in the function's name.
FUNCTION_NUMBER = re.compile(r"B\d+v\d+(?=[BE])")
RUNNER = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)


def machine_code(
    ptx: str, module: Module, name: str, cache: Path | None
) -> tuple[Callable, Any, Layout]:
    """A kernel as `interleaving.run_blocks`, the LLVM engine that owns its code, and its layout.

    ptx: the text of the module. cache: see `cached_text`. Raises parse.UnknownPtx.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()

    def make() -> str:
        text, layout = translate(module.kernels[name], module)
        code = base64.b64encode(_compiled(text, cache)).decode()
        return json.dumps({"layout": asdict(layout), "code": code})

    found = json.loads(cached_text(cache, "executed", _key(name, ptx), make))
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(base64.b64decode(found["code"])))
    engine.finalize_object()
    return RUNNER(engine.get_function_address(RUN_BLOCKS)), engine, Layout(**found["layout"])


def _key(name: str, ptx: str) -> str:
    """All that a kernel's machine code depends on, without Numba's numbers of functions.

    Lines of the source count for numba-cuda-mlir alone: `parse` adapts its kernels line by line.
    """
    numbers: dict[str, str] = {}
    text = " ".join((*_processor(), name, ptx if ERROR_CODE in ptx else PLACES.sub("", ptx)))
    return FUNCTION_NUMBER.sub(lambda m: numbers.setdefault(m[0], f"v{len(numbers)}"), text)


def _processor() -> tuple[str, str]:
    """The name and the features of this CPU, as LLVM has them."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _target_machine() -> llvm.TargetMachine:
    """Code is optimised as LLVM IR alone: where registers go took most of the time to compile."""
    cpu, features = _processor()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=0, codemodel="jitdefault"
    )


def _compiled(text: str, cache: Path | None) -> bytes:
    """LLVM IR of a kernel, linked with the functions of `_helpers`, as an object file."""
    module = llvm.parse_assembly(text)
    for helper in _helpers(cache):
        module.link_in(llvm.parse_assembly(helper))
    for function in module.functions:
        if not function.is_declaration and function.name.startswith(INLINED):
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    module.verify()
    machine = _target_machine()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


@functools.cache
def _helpers(cache: Path | None) -> list[str]:
    """LLVM IR of what kernels call, and of RUN_BLOCKS. Numba takes seconds to compile them."""

    def make() -> str:
        llvm.add_symbol(FUNCTION, 1)  # for Numba, which loads run_blocks and never runs it
        return json.dumps(
            [
                _llvm_of(memory_checks.access, memory_checks.SIGNATURE, ACCESS),
                _llvm_of(async_copies.start_copy, async_copies.START_SIGNATURE, START_COPY),
                _llvm_of(async_copies.finish_copies, async_copies.FINISH_SIGNATURE, FINISH_COPIES),
                _llvm_of(interleaving.run_blocks, interleaving.SIGNATURE, RUN_BLOCKS),
            ]
        )

    return json.loads(cached_text(cache, "helpers", llvm.get_process_triple(), make))


def _llvm_of(function: Callable, signature: Any, name: str) -> str:
    """LLVM IR of a function that others may inline, under a name of ours."""
    compiled = numba.cfunc(signature, error_model="numpy")(function)
    text = compiled.inspect_llvm().replace(compiled.native_name, name)
    return text.replace("noinline", "alwaysinline")
