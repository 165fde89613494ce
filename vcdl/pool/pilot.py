"""A pilot takes tasks from its mailbox, trains them in a worker process, and delivers the results.

It keeps sending heartbeats meanwhile.
"""

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from vcdl.errors import DISK_FULL, WorkunitError
from vcdl.errors.backoff import Attempts, Backoff
from vcdl.pool.mailboxes import FETCHED, Assignment, Driver, Message
from vcdl.wire.newest import NEWEST_FILE, VERSION_FILE
from vcdl.wire.workunit import DESCRIPTION_FILE, FROZEN_FILE, INPUT_FILES, OUTPUT_FILE, PARAMS_FILE, Workunit

_FILES = frozenset({*INPUT_FILES, FROZEN_FILE}) - {DESCRIPTION_FILE}
"""The files of a subtask without its description, by their names in its slot."""
_LASTING = frozenset({errno.ENOENT, errno.EPERM, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ELOOP})
"""Errors of a shared file that waiting does not resolve."""
_BEATS_A_LEASE = 4
_DRIVER_LOOK_S = 2.0
_EAGER_S = 0.5
"""Seconds after a subtask in which a pilot checks for the next one as often as the run checks for heartbeats."""


class Worker(Protocol):
    """The interface of the process that trains."""

    @property
    def ready(self) -> bool:
        """Whether it can start a workunit."""
        ...

    def train(self, workunit: str, folder: Path) -> None:
        """Start training the workunit in a folder."""
        ...

    def send(self, **command: Any) -> None:
        """Send a command of vcdl.client.worker."""
        ...

    def wait(self, timeout_s: float) -> Sequence[dict[str, Any]]:
        """Wait for events of vcdl.client.worker; `{"event": "died", "how": …}` after the worker's end.

        Raises:
            GridError: No worker can be started.
        """
        ...


class PilotMailbox(Protocol):
    """The pilot's side of its mailbox.

    Calls raise OSError; FileNotFoundError means that the run has given the pilot up.
    """

    def make(self) -> None: ...
    def take(self) -> Assignment | None: ...
    def dropped_workunit(self) -> str: ...
    def end(self, workunit: str, update: Path | str | None) -> bool: ...
    def forget(self, workunit: str) -> None: ...


class SharedPool(Protocol):
    """A pilot's access to its pool: a folder, or a service. All calls raise OSError."""

    shortest_look_s: float
    """Seconds between two reads of a mailbox soon after a subtask."""

    @property
    def where(self) -> str: ...
    def read_driver(self) -> Driver | None: ...
    def ring(self, message: Message) -> None: ...
    def mailbox(self, pilot: str) -> PilotMailbox: ...
    def file_identity(self, path: str) -> str: ...
    def copy(self, path: str, part: Path) -> bool: ...


