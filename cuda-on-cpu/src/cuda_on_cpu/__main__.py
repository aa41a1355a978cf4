"""Run a Python program on the fake driver: python -m cuda_on_cpu PROGRAM.py [ARGUMENTS]."""

import sys

from cuda_on_cpu.driver import __doc__ as usage
from cuda_on_cpu.driver import build

if not sys.argv[1:] or sys.argv[1] in ("-h", "--help"):
    print(usage)
    sys.exit(0 if sys.argv[1:] else 2)
build.start([*(f"-W{option}" for option in sys.warnoptions), *sys.argv[1:]])
