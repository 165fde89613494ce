"""The section `update` of a job file: one schema for each update rule, chosen by `rule`. vcdl.rules.of_job makes the rules."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from vcdl.course import Shape
from vcdl.job import values as kinds
from vcdl.job.section import SECTION_AS_YAML, Section, one_of_sections, plain_or_section, section_or_nothing

_AboveZero = Annotated[float, kinds.above_zero()]
_Alpha = kinds.fraction("var", zero=True, one=False, also="{from: …, to: …}")
_Part = Annotated[float, kinds.fraction(zero=False, one=True)]
_Momentum = Annotated[float, kinds.fraction(zero=True, one=False)]
_Count = Annotated[int, kinds.whole(1)]


class GuardSettings(Section):
    """`guard: {…}`: what an upload must be like, or is made to be like, before the rule gets it."""

    clip: _AboveZero = 1.0
    """Times the usual ‖C − B‖: longer steps are shortened to it."""
    cosine: Annotated[float, kinds.between(-1, 1)] | None = None
    """With the step of held-out data: uploads below it are refused; None: none is."""


_Guard = Annotated[GuardSettings | None, section_or_nothing(GuardSettings), SECTION_AS_YAML]


class AlphaRamp(Section):
    """`alpha: {from: …, to: …}`: every update of the job moves α."""

    from_: Annotated[float, kinds.fraction(zero=True, one=True)] = Field(alias="from")
    to: Annotated[float, kinds.fraction(zero=True, one=True)]
    schedule: Annotated[Shape, kinds.one_of(Shape)] = "linear"


class VcAsgdSettings(Section):
    """`W ← α·W + (1 − α)·C`."""

    rule: Literal["vc_asgd"] = "vc_asgd"
    alpha: Annotated[float | Literal["var"] | AlphaRamp, plain_or_section(_Alpha, AlphaRamp), SECTION_AS_YAML] = "var"
    """Weight of the server's weights; `var` is e/(e+1) in epoch e."""
    guard: _Guard = None


class EasgdSettings(Section):
    """`W ← W + r·(C − W)`."""

    rule: Literal["easgd"] = "easgd"
    moving_rate: _Part = 0.001
    guard: _Guard = None


class ConstantStaleness(Section):
    """`staleness: constant`: has no arguments."""

    name: Literal["constant"] = "constant"


class PolynomialStaleness(Section):
    """`staleness: {name: polynomial, …}`: `s(τ) = (τ + 1)^−exponent`."""

    name: Literal["polynomial"] = "polynomial"
    exponent: _AboveZero = 0.5


class HingeStaleness(Section):
    """`staleness: {name: hinge, …}`: `s(τ) = 1` up to `free`, then `1 / (slope·(τ − free) + 1)`."""

    name: Literal["hinge"] = "hinge"
    slope: _AboveZero = 10.0
    free: Annotated[int, kinds.whole(0)] = 4
    """Versions."""


Staleness = ConstantStaleness | PolynomialStaleness | HingeStaleness
STALENESS: Mapping[str, type[Staleness]] = {
    "constant": ConstantStaleness,
    "polynomial": PolynomialStaleness,
    "hinge": HingeStaleness,
}
_Staleness = Annotated[Staleness, one_of_sections("name", STALENESS), SECTION_AS_YAML]


class FedAsyncSettings(Section):
    """`W ← (1 − a·s(τ))·W + a·s(τ)·C`."""

    rule: Literal["fedasync"] = "fedasync"
    mixing: _Part = 0.6
    staleness: _Staleness = PolynomialStaleness()
    guard: _Guard = None


class DownpourSettings(Section):
    """`W ← W + η·(C − B)`."""

    rule: Literal["downpour"] = "downpour"
    rate: _AboveZero = 0.1
    guard: _Guard = None


class DcAsgdSettings(Section):
    """`W ← W − η·(g + λ·g⊙g⊙(W − B))` with `g = B − C`."""

    rule: Literal["dc_asgd"] = "dc_asgd"
    rate: _AboveZero = 0.1
    compensation: Annotated[float, kinds.at_least(0)] = 2.0
    guard: _Guard = None


