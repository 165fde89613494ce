"""A monotonic clock that a test moves by hand."""

from dataclasses import dataclass


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s
