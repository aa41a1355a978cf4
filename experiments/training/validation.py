"""Validation of JSON in run files, weight files and records, which are untrusted input."""

import json
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from deepbig_runtime.files import Malformed

MANY = 10**9  # more than any count
LONG = 1e7  # seconds of an epoch, 115 days: with a million epochs a duration can still be printed
LARGEST = 1e30  # of other numbers in records

Count = Annotated[int, Meta(ge=0, le=MANY)]
Positive = Annotated[int, Meta(ge=1, le=MANY)]
Rate = Annotated[float, Meta(ge=0, le=1e9)]
Number = Annotated[float, Meta(ge=0, le=LARGEST)]
Seconds = Annotated[float, Meta(ge=0, le=LONG)]
_PRINTABLE = r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]"  # UTF-8 cannot hold halves of surrogate pairs
_LINE = rf"\A{_PRINTABLE}*\Z"
_LINES = r"\A[^\ud800-\udfff]*\Z"
_NAME = rf"\A{_PRINTABLE}*[A-Za-z0-9]{_PRINTABLE}*\Z"
_SHA256 = r"\A[0-9a-f]{64}\Z"
_IN_WORDS = {
    _LINE: "one line of text",
    _LINES: "text",
    _NAME: "a name with letters or digits",
    _SHA256: "64 hexadecimal digits",
}
Text = Annotated[str, Meta(max_length=10_000, pattern=_LINE)]
Filled = Annotated[Text, Meta(min_length=1)]
Lines = Annotated[str, Meta(pattern=_LINES)]
Device = Annotated[str, Meta(max_length=200, pattern=_NAME)]  # a folder is named after it
Sha256 = Annotated[str, Meta(pattern=_SHA256)]

T = TypeVar("T")


def parse_json(where: str, text: str) -> Any:
    """The value of a JSON text. Raises files.Malformed if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{where} is no JSON ({error})") from None


def convert(where: str, value: object, kind: type[T], strict: bool = True) -> T:
    """A value of JSON as an object of a type that msgspec knows, such as a Struct.

    where: the name of the value in messages. strict: False takes numbers written as text, as in
    CSV. Raises files.Malformed, which names the part that does not fit and what was expected.
    """
    try:
        return msgspec.convert(value, kind, strict=strict)
    except (UnicodeError, msgspec.ValidationError) as error:  # Unicode: half of a surrogate pair
        message = str(error)
        for pattern, words in _IN_WORDS.items():
            message = message.replace(f"`str` matching regex {pattern!r}", words)
        raise Malformed(f"{where}: {ascii(message)[1:-1]:.300}") from None


def to_json(record: object) -> bytes:
    """A record, a Struct or values of JSON, as the content of a JSON file."""
    return (json.dumps(msgspec.to_builtins(record), indent=1) + "\n").encode()


def parse_time(text: str) -> datetime:
    """The time in an ISO 8601 text. Raises ValueError for other texts and for other centuries."""
    time = datetime.fromisoformat(text)
    if not 1970 <= time.year < 3000:
        raise ValueError(f"{text!a:.80} is not a time of these centuries")
    return time
