"""Limit the rate of requests of each caller."""

import time
from collections import OrderedDict

FAILED_LOGINS = 10.0, 10 / 60
"""Failed logins allowed at once, and per second."""
CALLERS = 10_000
"""Most callers that are remembered, so that memory stays bounded."""


class RequestRate:
    """A token bucket for each caller: some requests at once, refilled at a steady rate."""

    def __init__(self, burst: float, steady: float) -> None:
        """Set the limits: requests at once, and requests per second."""
        self._burst = burst
        self._steady = steady
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Caller → the requests that were left, and when."""

    def wait_s(self, caller: str) -> float:
        """Return the seconds until a caller may send its next request, or 0."""
        return max(0.0, (1.0 - self._left_of(caller)) / self._steady)

    def note(self, caller: str) -> None:
        """Count a request; only the CALLERS most recent callers are remembered."""
        # A token bucket. Not below 0: a caller that keeps asking is answered again once it has waited, however much it
        # asked.
        self._left[caller] = max(0.0, self._left_of(caller) - 1.0), time.monotonic()
        self._left.move_to_end(caller)
        if len(self._left) > CALLERS:
            self._left.popitem(last=False)

    def is_too_high(self, caller: str) -> bool:
        """Count a request, and return whether there were too many."""
        is_too_high = self.wait_s(caller) > 0
        self.note(caller)
        return is_too_high

    def _left_of(self, caller: str) -> float:
        left, at_s = self._left.get(caller, (self._burst, 0.0))
        return min(self._burst, left + (time.monotonic() - at_s) * self._steady)
