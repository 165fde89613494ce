"""Compute how many subtasks a job trains at a time while it ramps up. Pure arithmetic.

Clients that start together from untrained weights diverge from each other, and the job never recovers what it loses by
that. So it starts with an eighth of its slots, and uses all of them once `pacing > grows_over` of its subtasks are
created (docs/decisions/144).
"""

import math

from vcdl.rules.ramp import interpolate

_FIRST = 0.125
"""Fraction of the slots at the start, so that few clients train from untrained weights (docs/decisions/144)."""
_FEWEST = 10
"""Least slots at the start: below ten, growing gains nothing, and from ten to forty is as good as from five
(docs/decisions/144)."""


def growing_slots(wanted: int, made: int, growing: float) -> int:
    """Return how many of the `wanted` slots a job uses once `made` subtasks are created.

    Args:
        wanted: Workunits that the grid wants to be open.
        made: Subtasks created so far.
        growing: Number of subtasks over which the slots grow; 0: all slots are used from the start.
    """
    if made >= growing:
        return wanted
    return min(wanted, max(_FEWEST, math.ceil(interpolate(_FIRST, 1.0, made / growing, "linear") * wanted)))
