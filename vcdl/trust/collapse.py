"""Detect a collapse: over an epoch of updates, a job's scores were far below its earlier level.

A pure state machine: it applies the journal's events, without I/O and without a clock.

One bad score proves little. A client whose shard has one class lowers the accuracy of honest weights by a third, and
the next updates restore it. So a first bad score requests further evaluations, and only the median over a stretch of
updates decides.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from statistics import fmean, median

from vcdl.journal.events import VALIDATION, EpochClosed, Event, RolledBack, VersionEvaluated
from vcdl.journal.monitor import MAX, MIN, Monitor

_STRETCH_AT_LEAST, _STRETCH_AT_MOST = 8, 100
"""Least and most updates over which the median is taken; between them, it is an epoch. Honest fluctuations are shorter.
"""
_MEASURES = 4
"""Fewest evaluations within an epoch before a collapse is declared, since one or two low scores may be chance."""
_LEVEL_OF = 3
"""Fewest evaluations whose median counts as a level of the job, so that one lucky score does not."""
_FALL, _FALL_SHARE = 0.15, 0.25
"""A score such as an accuracy is bad if it is this much, and this fraction of the level, below the level."""
_FALL_LOSS = math.log(3.0)
"""A loss or an error is bad above three times the level."""
_SWINGS = 2.0
"""Multiple of the job's usual fluctuation between two scores: a smaller fall counts as noise."""
_SMALLEST, _WORST = 1e-30, -100.0
"""The least loss that is distinguished from 0, and the score of a value that is not finite."""
_TRIES = 3
"""Most rollbacks without a newer good epoch. A further collapse is accepted, because the data may be at fault."""


@dataclass(frozen=True)
class Collapse:
    """A collapse, and the version that the job goes back to."""

    version: int
    """The first version of the last epoch of updates whose score was bad."""
    measured: float
    """The monitor's value at that version."""
    usual: float
    """The level of the job before the collapse."""
    to: int
    """The version to roll back to: the end of an epoch whose score had not fallen, or 0."""
    is_again: bool
    """Whether the job was already rolled back since its last good epoch, so that the scores collapsed again."""


@dataclass(frozen=True)
class _Measure:
    version: int
    value: float
    score: float
    """The value, or −log of a value that should be low and is never negative: larger is better."""


@dataclass(frozen=True)
class _Level:
    """The highest level of a job so far, a median of scores."""

    version: int
    value: float
    score: float


