"""What a command says. It never ends a training: what cannot be written is dropped."""

import os
import sys
from typing import Any, TextIO


class _Dropping:
    """A text stream that drops what it cannot write: its reader is gone, or its disk is full."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self.error: Exception | None = None  # the first one

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, or drop it. Returns its length in any case."""
        try:
            self._stream.write(text)
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            self.error = self.error or error
        return len(text)

    def flush(self) -> None:
        """Flush what was written, or drop it."""
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self.error = self.error or error


def drop_unwritable() -> None:
    """Have this process go on when it cannot write to stdout or stderr.

    A stream that was closed before the process began is opened on the null device: else the next
    file that is opened would take its place, and receive what is said.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    for name in "stdout", "stderr":
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115 - as long as we live
        if not isinstance(stream, _Dropping):
            setattr(sys, name, _Dropping(stream))


def output_error() -> Exception | None:
    """Why results could not be printed to stdout, if `drop_unwritable` had to drop some."""
    sys.stdout.flush()
    return getattr(sys.stdout, "error", None)


def tell(sentence: str) -> None:
    """Say something that is not a result: on stderr, at once."""
    print(sentence, file=sys.stderr, flush=True)
