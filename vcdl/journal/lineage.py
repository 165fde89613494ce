"""Find the updates that a version of the weights consists of, because rollbacks drop some.

A version is complete if an event records its snapshot, and the journal had a row for each of its updates by then. Only
from such a version (`bases`) can later ones be computed exactly: a server that was killed after it applied an update
and before it wrote the row leaves an update in the weights without a row. It will be uploaded and applied once more.
Completeness is found by counting: a version is the number of its updates, so a complete one has as many rows below it.
If versions were skipped (by a restore or a rollback), the count restarts at the version that recovery made.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Self

from vcdl.journal.events import EpochClosed, Event, RolledBack, RowsRewritten, StopDecided, StoreRestored, UpdateApplied


@dataclass
class Lineage:
    """The updates and the snapshot that the newest version consists of."""

    KINDS: ClassVar = (UpdateApplied, RolledBack, StoreRestored, RowsRewritten, EpochClosed, StopDecided)
    """The kinds of events from which it is computed; others may be left out."""

    recorded: list[UpdateApplied] = field(default_factory=list)
    """Every update that was ever applied, ascending by version, including those that a rollback dropped."""
    rollbacks: list[RolledBack] = field(default_factory=list)
    bases: dict[int, int] = field(default_factory=lambda: {0: 0})
    """Complete version → number of its updates that another server overwrote. Other versions are rebuilt from the
    snapshots of these."""
    _left_out: set[int] = field(default_factory=set)
    """The versions of updates that a rollback dropped."""
    _made: int = 0
    """The newest version that recovery made: a rollback's, or that of a restored store."""
    _counted_from: int = 0
    """The version from which rows are counted, which is known to be complete."""
    _counted: int = 0
    """Number of rows for versions after that one."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Return the lineage that follows from a journal's events, given in the journal's order."""
        lineage = cls()
        for event in events:
            lineage._follow(event)
        # Several servers write rows, which may therefore not be in the order of their versions.
        lineage.recorded.sort(key=lambda update: update.version)
        return lineage

    def _follow(self, event: Event) -> None:
        match event:
            case UpdateApplied():
                self.recorded.append(event)
                self._counted += event.version > self._counted_from
            case RolledBack():
                self.rollbacks.append(event)
                self._left_out.update(event.dropped)
                self._make(event.version, self.bases.get(event.to, 0))
            # An older journal gave the number of the newest update a second time, so versions below it are ambiguous.
            case StoreRestored(lost=None):
                self._counted_from, self._counted = event.version, 0
            case StoreRestored():
                self._make(event.version, event.lost or 0)
            # These snapshots are taken under the restore lock, so every living server has written its rows.
            case EpochClosed() | StopDecided() if self._counted_from + self._counted == event.version:
                self.bases[event.version] = event.lost
            case RowsRewritten() if self._counted_from + self._counted + event.rows == event.version:
                self.bases[event.version] = event.lost  # its rows follow in the same transaction
            case _:
                pass

    def _make(self, version: int, lost: int) -> None:
        """Record that recovery made a version, which is complete, and count rows from it on."""
        self._made = self._counted_from = version
        self._counted = 0
        self.bases[version] = lost

    @property
    def version(self) -> int:
        """The newest version."""
        return max(self.recorded[-1].version if self.recorded else 0, self._made)

    @property
    def ends_with_recovery(self) -> bool:
        """Whether recovery made the newest version, or still has to make it."""
        return self._made > 0 and self._made == self.version

    def after(self, version: int) -> list[UpdateApplied]:
        """Return the updates that lead from `version` to the newest version, in order of application.

        No rollback may have gone behind `version`: see `leads_on`.
        """
        return [update for update in self._rows(version, self.version) if update.version not in self._left_out]

    def refolded_updates(self, rolled: RolledBack) -> list[UpdateApplied]:
        """Return the updates that a rollback applied again."""
        # Later rollbacks are ignored: they had not happened when this one applied the updates again.
        earlier = self.rollbacks[: self.rollbacks.index(rolled) + 1]
        left_out = {version for one in earlier for version in one.dropped}
        return [update for update in self._rows(rolled.to, rolled.version) if update.version not in left_out]

    def base_of(self, version: int) -> int:
        """Return the newest complete version that is not above `version`; at least 0, the initial weights."""
        # Version 0 is always a base, so there is one.
        return max(base for base in self.bases if base <= version)

    def count_unrecorded(self, version: int) -> int:
        """Return how many updates the snapshot of a version contains that have no row in the journal.

        A server was killed between applying them and recording them, so their uploads are claimed again.
        """
        base = self.base_of(version)
        return max(0, version - base - len(self._rows(base, version)))

    def leads_on(self, version: int) -> bool:
        """Return whether the newest version was made from this one: no rollback went behind it."""
        return not any(rolled.undoes(version) for rolled in self.rollbacks)

    def _rows(self, after: int, up_to: int) -> list[UpdateApplied]:
        """Return the recorded updates of the versions above `after` and up to `up_to`."""
        begin, end = (bisect_right(self.recorded, v, key=lambda update: update.version) for v in (after, up_to))
        return self.recorded[begin:end]