@dataclass
class CollapseWatch:
    """Follows the evaluations of a job and detects a collapse.

    Pass every journal event to `follow` in order, then read `collapse`. The same events always give the same state,
    which is saved with the job's other state. Its size grows with the epochs, not with the evaluations.
    """

    shards: int
    """Number of shards, which is the number of updates in an epoch."""
    monitor: Monitor | None = None
    """The metric by which the job is judged, or None if the first evaluation decides."""
    collapse: Collapse | None = None
    """The collapse from which to roll back; None without one, or after _TRIES rollbacks without a newer good epoch."""
    _measures: list[_Measure] = field(default_factory=list)
    """The evaluations of the last stretch of updates, or the last few before."""
    _levels: list[_Level] = field(default_factory=list)
    """The levels of the job, each higher than the one before."""
    _swing: float = 0.0
    """Twice the largest mean fall between neighbouring scores so far: the job's usual fluctuation."""
    _ends: list[int] = field(default_factory=list)
    """The ends of epochs that are not evaluated yet, except those that a rollback undid."""
    _good_ends: dict[int, float] = field(default_factory=dict)
    """Version → score, for the ends of epochs that were evaluated and not bad, ascending by version."""
    _good: dict[int, float] = field(default_factory=dict)
    """Version → score, for the versions since the last good end of an epoch that were evaluated and not bad."""
    _rollbacks: list[RolledBack] = field(default_factory=list)
    _first_kept: int = 0
    """The lowest version whose snapshot still exists. After a rollback fewer good ends are left, but lower versions
    were already deleted and must not be named again."""

    def follow(self, event: Event) -> None:
        """Apply the next journal event, and update `collapse`."""
        match event:
            case VersionEvaluated(split=split, version=version) if split == VALIDATION:
                # The evaluator may finish evaluating a version that has been undone in the meantime.
                if not any(rolled.undoes(version) for rolled in self._rollbacks):
                    self.monitor = self.monitor or Monitor.of_first(event)
                    value = self.monitor.value(event)
                    self._add_measure(_Measure(version, value, self._score(value)))
            case EpochClosed(version=version):
                # The version that a rollback made is as good as the one that it went back to, but not better.
                if not any(rolled.version == version for rolled in self._rollbacks):
                    self._end(version)
            case RolledBack(to=to):
                self._rollbacks.append(event)
                # A late evaluation may belong to a version before the good one: the collapse has ended for it, too.
                last = min(to, event.collapsed - 1)
                self._measures = [one for one in self._measures if one.version <= last]
                # Keep at least one level: without any, nothing would be bad, and a second collapse would go unnoticed.
                self._levels = [one for one in self._levels if one.version <= to] or self._levels[:1]
                self._ends = [version for version in self._ends if version <= to]
                self._good_ends = {version: score for version, score in self._good_ends.items() if version <= to}
                self._good = {version: score for version, score in self._good.items() if version <= to}
            case _:
                return
        self._first_kept = self.to_keep[0]
        self.collapse = self._find_collapse()

    @property
    def last_good_end(self) -> int:
        """The version at the end of the last epoch that was evaluated and not bad; 0 (the initial weights) if none."""
        return next(reversed(self._good_ends), 0)

    @property
    def covered(self) -> int:
        """The version at the end of the last good epoch but one, or 0. Uploads of later updates must be kept.

        Lies are found late, and removing a liar's update means applying all later ones again.
        """
        return ([0, 0, *self._good_ends])[-2]

    @property
    def to_keep(self) -> list[int]:
        """The versions whose snapshots a rollback may need, ascending: the ends of the last _TRIES good epochs.

        An epoch is good if the score at its end was not bad. With fewer good epochs, version 0 is one of them. After a
        rollback, versions that are no longer kept are left out.
        """
        ends = [*reversed([*islice(reversed(self._good_ends), _TRIES), 0][:_TRIES])]
        return [end for end in ends if end >= self._first_kept]

    def wants_measure_of(self, version: int) -> bool:
        """Return whether to evaluate the newest version too, because a recent score was bad: collapse or fluctuation?

        Evaluations requested this way are at least an eighth of an epoch of updates apart.
        """
        # Further evaluations take time, so they are requested only while they can lead to a rollback.
        if not self._bad or self._tries >= _TRIES or self.collapse is not None:
            return False
        return version >= self._measures[-1].version + max(1, self._stretch // (2 * _MEASURES))

    def _find_collapse(self) -> Collapse | None:
        """Return the collapse that the last stretch of scores proves, or None."""
        bad, stretch = self._bad, self._last_stretch
        if not bad or len(stretch) < _MEASURES or self._tries >= _TRIES:
            return None
        # Several bad scores close together may be one fluctuation, so they must span half of an epoch.
        if bad[-1].version - bad[0].version < self._stretch // 2 or not median(_scores(stretch)) < self._bad_below:
            return None
        return Collapse(bad[0].version, bad[0].value, self._levels[-1].value, self._good_end(), bool(self._tries))

    @property
    def _tries(self) -> int:
        """Rollbacks since the last good end of an epoch."""
        return sum(rolled.version > self.last_good_end for rolled in self._collapses)

    @property
    def _collapses(self) -> list[RolledBack]:
        """The rollbacks from a collapse, without those that removed the uploads of a host."""
        return [rolled for rolled in self._rollbacks if not rolled.host]

    @property
    def _stretch(self) -> int:
        """The number of updates over which a collapse is judged: an epoch, within limits."""
        return min(max(self.shards, _STRETCH_AT_LEAST), _STRETCH_AT_MOST)

    @property
    def _last_stretch(self) -> list[_Measure]:
        """The evaluations of the last `_stretch` versions, ascending by version."""
        if not self._measures:
            return []
        since = self._measures[-1].version - self._stretch
        return [one for one in self._measures if one.version > since]

    @property
    def _bad(self) -> list[_Measure]:
        """The bad scores of the last stretch; scores before the job reached its level are never bad."""
        if not self._levels:
            return []
        since, below = self._levels[-1].version, self._bad_below
        return [one for one in self._last_stretch if one.version > since and one.score < below]

    @property
    def _bad_below(self) -> float:
        """The score below which a version is bad."""
        return self._levels[-1].score - self._fall if self._levels and self._measures else -math.inf

    @property
    def _fall(self) -> float:
        """The distance below the level from which a score is bad."""
        level = self._levels[-1]
        least = _FALL_LOSS if self._is_ratio else max(_FALL, _FALL_SHARE * abs(level.score))
        return max(least, _SWINGS * self._swing)

    @property
    def _is_ratio(self) -> bool:
        """Whether a value is compared with the level as a ratio, because the monitor is an error or a loss."""
        return self.monitor is not None and self.monitor.mode == MIN and not self.monitor.is_signed

    def _score(self, value: float) -> float:
        """Return a monitored value as a score, so that larger is better: −log for losses and errors."""
        if not math.isfinite(value):
            return _WORST
        if self._is_ratio:
            return -math.log(max(value, _SMALLEST))
        return value if self.monitor is None or self.monitor.mode == MAX else -value

    def _good_end(self) -> int:
        """Return the version to roll back to: the last epoch end that fell by less than half of what is bad.

        If an earlier rollback did not give good weights, or two rollbacks were followed by a collapse, return the end
        before it.
        """
        least = self._levels[-1].score - self._fall / 2
        ends = [end for end in self.to_keep if end == 0 or self._good_ends[end] >= least] or self.to_keep[:1]
        has_failed = self._tries > 1 or (self._tries == 1 and not self._is_good(self._collapses[-1].version))
        return ends[-2] if has_failed and len(ends) > 1 else ends[-1]

    def _is_good(self, version: int) -> bool:
        return version in self._good or version in self._good_ends

    def _end(self, version: int) -> None:
        """Record that an epoch ended at a version: as good if it is already in `_good`, otherwise as not evaluated."""
        # It may be evaluated already, because versions are evaluated in any order. Otherwise `_add_measure` calls this
        # again.
        score = self._good.get(version)
        if score is None:
            self._ends.append(version)
        elif next(reversed(self._good_ends), 0) < version:
            self._good_ends[version] = score
        else:
            # This is a late evaluation of an earlier end: the dict must stay in order of versions.
            self._good_ends = dict(sorted({**self._good_ends, version: score}.items()))
        kept = self._rollbacks[-1].version if self._rollbacks else version
        self._good = {good: score for good, score in self._good.items() if good >= version or good == kept}

    def _add_measure(self, measure: _Measure) -> None:
        """Add an evaluation; while no score is bad, update the job's level and its usual fluctuation."""
        self._measures.append(measure)
        self._measures.sort(key=lambda one: one.version)
        last = self._last_stretch
        recent = last if len(last) >= _LEVEL_OF else self._measures[-_LEVEL_OF:]
        # Earlier scores are already part of the levels and the fluctuation. The list must not grow with the job.
        self._measures = self._measures[-max(len(last), _LEVEL_OF) :]
        if not measure.score < self._bad_below:
            self._good[measure.version] = measure.score
        if measure.version in self._ends:
            self._ends.remove(measure.version)
            self._end(measure.version)
        score = median(_scores(recent))
        # While scores are bad the level stays, so that a slow attack cannot lower the reference.
        if len(recent) < _LEVEL_OF or self._bad:
            return
        # Half of all fluctuations are falls; a mere rise is none.
        falls = [max(0.0, earlier - later) for earlier, later in pairwise(_scores(recent))]
        self._swing = max(self._swing, 2.0 * fmean(falls))
        if not self._levels or score > self._levels[-1].score:
            self._levels.append(_Level(measure.version, median(one.value for one in recent), score))


def _scores(measures: Sequence[_Measure]) -> list[float]:
    return [one.score for one in measures]
