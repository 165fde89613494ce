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
    """Return a number from 1 to 255 that stands for an upload; two uploads of a subtask rarely have the same.

    Args:
        workunit: The upload's workunit.
        train_s: Its training time, or None if it was not believed.
    """
    return crc32(f"{workunit} {train_s!r}".encode()) % 255 + 1


def is_taken(subtask: WorkunitName, mark: int, told: Workunit) -> bool | None:
    """Return whether an earlier upload of this host was applied, by a later workunit's list of applied uploads.

    Args:
        subtask: The upload's workunit.
        mark: The upload's `upload_mark`.
        told: The later workunit of the job.

    Returns:
        False if another upload of the subtask was applied, or if the list does not reach back so far. None if no upload
        of the subtask is applied yet, or its epoch is after the list's.
    """
    if subtask.epoch > told.epoch:
        return None
    marks = bytes.fromhex(told.taken or "")
    # The number of shards is not in the file: it follows from the length, as all epochs have equally many.
    place = (subtask.epoch - told.epoch + TOLD_EPOCHS - 1) * (len(marks) // TOLD_EPOCHS) + subtask.shard
    known = marks[place] if 0 <= place < len(marks) else -1
    return known == mark if known else None
