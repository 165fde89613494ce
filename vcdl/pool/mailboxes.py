"""The folder through which a run and its pilots communicate, and the rules by which both write to it.

    RUN/pool/
      driver.json            from the run to all pilots: whether it continues, how often to look, the newest weights
      bell/PILOT.json        a pilot's heartbeat; a newer one replaces one that is unread
      desks/PILOT/           one mailbox for each pilot
        next.json            the task that the run gives it; the run takes it back by renaming it
        taken.json           the task that it trains: the pilot has renamed next.json
        drop.json            a task that the run no longer wants
        WORKUNIT.h5          a task's end: its update ...
        WORKUNIT.failed      ... or why there is none ...
        WORKUNIT.back        ... or that another pilot shall train it

Only renames within one folder tree decide who has which task, and no file is locked: a network file system guarantees
that renames are atomic, but may not support locks. So a kill at any moment leaves each task with exactly one side, or
delivered. Times of two machines are never compared: each side measures by its own clock for how long the other's
counter has not changed. A pilot reads only its own mailbox and driver.json, however many pilots there are.

Anyone with permission to write to the folder may lie, and may put a link, a pipe or a folder where a file is expected.
So names must match their forms, and only regular files are read. The run's side, whose user owns the run, works only in
folders that it holds open (vcdl.files.shared), so that a link cannot redirect it: in a mailbox through `Mailbox.held`.
"""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from vcdl.errors import GridError, for_shell
from vcdl.files.atomic import atomic_write
from vcdl.files.below import Below
from vcdl.files.shared import NotRegular, discard, held, regular
from vcdl.pool.messages import Assignment, Driver, Drop, Message, is_pilot
from vcdl.pool.run_files import pour
from vcdl.wire.workunit import NAME_FORM

