"""Kernels as machine code of this CPU, which is kept for the next process."""

import base64
import json
from dataclasses import asdict
from typing import Any

import llvmlite.binding as llvm

from experiments.ptx import checks
from experiments.ptx.kept import kept_text
from experiments.ptx.parse import Module
from experiments.ptx.translate import Layout, translate


def machine_code(ptx: str, module: Module, name: str) -> tuple[Any, Layout]:
    """LLVM's engine with a kernel's `translate.FUNCTION`, and where things are for that.

    ptx: the text of the module. Raises parse.UnknownPtx for what is not known.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()

    def make() -> str:
        text, layout = translate(module.kernels[name], module)
        code = base64.b64encode(_compiled(text)).decode()
        return json.dumps({"layout": asdict(layout), "code": code})

    processor = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    found = json.loads(kept_text("executed", " ".join((*processor, name, ptx)), make))
    return _loaded(base64.b64decode(found["code"])), Layout(**found["layout"])


def _target_machine() -> llvm.TargetMachine:
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=2,
        codemodel="jitdefault",
    )


def _compiled(text: str) -> bytes:
    """LLVM IR as the object file of machine code, with checks.access inlined where it is called."""
    module = llvm.parse_assembly(text)
    _, access = checks.compiled_access()
    module.link_in(llvm.parse_assembly(access.replace("noinline", "alwaysinline")))
    for function in module.functions:
        if not function.is_declaration and function.name.startswith(("_ZN", "cfunc.")):
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    module.verify()
    machine = _target_machine()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


def _loaded(code: bytes) -> Any:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine
