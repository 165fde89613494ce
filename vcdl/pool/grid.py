"""The grid of a pool: it gives tasks to pilots, and collects their results, through a mailbox for each pilot.

Which pilot has which task is recorded only in the mailboxes. A run that was killed adopts their tasks and results at
its next start (`PoolGrid.start`), and the pilots meanwhile continue. A pilot that is silent for LEASE_S seconds loses
its mailbox, and its tasks are given to others. If several pilots have the same task, the first upload counts.
"""

import math
import stat
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vcdl.errors import GridUnavailable, JournalError
from vcdl.files.shared import discard
from vcdl.job import Job
from vcdl.journal.events import WorkunitSent
from vcdl.journal.observer import RunningTask
from vcdl.local.folder_grid import FolderGrid
from vcdl.loop.grid import GaveUp
from vcdl.loop.lateness import Out, Turnarounds, faster_hosts
from vcdl.pool.announcer import Announcer
from vcdl.pool.known_pilot import KnownPilot
from vcdl.pool.mailboxes import PoolFolder, read_reason
from vcdl.pool.messages import Assignment, Message, host_of
from vcdl.run.folder import RunFolder
from vcdl.run.reading import read_report
from vcdl.run.staging import Uploaded
from vcdl.trust.kept_hosts import hosts_out

LEASE_S = 60.0  # seconds of silence until a pilot counts as gone: longer than the pauses of a busy network file system
_POLL_S = 0.02  # seconds between two reads of heartbeats: a fraction of the shortest subtask
_JUDGES_EVERY_S = 10.0  # seconds between two reads of the journal for strangers in quarantine, who get no work
_VANISHED = 3
"""Pilots that may vanish with one workunit before it counts as failed: the workunit itself may be what kills them."""


@contextmanager
def _errors_of(pool: PoolFolder) -> Iterator[None]:
    """Raise GridUnavailable for an OSError in the block: a shared folder may be unreachable for a while, or full."""
    try:
        yield
    except OSError as error:
        raise GridUnavailable(f"{error.filename or pool.path}: {error.strerror or error}") from error


