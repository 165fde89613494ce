"""How long to wait for what is away: a store, a database, a disk, a cloud."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from vcdl.errors import Unavailable

Result = TypeVar("Result")


@dataclass
class Patience:
    """Longer each time, and short again once it has answered."""

    first_s: float = 0.2
    longest_s: float = 15.0
    _wait_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def next_wait_s(self) -> float:
        """Seconds to wait now; twice as long the next time."""
        wait_s, self._wait_s = self._wait_s, min(self.longest_s, self._wait_s * 2)
        return wait_s

    def reset(self) -> None:
        self._wait_s = self.first_s


def patiently(act: Callable[[], Result], tell: Callable[[str], None]) -> Result:
    """What `act` returns, once what it needs is there: until then it is called again and again, and `tell` is told why."""
    patience = Patience()
    while True:
        try:
            return act()
        except Unavailable as away:
            wait_s = patience.next_wait_s()
            tell(f"{away}; trying again in {wait_s:g} s")
            time.sleep(wait_s)
