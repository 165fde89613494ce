"""From the section `update` of a job file to the rule that it names."""

from typing import assert_never

from vcdl.course import Ramp
from vcdl.job import Job
from vcdl.job_update import (
    AlphaRamp,
    ConstantStaleness,
    DcAsgdSettings,
    DownpourSettings,
    EasgdSettings,
    FedAsyncSettings,
    HingeStaleness,
    PolynomialStaleness,
    Staleness,
    VcAsgdSettings,
)
from vcdl.rules.base import Rule
from vcdl.rules.dc_asgd import DcAsgd
from vcdl.rules.downpour import Downpour
from vcdl.rules.easgd import Easgd
from vcdl.rules.fedasync import Constant, Damping, FedAsync, Hinge, Polynomial
from vcdl.rules.vc_asgd import VcAsgd


def rule_of(job: Job) -> Rule:
    """The rule of a job."""
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
