"""How long to wait for what is away: a store, a database, a disk, a cloud."""

from dataclasses import dataclass, field


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
