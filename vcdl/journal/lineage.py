"""The updates that a version of the weights is made of, as the journal tells it: rollbacks leave some of them out."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Self

from vcdl.journal.events import Event, RolledBack, UpdateApplied


@dataclass
class Lineage:
    """What the newest version is made of; `follow` each event in the order of the journal, then read."""

    KINDS: ClassVar = (UpdateApplied, RolledBack)
    """The events that it follows."""

    recorded: list[UpdateApplied] = field(default_factory=list)
    """Every update that was ever applied."""
    rollbacks: list[RolledBack] = field(default_factory=list)
    _left_out: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """The lineage that a journal tells."""
        lineage = cls()
        for event in events:
            if isinstance(event, UpdateApplied):
                lineage.recorded.append(event)
            elif isinstance(event, RolledBack):
                lineage.rollbacks.append(event)
                lineage._left_out.update(event.dropped)
        lineage.recorded.sort(key=lambda update: update.version)
        return lineage

    @property
    def version(self) -> int:
        """The newest version."""
        return max(
            self.recorded[-1].version if self.recorded else 0, self.rollbacks[-1].version if self.rollbacks else 0
        )

    @property
    def ends_with_rollback(self) -> bool:
        """Whether a rollback made the newest version."""
        return bool(self.rollbacks) and self.rollbacks[-1].version == self.version

    def after(self, version: int) -> list[UpdateApplied]:
        """The updates of the newest version that `version` does not have, in the order in which they are folded in.

        `version` is one that leads to the newest.
        """
        return [update for update in self._rows(version, self.version) if update.version not in self._left_out]

    def refolded(self, rolled: RolledBack) -> list[UpdateApplied]:
        """The updates that a rollback folded in again."""
        earlier = self.rollbacks[: self.rollbacks.index(rolled) + 1]
        left_out = {version for one in earlier for version in one.dropped}
        return [update for update in self._rows(rolled.to, rolled.version) if update.version not in left_out]

    def leads_on(self, version: int) -> bool:
        """Whether the newest version comes from this one: no rollback went back behind it."""
        return not any(rolled.undoes(version) for rolled in self.rollbacks)

    def is_complete(self, version: int) -> bool:
        """Whether the journal has a row of every update that is in this version.

        A server may have been killed between its fold and its row. Such a version is not one that a rollback made,
        nor older than it.
        """
        begin = max((rolled.version for rolled in self.rollbacks if rolled.version <= version), default=0)
        return len(self._rows(begin, version)) == version - begin

    def _rows(self, after: int, up_to: int) -> list[UpdateApplied]:
        begin, end = (bisect_right(self.recorded, v, key=lambda update: update.version) for v in (after, up_to))
        return self.recorded[begin:end]
