"""Whether a job has collapsed: measure after measure far below what was usual before. Pure; it follows the journal.

One bad measure says little: a client whose shard has one class pulls honest weights down by a third, and the next ones
pull them up again. So a first bad measure asks for further ones, and only bad ones alone over half an epoch are a
collapse.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from vcdl.journal.events import VALIDATION, EpochClosed, Event, RolledBack, VersionEvaluated

_RECENT = 8
"""Measures that say what is usual."""
_HISTORY_AT_LEAST = 3
"""Measures before anything is called usual."""
_BAD_AT_LEAST = 3
"""Bad measures in a row that are a collapse."""
_BAD_OVER_AT_MOST = 50
"""Updates over which they must lie, at most: honest swings are shorter, however many shards an epoch has."""
_FALL = 0.15
"""A smaller fall of the accuracy is never one."""
_FALL_SHARE = 0.25
"""Nor one by a smaller share of the usual accuracy."""
_FALL_LOSS = math.log(3.0)
"""For a regression: a loss below three times the usual one."""
_SWINGS = 4.0
"""Nor one by less than so many of the job's usual swings from one measure to the next."""
_SMALLEST, _WORST = 1e-30, -100.0
"""The loss that counts as none, and the score of a loss that is not a number."""
_TRIES = 3
"""Rollbacks before a job has a newer good epoch. A fourth collapse is left as it is: the data may be at fault."""


@dataclass(frozen=True)
class Collapse:
    """A collapse, and where the job goes back to."""

    version: int
    """The first version whose measure was bad."""
    measured: float
    """Its accuracy, or the loss of a regression."""
    usual: float
    """The median of the measures before it."""
    to: int
    """The good version to go back to: the end of an epoch, or 0."""


@dataclass(frozen=True)
class _Measure:
    version: int
    value: float
    is_loss: bool

    @property
    def score(self) -> float:
        """The accuracy, or −log loss: larger is better."""
        if not self.is_loss:
            return self.value
        return -math.log(max(self.value, _SMALLEST)) if math.isfinite(self.value) else _WORST


@dataclass
class CollapseWatch:
    """Follows a job's measures and says whether it has collapsed."""

    shards: int
    _recent: deque[_Measure] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _bad: list[_Measure] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    """The versions at the ends of epochs, but those that the job went back from."""
    _good: dict[int, float] = field(default_factory=dict)
    """Version → its score, of the versions that were measured and not bad."""
    _rollbacks: list[RolledBack] = field(default_factory=list)

    def follow(self, event: Event) -> None:
        """Take in the journal's next event."""
        match event:
            case VersionEvaluated(split=split, version=version) if split == VALIDATION:
                if not any(rolled.undoes(version) for rolled in self._rollbacks):
                    self._measured(event)
            case EpochClosed(version=version):
                # What a rollback made is as good as what it went back to, and no better.
                if not any(rolled.version == version for rolled in self._rollbacks):
                    self._ends.append(version)
            case RolledBack():
                self._rollbacks.append(event)
                self._bad.clear()
                self._ends = [version for version in self._ends if version <= event.to]
                self._good = {version: score for version, score in self._good.items() if version <= event.to}
                self._recent = deque((one for one in self._recent if one.version <= event.to), maxlen=_RECENT)
            case _:
                pass

    @property
    def _bad_over(self) -> int:
        """Updates over which measures must be bad."""
        return min(max(_BAD_AT_LEAST, self.shards // 2), _BAD_OVER_AT_MOST)

    @property
    def good_ends(self) -> list[int]:
        """Version 0 and the ends of epochs that were measured and not bad, in order."""
        return [0, *(version for version in self._ends if version in self._good)]

    @property
    def to_keep(self) -> list[int]:
        """Those of them that the job may go back to."""
        return self.good_ends[-_TRIES:]

    @property
    def is_spent(self) -> bool:
        """Whether the job was rolled back so often since its last good epoch that it must not be again."""
        return self._tries >= _TRIES

    @property
    def _tries(self) -> int:
        good = self.good_ends[-1]
        return sum(rolled.version > good for rolled in self._rollbacks)

    def wants_measure_of(self, version: int) -> bool:
        """Whether the newest version must be measured besides, to tell a collapse from a swing."""
        return (
            bool(self._bad)
            and not self.is_spent
            and self.collapse is None
            and version >= self._bad[-1].version + max(1, self._bad_over // _BAD_AT_LEAST)
        )

    @property
    def collapse(self) -> Collapse | None:
        """The collapse to go back from; None: there is none, or rolling back has not helped."""
        bad = self._bad
        if len(bad) < _BAD_AT_LEAST or bad[-1].version - bad[0].version < self._bad_over or self.is_spent:
            return None
        return Collapse(bad[0].version, bad[0].value, median(one.value for one in self._recent), self._good_end())

    def _good_end(self) -> int:
        """The last end of an epoch that was not half way down already; the one before it where that has not helped."""
        usual, fall = self._usual()
        ends = [end for end in self.to_keep if end == 0 or self._good[end] >= usual - fall / 2] or self.to_keep[:1]
        return ends[-2] if self._tries and len(ends) > 1 else ends[-1]

    def _measured(self, event: VersionEvaluated) -> None:
        measure = _Measure(event.version, event.value, event.accuracy is None)
        usual, fall = self._usual()
        if measure.score < usual - fall:
            self._bad.append(measure)
            return
        self._recent += (*self._bad, measure)  # a swing that is over was one of the job's usual ones
        self._bad.clear()
        self._good[event.version] = measure.score

    def _usual(self) -> tuple[float, float]:
        """The usual score, and how far below it a bad one lies."""
        if len(self._recent) < _HISTORY_AT_LEAST:
            return -math.inf, 0.0
        scores = [one.score for one in self._recent]
        usual = median(scores)
        least = _FALL_LOSS if self._recent[-1].is_loss else max(_FALL, _FALL_SHARE * usual)
        return usual, max(least, _SWINGS * median(abs(b - a) for a, b in pairwise(scores)))