@dataclass
class Pilot:
    """One pilot of a pool. Call `step` until it returns False."""

    name: str
    pool: SharedPool
    worker: Worker
    scratch: Path
    """A folder on this machine, for the files of the task and those that are kept for the next ones."""
    idle_s: float
    """Seconds without a sign that a process drives the run, after which the pilot leaves."""
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    why_left: str = ""
    """Why it left without being asked to, or an empty string if it was asked to or the job is over."""
    is_over: bool = False
    """Whether the job is over."""
    _task: Assignment | None = None
    _lacks: dict[str, str] | None = None
    """Name → path of the files that are still to be fetched, as in `Assignment.files`, or None if the worker has the
    task."""
    _newest: Driver | None = None
    """The run's offer of newest weights when all of the task's files were fetched."""
    _fraction: float = 0.0
    _bytes_down: int = 0
    _is_leaving: bool = False
    _beat: int = 0
    _rings_at_s: float = 0.0
    _is_eager_until_s: float = 0.0
    _looks_at_s: float = 0.0
    _reads_driver_at_s: float = 0.0
    _driver: Driver | None = None
    _heard_s: float | None = None
    """When the run's notice last changed, or None if it was not read yet."""
    _ending: Callable[[], bool] | None = None
    """A function that delivers the task's result, kept until the shared folder can be written again, or None if there
    is none."""
    _tries: Attempts = field(init=False)

    def __post_init__(self) -> None:
        self._tries = Attempts(Backoff(0.5, 30.0), self.clock)

    def leave(self) -> None:
        """Deliver what is trained, and leave."""
        self._is_leaving = True
        if self._lacks is not None:
            self._is_over(None)
        elif self._task is not None:
            self.worker.send(do="finish")

    def step(self, timeout_s: float) -> bool:
        """Do what is due, waiting up to `timeout_s`; return False once the pilot has left.

        Raises:
            GridError: No worker can be started.
        """
        if (self._lacks is not None or self._ending is not None) and self._tries.why is None:
            # Something waits to be copied or delivered: the pilot must not wait for its worker's events.
            timeout_s = 0.0
        elif self._task is None and self.clock() < self._is_eager_until_s:
            timeout_s = min(timeout_s, self.pool.shortest_look_s)
        for event in self.worker.wait(timeout_s):
            self._take(event)
        if not self._tries.is_due:
            return True
        try:
            goes_on = self._visit(self.clock())
        except OSError as error:
            self.say(self._tries.record_failure(f"{error.filename or self.pool.where}: {error.strerror or error}"))
            return self._is_patient(self.clock())
        self._tries.record_success()
        return goes_on

    # -- the worker

    def _take(self, event: dict[str, Any]) -> None:
        match event:
            case {"event": "progress", "fraction": float() | int() as fraction}:
                self._fraction = float(fraction)
            case {"event": "done"}:
                self._is_over(self.scratch / "slot" / OUTPUT_FILE)
            case {"event": "failed", "reason": str() as reason}:
                self._is_over(reason)
            case {"event": "died", "how": str() as how}:
                self._is_over(None if self._is_leaving else f"its worker died ({how})")
            case {"event": "no_room"}:
                self._leave_for_want_of_room()
            case {"event": "quit"}:
                self._task = None

    def _stop(self) -> None:
        """Stop the task without a result."""
        if self._lacks is not None:
            self._task = self._lacks = None
        else:
            self.worker.send(do="quit")

    def _is_over(self, update: Path | str | None) -> None:
        task, self._task, self._lacks = self._task, None, None
        if task is not None:
            self._ending = lambda: self.pool.mailbox(self.name).end(task.workunit, update)

    def _leave_for_want_of_room(self) -> None:
        self._is_over(None)
        self._is_leaving, self.why_left = True, f"there is no room in {self.scratch}: free some, or give --scratch"

    # -- the shared folder; all calls raise OSError

    def _visit(self, now_s: float) -> bool:
        if now_s >= self._reads_driver_at_s:
            self._read_driver(now_s)
        if not self._is_patient(now_s):
            return False
        if self._ending is not None:
            self._deliver(self._ending)
        if now_s >= self._looks_at_s:
            self._looks_at_s = now_s + self._look_s(now_s)
            self._look()
        if self._task is not None and self._lacks is not None:
            self._fetch(self._task, self._lacks)
        if now_s >= self._rings_at_s:
            self._ring(now_s)
        return not self._is_leaving or self._task is not None or self._ending is not None or self._farewell()

    def _look_s(self, now_s: float) -> float:
        """Return the time until the next look at the mailbox."""
        if self._driver is None or now_s < self._is_eager_until_s:
            return self.pool.shortest_look_s
        return max(self.pool.shortest_look_s, self._driver.look_s)

    def _read_driver(self, now_s: float) -> None:
        self._reads_driver_at_s = now_s + _DRIVER_LOOK_S
        driver = self.pool.read_driver()
        if driver is None:
            return
        before, self._driver = self._driver, driver
        if driver.state == "ended" and not self._is_leaving:
            self.say("the job is over")
            self._is_leaving = self.is_over = True
            if self._task is not None:  # its result is no longer wanted
                self._stop()
        # Compare a counter and not the file's time: the clocks of two machines are never compared.
        if driver.state == "running" and (before is None or (before.id, before.beat) != (driver.id, driver.beat)):
            self._heard_s = now_s

    def _is_patient(self, now_s: float) -> bool:
        if self._heard_s is None:
            self._heard_s = now_s
        if now_s - self._heard_s <= self.idle_s:
            return True
        self.why_left = f"no process has driven {self.pool.where} for {self.idle_s:g} s: `vcdl resume` there continues"
        return False

    def _look(self) -> None:
        mailbox = self.pool.mailbox(self.name)
        try:
            if self._task is None and self._ending is None and not self._is_leaving and self.worker.ready:
                task = mailbox.take()
                if task is not None:
                    self._begin(task)
            elif self._task is not None and mailbox.dropped_workunit() == self._task.workunit:
                self._forget("the run no longer wants it")
                mailbox.forget(self._task.workunit)
        except FileNotFoundError:
            self._arrive()

    def _arrive(self) -> None:
        """Create a mailbox: at the start, and after the run has given this pilot up."""
        if self._task is not None:
            self._forget("the run has given this pilot up, and has the subtask trained by another")
        self.pool.mailbox(self.name).make()
        self._rings_at_s = 0.0

    def _forget(self, why: str) -> None:
        if self._task is not None:
            self.say(f"{self._task.workunit}: {why}")
        self._stop()
        self._rings_at_s = 0.0

    def _deliver(self, ending: Callable[[], bool]) -> None:
        try:
            if not ending():
                return
        except FileNotFoundError:
            self.say("the run has given this pilot up: its last result is discarded")
        self._ending = None
        self._rings_at_s = self._looks_at_s = 0.0
        self._is_eager_until_s = self.clock() + _EAGER_S

    def _ring(self, now_s: float) -> None:
        self._beat += 1
        training = "" if self._task is None else self._task.workunit
        self.pool.ring(
            Message(
                self.name,
                self._beat,
                training,
                self._fraction,
                is_fetching=self._lacks is not None,
                bytes_down=self._bytes_down,
                # A run removes the mailbox of a pilot that leaves, and with it a result that is still being sent.
                is_leaving=self._is_leaving and not training and self._ending is None,
            )
        )
        self._rings_at_s = now_s + (60.0 if self._driver is None else self._driver.lease_s) / _BEATS_A_LEASE

    def _farewell(self) -> bool:
        self._ring(self.clock())
        return False

    # -- a task

    def _begin(self, task: Assignment) -> None:
        slot = self.scratch / "slot"
        # These are files of the last task. A checkpoint among them would not match the new description.
        shutil.rmtree(slot, ignore_errors=True)
        self._task, self._lacks, self._newest = task, dict(task.files), None
        self._fraction, self._bytes_down, self._rings_at_s = 0.0, 0, 0.0
        for name, path in task.files.items():  # whoever writes these paths could have any file of this user replaced
            if name not in _FILES or not FETCHED.fullmatch(path):
                self._is_over(f"the task names a file that no subtask has: {name[:80]!a} from {path[:80]!a}")

    def _fetch(self, task: Assignment, lacks: dict[str, str]) -> None:
        """Fetch the task's missing files for some seconds, and start training once none is missing."""
        slot = self.scratch / "slot"
        try:
            slot.mkdir(exist_ok=True)
            while lacks:
                name, path = next(iter(lacks.items()))
                if not self._fetch_file(path, slot / name):
                    return
                # Removed one by one, so that the next call continues with the file that was interrupted.
                del lacks[name]
            (slot / DESCRIPTION_FILE).write_text(task.description)
            if not self._fetch_newest(task, slot):
                return
        except OSError as error:
            # A fault of this machine ends the task or the pilot. For a fault of the shared folder the pilot waits,
            # because it affects all pilots.
            is_here = str(error.filename).startswith(str(self.scratch))
            if error.errno in DISK_FULL and (is_here or error.filename is None):
                self._leave_for_want_of_room()
            elif is_here or error.errno in _LASTING:
                self._is_over(f"{error.filename}: {error.strerror or error}")
            else:
                raise  # the shared folder is away for a while; the task continues once it is back
            return
        self._lacks, self._rings_at_s = None, 0.0
        self.worker.train(task.workunit, slot)

    def _fetch_file(self, path: str, target: Path) -> bool:
        """Continue to fetch a file of the run, or link the cached one; return whether it is complete."""
        # Identify the file by path, size and time, which change with the content: model and shards are fetched once for
        # all tasks.
        kept = self.scratch / "kept" / hashlib.sha256(self.pool.file_identity(path).encode()).hexdigest()
        if not kept.exists():
            if not self._copy(path, kept.with_suffix(".part")):
                return False
            kept.with_suffix(".part").replace(kept)
        if target.name == PARAMS_FILE:
            kept.replace(target)  # hardly ever needed again
        else:
            os.link(kept, target)
        return True

    def _copy(self, path: str, part: Path) -> bool:
        """Continue an interrupted copy of a file, after removing parts of others; return whether it is complete."""
        part.parent.mkdir(exist_ok=True)
        if not part.exists():
            for other in part.parent.glob("*.part"):
                other.unlink()
            part.touch()
        before_bytes = part.stat().st_size
        try:
            return self.pool.copy(path, part)
        finally:
            self._bytes_down += part.stat().st_size - before_bytes

    def _fetch_newest(self, task: Assignment, slot: Path) -> bool:
        """Have the worker start from the newest weights if they are offered.

        Returns:
            Whether they are complete, or not needed.
        """
        # Use one offer for the whole copy, although the run may publish newer weights during the copy.
        driver = self._newest = self._newest or self.pool.read_driver()
        if driver is None or not FETCHED.fullmatch(driver.newest_params):
            return True
        try:
            base_version = Workunit.from_json(task.description).base_version
        except WorkunitError:  # the worker refuses it with a reason
            return True
        if driver.newest_version <= base_version:
            return True
        part = slot / "newest.part"
        try:
            if not self.pool.copy(driver.newest_params, part):
                return False
        except FileNotFoundError:  # newer weights replaced it: start from the task's own weights
            return True
        part.replace(slot / NEWEST_FILE)
        # Write the version last: its existence means that the weights' file is complete.
        (slot / VERSION_FILE).write_text(str(driver.newest_version))
        return True
