"""Run a module on the stand-in: python -m standin MODULE [ARGUMENTS]."""

import os
import sys

from standin import build

if reason := build.missing():
    sys.exit(f"error: the stand-in for the driver cannot be made: {reason}")
os.execve(sys.executable, [sys.executable, "-m", *sys.argv[1:]], build.environment())
