"""What a run and its pilots write to each other, as JSON, and the names of pilots.

`vcdl.pool.mailboxes` says in which files the messages are, and `vcdl.web.pilots` carries them over HTTP.
"""

import hashlib
import re
from typing import Annotated, Literal

import msgspec

from vcdl.pool.run_files import MOST_FILE_BYTES
from vcdl.wire.workunit import NAME_FORM

KEY_HEADER = "X-Pilot-Key"
"""The HTTP header with the secret key of a pilot's machine."""
_MARK_DIGITS = 16
"""Hexadecimal digits of a mark, 64 bits: so that finding a key for another machine's mark takes about 10^19 tries."""
_PILOT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
Name = Annotated[str, msgspec.Meta(pattern=rf"\A{NAME_FORM}\Z", max_length=200)]
"""A workunit's name."""


class Driver(msgspec.Struct, frozen=True):
    """What the process that drives a run announces to all pilots."""

    id: str
    """A random id of the process that drives the run."""
    machine: str
    """Host name of the process's machine."""
    pid: int
    beat: int
    """Counter of the process's heartbeats: while it changes, the process is alive."""
    state: Literal["running", "paused", "ended"]
    lease_s: float
    """Seconds without a heartbeat after which a pilot counts as gone."""
    look_s: float
    """Seconds between two looks of a waiting pilot into its mailbox."""
    brings_code: bool = False
    """Whether the job has code of its own, which a pilot may refuse to run."""
    newest_version: int = 0
    """Version of the weights in `newest_params`."""
    newest_params: str = ""
    """Path of the newest weights within the run's folder, or an empty string if none are published."""


class Assignment(msgspec.Struct, frozen=True):
    """A task in a pilot's mailbox: a workunit, and where its files are."""

    workunit: Name
    description: str
    """The content of its workunit.json."""
    files: dict[str, str]
    """Name under which the client expects a file → the file's path within the run's folder."""


class Message(msgspec.Struct, frozen=True):
    """A pilot's heartbeat: it is alive, and trains this task. It contains no results, which are in the mailbox."""

    pilot: str
    """Name of the pilot."""
    beat: int
    """Counter of the pilot's heartbeats."""
    training: Annotated[str, msgspec.Meta(pattern=rf"\A(?:{NAME_FORM})?\Z")] = ""
    """The workunit that it trains, or an empty string if it has none."""
    fraction: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """How much of the task is trained."""
    is_fetching: bool = False
    """Whether it is still fetching the task's files."""
    bytes_down: Annotated[int, msgspec.Meta(ge=0, le=8 * MOST_FILE_BYTES)] = 0
    """Bytes that it copied for the task. The limit keeps the sum over all tasks within 64 bits, because a journal with
    a larger number could not be read."""
    is_leaving: bool = False
    """Whether it leaves: the run then collects its last results, and removes its mailbox."""


class Drop(msgspec.Struct, frozen=True):
    """A request of the run that the pilot drops a task, whose result is no longer needed."""

    workunit: Name


def is_pilot(name: str) -> bool:
    """Return whether a text is a valid name of a pilot, and so of a file: 1 to 80 letters, digits, `_`, `.` and `-`."""
    return _PILOT.fullmatch(name) is not None


def host_of(pilot: str) -> str:
    """Return the part of a pilot's name that names its machine: `NAME` of `NAME-PID-RANDOM`."""
    return pilot.rsplit("-", 2)[0]


def mark_of(key: str) -> str:
    """Return the mark of a machine, which its pilots' names contain: the beginning of its secret key's SHA-256.

    The mark does not reveal the key, and it is infeasible to find another key with the same mark.
    """
    return hashlib.sha256(key.encode()).hexdigest()[:_MARK_DIGITS]
