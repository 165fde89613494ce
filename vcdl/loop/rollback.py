"""A job goes back to its last good version: decided under the restore lock, written down, then done by recovery.

The event comes first. From then on a store behind its version is one that has to be restored, for every server: so a
process that is killed anywhere in between leaves nothing that another one would not finish, and nothing is done twice.
"""

from collections.abc import Sequence
from contextlib import suppress
from statistics import median

from vcdl.errors import StoreError, StoreLost
from vcdl.journal.events import RolledBack, UpdateApplied, UploadScored
from vcdl.journal.hosts import HostHistory
from vcdl.journal.journal import Journal
from vcdl.journal.kept_state import kept_hosts
from vcdl.journal.lineage import Lineage
from vcdl.loop.collapse import Collapse
from vcdl.loop.recovery import fold_again, make_newest, whole_of
from vcdl.run.run import Run
from vcdl.run.snapshots import Snapshots

_SUSPECT = 0.5
"""A host that counts less than this is a suspect."""
_LATELY = 100
"""Scored uploads that say what is usual."""
_SPREADS = 6.0
"""An upload so many median deviations below the usual gain is harmful."""


def roll_back(run: Run, snapshots: Snapshots, journal: Journal, collapse: Collapse) -> RolledBack:
    """Go back from a collapse; the caller holds the RestoreLock. Raises WeightsFileError when the good version is
    damaged, and what `make_newest` raises: then the event may be there already.
    """
    newest = 0
    with suppress(StoreLost):
        newest = snapshots.keep_newest()  # it may have to be measured, and is gone in a moment
    lineage = Lineage.of(row.event for row in journal.stream(kinds=Lineage.KINDS))
    later = lineage.after(collapse.to)
    dropped: Sequence[UpdateApplied] = later
    if not collapse.is_again:
        scored = (row.event for row in journal.stream(kinds=(UploadScored,)))
        scores = [event for event in scored if isinstance(event, UploadScored)]
        dropped = without_trust(later, kept_hosts(journal).now(), scores)
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
    journal.append(event)
    make_newest(run, snapshots.store, journal)
    return event


def without_trust(
    updates: Sequence[UpdateApplied], hosts: HostHistory, scores: Sequence[UploadScored]
) -> Sequence[UpdateApplied]:
    """Those of the updates since a good version, in order, that are dropped.

    They are the suspects' (hosts in quarantine, new, or with a bad record) and the harmful ones; with them those of
    which nobody knows better, unscored ones of hosts that are not proven; and whatever started from a version with one
    of all these in it. Without a suspect or harm the cause is not known, and all are dropped.
    """
    suspects = {host for host in {update.host for update in updates} if hosts.weight(host) < _SUSPECT}
    harmful, scored = harmful_uploads(scores), {score.workunit for score in scores}
    if not any(update.host in suspects or update.workunit in harmful for update in updates):
        return updates
    bad = {
        update.version
        for update in updates
        if update.host in suspects
        or update.workunit in harmful
        or not (update.workunit in scored or hosts.is_proven(update.host))
    }
    first = min(bad)
    return [update for update in updates if update.version in bad or update.base_version >= first]


def harmful_uploads(scores: Sequence[UploadScored]) -> set[str]:
    """The workunits whose uploads made the loss worse, and far more so than the others lately."""
    lately = scores[-_LATELY:]
    if not lately:
        return set()
    usual = median(scored.gain for scored in lately)
    spread = median(abs(scored.gain - usual) for scored in lately)
    return {scored.workunit for scored in lately if scored.gain < min(0.0, usual - _SPREADS * spread)}


def _can_be_made(run: Run, version: int, updates: Sequence[UpdateApplied]) -> bool:
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
