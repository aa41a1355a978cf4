"""Deep, big, simple nets from Python: estimators on arrays, deformation, trained nets."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepbig.estimators import OnlineCNNClassifier, OnlineMLPClassifier
    from deepbig.pretrained import load_net
    from deform_gpu import deform

__version__ = "0.1.0"
__all__ = ["OnlineCNNClassifier", "OnlineMLPClassifier", "deform", "load_net"]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> object:
    """A name of `__all__`, imported when it is first used: numba takes half a second to import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "deform":
        from deform_gpu import deform

        return deform
    if name == "load_net":
        from deepbig.pretrained import load_net

        return load_net
    from deepbig import estimators

    return getattr(estimators, name)
