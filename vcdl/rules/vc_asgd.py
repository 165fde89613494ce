"""VC-ASGD, the update rule of the paper.

Source: Equation (1) of Atre, Jha, Rao (2021), *Distributed Deep Learning Using Volunteer Computing-Like Paradigm*.
"""

from typing import Annotated, ClassVar, Literal

from vcdl.rules.base import Rule, Update, mix
from vcdl.rules.ramp import Ramp
from vcdl.wire.layout import Vector
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.section import SECTION_AS_YAML, plain_or_section

_ALPHA = kinds.fraction("var", zero=True, one=False, also="{from: …, to: …}")


class VcAsgd(Rule):
    """`W ← α·W + (1 − α)·C`; published: α = 0.7, 0.95, 0.999, or `var`, α_e = e / (e + 1) in epoch e.

    VCDL adds an α that changes with every update, from small at the job's beginning to large at its end. A partial
    update counts by its trained fraction: 1 − α is multiplied by it.
    """

    needs_base: ClassVar[bool] = False
    averages: ClassVar[bool] = True

    rule: Literal["vc_asgd"] = "vc_asgd"
    alpha: Annotated[float | Literal["var"] | Ramp, plain_or_section(_ALPHA, Ramp), SECTION_AS_YAML] = "var"
    """α, the weight of the server's own weights; `var` is e/(e+1) in epoch e."""

    def client_weight(self, update: Update) -> float:
        """Return (1 − α) · fraction."""
        match self.alpha:
            case "var":
                # The epoch of the upload's own subtask, as in the paper, also where the next epoch has started.
                alpha = update.epoch / (update.epoch + 1)
            case Ramp() as ramp:
                alpha = ramp.at(update.number, update.updates)
            case number:
                alpha = number
        return (1.0 - alpha) * update.fraction

    def apply(self, server: Vector, update: Update) -> float:
        weight = self.client_weight(update)
        mix(server, update.weights, weight)
        return weight
