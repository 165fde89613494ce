"""VC-ASGD, Equation (1) of Atre, Jha, Rao (2021), *Distributed Deep Learning Using Volunteer Computing-Like Paradigm*."""

from dataclasses import dataclass

import numpy as np

from vcdl.rules.base import Update
from vcdl.weights import Vector

_BLOCK = 1 << 16
"""Elements: 256 KiB of W, of C and of the product stay in the second-level cache, so memory is passed over once."""


@dataclass(frozen=True)
class VcAsgd:
    """`W ← α·W + (1 − α)·C`; published settings: α = 0.7, 0.95, 0.999, or `var`, α_e = e / (e + 1).

    A partial update counts by the fraction trained: 1 − α is multiplied with it.
    """

    alpha: float | None
    """In [0, 1); None stands for `var`."""

    def client_weight(self, epoch: int, fraction: float) -> float:
        """1 − α for an update of `epoch` (from 1) that trained `fraction` of its subtask."""
        alpha = epoch / (epoch + 1) if self.alpha is None else self.alpha
        return (1.0 - alpha) * fraction

    def apply(self, server: Vector, update: Update, out: Vector | None = None) -> float:
        weight = self.client_weight(update.epoch, update.fraction)
        keep, give = np.float32(1.0 - weight), np.float32(weight)
        product = np.empty(min(_BLOCK, server.size), np.float32)
        for start in range(0, server.size, _BLOCK):
            new = (server if out is None else out)[start : start + _BLOCK]
            p = product[: new.size]
            np.multiply(update.weights[start : start + _BLOCK], give, out=p)
            np.multiply(server[start : start + _BLOCK], keep, out=new)
            np.add(new, p, out=new)
        return weight
