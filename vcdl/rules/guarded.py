"""Any rule, guarded: long steps are shortened, and those that lead away from what held-out data says are refused.

Clipping to a multiple of the usual length is the norm bound of Sun et al. (2019), *Can You Really Backdoor Federated Learning?*, arXiv
1911.07963. Acceptance is that of Zeno++: Xie, Koyejo, Gupta (2020), *Zeno++: Robust Fully Asynchronous SGD*, arXiv 1903.07020.
"""

from dataclasses import dataclass, replace

import numpy as np

from vcdl.checks.refusal import Refusal, Refused
from vcdl.rules.base import Measured, Rule, Update
from vcdl.rules.blocks import blocks, scratch, weighted_step
from vcdl.rules.measuring import LENGTHS, MeasuringRule, shortening
from vcdl.state import State
from vcdl.weights import Vector


@dataclass(frozen=True)
class Guarded(MeasuringRule):
    """The rule is given `C' = B + κ·(C − B)` for C, with `κ = min(1, c·l / ‖C − B‖)` and l the median of the last 50 lengths ‖C − B‖.

    Refused is an upload with `cos(C − B, D) < ρ`, where D is the step that a client would make on held-out data, from a version of W not
    long ago. Zeno++ accepts an update u when `γ⟨v, u⟩ − ρ'·‖u‖² ≥ −γ·ε`, v a gradient on held-out data made every k updates, u brought to
    the length of v: divided by γ‖v‖², that is `cos(u, v) ≥ ρ'/γ − ε/‖v‖²`, a bound ρ on the cosine. In place of v, D: of the steps that
    honest clients make at a high learning rate, a plain gradient hardly says anything. Only two attempts at a subtask are refused: late in
    training honest steps differ from D as well, and a subtask must come to an end. What gets through is as short as honest steps are.
    """

    rule: Rule
    """One that does not measure by itself."""
    clip: float
    """c > 0"""
    cosine: float | None
    """ρ, in [−1, 1]; None: nothing is refused."""

    @property
    def asks_held_out(self) -> bool:
        return self.cosine is not None

    @property
    def state(self) -> State:
        return replace(self.rule.state, lengths=LENGTHS)

    def step(self, server: Vector, update: Update, out: Vector) -> None:
        np.subtract(update.weights, update.started_from, out=out)

    def refused(self, measured: Measured) -> Refused | None:
        if self.cosine is None or measured.cosine is None or measured.cosine >= self.cosine:
            return None
        detail = f"cosine {measured.cosine:.4f} with the step of held-out data, the job wants {self.cosine:g} at least"
        return Refused(Refusal.AGAINST_HELD_OUT, detail)

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        kappa = shortening(update.measures, self.clip)
        if kappa == 1.0:
            return self.rule.apply(server, update, out)
        shortened, room = np.empty_like(update.weights), scratch(update.weights.size)
        for block in blocks(update.weights.size):
            np.add(update.started_from[block], weighted_step(update, block, kappa, room), out=shortened[block])
        return kappa * self.rule.apply(server, replace(update, weights=shortened), out)
