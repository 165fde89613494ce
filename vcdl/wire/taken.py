"""Which uploads count, as a workunit tells the hosts that keep what their uploads left out. Standard library only.

`Workunit.taken` has a byte for each subtask of the last epochs, in the order of epochs and shards: 0 while no upload of
it counts, else the mark of the one that does. A host knows the mark of what it sent (vcdl.client.residual).
"""

from zlib import crc32

from vcdl.wire.workunit import Workunit, WorkunitName

TOLD_EPOCHS = 4
"""Epochs of whose uploads a workunit tells, with its own. `rolling` begins at most one epoch ahead of a straggler, so
even the next subtask but one of the slowest host finds its last upload among them."""


def upload_mark(workunit: str, train_s: float | None) -> int:
    """Return a number from 1 to 255 that tells an upload from others of its subtask: no two train for as long."""
    return crc32(f"{workunit} {train_s!r}".encode()) % 255 + 1


def is_taken(subtask: WorkunitName, mark: int, told: Workunit) -> bool | None:
    """Return whether an earlier upload counts, by its mark; None while no upload of its subtask does."""
    if subtask.epoch > told.epoch:
        return None
    marks = bytes.fromhex(told.taken or "")
    # The number of shards is not in the file: it follows from the length, as all epochs have as many.
    place = (subtask.epoch - told.epoch + TOLD_EPOCHS - 1) * (len(marks) // TOLD_EPOCHS) + subtask.shard
    known = marks[place] if 0 <= place < len(marks) else -1
    return known == mark if known else None
