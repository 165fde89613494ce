"""A pilot takes tasks from its mailbox, trains them in a worker process, and delivers the results.

All of it happens in small steps (`Pilot.step`), because a pilot must send a heartbeat several times per lease: files
are fetched for some seconds at a time, and a shared folder that is unavailable is tried again later. A pilot that is
killed loses only the training of its present task: the run gives the task to another pilot once the lease has expired.
"""

import errno
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from vcdl.errors import DISK_FULL
from vcdl.errors.backoff import Attempts, Backoff
from vcdl.pool.messages import Assignment, Driver, Message
from vcdl.pool.task_files import FileSource, TaskFiles
from vcdl.wire.workunit import OUTPUT_FILE

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


class SharedPool(FileSource, Protocol):
    """A pilot's access to its pool, through a folder (`PoolFolder`) or a service. All calls raise OSError."""

    shortest_look_s: float
    """Seconds between two looks into the mailbox soon after a subtask."""

    @property
    def where(self) -> str: ...
    def ring(self, message: Message) -> None: ...
    def mailbox(self, pilot: str) -> PilotMailbox: ...


@dataclass
class Pilot:
    """A pilot of a pool. Call `step` until it returns False; `leave` makes that happen soon.

    A task is first fetched (`_files` is not None), then trained by the worker, and then its result is delivered
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
    _files: TaskFiles | None = None
    """The task's files while they are fetched; None if the worker has the task, or there is none."""
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
        if self._files is not None:
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
        if (self._files is not None or self._ending is not None) and self._tries.why is None:
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
        if self._files is not None:
            self._task = self._files = None
        else:
            self.worker.send(do="quit")

    def _is_over(self, update: Path | str | None) -> None:
        task, self._task, self._files = self._task, None, None
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
        if self._task is not None and self._files is not None:
            self._fetch(self._task, self._files)
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
                is_fetching=self._files is not None,
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
        self._task, self._files = task, TaskFiles(task, self.pool, slot, self.scratch / "kept")
        self._fraction, self._bytes_down, self._rings_at_s = 0.0, 0, 0.0
        if refusal := self._files.refusal:
            self._is_over(refusal)

    def _fetch(self, task: Assignment, files: TaskFiles) -> None:
        """Fetch the task's missing files for some seconds, and start its training once none is missing.

        If the disk of this machine is full, the pilot leaves; if a file can never be fetched, the task fails.

        Raises:
            OSError: The shared folder is unavailable; call again later.
        """
        try:
            is_complete = files.fetch()
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
        finally:
            self._bytes_down = files.bytes_down
        if is_complete:
            self._files, self._rings_at_s = None, 0.0
            self.worker.train(task.workunit, self.scratch / "slot")
