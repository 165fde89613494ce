"""The small files in a slot through which a task and the BOINC client, or a person, tell each other how it ends."""

from pathlib import Path

from vcdl.errors import VcdlError

EXIT_ABORTED = 194
"""BOINC's EXIT_ABORTED_BY_CLIENT."""
EXIT_INIT_FAILURE = 206
"""BOINC's own code for a task that could not begin."""

_FINISHED = "boinc_finish_called"
_POSTPONED = "boinc_temporary_exit"
_FINISH_NOW = "vcdl_finish_now"


class SlotError(VcdlError):
    """What the BOINC client puts into a slot is not what it should be."""


def clear_endings(slot: Path) -> None:
    """Forget how an earlier process of this task ended: the client kills a task that runs on beside such a file."""
    for name in (_FINISHED, _POSTPONED):
        (slot / name).unlink(missing_ok=True)


def tell_finished(slot: Path) -> None:
    """The task is done: all that is left is to exit with 0. Raises OSError."""
    (slot / _FINISHED).write_text("0\n")


def tell_postponed(slot: Path, delay_s: int, reason: str) -> None:
    """Exit with 0 after this, and the client starts the task again `delay_s` (at most a day) later. Raises OSError."""
    (slot / _POSTPONED).write_text(f"{delay_s}\n{reason}\n", encoding="utf-8")


def finish_now_wanted(slot: Path, project: Path) -> bool:
    """Whether somebody who knows that the machine goes away has left the file that says so, for this task or for all."""
    return (slot / _FINISH_NOW).exists() or (project / _FINISH_NOW).exists()
