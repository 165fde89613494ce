"""Train on the server the subtasks at which hosts keep failing.

Names are free on a public project, so failures alone never end a job for strangers: an attacker would upload garbage
under a new name each time. After `grid > tries` failures the server trains the subtask with the client's own code, as a
separate attempt. The update waits in the run's folder, from where a parameter server applies it like a client's. If the
server fails as well, the shard or the model is at fault, and the job ends.

It can be killed at any moment: the journal contains the attempt, and the slot its checkpoint. Only the count of
failures starts over. An update that two servers find is applied once, because its subtask is the key.
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
    """The subtasks of one run that are tried on the server."""

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
        """Count the failures at each subtask."""
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
        """Start a subtask, or continue one for a time slice; return None if there is nothing to record.

        Raises:
            Unavailable: A resource is missing now; the next call continues from the checkpoint.
        """
        # Look in the journal and not in memory: an attempt that a killed process had announced is continued first.
        own = next(filter(self._is_to_train, self._history.created), None)
        if own != self._begun:  # a host was faster, or an earlier process started it
            self._retraining.clear()
            self._begun, self._begun_s = own, time.monotonic()
        return self._attempt() if own is None else self._train_slice(own, self._history.created[own])

    def _is_to_train(self, workunit: str) -> bool:
        return WorkunitName.parse(workunit).is_own and not self._run.folder.own_upload(workunit).exists()

    def _attempt(self) -> WorkunitCreated | None:
        """Announce an attempt by the server, so that the weights it starts from are kept until its end."""
        allowed = self._run.job.grid.tries
        if not any(times >= allowed for times in self._failures.values()):
            return None
        for workunit, created in self._history.created.items():
            name = WorkunitName.parse(workunit)  # one of its own may be trained already, and wait to be folded
            if not name.is_own and self._failures[name.epoch, name.shard] >= allowed:
                del self._failures[name.epoch, name.shard]
                return structs.replace(created, workunit=str(replace(name, attempt=name.own_attempt)))
        return None

    def _train_slice(self, workunit: str, created: WorkunitCreated) -> SubtaskTried | None:
        """Train for a time slice; return the attempt's event with the reason of a failure, or None if unfinished."""
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
    name = WorkunitName.parse(workunit)
    return name.epoch, name.shard
