"""Encode which uploads were applied, for hosts that keep residuals of their uploads. Standard library only.

`Workunit.taken` has a byte for each subtask of the last epochs, in the order of epochs and shards: 0 while no upload of
the subtask was applied, else the mark of the applied one. A host stores the marks of its own uploads
(vcdl.client.residual).
"""

from zlib import crc32

from vcdl.wire.workunit import Workunit, WorkunitName

TOLD_EPOCHS = 4
"""Number of last epochs, including its own, whose applied uploads a workunit lists. `rolling` begins at most one epoch
ahead of a straggler, so even the next subtask but one of the slowest host finds its last upload among them."""


def upload_mark(workunit: str, train_s: float | None) -> int:
    """Return a mark from 1 to 255 of an upload, from its training time; two uploads of a subtask rarely share one."""
    return crc32(f"{workunit} {train_s!r}".encode()) % 255 + 1


def is_taken(subtask: WorkunitName, mark: int, told: Workunit) -> bool | None:
    """Return whether an earlier upload of this host was applied.

    Args:
        subtask: The upload's workunit.
        mark: Its `upload_mark`.
        told: A later workunit of the job, which lists the applied uploads.

    Returns:
        None while no upload of the subtask was applied.
    """
    if subtask.epoch > told.epoch:
        return None
    marks = bytes.fromhex(told.taken or "")
    # The number of shards is not in the file: it follows from the length, as all epochs have equally many.
    place = (subtask.epoch - told.epoch + TOLD_EPOCHS - 1) * (len(marks) // TOLD_EPOCHS) + subtask.shard
    known = marks[place] if 0 <= place < len(marks) else -1
    return known == mark if known else None
