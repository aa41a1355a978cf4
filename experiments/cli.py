"""What every script does the same way: clear errors, exit statuses, signals, shared options."""

import argparse
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path


class Problem(Exception):
    """One sentence for the user: what is wrong, where, what was expected, what to do."""


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived. Not an Exception, so that nothing swallows it on the way out."""

    def __init__(self, signum: int):
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class Signals:
    """SIGINT and SIGTERM as `Interrupted`, held back while files are written."""

    def __init__(self):
        self._held = False
        self._pending = 0

    def install(self) -> None:
        """Take over both signals. Call from the main thread."""
        signal.signal(signal.SIGINT, self._handle)
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, signum, _frame):
        if self._held:
            self._pending = signum
        else:
            raise Interrupted(signum)

    @contextmanager
    def held(self):
        """Inside, a signal waits; it is raised at the end of the block."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._pending:
            signum, self._pending = self._pending, 0
            raise Interrupted(signum)


signals = Signals()


def run(main: Callable[[], None]) -> None:
    """Run a script's `main` and leave the process with its exit status.

    0: done. 2: bad input or a failed write, told in one sentence. 130 and 143: SIGINT and SIGTERM.
    """
    signals.install()
    try:
        main()
        sys.stdout.flush()
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
    except Interrupted as interrupted:
        print(f"stopped by {interrupted}", file=sys.stderr)
        sys.exit(128 + interrupted.signum)


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say which images to use, the same in every script."""
    parser.add_argument(
        "--data",
        choices=("auto", "mnist", "digits"),
        default="auto",
        help="images: MNIST; scikit-learn's 1,797 load_digits, which need no network; or auto: "
        "MNIST where it is or can be had, else load_digits (default: %(default)s)",
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="folder with the four MNIST files, plain or gzip-ed IDX (default: $MNIST_DIR, "
        "./data/mnist, the cache folder; else a download)",
    )
