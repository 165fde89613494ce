"""The handle of a run: a view of its folder, with the child process that trains if this program started it."""

import math
import tempfile
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from vcdl.api.history import History
from vcdl.api.order import ChildOrder
from vcdl.api.process import RunProcess
from vcdl.api.showing import printing_observer
from vcdl.errors import RunFolderError
from vcdl.errors.backoff import wait_until
from vcdl.job import Job, load_frozen_job
from vcdl.journal.events import Event
from vcdl.report.outcome import outcome_lines
from vcdl.report.progress import RunGoal
from vcdl.report.summary import summary_of
from vcdl.run.control import TIMEOUT_S, pause, release
from vcdl.run.finding import display_path, resume_hint
from vcdl.run.folder import RunFolder
from vcdl.run.reading import RunFollower, RunState, journal_of, read_report, state_of

_LOOK_EVERY_S = 0.2
"""Seconds between two looks at a run on this machine: short, because a look reads local files only."""
_GO_ON = frozenset({RunState.RUNNING, RunState.WAITING})
"""States in which a run may still produce events."""


class RunHandle:
    """A run: read its progress and results, wait for it, pause it and resume it.

    `vcdl.train`, `Job.run` and `vcdl.open` return it. Everything is read from the run's folder, so several programs may
    use one run. The handle also holds the child process if this program started the run. Such a run pauses when the
    program ends.
    """

    def __init__(self, folder: RunFolder, process: RunProcess | None = None) -> None:
        self._folder = folder
        self._process = process

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Open the run in a folder, whichever process drives it.

        Raises:
            RunFolderError: There is no run.
        """
        return cls(RunFolder.existing(Path(folder)))

    @classmethod
    def begin(cls, order: ChildOrder, *, shows: bool) -> Self:
        """Start a child process for a run, and wait until its job is accepted and prepared.

        Args:
            order: What the child does: begin, resume or simulate a run.
            shows: Print what the child does meanwhile.

        Raises:
            VcdlError: The job is refused.
        """
        process = RunProcess(order)
        try:
            _until_begun(process, shows)
        except KeyboardInterrupt:
            # The caller gets no handle, so nothing else could stop the process.
            process.interrupt()
            process.wait(TIMEOUT_S)
            raise
        if not process.has_begun and process.failure is not None:
            raise process.failure
        return cls(RunFolder.existing(Path(order.folder)), process)

    def __repr__(self) -> str:
        history = self.history
        return (
            f"<vcdl.Run {self.name} in {display_path(self.folder)}: {self.status}, {len(history.epoch)} epochs "
            "measured>"
        )

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._folder.path

    @property
    def name(self) -> str:
        """The job's name."""
        return self._job.name

    @property
    def status(self) -> RunState:
        """The state that `vcdl status` shows: running, paused, waiting, killed, finished or failed."""
        if self._process is not None and self._process.is_alive:
            return RunState.RUNNING
        return state_of(self._folder, read_report(self._folder))

    @property
    def history(self) -> History:
        """The measurements of the epochs so far, read from the run's journal at each access."""
        return History.of(self._folder, self._job.stop.epochs, self._job.data.shards)

    @property
    def summary(self) -> dict[str, Any]:
        """The keys of summary.json, also for an unfinished run. docs/summary.md has its schema."""
        return summary_of(self.name, read_report(self._folder))

    def events(self, *, follow: bool = True) -> Iterator[Event]:
        """Yield the events of the run from its start, in order.

        Args:
            follow: Wait for further events until the run ends or pauses.

        Raises:
            VcdlError: The error that ended the run.
            JournalError: The journal cannot be read.
        """
        last_id, is_over = 0, False
        while not is_over:
            # Read the state before the events: in the other order, the last events could be missed.
            is_over = not follow or self._is_over
            with journal_of(self._folder) as journal:
                for recorded in () if journal is None else journal.stream(last_id):
                    last_id = recorded.id
                    yield recorded.event
            if not is_over:
                time.sleep(_LOOK_EVERY_S)
        if follow:
            self._raise_failure()

    def wait(self, timeout_s: float | None = None, *, show: bool = True) -> Self:
        """Wait until the run has ended or paused, and return the run itself.

        Ctrl-C pauses a run that this program started.

        Args:
            timeout_s: Most seconds to wait; None: no limit.
            show: Show the run's progress.

        Raises:
            VcdlError: The error that ended the run.
            TimeoutError: It takes longer than `timeout_s`.
        """
        try:
            report = self._follow(math.inf if timeout_s is None else timeout_s, show)
        except KeyboardInterrupt:
            self._pause_process()
            if show:
                print(f"{self.status}; {resume_hint(self._folder)}, and so does run.resume()", flush=True)
            raise
        self._raise_failure()
        if show and self.status is RunState.FINISHED:
            print(*outcome_lines(report), sep="\n", flush=True)
        return self

    def stop(self, timeout_s: float = TIMEOUT_S) -> Self:
        """Pause the run, in whichever process it runs, and wait until it has paused; return the run itself.

        `resume` continues it.

        Raises:
            RunFolderError: It took longer than `timeout_s`.
        """
        if self._process is not None and self._process.is_alive:
            self._process.interrupt()
            if not self._process.wait(timeout_s):
                raise RunFolderError(
                    f"{display_path(self.folder)} still runs after {timeout_s:g} s; it has been asked to stop: wait "
                    "for it"
                )
        else:
            pause(self._folder, timeout_s)
        return self

    def resume(self, *, show: bool = True) -> Self:
        """Resume a run that was paused or killed, in a child process of this program; return the run itself.

        A run of a BOINC project is continued by the project's daemons instead. A run that this program already runs is
        left as it is.

        Raises:
            VcdlError: It cannot continue.
        """
        # The daemons of a BOINC project continue such a run, so no process is started here.
        if self._folder.kind.has_daemons:
            release(self._folder)
        elif self._folder.kind.driver is None:
            raise RunFolderError(f"{display_path(self.folder)} cannot be resumed: {resume_hint(self._folder)}")
        elif self._process is None or not self._process.is_alive:
            self._process = RunHandle.begin(ChildOrder("resume", str(self.folder)), shows=show)._process
        return self

    def model(self, best: bool = False) -> Any:
        """Return the trained model; for an unfinished run, with its newest kept weights.

        Args:
            best: Use the weights of the best epoch's end instead, by the monitor.

        Raises:
            VcdlError: The run has no such weights.
        """
        from vcdl.client import own_code
        from vcdl.run.export import best_version, export_model, newest_version
        from vcdl.run.results import load_exported

        if self._job.model.code is not None:
            own_code.permit()
        # A run that was retried still has the file of its first end, so use the file only if the run is finished.
        if not best and self._folder.keras_file.is_file() and self.status is RunState.FINISHED:
            return load_exported(self._folder.keras_file, self._job, self._folder)
        with tempfile.TemporaryDirectory(prefix="vcdl-") as folder:
            file = Path(folder) / "model.keras"
            export_model(self._folder, file, best_version if best else newest_version)
            return load_exported(file, self._job, self._folder)

    @cached_property
    def _job(self) -> Job:
        return load_frozen_job(self._folder.job_file)

    @property
    def _is_over(self) -> bool:
        return self.status not in _GO_ON

    def _follow(self, timeout_s: float, shows: bool) -> Any:
        with printing_observer(self._folder, RunGoal.of(self._job), shows=shows) as observer:
            follower = RunFollower(self._folder, observer)

            def show_new_events() -> bool:
                # Read the state before polling, as in `events`: in the other order, events in between would be lost.
                is_over = self._is_over
                follower.poll()
                if not is_over and self._process is not None:
                    observer.waiting_for(self._process.waiting_for)
                    observer.tasks(self._process.running, self._process.waiting)
                return is_over

            if not wait_until(show_new_events, timeout_s, every_s=_LOOK_EVERY_S):
                raise TimeoutError(f"{display_path(self.folder)} still runs; it continues while this program does")
            return follower.report

    def _pause_process(self) -> None:
        """Pause the run if this program started it; another Ctrl-C ends its process immediately."""
        if self._process is None:
            return
        self._process.interrupt()
        try:
            self._process.wait(TIMEOUT_S)
        except KeyboardInterrupt:
            self._process.interrupt()
            self._process.wait(TIMEOUT_S)

    def _raise_failure(self) -> None:
        if self._process is not None and self._process.failure is not None:
            raise self._process.failure
        report = read_report(self._folder)
        # Raise it also if another program started the run, because who waits for it wants to know why it failed.
        if report.is_given_up and not self._folder.running_pid:
            from vcdl.run.driver import failed_shard_error

            raise failed_shard_error(self._folder, self._job, report)


def _until_begun(process: RunProcess, shows: bool) -> None:
    last = ""
    while not process.wait_until_begun(_LOOK_EVERY_S):
        if shows and process.phase not in ("starting", last):
            last = process.phase
            print(last, flush=True)
