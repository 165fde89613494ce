"""The section `update` of a job file: one schema for each update rule. vcdl.job.rule makes the rules from it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from vcdl.rules.ramp import Shape
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.section import SECTION_AS_YAML, Section, one_of_sections, plain_or_section, section_or_nothing

_AboveZero = Annotated[float, kinds.above_zero()]
_Alpha = kinds.fraction("var", zero=True, one=False, also="{from: …, to: …}")
_Part = Annotated[float, kinds.fraction(zero=False, one=True)]
_Momentum = Annotated[float, kinds.fraction(zero=True, one=False)]
_Count = Annotated[int, kinds.whole(1)]
_RATE = MappingProxyType({"rate": "server_learning_rate"})


class GuardSettings(Section):
    """`guard: {…}`: an upload is clipped, and possibly refused, before the rule gets it."""

    former_keys = MappingProxyType({"cosine": "min_cosine"})

    clip: _AboveZero = 1.0
    """The longest step, as a multiple of the usual ‖C − B‖; longer ones are shortened to it."""
    min_cosine: Annotated[float, kinds.between(-1, 1)] | None = None
    """The lowest cosine similarity with the reference update that is accepted; None: any is."""


_Guard = Annotated[GuardSettings | None, section_or_nothing(GuardSettings), SECTION_AS_YAML]


class AlphaRamp(Section):
    """`alpha: {from: …, to: …}`: α moves with every update of the job."""

    from_: Annotated[float, kinds.fraction(zero=True, one=True)] = Field(alias="from")
    to: Annotated[float, kinds.fraction(zero=True, one=True)]
    schedule: Annotated[Shape, kinds.one_of(Shape)] = "linear"


class VcAsgdSettings(Section):
    """`W ← α·W + (1 − α)·C`."""

    rule: Literal["vc_asgd"] = "vc_asgd"
    alpha: Annotated[float | Literal["var"] | AlphaRamp, plain_or_section(_Alpha, AlphaRamp), SECTION_AS_YAML] = "var"
    """The weight of the server's own weights; `var` is e/(e+1) in epoch e."""
    guard: _Guard = None


class EasgdSettings(Section):
    """`W ← W + r·(C − W)`."""

    rule: Literal["easgd"] = "easgd"
    moving_rate: _Part = 0.001
    guard: _Guard = None


class ConstantStaleness(Section):
    """`staleness: constant`, which has no arguments."""

    name: Literal["constant"] = "constant"


class PolynomialStaleness(Section):
    """`staleness: {name: polynomial, …}`: `s(τ) = (τ + 1)^−exponent`."""

    name: Literal["polynomial"] = "polynomial"
    exponent: _AboveZero = 0.5


class HingeStaleness(Section):
    """`staleness: {name: hinge, …}`: `s(τ) = 1` up to `threshold`, then `1 / (slope·(τ − threshold) + 1)`."""

    former_keys = MappingProxyType({"free": "threshold"})

    name: Literal["hinge"] = "hinge"
    slope: _AboveZero = 10.0
    threshold: Annotated[int, kinds.whole(0)] = 4
    """Versions of staleness that cost nothing."""


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

    former_keys = _RATE

    rule: Literal["downpour"] = "downpour"
    server_learning_rate: _AboveZero = 0.1
    guard: _Guard = None


class DcAsgdSettings(Section):
    """`W ← W − η·(g + λ·g⊙g⊙(W − B))` with `g = B − C`."""

    former_keys = _RATE

    rule: Literal["dc_asgd"] = "dc_asgd"
    server_learning_rate: _AboveZero = 0.1
    compensation: Annotated[float, kinds.at_least(0)] = 2.0
    guard: _Guard = None


class ForecastSettings(Section):
    """Averaging whose clients start from where the weights will be when their uploads arrive."""

    former_keys = MappingProxyType({"slope": "staleness_damping", "memory": "averaging_window"})

    rule: Literal["forecast"] = "forecast"
    staleness_damping: Annotated[float, kinds.at_least(0)] = 0.15
    """How much less an upload counts for each version of staleness."""
    compensation: Annotated[float, kinds.fraction(zero=True, one=True)] = 0.4
    averaging_window: Annotated[float, kinds.at_least(1)] = 2.0
    """Rounds of updates over which the movement of the weights is averaged."""
    horizon: Annotated[float, kinds.at_least(0)] = 1.0
    """How far ahead the forecast looks, in stalenesses."""
    guard: _Guard = None


class FedBuffSettings(Section):
    """After K updates `W ← W + η·Σ s(τ)·(C − B)/K`."""

    former_keys = _RATE

    rule: Literal["fedbuff"] = "fedbuff"
    server_learning_rate: _AboveZero = 1.0
    buffer: _Count = 10
    """Updates that are folded in together."""
    staleness: _Staleness = PolynomialStaleness()
    guard: _Guard = None


class OuterNesterovSettings(Section):
    """FedBuff whose mean delta goes through an outer optimizer with Nesterov momentum."""

    former_keys = _RATE

    rule: Literal["outer_nesterov"] = "outer_nesterov"
    server_learning_rate: _AboveZero = 0.7
    momentum: _Momentum = 0.9
    buffer: _Count = 10
    staleness: _Staleness = ConstantStaleness()
    guard: _Guard = None


class DelayedNesterovSettings(Section):
    """Each update moves W; the momentum is applied with every K-th only."""

    former_keys = MappingProxyType({**_RATE, "share": "momentum_share"})

    rule: Literal["delayed_nesterov"] = "delayed_nesterov"
    server_learning_rate: _AboveZero = 0.7
    momentum: _Momentum = 0.9
    buffer: _Count = 10
    momentum_share: Annotated[float, kinds.fraction(zero=True, one=True)] = 0.0
    """The fraction of the momentum that each of the other updates applies."""
    staleness: _Staleness = ConstantStaleness()
    guard: _Guard = None

    @field_validator("momentum_share")
    @classmethod
    def _is_no_more_than_all(cls, momentum_share: float, info: ValidationInfo) -> float:
        buffer = info.data.get("buffer", 1)
        if momentum_share * buffer > 1:
            raise ValueError(f"expected at most 1 / buffer, {1 / buffer:.4g}, got {momentum_share:g}")
        return momentum_share


class TrimmedMeanSettings(Section):
    """The mean of K updates, weight by weight, without the largest and the smallest."""

    former_keys = _RATE

    rule: Literal["trimmed_mean"] = "trimmed_mean"
    server_learning_rate: _AboveZero = 1.0
    buffer: _Count = 10
    trim: Annotated[int, kinds.whole(0)] = Field(default=2, validate_default=True)
    """Updates left out at each end."""
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
    """The median of K updates, weight by weight."""

    former_keys = _RATE

    rule: Literal["median"] = "median"
    server_learning_rate: _AboveZero = 1.0
    buffer: _Count = 10
    staleness: _Staleness = ConstantStaleness()
    guard: _Guard = None


class CentredClippingSettings(Section):
    """The mean of what K updates differ from the K before, each difference shortened."""

    former_keys = _RATE

    rule: Literal["centred_clipping"] = "centred_clipping"
    server_learning_rate: _AboveZero = 1.0
    buffer: _Count = 10
    clip: _AboveZero = 1.0
    """The longest difference, as a multiple of the usual length."""
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
