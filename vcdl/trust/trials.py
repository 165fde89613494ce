"""Train on the server the subtasks at which hosts keep failing.

Names are free on a public project, so failures alone never end a job for strangers: an attacker would upload garbage
under a new name each time. After `grid > tries` failures the server trains the subtask with the client's own code, as a
separate attempt. The update waits in the run's folder, from where a parameter server applies it like a client's. If the
server fails as well, the shard or the model is at fault, and the job ends.

The process can be killed at any moment: the journal contains the attempt, and the next process trains it again from its
start. Only the count of failures starts again at zero. An update that two parameter servers find is applied once,
because its subtask is the key.
"""

import logging
import os
import time
from collections import Counter
from dataclasses import replace

from msgspec import structs

from vcdl.errors import Unavailable, VcdlError, folder_errors
from vcdl.errors.refusal import Blame, blame_of
from vcdl.journal.events import Event, SubtaskTried, UpdateApplied, UpdateRefused, WorkunitCreated, WorkunitFailed
from vcdl.journal.history import JobHistory
from vcdl.run.run import Run
from vcdl.run.staging import stage
from vcdl.trust.retraining import Retraining
from vcdl.wire.workunit import WorkunitName

_log = logging.getLogger(__name__)


class Trials:
    """Trains on the server the subtasks of one run that failed `grid > tries` times, one at a time.

    Pass each journal event to `follow`, call `next_event` repeatedly, and record the events that it returns.
    """

    def __init__(self, run: Run, history: JobHistory, retraining: Retraining) -> None:
        self._run = run
        self._history = history
        self._retraining = retraining
        self._failures: Counter[tuple[int, int]] = Counter()
        """Subtask → failures since it was applied or tried here."""
        self._begun: str | None = None
        """The workunit that is being trained, or None."""
        self._begun_s = 0.0

    def follow(self, event: Event) -> None:
        """Apply the next journal event: count the failures of each subtask. Refusals of a host as such do not count."""
        match event:
            case UpdateApplied():
                # This is a Counter: `del` of a missing key is no error.
                del self._failures[_subtask(event.workunit)]
            case WorkunitFailed() | UpdateRefused() if not (
                isinstance(event, UpdateRefused) and blame_of(event.refusal) is Blame.HOST
            ):
                self._failures[_subtask(event.workunit)] += 1
            case _:
                pass

    @property
    def is_busy(self) -> bool:
        """Whether a subtask is being trained."""
        return self._begun is not None

    def next_event(self) -> WorkunitCreated | SubtaskTried | None:
        """Announce an attempt, or train it for a time slice; return the event to record, or None.

        None means that an attempt needs further slices (`is_busy`), or that no subtask has failed often enough.

        Raises:
            Unavailable: A resource is missing now; the next call continues from the checkpoint.
        """
        # Look in the journal and not in memory, so that an attempt announced by a killed process is trained first.
        own = next(filter(self._is_to_train, self._history.created), None)
        if own != self._begun:  # a host was faster, or an earlier process started it
            self._retraining.clear()
            self._begun, self._begun_s = own, time.monotonic()
        return self._attempt() if own is None else self._train_slice(own, self._history.created[own])

    def _is_to_train(self, workunit: str) -> bool:
        """Return whether a workunit is an attempt by the server whose update does not exist yet."""
        return WorkunitName.parse(workunit).is_own and not self._run.folder.own_upload(workunit).exists()

    def _attempt(self) -> WorkunitCreated | None:
        """Return the event that announces an attempt at a subtask that failed too often, or None if there is none.

        Its count of failures starts again at zero. Once announced, the weights that the attempt starts from are kept.
        """
        allowed = self._run.job.grid.tries
        if not any(times >= allowed for times in self._failures.values()):
            return None
        for workunit, created in self._history.created.items():
            name = WorkunitName.parse(workunit)  # the server's own attempt may be finished, and wait to be applied
            if not name.is_own and self._failures[name.epoch, name.shard] >= allowed:
                del self._failures[name.epoch, name.shard]
                return structs.replace(created, workunit=str(replace(name, attempt=name.own_attempt)))
        return None

    def _train_slice(self, workunit: str, created: WorkunitCreated) -> SubtaskTried | None:
        """Train for a time slice; return None if more are needed, otherwise the event that ends the attempt.

        A finished update is moved to the run's folder. After a failure, the event contains its reason.

        Raises:
            Unavailable: A resource is missing now; the next call continues from the checkpoint.
        """
        folder, error = self._run.folder, ""
        try:
            subtask = stage(self._run, WorkunitName.parse(workunit), created.rate, created.begins)
            update = self._retraining.update("tried", subtask)
            if update is None:
                return None
            with folder_errors(folder.own_uploads):
                folder.own_uploads.mkdir(exist_ok=True)
                # This is a rename on one disk, so a parameter server sees the whole file or none.
                os.replace(update, folder.own_upload(workunit))
        # A full disk is no verdict about the subtask. The next call continues from the checkpoint.
        except Unavailable:
            raise
        # The row ends the job, so it must contain the reason.
        except (ImportError, MemoryError, VcdlError) as failure:
            error = str(failure)[:500] or type(failure).__name__
            _log.warning("%s: %s cannot be trained here either (%s)", self._run.name, workunit, error)
        self._begun = None
        self._retraining.clear()
        return SubtaskTried(workunit, error, time.monotonic() - self._begun_s)


def _subtask(workunit: str) -> tuple[int, int]:
    """Return the epoch and the shard of a workunit."""
    name = WorkunitName.parse(workunit)
    return name.epoch, name.shard
