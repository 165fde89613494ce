"""The uploads of hostile clients. B are the weights they started from, C the honest upload, s the attack's scale.

sign_flip    B − s·(C − B)                           the honest step, backwards and s times as long
noise        B + s·‖C − B‖/√n · N(0, 1)              a step in a random direction, s times as long
"""

import numpy as np

from vcdl.simulate.client_fleet import ClientFleet, Hostile
from vcdl.wire.weights import Vector
from vcdl.wire.workunit import WorkunitName

_NOISE = 3
"""A stream of random numbers, beside those of vcdl.simulate.clients."""


def poisoned(base: Vector, honest: Vector, hostile: Hostile, fleet: ClientFleet, name: WorkunitName) -> Vector:
    """The upload of a hostile client; `base`, `honest` and the result have shape (n,)."""
    step = honest - base
    if hostile.attack == "sign_flip":
        return base - np.float32(hostile.scale) * step
    rng = np.random.default_rng([fleet.seed, _NOISE, hostile.client, name.epoch, name.shard, name.attempt])
    size = hostile.scale * float(np.sqrt(np.mean(np.square(step, dtype=np.float64))))
    return base + np.float32(size) * rng.standard_normal(step.size, np.float32)
