"""Update rules: how an upload is folded into the shared weights. Pure NumPy, in place, one rule a file."""

from vcdl.rules.base import Rule, Update
from vcdl.rules.dc_asgd import DcAsgd
from vcdl.rules.downpour import Downpour
from vcdl.rules.easgd import Easgd
from vcdl.rules.fedasync import Constant, FedAsync, Hinge, Polynomial
from vcdl.rules.vc_asgd import VcAsgd

__all__ = [
    "Constant",
    "DcAsgd",
    "Downpour",
    "Easgd",
    "FedAsync",
    "Hinge",
    "Polynomial",
    "Rule",
    "Update",
    "VcAsgd",
]
