"""Messages, and errors that end a command: user errors, in one sentence, and signals."""

import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from deepbig_runtime.faults import Fault

LLVM = os.path.join("llvmlite", "binding", "")  # modules that call LLVM, or are called by it
IMPORTS = "<frozen importlib"  # what runs a module's code for the first time
RETRY_SECONDS = 0.05  # delay before re-sending a signal that arrived where exceptions are swallowed
LACKS = {
    errno.ENOMEM: "memory; end other programs, or take fewer --workers",
    errno.EMFILE: "file handles for a process; raise the limit with ulimit -n",
    errno.ENFILE: "file handles; end other programs",
    errno.EAGAIN: "processes or threads; end other programs, or take fewer --workers",
}


# A closed terminal sends SIGHUP to all of its processes, and Ctrl-C SIGINT. Windows has no SIGHUP.
OF_TERMINALS = {signal.SIGINT} | ({signal.SIGHUP} if hasattr(signal, "SIGHUP") else set())
SIGNALS = OF_TERMINALS | {signal.SIGTERM}  # that end a command


def tell(sentence: str) -> None:
    """Print a sentence that is not a result, on stderr and at once, if anybody can read it."""
    with suppress(OSError):
        # The newline in the same write: a signal that came between would end with half a line.
        print(f"{sentence}\n", end="", file=sys.stderr, flush=True)


class Problem(Fault):
    """One sentence for the user: what is wrong with the input of a command or with its machine."""


def explained(error: Exception) -> str | None:
    """A sentence for an error of the input or of the machine; None for an error of our code.

    The error's causes are examined too: a lack of memory is often followed by another error.
    """
    if isinstance(error, Fault):
        return str(error)
    if sentence := _lack(error):
        return sentence
    if isinstance(error, OSError):  # a folder was closed, or vanished
        where = "" if error.filename is None else f"{error.filename}: "
        return f"{where}{error.strerror or error}; what was saved before is whole"
    return None


def check_threads() -> None:
    """Raise Problem if NUMBA_NUM_THREADS is no thread count; call it before numba is imported."""
    text = os.environ.get("NUMBA_NUM_THREADS") or "1"
    if not re.fullmatch("0*[1-9][0-9]{0,3}", text):
        raise Problem(
            f"NUMBA_NUM_THREADS is {text!r}, expected a number of threads from 1 to 9999; unset it "
            "to have one for each core"
        )


def end_import(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """The hook for exceptions of a command that is still being imported: as cli.run treats them."""
    if not (isinstance(error, Exception) and (sentence := explained(error))):
        sys.__excepthook__(kind, error, trace)
        return
    with suppress(OSError):  # stderr may be closed
        os.write(2, f"error: {sentence}\n".encode(errors="backslashreplace"))
    os._exit(2)


def _lack(error: BaseException | None) -> str | None:
    """A sentence for a lack of memory, processes or files anywhere, also in imports; else None."""
    while error is not None:
        if isinstance(error, MemoryError):
            return "there is not enough memory; end other programs, or take fewer --workers"
        if isinstance(error, OSError) and error.errno in LACKS:
            return f"this machine has no more {LACKS[error.errno]}: {error.strerror}"
        if isinstance(error, RuntimeError) and str(error) == "can't start new thread":  # Python's
            return f"this machine starts no more {LACKS[errno.EAGAIN]}"
        error = error.__cause__ or error.__context__
    return None


class Interrupted(BaseException):
    """One of SIGNALS arrived. Not an Exception, so that no handler of exceptions catches it.

    consequence: what the signal means for what the command was doing.
    """

    def __init__(self, signum: int, consequence: str = ""):
        self.signum = signum
        self.name = signal.Signals(signum).name
        self.consequence = consequence
        super().__init__(f"stopped by {self.name}" + (consequence and f": {consequence}"))


class Signals:
    """SIGNALS as `Interrupted`, held back inside `held`."""

    def __init__(self) -> None:
        self._held = False
        self._pending = 0
        self._earlier_hook: Callable | None = None

    def install_exits(self) -> None:
        """Until `install` is called, all signals end the process, with one line on stderr.

        That is for a command that still imports and has nothing to lose.
        """
        _handle_by(_exit)
        _set_mask("SIG_UNBLOCK", OF_TERMINALS)  # see `blocked`

    def install(self) -> None:
        """Take over all signals. Call from the main thread."""
        _handle_by(self._handle)
        if self._earlier_hook is None:
            self._earlier_hook, sys.unraisablehook = sys.unraisablehook, self._not_raised

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._held:
            self._pending = signum
        elif _would_be_lost(frame):
            self._postpone(signum)
        else:
            self._pending = 0
            raise Interrupted(signum)

    def _not_raised(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Postpone a signal that arrived in a destructor, where Python drops exceptions."""
        if isinstance(unraisable.exc_value, Interrupted):
            self._postpone(unraisable.exc_value.signum)
        elif self._earlier_hook:
            self._earlier_hook(unraisable)

    def _postpone(self, signum: int) -> None:
        """Raise a signal at the end of the next `held`, or send it again after RETRY_SECONDS.

        Not only the latter: workers that the signal has also reached look like a fault meanwhile.
        """
        self._pending = signum
        threading.Timer(RETRY_SECONDS, self._send_again).start()

    def _send_again(self) -> None:
        if self._pending:
            os.kill(os.getpid(), self._pending)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, a signal waits; it is raised at the end of the outermost such block.

        In other threads than the main one, which alone handles signals, it does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before
        if self._pending and not before:
            signum, self._pending = self._pending, 0
            raise Interrupted(signum)

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Inside, processes are started in which OF_TERMINALS wait until they handle them.

        Ctrl-C reaches all processes of a terminal, also one whose Python is still starting, which
        would end with a traceback.
        """
        mask = _set_mask("SIG_BLOCK", OF_TERMINALS)
        try:
            yield
        finally:
            _set_mask("SIG_SETMASK", mask)


def _set_mask(how: str, signals: set) -> set:
    """Change which signals are blocked; returns those that were before. Not on Windows."""
    if not hasattr(signal, "pthread_sigmask"):
        return set()
    return signal.pthread_sigmask(getattr(signal, how), signals)


def _handle_by(handler: Callable[[int, FrameType | None], None]) -> None:
    """Have a function handle SIGNALS, but not SIGHUP if it is ignored, as under `nohup`."""
    for signum in SIGNALS:
        ignored = signum.name == "SIGHUP" and signal.getsignal(signum) == signal.SIG_IGN
        signal.signal(signum, signal.SIG_IGN if ignored else handler)


def _would_be_lost(frame: FrameType | None) -> bool:
    """Whether the code that was interrupted works with LLVM, or imports a module.

    LLVM drops exceptions. And an object of LLVM whose owner was about to change would be freed
    twice, which crashes. Modules in C may raise an ImportError instead, as if something were not
    installed, and a module that was half imported is missing later.
    """
    while frame:
        if LLVM in (name := frame.f_code.co_filename) or name.startswith(IMPORTS):
            return True
        frame = frame.f_back
    return False


def _exit(signum: int, _frame: FrameType | None) -> None:
    with suppress(OSError):  # stderr may be closed
        os.write(2, f"{Interrupted(signum)}\n".encode())
    os._exit(128 + signum)


signals = Signals()
