"""The section `update` of a job file: one schema for each update rule, chosen by `rule`. vcdl.rules.of_job makes the rules."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from vcdl import job_values as kinds
from vcdl.course import Shape
from vcdl.job_section import SECTION_AS_YAML, Section, one_of_sections, plain_or_section

_AboveZero = Annotated[float, kinds.above_zero()]
_Alpha = kinds.fraction("var", zero=True, one=False, also="{from: …, to: …}")
_Part = Annotated[float, kinds.fraction(zero=False, one=True)]


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


class EasgdSettings(Section):
    """`W ← W + r·(C − W)`."""

    rule: Literal["easgd"] = "easgd"
    moving_rate: _Part = 0.001


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


class FedAsyncSettings(Section):
    """`W ← (1 − a·s(τ))·W + a·s(τ)·C`."""

    rule: Literal["fedasync"] = "fedasync"
    mixing: _Part = 0.6
    staleness: Annotated[Staleness, one_of_sections("name", STALENESS), SECTION_AS_YAML] = PolynomialStaleness()


class DownpourSettings(Section):
    """`W ← W + η·(C − B)`."""

    rule: Literal["downpour"] = "downpour"
    rate: _AboveZero = 0.1


class DcAsgdSettings(Section):
    """`W ← W − η·(g + λ·g⊙g⊙(W − B))` with `g = B − C`."""

    rule: Literal["dc_asgd"] = "dc_asgd"
    rate: _AboveZero = 0.1
    compensation: Annotated[float, kinds.at_least(0)] = 2.0


UpdateSettings = VcAsgdSettings | EasgdSettings | FedAsyncSettings | DownpourSettings | DcAsgdSettings
RULES: Mapping[str, type[UpdateSettings]] = {
    "vc_asgd": VcAsgdSettings,
    "easgd": EasgdSettings,
    "fedasync": FedAsyncSettings,
    "downpour": DownpourSettings,
    "dc_asgd": DcAsgdSettings,
}
UPDATE = one_of_sections("rule", RULES, default="vc_asgd")