_MOST_BYTES = 1 << 20
"""Largest message; its largest part is a workunit's description, for which this is enough."""
_ENDING = re.compile(rf"{NAME_FORM}\.(?:h5|failed|back)")
_DRIVER_BYTES = 1024
_REASON_CHARACTERS = 500
"""Most characters of a pilot's reason for a failure, so that no pilot fills the journal."""
T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True)
class Mailbox:
    """The mailbox of one pilot, a folder through which it gets tasks and delivers results. All methods raise OSError.

    It holds at most one task in training (taken.json) and one that is not started (next.json). The module's docstring
    has the protocol.
    """

    path: Path

    _next = Below("next.json")
    _taken = Below("taken.json")

    @contextmanager
    def held(self) -> Iterator["Mailbox"]:
        """Open the mailbox's folder, and yield a mailbox that works in the opened folder, whatever replaces its path.

        Raises:
            FileNotFoundError: The mailbox does not exist.
        """
        with held(self.path.parents[1], *self.path.parts[-2:]) as path:
            yield Mailbox(path)

    # -- the run's side; all calls raise OSError

    def give(self, task: Assignment) -> None:
        """Put a task into the mailbox as the next one, replacing an unstarted one.

        Raises:
            FileNotFoundError: The mailbox was removed, because the pilot has left.
        """
        _write(self._next, task)

    def take_back(self) -> str:
        """Withdraw the unstarted task; return its workunit, or "" if there is none or the pilot has just taken it."""
        back = self.path / "back.json"
        task = _read(back, Assignment) if _try_move(self._next, back) else None
        return "" if task is None else task.workunit

    def do_without(self, workunit: str) -> None:
        """Ask the pilot to drop a task, whose result is no longer needed."""
        _write(self.path / "drop.json", Drop(workunit))

    def tasks(self) -> list[str]:
        """Return the names of the workunits in this mailbox: the one in training first, then the unstarted one."""
        found = (_read(path, Assignment) for path in (self._taken, self._next))
        return [task.workunit for task in found if task is not None]

    def endings(self) -> list[Path]:
        """Return the paths of the results that the pilot has delivered, sorted: `.h5`, `.failed` and `.back` files."""
        return [self.path / name for name in sorted(os.listdir(self.path)) if _ENDING.fullmatch(name)]

    # -- the pilot's side; all calls raise OSError, and FileNotFoundError when the run has given the pilot up

    def make(self) -> None:
        """Create the mailbox. Raises FileExistsError if it exists."""
        self.path.mkdir()

    def taken_task(self) -> Assignment | None:
        """Return the task that the pilot has taken and not ended yet, or None if there is none."""
        return _read(self._taken, Assignment)

    def take(self) -> Assignment | None:
        """Claim the next task and return it, or None if there is none."""
        # The rename is the claim: if the run takes the task back at the same moment, exactly one of the two renames
        # succeeds.
        if self._next.name not in _names_now(self.path) or not _try_move(self._next, self._taken):
            return None
        return _read(self._taken, Assignment)

    def dropped_workunit(self) -> str:
        """Return the workunit that the run has asked the pilot to drop, or "" if there is none."""
        if "drop.json" not in _names_now(self.path):
            return ""
        drop = _read(self.path / "drop.json", Drop)
        return "" if drop is None else drop.workunit

    def end(self, workunit: str, update: Path | str | None) -> bool:
        """Deliver the result of a task, and remove the task from the mailbox.

        Args:
            workunit: The task.
            update: The file with its update, which is moved away; the reason of a failure; or None to have another
                pilot train the task.

        Returns:
            True: the result is delivered. (In a pool behind a service it may take several calls.)
        """
        if isinstance(update, Path):
            _deliver(update, self.path / f"{workunit}.h5")
        else:
            ending = self.path / f"{workunit}{'.back' if update is None else '.failed'}"
            with atomic_write(ending) as temporary, temporary.open("xb") as file:
                file.write((update or "").encode(errors="replace"))
        # Remove the task after the result is delivered: if the pilot is killed in between, it has delivered it.
        self.forget(workunit)
        return True

    def forget(self, workunit: str) -> None:
        """Remove the task in training, and a request to drop it, from the mailbox. `workunit` is not compared."""
        for path in (self._taken, self.path / "drop.json"):
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class PoolFolder:
    """The folder of a pool, for the run and for pilots that share it. All methods except `remove` raise OSError."""

    path: Path
    shortest_look_s = 0.02
    """Seconds between two looks of a pilot into its mailbox soon after a subtask: here a look costs little."""

    @classmethod
    def of(cls, run: Path) -> "PoolFolder":
        """Return the pool of the run in this folder. Nothing is created."""
        return cls(run / "pool")

    @property
    def run(self) -> Path:
        return self.path.parent

    @property
    def where(self) -> str:
        """The run, as text for messages."""
        return str(self.run)

    def file_identity(self, path: str) -> str:
        """Return a text that identifies the content of a file of the run: its path, size and modification time."""
        source = self.run / path
        found = source.stat()
        return f"{source}\0{found.st_size}\0{found.st_mtime_ns}"

    def copy(self, path: str, part: Path) -> bool:
        """Copy a file of the run for some seconds, continuing where `part` ends.

        Args:
            path: The file, relative to the run's folder.
            part: The copy, to which the next bytes are appended; created if it does not exist.

        Returns:
            Whether the copy is complete; if not, call again after the next heartbeat.
        """
        with (self.run / path).open("rb") as source:
            source.seek(part.stat().st_size if part.exists() else 0)
            return pour(source, part)

    _heartbeats = Below("bell")
    _driver = Below("driver.json")
    mailboxes = Below("desks")

    def mailbox(self, pilot: str) -> Mailbox:
        return Mailbox(self.mailboxes / pilot)

    def make(self) -> None:
        """Create the folder and those inside it, unless they exist."""
        for folder in (self._heartbeats, self.path / "read", self.mailboxes):
            folder.mkdir(parents=True, exist_ok=True)

    def read_driver(self) -> Driver | None:
        """Return what the run's process has announced to the pilots, or None if there is nothing yet."""
        return _read(self._driver, Driver)

    def write_driver(self, driver: Driver) -> None:
        """Announce the state of the run to all pilots, replacing the last announcement."""
        # Overwrite the old content in place, so that a machine that caches file handles sees the new content. The
        # length is constant, so that a reader never finds the end of a longer text after a shorter one.
        content = msgspec.json.encode(driver).ljust(_DRIVER_BYTES)
        descriptor = regular(self._driver, os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(descriptor, content, 0)
        finally:
            os.close(descriptor)

    def ring(self, message: Message) -> None:
        """Send a pilot's heartbeat to the run; it replaces one that is still unread."""
        with held(self.path, "bell") as heartbeats:
            _write(heartbeats / f"{message.pilot}.json", message)

    def rung(self) -> list[Message]:
        """Remove and return the heartbeats that arrived since the last call, at most one of each pilot, by name.

        Files in the folder that are no valid heartbeats are removed, too.

        Raises:
            OSError: The folder cannot be used.
        """
        messages = []
        with held(self.path, "bell") as heartbeats, held(self.path, "read") as folder:
            for name in sorted(_names_now(heartbeats)):
                pilot, suffix = os.path.splitext(name)
                if name.startswith("."):  # a message that is being written
                    continue
                # Move it before reading: a heartbeat that arrives later is another file, and stays. Use a new name:
                # a folder that cannot be removed must not block a later heartbeat.
                read = folder / secrets.token_hex(8)
                if not _try_move(heartbeats / name, read):
                    continue
                message = _read(read, Message) if suffix == ".json" and is_pilot(pilot) else None
                discard(read)
                if message is not None and message.pilot == pilot:
                    messages.append(message)
        return messages

    def pilots(self) -> list[str]:
        """Return the names of the pilots that have a mailbox, sorted."""
        with held(self.path, "desks") as mailboxes:
            return sorted(filter(is_pilot, os.listdir(mailboxes)))

    def remove(self, pilot: str) -> None:
        """Remove a pilot's mailbox, so that it can no longer deliver results; ignore errors."""
        with suppress(OSError), held(self.path, "desks") as mailboxes:
            discard(mailboxes / pilot)


def no_pool(folder: Path) -> GridError:
    """Return the error that no driver has announced itself in a run's folder, or has not finished preparing the run."""
    return GridError(
        f"no pool was started in {folder}: `vcdl pool JOB.yaml --out {for_shell(folder)}` starts one, and takes pilots "
        "once it prints `starting the workers`"
    )


def _names_now(folder: Path) -> list[str]:
    """Return the names in a folder, after renaming a file in it so that network file systems do not use a cache."""
    one, other = folder / ".look.0", folder / ".look.1"
    if not _try_move(one, other) and not _try_move(other, one):
        with suppress(FileExistsError):  # made by another thread, or a link that must not be followed
            one.touch(exist_ok=False)
    return os.listdir(folder)


def _write(path: Path, message: msgspec.Struct) -> None:
    with atomic_write(path) as temporary, temporary.open("xb") as file:  # never through a link
        file.write(msgspec.json.encode(message))


def _read(path: Path, kind: type[T]) -> T | None:
    """Return the message in a file, or None if the file is missing, no regular file or invalid."""
    try:
        return msgspec.json.decode(_read_some(path, _MOST_BYTES + 1), type=kind)
    except (FileNotFoundError, NotRegular, ValueError, RecursionError):  # also bytes that are no UTF-8
        return None


def read_reason(ending: Path) -> str:
    """Read a pilot's reason for a failure, at most its first 500 characters.

    Raises:
        OSError: The file cannot be read.
    """
    try:
        return _read_some(ending, 4 * _REASON_CHARACTERS).decode(errors="replace")[:_REASON_CHARACTERS]
    except NotRegular as error:
        return f"its reason {error.strerror}"


def _read_some(path: Path, most_bytes: int) -> bytes:
    """Return at most the first `most_bytes` bytes of a regular file; a link or a pipe is never followed or read.

    Raises:
        OSError: The file cannot be read, or is not a regular file.
    """
    with open(path, "rb", opener=regular) as file:
        return file.read(most_bytes)


def _deliver(update: Path, target: Path) -> None:
    """Move an update to its place, where it appears only when it is complete; from another disk it is copied first."""
    try:
        update.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with atomic_write(target) as temporary, update.open("rb") as source, temporary.open("xb") as sink:
            shutil.copyfileobj(source, sink)
        update.unlink()


def _try_move(source: Path, target: Path) -> bool:
    try:
        source.rename(target)
    except FileNotFoundError:
        return False
    return True
