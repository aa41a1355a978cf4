"""Execute the notebooks and write each as a page, NAME.html, that a browser opens without network.

They read the runs below $RUNS_DIR, or else runs/. If there is none, they show the nets that come
along, and records. A notebook that fails is named with its cell and the reason. The others go on,
and the exit status is 1.
"""

import base64
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from deepbig_runtime import files
from deepbig_runtime.errors import Interrupted, Problem, tell
from experiments.drawing import figures
from experiments.training import cli
from experiments.training.formatting import duration
from experiments.training.provenance import REPOSITORY

FOLDER = REPOSITORY / "notebooks"
CELL_TIMEOUT = 600  # seconds
STYLE = Path(__file__).parent / "drawing" / "notebooks.css"


def names() -> list[str]:
    """The names of all notebooks."""
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def execute(name: str, variables: Mapping[str, str]) -> Any:
    """A notebook, a nbformat.NotebookNode, executed in its own folder.

    It holds nothing that differs between executions of the same code: no times, no version of
    Python. Its pictures have few colours. variables: environment variables to add. Raises Problem
    if a cell fails, or if a package that executes notebooks is missing.
    """
    try:
        import ipykernel  # noqa: F401, it runs the cells
        import nbclient
        import nbconvert  # noqa: F401, it makes the page
        import nbformat
        from jupyter_client import AsyncKernelManager, kernelspec
    except ImportError as error:
        raise Problem(
            f"notebooks are executed by {error.name}, which is not installed: "
            "pip install -e '.[notebooks]'"
        ) from None
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    metadata = deepcopy(notebook.metadata)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)

    class ThisPython(kernelspec.KernelSpecManager):
        """Knows one kernel, of this interpreter, and none on JUPYTER_PATH."""

        def get_kernel_spec(self, name: str) -> kernelspec.KernelSpec:
            argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
            return kernelspec.KernelSpec(argv=argv, language="python")

    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        km=AsyncKernelManager(kernel_spec_manager=ThisPython()),
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],  # else each kernel warns that it listens on TCP
        resources={"metadata": {"path": str(FOLDER)}},
    )
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    try:
        # In the main thread nbclient would handle Ctrl-C itself, and fail.
        with ThreadPoolExecutor(1) as pool:
            variables = {**os.environ, **variables, "PYTHONPATH": path}
            running = pool.submit(client.execute, env=variables, cleanup_kc=True)
            try:
                running.result()
            except Interrupted:
                while not running.done():  # nbclient ends once its kernel is dead
                    if client.km is not None and client.km.has_kernel:
                        with suppress(ProcessLookupError):  # the kernel has just ended
                            # Its group, with the programs that cells have started. The provisioner
                            # of a local kernel knows it.
                            pgid = client.km.provisioner.pgid  # type: ignore[union-attr]
                            os.killpg(pgid, signal.SIGKILL)
                    time.sleep(0.1)
                raise
    except nbclient.exceptions.CellExecutionError as error:
        cell = len([c for c in notebook.cells if c.get("execution_count")])
        raise Problem(f"{name}: code cell {cell}: {error.ename}: {error.evalue}") from None
    except (RuntimeError, TimeoutError) as error:  # the kernel died, or does not answer
        raise Problem(f"{name}: {str(error).splitlines()[0]}") from None
    notebook.metadata = metadata
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        if picture := output.get("data", {}).get("image/png"):
            small = figures.few_colours(Image.open(BytesIO(base64.b64decode(picture))))
            output.data["image/png"] = base64.b64encode(small).decode()
    return notebook


def to_page(name: str, notebook: Any) -> str:
    """An executed notebook as HTML."""
    import nbconvert

    # No scripts from elsewhere: the page opens without a network.
    exporter = nbconvert.HTMLExporter(embed_images=True, mathjax_url="", require_js_url="")
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": name}})
    style = files.read_bytes(STYLE).decode()
    return page.replace("</head>", f"<style>\n{style}</style></head>", 1)


def save(name: str, notebook: Any) -> None:
    """Replace the file of a notebook."""
    import nbformat

    text = nbformat.writes(notebook, version=4) + "\n"
    files.replace(FOLDER / f"{name}.ipynb", text.encode())


def main(argv: list[str] | None = None) -> int:
    parser = cli.Parser("notebooks", __doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which ones: {', '.join(names())} (default: all)",
    )
    cli.add_out_argument(parser, "folder for the pages", "runs/notebooks")
    parser.add_argument(
        "--save",
        action="store_true",
        help="also write the outputs into notebooks/NAME.ipynb, to be committed: no runs are read, "
        "so the outputs are those of a fresh clone",
    )
    arguments = parser.parse_args(argv)
    unknown = set(arguments.names) - set(names())
    if unknown:
        parser.error(f"no notebook {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    chosen = arguments.names or names()
    files.make_folder(arguments.out)
    failed = 0
    with tempfile.TemporaryDirectory() as no_runs:
        variables = {"RUNS_DIR": no_runs} if arguments.save else {}
        for number, name in enumerate(chosen, 1):
            tell(f"{number} of {len(chosen)}: {name} ...")
            started = time.perf_counter()
            path = arguments.out / f"{name}.html"
            try:
                notebook = execute(name, variables)
                files.replace(path, to_page(name, notebook).encode())
                if arguments.save:
                    save(name, notebook)
            except Problem as problem:
                failed += 1
                tell(f"error: {problem}")
            else:
                print(f"written to {path} after {duration(time.perf_counter() - started)}")
    return 1 if failed else 0


if __name__ == "__main__":
    cli.run(main)
