"""Programs of these sources, each in a process of its own."""

import os
import subprocess
import sys

from waiting import HANG_SECONDS

from experiments.training.provenance import REPOSITORY


def run(*arguments, first=(), **variables):
    """The result of this interpreter with these arguments and environment variables.

    first: a command that starts it.
    """
    return subprocess.run(
        [*first, sys.executable, *map(str, arguments)],
        env=os.environ | variables,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