class PoolGrid(FolderGrid):
    """Trains the workunits of a run on pilots, which may join and leave at any moment. Not thread-safe.

    Call `start` first, then `wait` again and again: only there heartbeats are read and sent, results collected and
    tasks given out. After a kill, or `close` of an unfinished job, pilots finish their tasks and
    wait for the next process of the run.
    """

    def __init__(self, folder: RunFolder, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare the grid; nothing is written before `start`.

        Args:
            folder: The run.
            job: Its settings.
            clock: Returns seconds. It must stand still while the machine sleeps: no heartbeats are read then, and all
                pilots would count as gone.
        """
        super().__init__(folder, hands_out_uploads=job.grid.servers == 1)
        self._pool = PoolFolder.of(folder.path)
        self._job = job
        self._clock = clock
        self._announcer = Announcer(self._pool, clock, lease_s=LEASE_S, brings_code=job.model.code is not None)
        self._pilots: dict[str, KnownPilot] = {}
        self._vanished: Counter[str] = Counter()
        self._out: frozenset[str] = frozenset()
        """Names of the hosts that get no work now, because their uploads are refused."""
        self._judged_s = -math.inf
        self._turnarounds = Turnarounds(job.late_after)

    def start(self) -> None:
        """Create the pool's folder, adopt the tasks and results of an earlier process, and announce the run to pilots.

        Raises:
            GridError: A process on another machine drives the run, or the folder cannot be used.
        """
        with _errors_of(self._pool):
            self._pool.make()
            self._announcer.refuse_another()
            self._take_up_uploads()
            for name in self._pool.pilots():
                self._adopt(name)
            self._announcer.beat(len(self._pilots), at_once=True)

    # -- the interface of a grid

    def has(self, workunit: str) -> bool:
        return self._known.get(workunit) is not None or workunit in self._outcomes or self._is_uploaded(workunit)

    def done(self, workunit: str, version: int | None = None) -> None:
        super().done(workunit, version)
        self._vanished.pop(workunit, None)

    def cancel(self, workunits: Collection[str]) -> None:
        unwanted = set(workunits)
        self._waiting = deque(name for name in self._waiting if name not in unwanted)
        with _errors_of(self._pool):
            for pilot in self._pilots.values():
                for workunit in unwanted.intersection(pilot.tasks):
                    self._do_without(pilot, workunit)
        for workunit in workunits:
            self.done(workunit)

    def target_open_workunits(self) -> int:
        return max(1, 2 * len(self._pilots))

    slots = target_open_workunits

    def publish(self, version: int, params: Path) -> None:
        path = str(params.relative_to(self._folder.path))
        with _errors_of(self._pool):
            self._announcer.say(newest_version=version, newest_params=path)

    def pause(self) -> None:
        """Announce to the pilots that the run is paused: they finish their tasks, and deliver the results."""
        with _errors_of(self._pool):
            self._announcer.say(state="paused")

    # -- running

    def wait(self, timeout_s: float) -> None:
        """Do what is due, until at least one heartbeat has arrived or `timeout_s` seconds have passed.

        That is: collect heartbeats and results, give out tasks, release those of silent pilots, send the run's own
        heartbeat. If the shared folder is unavailable, `shortage` is set to the error, and the next call tries again.

        Raises:
            GridError: Another process drives the run now.
        """
        until_s = self._clock() + timeout_s
        while not self._heard() and self._clock() < until_s:
            time.sleep(min(_POLL_S, timeout_s))

    def _heard(self) -> bool:
        """Do what is due once; return whether heartbeats have arrived. Sets `shortage` to None, or to the error."""
        self.shortage = None
        try:
            with _errors_of(self._pool):
                return self._look()
        except GridUnavailable as away:
            self.shortage = away
            return False

    @property
    def waiting(self) -> int:
        """Number of workunits that no pilot has started, including those that are already in a mailbox."""
        return len(self._waiting) + sum(pilot.has_next for pilot in self._pilots.values())

    def running(self) -> list[RunningTask]:
        return [
            RunningTask(pilot.training, pilot.host, pilot.fraction, pilot.since_s)
            for pilot in self._pilots.values()
            if pilot.training
        ]

    def close(self) -> None:
        """Announce to the pilots that the job is over, or else that the run is paused. An error is ignored."""
        with suppress(OSError, JournalError):
            self._announcer.say(state="ended" if read_report(self._folder).history.finished else "paused")

    # -- heartbeats and results

    def _look(self) -> bool:
        messages = self._pool.rung()
        now_s = self._clock()
        for message in messages:
            self._hear(message, now_s)
        for pilot in list(self._pilots.values()):
            if now_s - pilot.heard_s > LEASE_S:
                self._let_go(pilot, f"it was not heard of for {LEASE_S:g} s")
            elif pilot.tasks and now_s - pilot.since_s > self._job.grid.timeout_s:
                self._do_without(pilot, late := pilot.tasks[0])
                self._give_up(late, f"no result after {self._job.grid.timeout_s:g} s (grid > timeout_s)")
        self._judge(now_s)
        self._hand_out()
        self._announcer.beat(len(self._pilots))
        return bool(messages)

    def _hear(self, message: Message, now_s: float) -> None:
        pilot = self._pilots.get(message.pilot)
        if pilot is None:
            pilot = self._pilots[message.pilot] = self._new(message.pilot, now_s)
        pilot.heard_s, pilot.fraction = now_s, message.fraction
        self._take_endings(pilot)
        training = message.training if message.training in pilot.tasks else ""
        if training != pilot.training:
            pilot.training, pilot.since_s = training, now_s
        if training and not message.is_fetching:
            self._note_sent(pilot, training, message.bytes_down)
        if message.is_leaving:
            self._let_go(pilot, None)

    def _note_sent(self, pilot: KnownPilot, workunit: str, bytes_down: int) -> None:
        if workunit not in pilot.started:
            pilot.started.add(workunit)
            self._sent.append(WorkunitSent(workunit, pilot.host, bytes_down))

    def _take_endings(self, pilot: KnownPilot) -> None:
        with suppress(FileNotFoundError), pilot.mailbox.held() as mailbox:
            for ending in mailbox.endings():
                self._take_ending(pilot, ending)

    def _take_ending(self, pilot: KnownPilot, ending: Path) -> None:
        workunit = ending.stem
        had = workunit in pilot.tasks
        if had:
            pilot.tasks.remove(workunit)
        # Otherwise discard the result: another pilot has delivered one, or the workunit was cancelled.
        if had and workunit in self._known and workunit not in self._outcomes:
            if ending.suffix == ".h5":
                # The pilot may have trained the task between two reads of its heartbeats, so that none reported the
                # start. That is possible only if it already had all files but the weights.
                staged = self._known[workunit]
                self._note_sent(pilot, workunit, staged.params.stat().st_size if staged is not None else 0)
                self._take_upload(pilot, ending)
            elif ending.suffix == ".failed":
                self._give_up(workunit, read_reason(ending))
            else:
                self._hand_out_again(workunit)
        discard(ending)
        pilot.started.discard(workunit)

    def _take_upload(self, pilot: KnownPilot, update: Path) -> None:
        upload = self._folder.uploads / f"{update.stem}.h5"
        self._folder.uploads.mkdir(exist_ok=True)  # it may have been deleted
        update.replace(upload)
        found = upload.lstat()  # check the file only after the move: no pilot can replace it in this folder
        if stat.S_ISREG(found.st_mode):
            self._has_come(Uploaded(update.stem, upload, found.st_size, pilot.host, time.time()))
            self._turnarounds.add(pilot.name, self._clock() - pilot.since_s)
            for other in self._pilots_with(update.stem):
                self._do_without(other, update.stem)
        else:
            discard(upload)
            self._give_up(update.stem, f"the update of {pilot.name} is no regular file")

    def _at_clients(self) -> set[str]:
        return {workunit for pilot in self._pilots.values() for workunit in pilot.tasks}

    def _pilots_with(self, workunit: str) -> list[KnownPilot]:
        return [pilot for pilot in self._pilots.values() if workunit in pilot.tasks]

    def _give_up(self, workunit: str, reason: str) -> None:
        """Report a workunit as failed, unless it is over or another pilot has it, too."""
        if workunit in self._known and not self._is_uploaded(workunit) and not self._pilots_with(workunit):
            self._outcomes[workunit] = GaveUp(workunit, reason)

    def _let_go(self, pilot: KnownPilot, why: str | None) -> None:
        """Collect a pilot's last results, remove its mailbox, and have its unfinished tasks trained by others.

        A workunit with which _VANISHED pilots vanished while they trained it counts as failed.

        Args:
            pilot: The pilot.
            why: How it vanished, or None if it said that it leaves.
        """
        self._take_endings(pilot)
        del self._pilots[pilot.name]
        self._pool.remove(pilot.name)
        for workunit in reversed(pilot.tasks):
            if why is not None and workunit == pilot.training:
                self._vanished[workunit] += 1
            if self._vanished[workunit] >= _VANISHED:
                self._give_up(workunit, f"{_VANISHED} pilots vanished with it, the last was {pilot.name}: {why}")
            else:
                self._hand_out_again(workunit)

    def _hand_out_again(self, workunit: str) -> None:
        if workunit not in self._known or workunit in self._outcomes or self._pilots_with(workunit):
            return
        if self._known[workunit] is None:  # announced by an earlier process: the loop submits it again
            del self._known[workunit]
        else:
            self._waiting.appendleft(workunit)

    # -- assigning tasks

    def _hand_out(self) -> None:
        welcome = [pilot for pilot in self._pilots.values() if pilot.host not in self._out]
        idle = [pilot for pilot in welcome if not pilot.tasks]
        for pilot in sorted(idle, key=lambda pilot: pilot.since_s):  # the longest idle first: few subtasks are shared
            if not self._waiting:
                self._reclaim_unstarted()
            if self._waiting:
                self._give_next(pilot)
        for pilot in welcome:
            if self._waiting and len(pilot.tasks) == 1 and not pilot.has_next:
                self._give_next(pilot)

    def replicate_late(self, *, queue_empty: bool) -> None:
        """Give late subtasks to idle pilots, too, if these are usually faster; the first upload of each counts.

        Args:
            queue_empty: Whether nothing else waits to be trained, so that a subtask counts as late earlier.
        """
        idle = [pilot.name for pilot in self._pilots.values() if not pilot.tasks and pilot.host not in self._out]
        lateness = self._turnarounds.lateness if idle and not self._waiting else None
        if lateness is None:
            return
        now_s = self._clock()
        out = [
            Out(pilot.training, now_s - pilot.since_s, frozenset({pilot.name}))
            for pilot in self._pilots.values()
            if pilot.training and len(self._pilots_with(pilot.training)) == 1 and pilot.training not in self._outcomes
        ]
        for late in lateness.late(out, queue_empty=queue_empty):
            quick = next(iter(faster_hosts(late, self._turnarounds.usual_s(idle))), None)
            with _errors_of(self._pool):
                if quick is not None and self._give(self._pilots[quick], late.workunit):
                    idle.remove(quick)

    def _reclaim_unstarted(self) -> None:
        """Take one unstarted task back from the mailbox of a busy pilot, so that an idle pilot can have it.

        The task becomes the first of `_waiting`. If all pilots have already started theirs, nothing changes.
        """
        for pilot in self._pilots.values():
            if len(pilot.tasks) > 1 and (back := pilot.take_back()) in pilot.tasks:
                pilot.tasks.remove(back)
                self._hand_out_again(back)
                if self._waiting:
                    return

    def _give_next(self, pilot: KnownPilot) -> None:
        if self._known[self._waiting[0]] is None or self._give(pilot, self._waiting[0]):
            self._waiting.popleft()

    def _give(self, pilot: KnownPilot, workunit: str) -> bool:
        staged = self._known.get(workunit)
        if staged is None:
            return False
        files = {name: str(path.relative_to(self._folder.path)) for name, path in staged.inputs.items()}
        return pilot.give(Assignment(workunit, staged.workunit.to_json(), files), self._clock())

    def _do_without(self, pilot: KnownPilot, workunit: str) -> None:
        """Take a task away from a pilot: withdraw it if it was not started, otherwise ask the pilot to drop it."""
        pilot.tasks.remove(workunit)
        back = "" if workunit == pilot.training else pilot.take_back()
        # The unstarted task is another one: so the pilot has started `workunit`, and has not reported that yet.
        if back in pilot.tasks:
            pilot.tasks.remove(back)
            self._hand_out_again(back)
        if back != workunit:
            pilot.ask_to_drop(workunit)

    # -- records of pilots

    def _new(self, name: str, now_s: float) -> KnownPilot:
        """Create the record of a pilot that has not been heard of before.

        Its host in the journal is the pilot itself. In a job for strangers it is the pilot's machine, so that a
        restarted pilot does not count as a new host.

        Args:
            name: The pilot's name.
            now_s: The present time by the grid's clock.
        """
        host = host_of(name) if self._job.is_for_strangers else name
        return KnownPilot(name, self._pool.mailbox(name), host, heard_s=now_s, since_s=now_s)

    def _judge(self, now_s: float) -> None:
        """Update the set of hosts that get no work (`_out`) from the journal, at most every 10 s."""
        if now_s - self._judged_s > _JUDGES_EVERY_S:
            self._judged_s = now_s
            with suppress(JournalError):  # the loop reports it
                self._out = hosts_out(self._job, self._folder)

    def _adopt(self, name: str) -> None:
        """Register a pilot of an earlier process of the run, with the tasks and results in its mailbox."""
        pilot = self._new(name, self._clock())
        pilot.read_tasks()
        self._known.update(dict.fromkeys(pilot.tasks))
        self._pilots[name] = pilot
        self._take_endings(pilot)

    def _is_uploaded(self, workunit: str) -> bool:
        return (self._folder.uploads / f"{workunit}.h5").exists()
