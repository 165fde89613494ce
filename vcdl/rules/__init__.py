"""Update rules: how an upload is folded into the shared weights. Pure NumPy, in place, one rule a file."""

from vcdl.rules.base import Rule, Update
from vcdl.rules.vc_asgd import VcAsgd

__all__ = ["Rule", "Update", "VcAsgd"]
