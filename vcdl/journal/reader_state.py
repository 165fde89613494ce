"""States that readers of a journal have folded, in files beside it: who may only read it cannot keep them in it.

A file names the last event in its state by a hash. So it is used with the journal that has this very event at this very
place, and with no other.
It is not used with an older copy that was put back, nor with what was appended to that one since.
"""

import json
from contextlib import suppress
from pathlib import Path

from vcdl.files.atomic import atomic_write
from vcdl.journal.journal import Journal


def keep_beside(journal: Journal, name: str, form: str, last_id: int, state: bytes) -> None:
    """Keep a state for the next reader, where that is possible. Raises JournalError."""
    head = json.dumps({"form": form, "last_id": last_id, "last_event": journal.digest(last_id)})
    with suppress(OSError), atomic_write(_file(journal, name)) as temporary:
        temporary.write_bytes(head.encode() + b"\n" + state)


def kept_beside(journal: Journal, name: str, form: str) -> tuple[int, bytes] | None:
    """The state of this name and form that a reader has kept, after the id of its last event; None: there is none, or
    it is damaged, or of another journal than this one.

    Raises JournalError.
    """
    try:
        line, _, state = _file(journal, name).read_bytes().partition(b"\n")
        head = json.loads(line)
        last_id = head["last_id"]
        if type(last_id) is not int or head["form"] != form or head["last_event"] != journal.digest(last_id):
            return None
        return last_id, state
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _file(journal: Journal, name: str) -> Path:
    return journal.path.with_name(f"{journal.path.stem}.{name}.state")
