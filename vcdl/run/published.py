"""The versions of the weights that clients may start from in place of their workunit's."""

from dataclasses import dataclass

from vcdl.journal.events import WeightsPublished
from vcdl.journal.journal import Journal
from vcdl.run.folder import RunFolder


@dataclass(frozen=True)
class Published:
    """The published versions of one run."""

    journal: Journal
    folder: RunFolder
    must_be_kept: bool = True

    def __contains__(self, version: object) -> bool:
        """Whether an upload that started from a version can be taken. Raises JournalError."""
        if not isinstance(version, int) or (self.must_be_kept and not self.folder.snapshot(version).exists()):
            return False
        return self.journal.find(WeightsPublished.key_of(version)) is not None
