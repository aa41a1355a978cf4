"""The standard streams of a command."""

import io
import logging
import os
import sys
import warnings


def open_streams() -> None:
    """Open the null device in the place of a standard stream that is closed.

    Otherwise the next file that is opened would get its number, and libraries would write their
    messages into that file. From now on letters that a stream cannot encode, such as those of a
    file name that is no UTF-8, are escaped.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
    for name in "stdout", "stderr":
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - never closed
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def silence_libraries() -> None:
    """Show no warnings of libraries, which are for programmers, unless Python is asked for them."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())  # else warnings logged go to stderr
