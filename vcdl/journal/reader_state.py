"""Store states that readers without permission to write the journal have computed, in separate files next to it.

A file contains a hash of the last event in its state. It is used only with a journal that has this event at this
position: neither with an older copy that was restored, nor after events were appended to that copy.
"""

import json
from contextlib import suppress
from pathlib import Path

from vcdl.files.atomic import atomic_write
from vcdl.journal.journal import Journal


def save_reader_state(journal: Journal, name: str, form: str, last_id: int, state: bytes) -> None:
    """Write a state to a file next to the journal, for the next reader. If the folder may not be written, do nothing.

    Args:
        journal: The journal.
        name: The name of the state.
        form: Identifies code and settings that computed it; `load_reader_state` requires the same.
        last_id: The id of the last event in the state.
        state: The packed state.

    Raises:
        JournalError: The journal cannot be read.
    """
    head = json.dumps({"form": form, "last_id": last_id, "last_event": journal.digest(last_id)})
    # If the folder may not be written, the next reader computes the state again. If two readers do this simultaneously,
    # each replaces the whole file.
    with suppress(OSError), atomic_write(_file(journal, name)) as temporary:
        temporary.write_bytes(head.encode() + b"\n" + state)


def load_reader_state(journal: Journal, name: str, form: str) -> tuple[int, bytes] | None:
    """Return the id of the last event in a state that a reader has stored, and the packed state.

    Returns:
        None if there is no such state, or if it is damaged, has another form, or belongs to another journal.

    Raises:
        JournalError: The journal cannot be read.
    """
    try:
        line, _, state = _file(journal, name).read_bytes().partition(b"\n")
        head = json.loads(line)
        last_id = head["last_id"]
        # `bool` is an `int` in Python, and a huge number makes SQLite raise OverflowError, which is caught below.
        if type(last_id) is not int or head["form"] != form or head["last_event"] != journal.digest(last_id):
            return None
        return last_id, state
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _file(journal: Journal, name: str) -> Path:
    """Return the path of the file with a state."""
    return journal.path.with_name(f"{journal.path.stem}.{name}.state")
