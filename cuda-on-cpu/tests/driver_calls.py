"""The driver's functions, called from Python without numba, for tests of the fake driver."""

from typing import Any

from cuda.bindings import driver

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: the stream does not wait for the default stream


class Refused(Exception):
    """A function of the driver returned an error: its name."""


def call(name: str, *arguments: Any) -> Any:
    """What a function of the driver returns beside its status. Raises Refused."""
    status, *found = getattr(driver, name)(*arguments)
    if status:
        raise Refused(status.name)
    return found[0] if len(found) == 1 else tuple(found)


def start() -> None:
    """Use the first GPU."""
    call("cuInit", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", 0))


def new_stream() -> Any:
    return call("cuStreamCreate", NON_BLOCKING)


def copy_in(array: Any, host: Any, stream: Any) -> None:
    call("cuMemcpyHtoDAsync", array, host.ctypes.data, host.nbytes, stream)


def copy_out(host: Any, array: Any, stream: Any) -> None:
    call("cuMemcpyDtoHAsync", host.ctypes.data, array, host.nbytes, stream)


def sync(stream: Any) -> None:
    call("cuStreamSynchronize", stream)
