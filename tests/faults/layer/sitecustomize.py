"""A layer between a command and the system, which fails on demand. Python imports it at its start.

DEEPBIG_FAULT is JSON: `folder`, whose files are concerned; `fault`, what happens; `at`, the number
of the operation on files, from 1, at which it begins; `met`, a file to make then. An operation
opens a file to write, writes, syncs, renames, removes, or makes a folder. Every process of a
command counts for itself.
"""

import builtins
import errno
import io
import json
import os
import resource
import shutil
import sys

_fault = json.loads(os.environ.get("DEEPBIG_FAULT", "null"))
_done = 0
_REMOVING = "os.remove", "os.rmdir"  # a full disk can do these
_EVENTS = "open", "os.rename", "os.mkdir", "os.truncate", *_REMOVING  # of sys.addaudithook
_open, _fsync = builtins.open, os.fsync


def _operation(event, path):
    """Count an operation on a file of the folder, and do what the fault says once it has begun."""
    global _done
    try:
        path = os.path.abspath(os.fsdecode(path))
    except (TypeError, ValueError):
        return
    if not f"{path}{os.sep}".startswith(_fault["folder"] + os.sep):
        return
    _done += 1
    if _done < _fault["at"]:
        return
    os.close(os.open(_fault["met"], os.O_CREAT | os.O_WRONLY))
    kind = _fault["fault"]
    if kind == "full disk" and event not in _REMOVING:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    if _done > _fault["at"]:
        return
    if kind == "folder removed":
        shutil.rmtree(_fault["folder"], ignore_errors=True)
    elif kind == "no handles":
        limit = len(os.listdir("/proc/self/fd")) + _fault["value"]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    elif kind == "no memory":
        with io.open_code("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        limit = pages * resource.getpagesize() + _fault["value"]
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _audit(event, arguments):
    is_read = event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if event in _EVENTS and not is_read:
        _operation(event, arguments[0])


class _File(io.FileIO):
    def write(self, content):
        _operation("write", self.name)
        return super().write(content)


def _open_file(file, mode="r", *arguments, **named):
    if mode == "wb":
        return io.BufferedWriter(_File(file, "w"))
    return _open(file, mode, *arguments, **named)


def _sync(descriptor):
    _operation("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
    _fsync(descriptor)


if _fault:
    sys.dont_write_bytecode = True
    builtins.open = io.open = _open_file
    os.fsync = _sync
    sys.addaudithook(_audit)
