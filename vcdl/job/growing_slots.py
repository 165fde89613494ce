"""Compute how many subtasks a job trains at a time while it ramps up. Pure arithmetic.

Clients that start at the same time from untrained weights train in different directions, and the job never recovers
what it loses by that. So it starts with an eighth of its slots, at least ten, and uses all of them once the fraction
`pacing > grows_over` of its subtasks has been created (docs/decisions/144).
"""

import math

from vcdl.rules.ramp import interpolate

_FIRST = 0.125
"""Fraction of the slots at the start, so that few clients train from untrained weights (docs/decisions/144)."""
_FEWEST = 10
"""Least slots at the start: below ten, growing gains nothing, and from ten to forty is as good as from five
(docs/decisions/144)."""


def growing_slots(wanted: int, made: int, growing: float) -> int:
    """Return the number of slots that a job may use once `made` subtasks are created.

    Args:
        wanted: Slots that the grid offers to the job, and the result after the growth.
        made: Subtasks created so far.
        growing: Number of subtasks during which the slots grow; 0: all slots are used from the start.
    """
    if made >= growing:
        return wanted
    return min(wanted, max(_FEWEST, math.ceil(interpolate(_FIRST, 1.0, made / growing, "linear") * wanted)))
