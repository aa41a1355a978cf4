"""The base of all exceptions that a user can do something about."""


class Fault(Exception):
    """One sentence for the user: the fault, its place, the expectation, the remedy."""


class GpuFault(Fault, RuntimeError):
    """The GPU cannot be used: one sentence with the reason and the remedy."""
