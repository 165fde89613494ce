"""Limit the rate of requests of each caller."""

import time
from collections import OrderedDict

FAILED_LOGINS = 10.0, 10 / 60
"""Failed logins allowed in a burst, and per second."""
CALLERS = 10_000
"""Most callers that are remembered, so that memory stays bounded."""


class RequestRate:
    """A token bucket for each caller: each may send a burst of requests, and then a steady number per second.

    At most CALLERS buckets are kept. The one that was used least recently is dropped first, and its caller then starts
    with a full bucket.
    """

    def __init__(self, burst: float, steady: float) -> None:
        """Set the limits.

        Args:
            burst: Requests that a caller may send at once.
            steady: Requests per second at which the bucket is refilled.
        """
        self._burst = burst
        self._steady = steady
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Caller → the requests that were left after its last one, and the monotonic time of that."""

    def wait_s(self, caller: str) -> float:
        """Return the seconds until a caller may send its next request, or 0 if it may send one now. Counts nothing."""
        return max(0.0, (1.0 - self._remaining_for(caller)) / self._steady)

    def note(self, caller: str) -> None:
        """Count a request of a caller, refused ones included."""
        # Never let the bucket fall below 0: a caller that has waited is served again, however many requests it had sent
        # before.
        self._left[caller] = max(0.0, self._remaining_for(caller) - 1.0), time.monotonic()
        self._left.move_to_end(caller)
        if len(self._left) > CALLERS:
            self._left.popitem(last=False)

    def is_too_high(self, caller: str) -> bool:
        """Count a request, and return whether the caller must be refused because it has sent too many."""
        is_too_high = self.wait_s(caller) > 0
        self.note(caller)
        return is_too_high

    def _remaining_for(self, caller: str) -> float:
        left, at_s = self._left.get(caller, (self._burst, 0.0))
        return min(self._burst, left + (time.monotonic() - at_s) * self._steady)
