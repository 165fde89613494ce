"""The rate at which one may ask the service."""

import time
from collections import OrderedDict

FAILED_LOGINS = 10.0, 10 / 60
"""Failed logins at once and a second."""
CALLERS = 10_000
"""Callers that are remembered, at most."""


class RequestRate:
    """Says who asks too often: each has a number of requests at once, which grows again with time."""

    def __init__(self, burst: float, steady: float) -> None:
        """Set the limits: requests at once, and per second."""
        self._burst = burst
        self._steady = steady
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Caller → what it has left, and when that was so."""

    def wait_s(self, caller: str) -> float:
        """Return the seconds until it may ask again, or 0."""
        return max(0.0, (1.0 - self._left_of(caller)) / self._steady)

    def note(self, caller: str) -> None:
        """Count a request; the callers that asked last are remembered, up to CALLERS."""
        # A token bucket. Not below 0: a caller that keeps asking is answered again once it has waited, however much it
        # asked.
        self._left[caller] = max(0.0, self._left_of(caller) - 1.0), time.monotonic()
        self._left.move_to_end(caller)
        if len(self._left) > CALLERS:
            self._left.popitem(last=False)

    def is_too_high(self, caller: str) -> bool:
        """Count a request, and say whether there were too many."""
        is_too_high = self.wait_s(caller) > 0
        self.note(caller)
        return is_too_high

    def _left_of(self, caller: str) -> float:
        left, at_s = self._left.get(caller, (self._burst, 0.0))
        return min(self._burst, left + (time.monotonic() - at_s) * self._steady)
