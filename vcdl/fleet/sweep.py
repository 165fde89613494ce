"""Remove everything of a fleet, place by place, and look until nothing is left."""

import random
import time
from dataclasses import dataclass

from vcdl.errors import FleetError
from vcdl.fleet.provider import Leftover, Look, Provider


@dataclass(frozen=True)
class SweepPace:
    """The times of a sweep."""

    every_s: float = 5.0
    """Between two looks; each wait is up to half as long again, so that two sweeps do not keep in step."""
    at_most_s: float = 300.0
    """The slowest machines take some minutes to end."""
    empty_looks: int = 2
    """Looks in a row that must find nothing: a cloud may hide what it has just made for some seconds."""


def sweep(provider: Provider, pace: SweepPace) -> tuple[str, ...]:
    """Delete everything with the tag; returns a line for each thing that is still there, and for each place not asked.

    A place or a call that fails stops none of the others, and is tried again until the time is up.
    """
    give_up_s = time.monotonic() + pace.at_most_s
    empty_looks = 0
    denied: frozenset[Leftover] | None = None
    provider.begin_sweep()
    while True:
        look = look_around(provider)
        empty_looks = 0 if look.lines() else empty_looks + 1
        if empty_looks == pace.empty_looks:
            return ()
        is_hopeless = bool(denied) and denied == frozenset(look.found)
        if is_hopeless or (denied is not None and time.monotonic() >= give_up_s):
            rights = ("the account may not remove some of it: check its rights",) if denied else ()
            return (*look.lines(), *rights)
        denied = provider.remove(look.found)
        time.sleep(pace.every_s * random.uniform(1.0, 1.5))


def look_around(provider: Provider) -> Look:
    """What the cloud shows, or why it shows nothing."""
    try:
        return provider.look()
    except FleetError as error:
        return Look(away=(str(error),))
