"""A pilot takes tasks from its mailbox, trains them in a worker process, and delivers the results.

All of it happens in small steps (`Pilot.step`), because a pilot must send a heartbeat several times per lease: files
are fetched for some seconds at a time, and a shared folder that is unavailable is tried again later. A pilot that is
killed loses only the training of its present task: the run gives the task to another pilot once the lease has expired.
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
"""Errors of a shared file that do not go away by waiting: the task fails."""
_BEATS_A_LEASE = 4
_DRIVER_LOOK_S = 2.0
_EAGER_S = 0.5
"""Seconds after a subtask in which a pilot checks for the next one as often as the run checks for heartbeats."""


class Worker(Protocol):
    """The interface of a worker process that trains one workunit at a time."""

    @property
    def ready(self) -> bool:
        """Whether the process has started up, and so can train a workunit."""
        ...

    def train(self, workunit: str, folder: Path) -> None:
        """Start to train the workunit whose files are in a folder."""
        ...

    def send(self, **command: Any) -> None:
        """Send the process a command of vcdl.client.worker, such as `do="finish"`."""
        ...

    def wait(self, timeout_s: float) -> Sequence[dict[str, Any]]:
        """Wait for events, at most `timeout_s` seconds, and start another process if this one has died.

        Returns:
            Events of vcdl.client.worker; the last one is `{"event": "died", "how": …}` if the process has died.

        Raises:
            GridError: No worker can be started.
        """
        ...


class PilotMailbox(Protocol):
    """The pilot's side of its mailbox, as `vcdl.pool.mailboxes.Mailbox` describes it.

    Calls raise OSError. FileNotFoundError means that the mailbox does not exist: the run has given the pilot up.
    """

    def make(self) -> None: ...
    def take(self) -> Assignment | None: ...
    def dropped_workunit(self) -> str: ...
    def end(self, workunit: str, update: Path | str | None) -> bool: ...
    def forget(self, workunit: str) -> None: ...


class SharedPool(Protocol):
    """A pilot's access to its pool, through a folder (`PoolFolder`) or a service. All calls raise OSError."""

    shortest_look_s: float
    """Seconds between two looks into the mailbox soon after a subtask."""

    @property
    def where(self) -> str: ...
    def read_driver(self) -> Driver | None: ...
    def ring(self, message: Message) -> None: ...
    def mailbox(self, pilot: str) -> PilotMailbox: ...
    def file_identity(self, path: str) -> str: ...
    def copy(self, path: str, part: Path) -> bool: ...


