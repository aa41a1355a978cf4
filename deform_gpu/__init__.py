"""Images in, deformed images out (Cireşan et al. 2010 and 2012, section 4)."""

from typing import TYPE_CHECKING

from deform_gpu.parameters import COMMITTEE, TABLE1, TRANSLATION, Deformation

if TYPE_CHECKING:
    from deform_gpu.images import deform
    from deform_gpu.width import is_narrow, normalize_width

__all__ = [
    "COMMITTEE",
    "TABLE1",
    "TRANSLATION",
    "Deformation",
    "deform",
    "is_narrow",
    "normalize_width",
]


def __getattr__(name: str) -> object:
    """A function, imported when it is first asked for: numba takes half a second to import."""
    if name == "deform":
        from deform_gpu.images import deform

        return deform
    if name in ("is_narrow", "normalize_width"):
        from deform_gpu import width

        return getattr(width, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
