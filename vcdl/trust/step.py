"""Judge the step of a stranger's upload: not far longer than others' recent steps, and not against all of them."""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from vcdl.errors.refusal import Refusal, Refused

_LONGEST = 4.0
"""Longest whole step, in usual lengths; honest steps stay below 2.1, even with very different data (decision 025)."""
_FURTHEST = 50.0
"""Longest step of a single trained variable in its usual lengths; honest steps stay below 8. Moments are only limited.
"""
_AGAINST = 0.4
"""A step is against a direction when its cosine with it is below minus this fraction of the usual one."""
_LEAST_USUAL = 0.2
"""The least cosine that counts as usual: if honest steps hardly agree, their signs mean nothing."""
_SPREADS = 5.0
"""Median deviations from the median cosine, 3.4 standard deviations, by which an honest step may be below the median if
only one direction is known."""
_KEPT = 50
"""Recent steps that define what is usual: enough for a stable median, few enough to follow training."""
_ENOUGH = 10
"""Accepted steps that define a usual cosine; with fewer, _USUAL_COSINE is assumed, because a median of few is
unreliable."""
_USUAL_COSINE = 0.3
"""Cosine assumed before enough steps are known, in the middle of the 0.1 to 0.6 of honest steps (decision 025)."""


@dataclass(frozen=True)
class Step:
    """The measures of an upload's step C − B, over the trained weights."""

    length: float
    """‖C − B‖ of the trained weights, scaled to the job's peak learning rate."""
    usual: float
    """The median length of the last steps; 0 before there are any."""
    furthest: float
    """The largest ratio of a trained variable's step to its usual length."""
    cosine: float | None
    """Cosine of the applied step with W − B, the movement by others in the meantime, or None if there was none."""
    reference: float | None
    """Cosine of the applied step with the server's own step on held-out data, or None without such a step."""


def _no_cosines() -> deque[float]:
    return deque(maxlen=_KEPT)


@dataclass
class StepCheck:
    """Refuses suspicious steps, by comparison with accepted ones.

    A direction counts against a step only if both references agree: other clients may have been led astray, and the
    server's data say little about a client's. For a client that started from the newest weights, only the cosines with
    the server's step can be compared with those of other clients.
    """

    _cosines: deque[float] = field(default_factory=_no_cosines)
    _references: deque[float] = field(default_factory=_no_cosines)

    def judge(self, step: Step) -> None:
        """Raise Refused for a step that no honest client makes. A step that is not finite passes: it is refused later.

        Raises:
            Refused: The step is too long, or against the other clients.
        """
        if not np.isfinite(step.length):
            return  # refused later, like all values that are not finite
        # The whole step and each variable are judged separately: a step of the usual length may be all in one small
        # variable.
        if step.length > _LONGEST * step.usual:
            times = step.length / step.usual if step.usual else math.inf
            raise Refused(
                Refusal.STEP_TOO_LONG,
                f"it changes the weights {times:.3g} times as much as others' uploads: the host is hostile or faulty",
            )
        if step.furthest > _FURTHEST:
            raise Refused(
                Refusal.STEP_TOO_LONG,
                f"it changes one variable {step.furthest:.4g} times as much as usual: the host is hostile or faulty",
            )
        cosines = [(step.cosine, self._cosines), (step.reference, self._references)]
        told = [(cosine, known) for cosine, known in cosines if cosine is not None]
        # If both directions are known, a step must be against each of them. A single one needs a wider margin (decision
        # 038).
        least = _least_alone if len(told) == 1 else _least
        if told and all(cosine < least(known) for cosine, known in told):
            words = " and ".join(f"{cosine:.3f}" for cosine, _ in cosines if cosine is not None)
            raise Refused(
                Refusal.AGAINST_OTHERS, f"cosine {words} with the updates of others and with the server's own step"
            )

    def recall(self, newest_first: Iterable[tuple[float | None, float | None]]) -> None:
        """Replace the remembered cosines by those of earlier applied steps; stop reading once there are enough.

        Args:
            newest_first: The cosine with the other clients, and that with the server's step, of each applied step.
        """
        self._cosines.clear()
        self._references.clear()
        for cosine, reference in newest_first:
            if cosine is not None and len(self._cosines) < _KEPT:
                self._cosines.appendleft(cosine)
            if reference is not None and len(self._references) < _KEPT:
                self._references.appendleft(reference)
            if len(self._cosines) == len(self._references) == _KEPT:
                return

    def accept(self, cosine: float | None, reference: float | None) -> None:
        """Remember the cosines of an applied step, with which later steps are compared. None is not remembered."""
        if cosine is not None:
            self._cosines.append(cosine)
        if reference is not None:
            self._references.append(reference)


def _least(known: deque[float]) -> float:
    """Return the cosine below which a step is against a direction, given the cosines of accepted steps."""
    return -_AGAINST * _usual(known)


def _least_alone(known: deque[float]) -> float:
    """Return the limit of `_least` for steps with only one known direction.

    It lies lower by the scatter of honest cosines, which late in a job are around zero.
    """
    if len(known) < _ENOUGH:
        return _least(known)
    middle = median(known)
    spread = median(abs(cosine - middle) for cosine in known)
    return min(_least(known), middle - _SPREADS * spread)


def _usual(known: deque[float]) -> float:
    """Return the median cosine of accepted steps, at least _LEAST_USUAL; with few steps an assumed one."""
    return max(_LEAST_USUAL, median(known)) if len(known) >= _ENOUGH else _USUAL_COSINE
