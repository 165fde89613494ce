"""Drive a run over a pool: the same loop as on one machine, with pilots as workers, which come and go."""

from vcdl.journal.events import StopReason
from vcdl.journal.observer import RunObserver
from vcdl.local.run import run_over
from vcdl.loop.plan import Publishing
from vcdl.pool.grid import PoolGrid
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import read_frozen

_PUBLISHED_EVERY_S = 1.0
"""Seconds between two publications of the newest weights, which cost a read of the store each."""


def run_over_pilots(folder: RunFolder, observer: RunObserver) -> StopReason | None:
    """Train a run with pilots until it ends or is interrupted. The caller holds the folder's RunLock.

    Args:
        folder: The run.
        observer: Called for each event.

    Returns:
        Why the run ended, or None if it was interrupted.
    """
    # Keep published weights for two time limits: a task waits in a mailbox for at most one, and is trained for at most
    # another.
    keeps_s = 2 * read_frozen(folder).grid.timeout_s
    return run_over(folder, observer, PoolGrid, Publishing(_PUBLISHED_EVERY_S, keeps_s))
