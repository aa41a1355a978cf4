"""Time `make test-all` and `make test`, with an empty cache folder and with code compiled.

Writes tests.csv into the folder of this machine below results/.
"""

import os
import subprocess
import sys
import tempfile
import time

from deepbig_runtime import files
from deepbig_runtime.errors import Problem
from experiments.results.rows import StartupRow, rows_text
from experiments.training import cli, provenance


def seconds(command: str, cache: str) -> float:
    """Seconds that the tests take by this command. Raises Problem if they fail."""
    started = time.perf_counter()
    line = [*command.split(), f"PYTHON={sys.executable}", "VENV=", "ARGS="]
    variables = os.environ | {"XDG_CACHE_HOME": cache}
    done = subprocess.run(line, cwd=provenance.REPOSITORY, stdout=sys.stderr, env=variables)
    if done.returncode:
        raise Problem(f"'{command}' failed; see above, mend it, then start again")
    return time.perf_counter() - started


def main() -> None:
    source = provenance.collect("cpu").columns()
    rows = []
    for command in ("make test-all", "make test"):
        with tempfile.TemporaryDirectory() as cache:
            for state in ("nothing compiled", "code compiled before"):
                taken = seconds(command, cache)
                rows.append(
                    StartupRow(
                        source=source,
                        what=f"{command}, {state}",
                        repeats=1,
                        seconds=taken,
                        seconds_p20=taken,
                        seconds_p80=taken,
                    )
                )
    path = provenance.device_folder(provenance.device()) / "tests.csv"
    files.replace(path, rows_text(rows).encode())


if __name__ == "__main__":
    cli.run(main)
