"""From the section `update` of a job file to the rule that it names."""

from typing import assert_never

from vcdl.course import Ramp
from vcdl.job import Job
from vcdl.job.update import (
    AlphaRamp,
    CentredClippingSettings,
    ConstantStaleness,
    DcAsgdSettings,
    DelayedNesterovSettings,
    DownpourSettings,
    EasgdSettings,
    FedAsyncSettings,
    FedBuffSettings,
    ForecastSettings,
    HingeStaleness,
    MedianSettings,
    OuterNesterovSettings,
    PolynomialStaleness,
    Staleness,
    TrimmedMeanSettings,
    VcAsgdSettings,
)
from vcdl.rules.base import Rule
from vcdl.rules.centred_clipping import CentredClipping
from vcdl.rules.dc_asgd import DcAsgd
from vcdl.rules.delayed_nesterov import DelayedNesterov
from vcdl.rules.downpour import Downpour
from vcdl.rules.easgd import Easgd
from vcdl.rules.fedasync import Constant, Damping, FedAsync, Hinge, Polynomial
from vcdl.rules.fedbuff import FedBuff
from vcdl.rules.forecast import Forecast
from vcdl.rules.guarded import Guarded
from vcdl.rules.median import Median
from vcdl.rules.outer_nesterov import OuterNesterov
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.rules.vc_asgd import VcAsgd


def rule_of(job: Job) -> Rule:
    """The rule of a job, with its guard."""
    update, rule = job.update, _plain_rule_of(job)
    guard = None if isinstance(update, CentredClippingSettings) else update.guard
    return rule if guard is None else Guarded(rule, guard.clip, guard.cosine)


def _plain_rule_of(job: Job) -> Rule:
    update = job.update
    match update:
        case VcAsgdSettings():
            return VcAsgd(_alpha(update, job.subtasks))
        case EasgdSettings():
            return Easgd(update.moving_rate)
        case FedAsyncSettings():
            return FedAsync(update.mixing, _damping(update.staleness))
        case DownpourSettings():
            return Downpour(update.rate)
        case DcAsgdSettings():
            return DcAsgd(update.rate, update.compensation)
        case ForecastSettings():
            return Forecast(update.slope, update.compensation, update.memory, update.horizon)
        case FedBuffSettings():
            return FedBuff(update.rate, update.buffer, _damping(update.staleness))
        case OuterNesterovSettings():
            return OuterNesterov(update.rate, update.momentum, update.buffer, _damping(update.staleness))
        case DelayedNesterovSettings():
            damping = _damping(update.staleness)
            return DelayedNesterov(update.rate, update.momentum, update.share, update.buffer, damping)
        case TrimmedMeanSettings():
            return TrimmedMean(update.rate, update.buffer, update.trim, _damping(update.staleness))
        case MedianSettings():
            return Median(update.rate, update.buffer, _damping(update.staleness))
        case CentredClippingSettings():
            return CentredClipping(update.rate, update.buffer, update.clip, _damping(update.staleness))
        case _:
            assert_never(update)


def _alpha(settings: VcAsgdSettings, updates: int) -> float | Ramp | None:
    match settings.alpha:
        case AlphaRamp() as ramp:
            return Ramp(ramp.from_, ramp.to, ramp.schedule, updates)
        case "var":
            return None
        case number:
            return number


def _damping(settings: Staleness) -> Damping:
    match settings:
        case ConstantStaleness():
            return Constant()
        case PolynomialStaleness():
            return Polynomial(settings.exponent)
        case HingeStaleness():
            return Hinge(settings.slope, settings.free)
        case _:
            assert_never(settings)
