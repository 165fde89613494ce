"""How long to wait for what is away: a store, a database, a disk."""

from dataclasses import dataclass

_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 15.0


@dataclass
class Patience:
    """Longer each time, and short again once it has answered."""

    wait_s: float = _FIRST_WAIT_S

    def next_wait_s(self) -> float:
        """Seconds to wait now."""
        wait_s, self.wait_s = self.wait_s, min(_LONGEST_WAIT_S, self.wait_s * 2)
        return wait_s

    def reset(self) -> None:
        self.wait_s = _FIRST_WAIT_S
