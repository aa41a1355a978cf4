"""Files here are commands, named in the Makefile or the README; folders hold what they share."""

import os
import sys

if sys.argv[:1] == ["-m"]:  # so 'python -m experiments.COMMAND' begins, before it imports the rest
    from deepbig_runtime.errors import check_threads, end_import, signals
    from experiments.training.messages import silence_libraries

    signals.install_exits()
    silence_libraries()
    sys.excepthook = end_import
    check_threads()
    os.environ.pop("MPLBACKEND", None)  # of a notebook's shell, say; no picture of ours needs one
