"""A job goes back to a good version: decided under the restore lock, written down, then done by recovery.

The event comes first. From then on a store behind its version is one that has to be restored, for every server. So a
process that is killed anywhere in between leaves nothing that another one would not finish, and nothing is done twice.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress

from vcdl.errors import StoreError, StoreLost
from vcdl.journal.events import RolledBack, UpdateApplied
from vcdl.journal.hosts import HostHistory
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import kept_hosts
from vcdl.journal.lineage import Lineage
from vcdl.loop.collapse import Collapse
from vcdl.loop.coordinator import TakeBack
from vcdl.loop.recovery import fold_again, make_newest, whole_of
from vcdl.run.kept_weights import Snapshots
from vcdl.run.run import Run


def roll_back(run: Run, snapshots: Snapshots, journal: Journal, collapse: Collapse) -> RolledBack:
    """Go back from a collapse; the caller holds the RestoreLock. Raises WeightsFileError when the good version is
    damaged, and what `make_newest` raises: then the event may be there already.
    """
    lineage, newest = _lineage(journal), _newest(snapshots)
    later = lineage.after(collapse.to)
    dropped: Sequence[UpdateApplied] = later
    if not collapse.is_again:
        dropped = without_trust(later, kept_hosts(journal).now())
    left_out = {update.version for update in dropped}
    if not _can_be_made(run, collapse.to, [update for update in later if update.version not in left_out]):
        dropped = later
    event = RolledBack(
        version=max(lineage.version, newest) + 1,
        to=collapse.to,
        dropped=tuple(update.version for update in dropped),
        collapsed=collapse.version,
        measured=collapse.measured,
        usual=collapse.usual,
    )
    return _done(event, run, snapshots, journal)


def take_back(run: Run, snapshots: Snapshots, journal: Journal, action: TakeBack) -> RolledBack:
    """Take the uploads of a convicted host back, likewise. What others made of weights with them stays; where theirs
    cannot be folded in again, all are dropped.
    """
    lineage, newest = _lineage(journal), _newest(snapshots)
    later = lineage.after(action.to)
    dropped = [update for update in later if update.version in action.versions]
    if not _can_be_made(run, action.to, [update for update in later if update.version not in action.versions]):
        dropped = later
    newest = max(lineage.version, newest)
    versions = tuple(update.version for update in dropped)
    event = RolledBack(newest + 1, action.to, versions, newest, measured=0.0, usual=0.0, host=action.host)
    return _done(event, run, snapshots, journal)


def without_trust(updates: Sequence[UpdateApplied], hosts: HostHistory) -> Sequence[UpdateApplied]:
    """The dropped updates since a good version, in order: what their hosts brought on their word alone,
    and what started from a version with one of these in it. Where that is none or nearly all, all of them.
    """
    bad = {update.version for update in updates if not hosts.is_vouched(update.host, update.version)}
    first = min(bad, default=0)
    return [update for update in updates if not bad or update.version in bad or update.base_version >= first]


def _lineage(journal: Journal) -> Lineage:
    return Lineage.of(row.event for row in journal.stream(kinds=Lineage.KINDS))


def _newest(snapshots: Snapshots) -> int:
    """The newest version, kept: it may have to be measured, and is gone in a moment. 0: the store has lost it."""
    with suppress(StoreLost):
        return snapshots.keep_newest()
    return 0


def _done(event: RolledBack, run: Run, snapshots: Snapshots, journal: Journal) -> RolledBack:
    journal.append(event)
    make_newest(run, snapshots.store, journal)
    return event


def _can_be_made(run: Run, version: int, updates: Collection[UpdateApplied]) -> bool:
    """Whether a version is readable, and updates can be folded into it again. Raises WeightsFileError for the
    version: it must be known before it is decided that all goes back to it.
    """
    whole = whole_of(version, run)
    try:
        for update in updates:
            fold_again(run, update, whole)
    except StoreError:
        return False
    return True
