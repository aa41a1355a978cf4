"""A layer between a command and the system, which fails on demand. Python imports it at its start.

DEEPBIG_FAULT is JSON: `folder`, whose files are concerned; `fault`, what happens; `at`, the number
of the operation on files, from 1, at which it begins; `met`, a file to make then. An operation
opens a file to write, writes, syncs, renames, removes, or makes a folder. Every process of a
command counts for itself.
"""

import builtins
import datetime
import errno
import io
import json
import os
import resource
import shutil
import sys
import time

_fault = json.loads(os.environ.get("DEEPBIG_FAULT", "null"))
_done = 0
_CODES = {"full disk": errno.ENOSPC, "quota": errno.EDQUOT, "read-only": errno.EROFS}
_CODES |= {"broken disk": errno.EIO, "no permission": errno.EACCES}
_REMOVING = "unlink", "rmdir", "remove"  # a full disk can do these
_originals = {name: getattr(os, name) for name in ("rename", "chmod", "mkdir", "open", "write")}


def _concerned(path):
    try:
        text = os.path.abspath(os.fsdecode(path))
    except (TypeError, ValueError):
        return False
    return text.startswith(_fault["folder"] + os.sep) or text == _fault["folder"]


def _operation(path, name):
    """Count an operation, and do what the fault says once it has begun."""
    global _done
    _done += 1
    if _done < _fault["at"]:
        return
    os.close(_originals["open"](_fault["met"], os.O_CREAT | os.O_WRONLY))
    kind = _fault["fault"]
    if kind in _CODES and not (name in _REMOVING and kind in ("full disk", "quota")):
        raise OSError(_CODES[kind], os.strerror(_CODES[kind]), os.fsdecode(path))
    if kind == "slow disk":
        time.sleep(_fault["value"])
    if _done > _fault["at"]:
        return
    if kind == "folder removed":
        shutil.rmtree(_fault["folder"], ignore_errors=True)
    elif kind == "folder renamed":
        _originals["rename"](_fault["folder"], _fault["folder"] + "-away")
    elif kind == "no handles":
        used = len(os.listdir("/proc/self/fd"))
        limit = used + _fault["value"]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    elif kind == "no memory":
        with io.open_code("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        limit = pages * resource.getpagesize() + _fault["value"]
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


class _File(io.FileIO):
    """A file that is open for writing."""

    def __init__(self, path, mode, closefd=True, opener=None):
        _operation(path, "open")
        super().__init__(path, mode, closefd, opener)

    def write(self, content):
        _operation(self.name, "write")
        return super().write(content)


def _open(
    file,
    mode="r",
    buffering=-1,
    encoding=None,
    errors=None,
    newline=None,
    closefd=True,
    opener=None,
):
    if isinstance(file, int) or not set(mode) & set("wax+") or not _concerned(file):
        return _builtin_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw = _File(file, mode.replace("b", "").replace("t", ""), closefd, opener)
    buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
    return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)


def _wrap(name):
    original = getattr(os, name)

    def wrapped(path, *arguments, **named):
        target = os.readlink(f"/proc/self/fd/{path}") if name == "fsync" else path
        if _concerned(target):
            _operation(target, name)
        return original(path, *arguments, **named)

    setattr(os, name, wrapped)


def _open_descriptor(path, flags, *arguments, **named):
    if flags & os.O_CREAT and _concerned(path):
        _operation(path, "open")
    return _originals["open"](path, flags, *arguments, **named)


def _install_clock():
    """Each look at the time of day is hours or days off, to and fro."""
    steps = (0, 86400 * 400, -86400 * 400, 3600, -3600, 30)
    looks = 0

    def off():
        nonlocal looks
        looks += 1
        return steps[looks // max(_fault["at"], 1) % len(steps)]

    original, original_ns = time.time, time.time_ns
    time.time = lambda: original() + off()
    time.time_ns = lambda: original_ns() + 10**9 * off()

    class Jumping(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + datetime.timedelta(seconds=off())

    datetime.datetime = Jumping


def _install_no_semaphores():
    import _multiprocessing

    class SemLock:
        SEM_VALUE_MAX = 2**31 - 1

        def __init__(self, *arguments, **named):
            code = _fault["value"]
            raise OSError(code, os.strerror(code))

    _multiprocessing.SemLock = SemLock


if _fault and _fault["fault"] == "clock":
    _install_clock()
elif _fault and _fault["fault"] == "no semaphores":
    _install_no_semaphores()
elif _fault:
    _builtin_open = builtins.open
    builtins.open = io.open = _open
    os.open = _open_descriptor
    for _name in ("fsync", "replace", "rename", "mkdir", *_REMOVING, "truncate"):
        _wrap(_name)
    sys.dont_write_bytecode = True