@dataclass
class Pilot:
    """A pilot of a pool. Call `step` until it returns False; `leave` makes that happen soon.

    A task is first fetched (`_lacks` is not None), then trained by the worker, and then its result is delivered
    (`_ending` is not None) before the next one is taken.
    """

    name: str
    pool: SharedPool
    worker: Worker
    scratch: Path
    """A folder on this machine: `slot` has the files of the present task, `kept` those that later tasks need, too."""
    idle_s: float
    """Seconds without a heartbeat of the run after which the pilot leaves."""
    say: Callable[[str], None]
    """Shows a message to the user."""
    clock: Callable[[], float] = time.monotonic
    """Returns the present time in seconds."""
    why_left: str = ""
    """Why the pilot left of its own accord, or an empty string if it was asked to or the job is over."""
    is_over: bool = False
    """Whether the run has announced that the job is over."""
    _task: Assignment | None = None
    _lacks: dict[str, str] | None = None
    """Name → path, as in `Assignment.files`, of the task's files that are still to be fetched; None if the worker has
    the task, or there is none."""
    _newest: Driver | None = None
    """The announcement whose newest weights the task will start from, or None before the task's files are complete."""
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
    """When the run's heartbeat last changed, in seconds on `clock`, or None before the first look."""
    _ending: Callable[[], bool] | None = None
    """Delivers the last task's result, and returns whether it is complete; called until it does. None if no result is
    waiting."""
    _tries: Attempts = field(init=False)

    def __post_init__(self) -> None:
        self._tries = Attempts(Backoff(0.5, 30.0), self.clock)

    def leave(self) -> None:
        """Ask the pilot to leave: it ends its training early, and further steps deliver what is trained.

        A task whose files are still being fetched is given back to the run.
        """
        self._is_leaving = True
        if self._lacks is not None:
            self._is_over(None)
        elif self._task is not None:
            self.worker.send(do="finish")

    def step(self, timeout_s: float) -> bool:
        """Handle the worker's events and do what is due: fetch, deliver, look for tasks, send a heartbeat.

        If the shared folder is unavailable, that is reported and tried again later, with growing pauses.

        Args:
            timeout_s: Most seconds to wait for events.

        Returns:
            False once the pilot has left; `why_left` then has the reason.

        Raises:
            GridError: No worker can be started.
        """
        if (self._lacks is not None or self._ending is not None) and self._tries.why is None:
            # Do not wait for the worker's events while there is something to fetch or to deliver.
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
        """Stop the present task without a result: its training is lost."""
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
        """Return the seconds until the next look into the mailbox: fewer soon after a subtask."""
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
        """Create the pilot's mailbox, at its start and after the run has removed it; drop a task from before."""
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
        # Remove the files of the last task: a checkpoint among them would not match the new description.
        shutil.rmtree(slot, ignore_errors=True)
        self._task, self._lacks, self._newest = task, dict(task.files), None
        self._fraction, self._bytes_down, self._rings_at_s = 0.0, 0, 0.0
        # Check names and paths: otherwise whoever can write to the mailbox could have any file of this user replaced.
        for name, path in task.files.items():
            if name not in _FILES or not FETCHED.fullmatch(path):
                self._is_over(f"the task names a file that no subtask has: {name[:80]!a} from {path[:80]!a}")

    def _fetch(self, task: Assignment, lacks: dict[str, str]) -> None:
        """Fetch the task's missing files for some seconds, and start its training once none is missing.

        If the disk of this machine is full, the pilot leaves; if a file can never be fetched, the task fails.

        Args:
            task: The task.
            lacks: The files that are missing; each is removed from this dictionary once it is complete.

        Raises:
            OSError: The shared folder is unavailable; call again later.
        """
        slot = self.scratch / "slot"
        try:
            slot.mkdir(exist_ok=True)
            while lacks:
                name, path = next(iter(lacks.items()))
                if not self._fetch_file(path, slot / name):
                    return
                # Remove the files one by one, so that the next call continues with the one that was interrupted.
                del lacks[name]
            (slot / DESCRIPTION_FILE).write_text(task.description)
            if not self._fetch_newest(task, slot):
                return
        except OSError as error:
            # An error of this machine ends the task or the pilot, since other pilots can train. An error of the shared
            # folder affects all pilots, so this one waits.
            is_here = str(error.filename).startswith(str(self.scratch))
            if error.errno in DISK_FULL and (is_here or error.filename is None):
                self._leave_for_want_of_room()
            elif is_here or error.errno in _LASTING:
                self._is_over(f"{error.filename}: {error.strerror or error}")
            else:
                raise  # `step` tries again later
            return
        self._lacks, self._rings_at_s = None, 0.0
        self.worker.train(task.workunit, slot)

    def _fetch_file(self, path: str, target: Path) -> bool:
        """Put a file of the run at `target`, from this machine's cache if it is there; else copy it for some seconds.

        Returns:
            Whether the file is complete; if not, call again.
        """
        # Cache a file by path, size and modification time, which change with its content: so model and shards are
        # fetched once for all tasks.
        kept = self.scratch / "kept" / hashlib.sha256(self.pool.file_identity(path).encode()).hexdigest()
        if not kept.exists():
            if not self._copy(path, kept.with_suffix(".part")):
                return False
            kept.with_suffix(".part").replace(kept)
        if target.name == PARAMS_FILE:
            kept.replace(target)  # do not cache weights: the next task almost always has newer ones
        else:
            os.link(kept, target)
        return True

    def _copy(self, path: str, part: Path) -> bool:
        """Copy a file for some seconds, continuing an interrupted copy, and remove the partial copies of other files.

        Args:
            path: The file, relative to the run's folder.
            part: The partial copy.

        Returns:
            Whether the copy is complete.
        """
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
        """Copy the newest weights into the slot if they are newer than the task's, so that the worker starts from them.

        Args:
            task: The task.
            slot: The folder with its files.

        Returns:
            False if the copy is not complete yet: call again. True if it is, or if it is not needed.
        """
        # Copy the weights of one announcement to the end, although the run may publish newer ones meanwhile.
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
        # Write the version last: its file means that the one with the weights is complete.
        (slot / VERSION_FILE).write_text(str(driver.newest_version))
        return True
