"""Compare the claims in an upload's header about its training with what is possible.

An impossible claim is recorded as None in the journal, and its upload still counts: clocks may be wrong, and machines
slow. Claims that no honest client makes are refused (vcdl.checks.upload).
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

import numpy as np

LARGEST_LOSS = float(np.finfo(np.float32).max)
"""Largest possible loss, because losses are computed in float32."""
LONGEST_S = 1e9
"""Thirty years: longer than any subtask, and small enough that sums stay exact."""
LOSSES_KEPT = 50
_LOSSES_NEEDED = 5
_FIRST_LOSS = 1000.0
"""Largest loss that is believed while too few others are known, so that garbage is never a usual loss."""
_LOSS_FACTOR = 100.0
"""Largest believable loss, as a multiple of the recent median; data with few classes reach some tens."""
_LEAST_LOSS = 0.01
"""Smallest value that is taken as the recent median, because honest losses near zero differ by orders of magnitude."""
_PACE_FACTOR = 100.0
"""Factor by which a host may be faster or slower than before: a first subtask with compilation is ten times slower."""
_DRIFT = 1.02
"""Factor by which a client's clock may run faster than the server's."""
_SLACK_S = 2.0
"""Seconds by which two clocks may differ, so that rounding and network delays refuse no host."""


@dataclass
class ClaimCheck:
    """Decides whether a claimed loss is believed, by comparison with the losses of recent applied uploads."""

    _losses: deque[float] = field(default_factory=lambda: deque(maxlen=LOSSES_KEPT))

    @classmethod
    def of(cls, losses: Iterable[float]) -> "ClaimCheck":
        """Return a check that knows the losses of the last applied uploads, the oldest first."""
        return cls(deque(losses, LOSSES_KEPT))

    def loss(self, claimed: float) -> float | None:
        """Return a claimed loss if its magnitude is plausible compared with the median of recent ones, else None."""
        # A median of fewer losses could be a single client's claim.
        if len(self._losses) < _LOSSES_NEEDED:
            most = _FIRST_LOSS
        else:
            most = _LOSS_FACTOR * max(_LEAST_LOSS, median(map(abs, self._losses)))
        return claimed if abs(claimed) <= most else None

    def accept(self, claimed: float) -> None:
        """Add the loss of an applied upload, believed or not, to those that later ones are compared with."""
        self._losses.append(claimed)


def believed_train_s(claimed_s: float, age_s: float | None, usual_s: float | None) -> float | None:
    """Return the claimed training time if it is possible, else None.

    Args:
        claimed_s: The client's claim.
        age_s: Seconds since the workunit was sent; None: unknown.
        usual_s: Seconds that its host used to take for as many samples; None: unknown.
    """
    # No client trains for longer than its workunit exists. Speeds and forecasts are computed from this number.
    if age_s is not None and claimed_s > _DRIFT * age_s + _SLACK_S:
        return None
    if usual_s is not None and not usual_s / _PACE_FACTOR <= claimed_s <= usual_s * _PACE_FACTOR:
        return None
    return claimed_s


def believed_times_s(claimed_s: Mapping[str, float], train_s: float | None, age_s: float | None) -> dict[str, float]:
    """Return the claimed times of a subtask's stages if they are possible, else an empty dict.

    Args:
        claimed_s: The client's claims: stage (vcdl.wire.workunit.STAGES) → seconds.
        train_s: The training time that is believed; with None no time is believed.
        age_s: Seconds since the workunit was sent; None: unknown.
    """
    if train_s is None or any(seconds < 0 for seconds in claimed_s.values()):
        return {}
    # `first` is a part of the training time and would count twice.
    whole_s = train_s + sum(claimed_s.values()) - claimed_s.get("first", 0.0)
    is_possible = claimed_s.get("first", 0.0) <= _DRIFT * train_s + _SLACK_S
    is_possible = is_possible and whole_s <= (LONGEST_S if age_s is None else _DRIFT * age_s + _SLACK_S)
    return dict(claimed_s) if is_possible else {}
