"""The files of a run that pilots may fetch, and copying such a file in steps of a few seconds."""

import errno
import re
import time
from pathlib import Path
from typing import IO

FETCHED = re.compile(r"model\.json|frozen\.h5|data/shards/shard_\d+\.npz|(?:snapshots|downloads)/params_v\d+\.h5")
"""The only files of a run that a subtask needs: all are in folders in which only the run's own user writes."""
MOST_FILE_BYTES = 16 << 30
"""Largest file that a pilot fetches, so that no file fills its disk; enough for weights of 4 billion numbers."""
_POUR_S, _BLOCK_BYTES = 5.0, 1 << 20
"""Seconds after which a copy is interrupted, to be continued by the next call, and bytes between two checks of that: a
pilot must send heartbeats within its lease, however large the file is."""


def pour(source: IO[bytes], part: Path) -> bool:
    """Append bytes from a source to a file for at most some seconds (`_POUR_S`).

    Returns:
        Whether the source has ended; if not, continue with another call.

    Raises:
        OSError: A file cannot be read or written, or is too large.
    """
    until_s = time.monotonic() + _POUR_S
    with part.open("ab", buffering=0) as sink:
        while block := source.read(_BLOCK_BYTES):
            if sink.tell() > MOST_FILE_BYTES:
                words = f"is larger than {MOST_FILE_BYTES >> 30} GiB, and no file of a subtask is"
                raise OSError(errno.EMSGSIZE, words, str(part))
            try:
                sink.write(block)
            except OSError as error:
                error.filename = str(part)  # to say whose disk is full
                raise
            if time.monotonic() >= until_s:
                return False
    return True
