"""A guard in front of any rule: it shortens long steps, and refuses those that lead away from the reference
update.

Clipping to a multiple of the usual length is the norm bound of Sun et al. (2019), *Can You Really Backdoor
Federated Learning?*, arXiv 1911.07963. Refusal follows Zeno++: Xie, Koyejo, Gupta (2020), *Zeno++: Robust Fully
Asynchronous SGD*, arXiv 1903.07020.
"""

from dataclasses import dataclass, replace

import numpy as np

from vcdl.checks.refusal import Refusal, Refused
from vcdl.rules.base import Measured, Rule, Update
from vcdl.rules.measuring import MeasuringRule, shortening
from vcdl.rules.state import LENGTHS, RuleState
from vcdl.wire.weights import Vector


@dataclass(frozen=True)
class Guarded(MeasuringRule):
    """The rule gets `C' = B + κ·(C − B)` for C, with `κ = min(1, c·l / ‖C − B‖)` and l the median of the last
    50 lengths ‖C − B‖.

    An upload with `cos(C − B, D) < ρ` is refused. D is the reference update: the step that a client would make
    on validation data from a recent W. Zeno++ accepts an update u when `γ⟨v, u⟩ − ρ'·‖u‖² ≥ −γ·ε`, where v is a
    gradient on validation data made every k updates, and u is scaled to the length of v. Divided by γ‖v‖², that
    is `cos(u, v) ≥ ρ'/γ − ε/‖v‖²`: a bound ρ on the cosine. We compare with D, because a plain gradient says
    hardly anything about the steps of honest clients at a high learning rate.

    Only two attempts at a subtask are refused. Late in training honest steps differ from D as well, and a
    subtask must come to an end. A hostile step that gets through is as short as honest ones.
    """

    rule: Rule
    """A rule that does not measure by itself."""
    clip: float
    """c > 0"""
    cosine: float | None
    """ρ, in [−1, 1]; None: no upload is refused."""

    @property
    def needs_reference(self) -> bool:
        return self.cosine is not None

    @property
    def state(self) -> RuleState:
        return replace(self.rule.state, lengths=LENGTHS)

    def step(self, server: Vector, update: Update) -> Vector:
        return update.step

    def refused(self, measured: Measured) -> Refused | None:
        if self.cosine is None or measured.cosine is None or measured.cosine >= self.cosine:
            return None
        detail = f"cosine {measured.cosine:.4f} with the reference update, the job asks for {self.cosine:g} at least"
        return Refused(Refusal.AGAINST_REFERENCE, detail)

    def apply(self, server: Vector, update: Update) -> float:
        kappa = shortening(update.measures, self.clip)
        if kappa < 1.0:
            update = replace(update, weights=update.started_from + update.step * np.float32(kappa))
        return kappa * self.rule.apply(server, update)
