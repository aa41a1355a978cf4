"""What one check of the GPU comes to."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class CheckResult:
    """text: a few words for people. details: for the record, only what JSON can hold."""

    passed: bool
    text: str
    details: dict = field(default_factory=dict)
