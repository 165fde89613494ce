"""The update rule of a job, made from the section `update` of its file."""

from typing import assert_never

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
from vcdl.rules.ramp import Ramp
from vcdl.rules.trimmed_mean import TrimmedMean
from vcdl.rules.vc_asgd import VcAsgd


def rule_of(job: Job) -> Rule:
    """The job's update rule, with its guard."""
    update, rule = job.update, _plain_rule_of(job)
    guard = None if isinstance(update, CentredClippingSettings) else update.guard
    return rule if guard is None else Guarded(rule, guard.clip, guard.min_cosine)


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
            return Downpour(update.server_learning_rate)
        case DcAsgdSettings():
            return DcAsgd(update.server_learning_rate, update.compensation)
        case ForecastSettings():
            return Forecast(update.staleness_damping, update.compensation, update.averaging_window, update.horizon)
        case FedBuffSettings():
            return FedBuff(update.server_learning_rate, update.buffer, _damping(update.staleness))
        case OuterNesterovSettings():
            return OuterNesterov(
                update.server_learning_rate, update.momentum, update.buffer, _damping(update.staleness)
            )
        case DelayedNesterovSettings():
            damping = _damping(update.staleness)
            return DelayedNesterov(
                update.server_learning_rate, update.momentum, update.momentum_share, update.buffer, damping
            )
        case TrimmedMeanSettings():
            return TrimmedMean(update.server_learning_rate, update.buffer, update.trim, _damping(update.staleness))
        case MedianSettings():
            return Median(update.server_learning_rate, update.buffer, _damping(update.staleness))
        case CentredClippingSettings():
            return CentredClipping(update.server_learning_rate, update.buffer, update.clip, _damping(update.staleness))
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
            return Hinge(settings.slope, settings.threshold)
        case _:
            assert_never(settings)
