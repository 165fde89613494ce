"""The factor on a late upload's weight: the setting `staleness` of several rules.

Xie, Koyejo, Gupta (2019), *Asynchronous Federated Optimization*, arXiv 1903.03934.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from vcdl.rules.numbers import AboveZero
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.section import SECTION_AS_YAML, Section, one_of_sections


class Constant(Section):
    """`s(τ) = 1`: staleness does not matter."""

    name: Literal["constant"] = "constant"

    def factor(self, staleness: int) -> float:
        """Return s(τ), in (0, 1]."""
        return 1.0


class Polynomial(Section):
    """`s(τ) = (τ + 1)^−exponent`; published: 0.5."""

    name: Literal["polynomial"] = "polynomial"
    exponent: AboveZero = 0.5

    def factor(self, staleness: int) -> float:
        """Return s(τ), in (0, 1]."""
        return float((max(0, staleness) + 1.0) ** -self.exponent)


class Hinge(Section):
    """`s(τ) = 1` up to `threshold`, then `1 / (slope·(τ − threshold) + 1)`; published: 10 and 4."""

    name: Literal["hinge"] = "hinge"
    slope: AboveZero = 10.0
    threshold: Annotated[int, kinds.whole(0)] = 4
    """Versions of staleness without damping."""

    def factor(self, staleness: int) -> float:
        """Return s(τ), in (0, 1]."""
        return 1.0 / (self.slope * max(0, staleness - self.threshold) + 1.0)


STALENESS: Mapping[str, type[Constant | Polynomial | Hinge]] = {
    "constant": Constant,
    "polynomial": Polynomial,
    "hinge": Hinge,
}
Damping = Annotated[Constant | Polynomial | Hinge, one_of_sections("name", STALENESS), SECTION_AS_YAML]
"""The setting of a rule: one of these, or its name."""