class ForecastSettings(Section):
    """Averaging whose clients start from where the weights will be when they come back."""

    rule: Literal["forecast"] = "forecast"
    slope: Annotated[float, kinds.at_least(0)] = 0.15
    """Of the damping by staleness."""
    compensation: Annotated[float, kinds.fraction(zero=True, one=True)] = 0.4
    memory: Annotated[float, kinds.at_least(1)] = 2.0
    """Rounds of updates."""
    horizon: Annotated[float, kinds.at_least(0)] = 1.0
    """Stalenesses."""
    guard: _Guard = None


class FedBuffSettings(Section):
    """After K updates `W ← W + η·Σ s(τ)·(C − B)/K`."""

    rule: Literal["fedbuff"] = "fedbuff"
    rate: _AboveZero = 1.0
    buffer: _Count = 10
    """Updates."""
    staleness: _Staleness = PolynomialStaleness()
    guard: _Guard = None


class OuterNesterovSettings(Section):
    """The same through an outer optimizer with Nesterov momentum."""

    rule: Literal["outer_nesterov"] = "outer_nesterov"
    rate: _AboveZero = 0.7
    momentum: _Momentum = 0.9
    buffer: _Count = 10
    staleness: _Staleness = ConstantStaleness()
    guard: _Guard = None


class DelayedNesterovSettings(Section):
    """Each update moves W, the momentum only every K-th."""

    rule: Literal["delayed_nesterov"] = "delayed_nesterov"
    rate: _AboveZero = 0.7
    momentum: _Momentum = 0.9
    buffer: _Count = 10
    share: Annotated[float, kinds.fraction(zero=True, one=True)] = 0.0
    """Of the momentum, with each update."""
    staleness: _Staleness = ConstantStaleness()
    guard: _Guard = None

    @field_validator("share")
    @classmethod
    def _is_no_more_than_all(cls, share: float, info: ValidationInfo) -> float:
        buffer = info.data.get("buffer", 1)
        if share * buffer > 1:
            raise ValueError(f"expected at most 1 / buffer, {1 / buffer:.4g}, got {share:g}")
        return share


class TrimmedMeanSettings(Section):
    """Of K updates the mean, weight by weight, without the largest and the smallest."""

    rule: Literal["trimmed_mean"] = "trimmed_mean"
    rate: _AboveZero = 1.0
    buffer: _Count = 10
    trim: Annotated[int, kinds.whole(0)] = Field(default=2, validate_default=True)
    """At each end."""
    staleness: _Staleness = ConstantStaleness()
    guard: _Guard = None

    @field_validator("trim")
    @classmethod
    def _leaves_some(cls, trim: int, info: ValidationInfo) -> int:
        buffer = info.data.get("buffer", 2 * trim + 1)
        if 2 * trim >= buffer:
            raise ValueError(f"expected less than half of the buffer of {buffer}, got {trim}")
        return trim


class MedianSettings(Section):
    """Of K updates the median, weight by weight."""

    rule: Literal["median"] = "median"
    rate: _AboveZero = 1.0
    buffer: _Count = 10
    staleness: _Staleness = ConstantStaleness()
    guard: _Guard = None


class CentredClippingSettings(Section):
    """Of K updates what each differs from the K before, shortened."""

    rule: Literal["centred_clipping"] = "centred_clipping"
    rate: _AboveZero = 1.0
    buffer: _Count = 10
    clip: _AboveZero = 1.0
    """Times the usual length."""
    staleness: _Staleness = ConstantStaleness()


UpdateSettings = (
    VcAsgdSettings
    | EasgdSettings
    | FedAsyncSettings
    | DownpourSettings
    | DcAsgdSettings
    | ForecastSettings
    | FedBuffSettings
    | OuterNesterovSettings
    | DelayedNesterovSettings
    | TrimmedMeanSettings
    | MedianSettings
    | CentredClippingSettings
)
RULES: Mapping[str, type[UpdateSettings]] = {
    "vc_asgd": VcAsgdSettings,
    "easgd": EasgdSettings,
    "fedasync": FedAsyncSettings,
    "downpour": DownpourSettings,
    "dc_asgd": DcAsgdSettings,
    "forecast": ForecastSettings,
    "fedbuff": FedBuffSettings,
    "outer_nesterov": OuterNesterovSettings,
    "delayed_nesterov": DelayedNesterovSettings,
    "trimmed_mean": TrimmedMeanSettings,
    "median": MedianSettings,
    "centred_clipping": CentredClippingSettings,
}
UPDATE = one_of_sections("rule", RULES, default="forecast")
