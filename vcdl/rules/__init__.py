"""Update rules: how an upload is folded into the shared weights. Pure NumPy, in place, one rule a file."""

from vcdl.rules.base import Measured, Rule, Update
from vcdl.rules.centred_clipping import CentredClipping
from vcdl.rules.dc_asgd import DcAsgd
from vcdl.rules.delayed_nesterov import DelayedNesterov
from vcdl.rules.downpour import Downpour
from vcdl.rules.easgd import Easgd
from vcdl.rules.fedasync import Constant, FedAsync, Hinge, Polynomial
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.forecast import Forecast
from vcdl.rules.guarded import Guarded
from vcdl.rules.measuring import MeasuringRule
from vcdl.rules.median import Median
from vcdl.rules.outer_nesterov import OuterNesterov
from vcdl.rules.statistics import StatisticsMean, on_statistics
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.rules.vc_asgd import VcAsgd

__all__ = [
    "CentredClipping",
    "Constant",
    "DcAsgd",
    "DelayedNesterov",
    "Downpour",
    "Easgd",
    "FedAsync",
    "FedBuff",
    "Forecast",
    "Guarded",
    "Hinge",
    "Measured",
    "MeasuringRule",
    "Median",
    "OuterNesterov",
    "Polynomial",
    "Rule",
    "StatisticsMean",
    "TrimmedMean",
    "Update",
    "VcAsgd",
    "on_statistics",
]
