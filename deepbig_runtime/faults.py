"""The base of all exceptions that a user can do something about."""


class Fault(Exception):
    """One sentence for the user: what is wrong, where, what was expected, what to do."""


class GpuFault(Fault):
    """The GPU cannot be used: one sentence that says what is missing and what to do."""
