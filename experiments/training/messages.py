"""Messages of a command. They never end a training: what cannot be written is dropped."""

import io
import logging
import os
import sys
import warnings
from typing import Any, TextIO


class _Dropping:
    """A text stream that drops what it cannot write: its reader has left, or its disk is full.

    error: the first exception that the stream raised.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text or drop it. Returns its length in either case."""
        try:
            self._stream.write(text)
        except (OSError, ValueError) as error:  # ValueError: closed, or letters it cannot encode
            self.error = self.error or error
        return len(text)

    def flush(self) -> None:
        """Write what is buffered or drop it."""
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self.error = self.error or error


def drop_unwritable() -> None:
    """From now on this process drops what it cannot write to stdout or stderr.

    Where file descriptors 0 to 2 are closed, the null device is opened. Otherwise the next file
    that is opened would get one of these numbers, and libraries would write their messages into it.
    Child processes inherit these descriptors, but not the objects sys.stdout and sys.stderr: each
    worker process calls this function too.

    Letters that a stream cannot encode, such as those of a file name that is no UTF-8, are escaped.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
            os.set_inheritable(opened, True)
    for name in "stdout", "stderr":
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115 - never closed
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        if not isinstance(stream, _Dropping):
            setattr(sys, name, _Dropping(stream))


def silence_libraries() -> None:
    """Show no warnings of libraries, which are for programmers, unless Python is asked for them."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())  # else warnings logged go to stderr


def output_error() -> Exception | None:
    """Why something printed to stdout had to be dropped; None if nothing had to be."""
    sys.stdout.flush()
    return getattr(sys.stdout, "error", None)


def tell(sentence: str) -> None:
    """Print a sentence that is not a result, on stderr and at once."""
    print(sentence, file=sys.stderr, flush=True)
