"""Images in, deformed images out (Cireşan et al. 2010 and 2012, section 4)."""

from deform_gpu.images import deform
from deform_gpu.parameters import COMMITTEE, TABLE1, Deformation
from deform_gpu.width import is_narrow, normalize_width

__all__ = ["COMMITTEE", "TABLE1", "Deformation", "deform", "is_narrow", "normalize_width"]
