"""The number of parameter servers that a job needs, from its backlog and the measured service time. Pure arithmetic.

Source: the paper's open idea, section III-D.
"""

import math
from dataclasses import dataclass

_SHRINK_AFTER = 20
"""Looks in a row at which fewer would do, before a server is ended: starting one costs more than letting it idle."""


@dataclass
class ServerScaling:
    """Follows the load between `least` and `most` servers."""

    least: int
    most: int
    drain_s: float
    """A backlog must be worked off within this time."""
    wanted: int = 0
    _idle_looks: int = 0

    def __post_init__(self) -> None:
        self.wanted = max(self.wanted, self.least)

    def look(self, backlog: int, service_s: float) -> int:
        """`backlog` uploads wait and one takes `service_s` seconds: returns how many servers should run now."""
        needed = min(self.most, max(self.least, math.ceil(backlog * service_s / self.drain_s)))
        if needed >= self.wanted:
            self.wanted, self._idle_looks = needed, 0
            return self.wanted
        self._idle_looks += 1
        if self._idle_looks >= _SHRINK_AFTER:
            self.wanted, self._idle_looks = self.wanted - 1, 0
        return self.wanted
