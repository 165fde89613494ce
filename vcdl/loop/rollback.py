"""Roll a job back to a good version: decide under the restore lock, record the event, then change the store's weights.

The event comes first. From then on every server restores a store that is behind its version. So if a process is killed
anywhere in between, another one finishes the rollback, and nothing is done twice.
"""

from collections.abc import Sequence
from contextlib import suppress

from vcdl.errors import StoreError, StoreLost
from vcdl.journal.events import HostConvicted, RolledBack, UpdateApplied
from vcdl.journal.journal import Journal
from vcdl.journal.lineage import Lineage
from vcdl.loop.recovery import fold_again, make_newest, unused_version, whole_of
from vcdl.run.kept_weights import Snapshots
from vcdl.run.run import Run
from vcdl.trust.collapse import Collapse
from vcdl.trust.hosts import HostHistory
from vcdl.trust.job_trust import TakeBack
from vcdl.trust.kept_hosts import load_host_history


def roll_back(run: Run, snapshots: Snapshots, journal: Journal, collapse: Collapse) -> RolledBack:
    """Roll a job back from a collapse: record the event, change the store's weights, and return the event.

    The caller holds the RestoreLock exclusively.

    Raises:
        WeightsFileError: The good version is damaged.
        VcdlError: The weights could not be computed or stored. The event may already be in the journal; `restore_store`
            then finishes the rollback.
    """
    lineage = _lineage(journal)
    later = lineage.after(collapse.to)
    # The first time, only updates of suspects and what followed from them are dropped. If the weights collapse again,
    # the suspicion was wrong, and all updates since the good version are dropped (decision 024).
    bad = later if collapse.is_again else suspect_updates(later, load_host_history(journal).advance())
    event = RolledBack(
        version=_keep_newest(run, snapshots, lineage) + 1,
        to=collapse.to,
        dropped=tuple(update.version for update in _choose_dropped(run, collapse.to, later, bad)),
        collapsed=collapse.version,
        measured=collapse.measured,
        usual=collapse.usual,
    )
    return _done(event, run, snapshots, journal)


def take_back(run: Run, snapshots: Snapshots, journal: Journal, action: TakeBack) -> RolledBack:
    """Remove a convicted host's updates from the weights: record the event, change the store, and return the event.

    Updates of others that started from weights with such an update are dropped, too, and their subtasks are reissued.
    Steps, lock and errors are those of `roll_back`.
    """
    lineage = _lineage(journal)
    later, newest = lineage.after(action.to), _keep_newest(run, snapshots, lineage)
    dropped = _choose_dropped(run, action.to, later, _with_what_follows(later, action.versions))
    convicted = [row.event for row in journal.stream(kinds=(HostConvicted,))]
    # The conviction has already planned to retrain these. If they were listed twice, they would be trained twice.
    lies = {name for event in convicted if isinstance(event, HostConvicted) for name in event.again}
    event = RolledBack(
        version=newest + 1,
        to=action.to,
        dropped=tuple(update.version for update in dropped),
        collapsed=newest,
        measured=0.0,
        usual=0.0,
        host=action.host,
        again=tuple(one.workunit for one in dropped if not (one.is_part or one.workunit in lies)),
    )
    return _done(event, run, snapshots, journal)


def suspect_updates(updates: Sequence[UpdateApplied], hosts: HostHistory) -> Sequence[UpdateApplied]:
    """Return which updates the first rollback after a collapse drops, in order.

    These are the updates whose host has no verified upload of that version or later, and every update that started from
    a version that contains one of them. If there are none, return all.

    Args:
        updates: All updates after the version to go back to.
        hosts: The history of the job's hosts.
    """
    bad = [update.version for update in updates if not hosts.is_vouched(update.host, update.version)]
    return _with_what_follows(updates, bad) if bad else updates


def _with_what_follows(updates: Sequence[UpdateApplied], bad: Sequence[int]) -> Sequence[UpdateApplied]:
    """Return the updates whose versions are in `bad`, and all that started from the first of these or later."""
    # An honest client that started from poisoned weights has the poison in its own update (decision 060).
    return [update for update in updates if update.version in bad or update.base_version >= bad[0]]


def _choose_dropped(
    run: Run, to: int, later: Sequence[UpdateApplied], bad: Sequence[UpdateApplied]
) -> Sequence[UpdateApplied]:
    """Return the updates to drop: `bad`, or all in `later` if the others cannot be applied again.

    The rollback is tried out in memory first.

    Args:
        run: The run.
        to: The version to go back to.
        later: The updates after it.
        bad: Those of them that must be dropped.

    Raises:
        WeightsFileError: The snapshot of version `to` is damaged.
    """
    # Rehearse the rollback before the event is written: if it could not be carried out, the run would be left without
    # weights.
    whole, left_out = whole_of(to, run), {update.version for update in bad}
    try:
        for update in later:
            if update.version not in left_out:
                fold_again(run, update, whole)
    except StoreError:
        return later
    return bad


def _lineage(journal: Journal) -> Lineage:
    return Lineage.of(row.event for row in journal.stream(kinds=Lineage.KINDS))


def _keep_newest(run: Run, snapshots: Snapshots, lineage: Lineage) -> int:
    """Write a snapshot of the store's newest version, and return the highest version number used so far."""
    # If the store is lost, nothing is newer than the journal and the files.
    with suppress(StoreLost):
        snapshots.keep_newest()
    return unused_version(run.folder, lineage) - 1


def _done(event: RolledBack, run: Run, snapshots: Snapshots, journal: Journal) -> RolledBack:
    """Record a rollback, then change the store's weights accordingly; return the event."""
    # In this order: after a kill in between, the next server finishes the rollback (see the head of this module).
    journal.append(event)
    make_newest(run, snapshots.store, journal)
    return event
