"""A job goes back to its last good version: decided under the restore lock, written down, then done by recovery.

The event comes first. From then on a store behind its version is one that has to be restored, for every server: so a
process that is killed anywhere in between leaves nothing that another one would not finish, and nothing is done twice.
"""

from contextlib import suppress

from vcdl.errors import StoreLost
from vcdl.journal.events import RolledBack
from vcdl.journal.journal import Journal
from vcdl.journal.lineage import Lineage
from vcdl.loop.collapse import Collapse
from vcdl.loop.recovery import make_newest, whole_of
from vcdl.run.run import Run
from vcdl.run.snapshots import Snapshots


def roll_back(run: Run, snapshots: Snapshots, journal: Journal, collapse: Collapse) -> RolledBack:
    """Go back from a collapse; the caller holds the RestoreLock. Raises WeightsFileError when the good version is
    damaged, and what `make_newest` raises: then the event may be there already.
    """
    whole_of(collapse.to, run)  # it must be readable before it is decided that all goes back to it
    newest = 0
    with suppress(StoreLost):
        newest = snapshots.keep_newest()  # it may have to be measured, and is gone in a moment
    lineage = Lineage.of(row.event for row in journal.stream())
    event = RolledBack(
        version=max(lineage.version, newest) + 1,
        to=collapse.to,
        dropped=tuple(update.version for update in lineage.after(collapse.to)),
        collapsed=collapse.version,
        measured=collapse.measured,
        usual=collapse.usual,
    )
    journal.append(event)
    make_newest(run, snapshots.store, journal)
    return event
