"""How many subtasks a job trains at a time while it begins. Pure arithmetic.

Clients that begin together from weights that have learnt nothing pull apart, and what the job loses by that it never
makes up for. So it begins with an eighth of its slots, and has all of them once `pacing > grows_over` of its subtasks
are created (docs/decisions/144).
"""

import math

from vcdl.rules.ramp import between

_FIRST = 0.125
_FEWEST = 10
"""On ten slots and fewer growing gains nothing (docs/decisions/144); from ten on forty is as good as from five."""


def growing_slots(wanted: int, made: int, growing: float) -> int:
    """Return how many of the `wanted` slots a job uses once `made` subtasks are created.

    Args:
        wanted: Workunits that the grid wants to be open.
        made: Subtasks created so far.
        growing: Subtasks over which the slots grow.
    """
    # Also where nothing grows: `growing` is 0 then.
    if made >= growing:
        return wanted
    return min(wanted, max(_FEWEST, math.ceil(between(_FIRST, 1.0, made / growing, "linear") * wanted)))
