"""Run a job in virtual time, with the loop and the checks of a real run.

A simulation that was killed starts again from its beginning, and gives the same results.
"""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from vcdl.codecs.choose import down_encoding, up_encoding
from vcdl.codecs.encoding import Encoding
from vcdl.errors import GridError
from vcdl.job import Job, load_frozen_job
from vcdl.journal.events import (
    FINAL_SPLITS,
    EpochClosed,
    EvaluationWanted,
    Event,
    Recorded,
    StopReason,
    SubtaskTried,
    UploadVerified,
    VersionEvaluated,
)
from vcdl.journal.journal import Journal
from vcdl.journal.observer import RunObserver, ShieldedObserver
from vcdl.loop.evaluator import Evaluator
from vcdl.loop.loop import Loop
from vcdl.loop.plan import Plan, Publishing
from vcdl.loop.preparation import prepare
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.client_work import TrainedWork
from vcdl.simulate.clients import Clients
from vcdl.simulate.shard_trainer import ShardTrainers
from vcdl.simulate.training import SubtaskTraining
from vcdl.simulate.virtual_grid import VirtualGrid
from vcdl.simulate.virtual_time import VirtualTime
from vcdl.trust.retraining import Retraining
from vcdl.trust.verification import Verification

_CORES = 2
"""Cores of the simulated server, the number on the machine that the figures were measured on."""


class InstantEvaluator(Evaluator):
    """An evaluator whose evaluations take no virtual time.

    Only retraining for verification takes virtual time: `subtask_s` divided by _CORES, one upload after the other.
    """

    def __init__(self, run: Run, journal: Journal, subtask_s: float, time: VirtualTime) -> None:
        super().__init__(run, journal)
        self._subtask_s = subtask_s
        self._time = time
        self._verified: list[Event] = []
        """Events to report once the clock reaches `_verified_s`."""
        self._verified_s = 0.0

    def _retraining(self, folder: RunFolder) -> Retraining:
        return Retraining(folder.verify, ShardTrainers(), math.inf)

    def _train_again(self, verification: Verification) -> int:
        now_s = self._journal.now_s()
        if not self._verified:
            takes_s = self._subtask_s / _CORES
            self._verified = [
                structs.replace(event, train_s=takes_s) if isinstance(event, UploadVerified | SubtaskTried) else event
                for event in verification.next_events()
            ]
            self._verified_s = now_s
            # Retraining takes time of the server, so the verdict is delayed until the clock is there.
            if any(isinstance(event, UploadVerified | SubtaskTried) for event in self._verified):
                self._verified_s += takes_s
                # An event without an action: the clock stops there, so that the loop reads the verdict in time.
                self._time.at(self._verified_s, lambda: None)
        if now_s < self._verified_s:
            return 0
        known, self._verified = self._verified, []
        self._journal.append(*known)
        return len(known)

    def measure(self, new: Sequence[Recorded]) -> int:
        """Evaluate the requested versions, and the end of each new epoch on the test set; return like `run_once`.

        Args:
            new: The journal's events since the last call.
        """
        # Real runs measure the test set once, at their end. Experiments compare courses, and virtual time stands still
        # meanwhile.
        test = FINAL_SPLITS[1]
        if test in self._data:
            closed = [recorded.event for recorded in new if isinstance(recorded.event, EpochClosed)]
            self._journal.append(*(EvaluationWanted(event.version, event.epoch, test) for event in closed))
        return self.run_once()

    def _evaluate(self, wanted: EvaluationWanted) -> VersionEvaluated:
        return structs.replace(super()._evaluate(wanted), evaluation_s=0.0)


class VirtualRun:
    """Runs the job in a run's folder in virtual time. The caller holds the folder's RunLock."""

    def __init__(self, folder: RunFolder, fleet: ClientFleet, training: SubtaskTraining, observer: RunObserver) -> None:
        self._folder = folder
        self._fleet = fleet
        self._training = training
        self._observer = ShieldedObserver(observer)
        self._time = VirtualTime()

    def run(self) -> StopReason | None:
        """Run the job and return why it ended, or None if `vcdl stop` paused it.

        Raises:
            VcdlError: It cannot continue.
        """
        with closing(self._training):
            self._training.start()  # the workers import Keras while the data is cut
            run = prepare(self._folder, load_frozen_job(self._folder.job_file), self._observer)
            clients = self._clients()
            grid = VirtualGrid(clients, self._time, self._work(run, clients), queue_ahead(run.job), run.job.late_after)
            plan = replace(Plan.of(run), publishing=publishing(run.job, self._fleet))
            self._observer.phase("starting the workers")
            clock = self._time.now_s
            with closing(Loop.of(run, grid, grid, plan=plan, observer=self._observer, clock=clock)) as loop:
                evaluator = InstantEvaluator(run, loop.journal, self._fleet.subtask_s, self._time)
                try:
                    return self._drive(loop, grid, evaluator, plan.wall_time_s or math.inf)
                finally:
                    loop.abandon_weights()

    def _drive(self, loop: Loop, grid: VirtualGrid, evaluator: InstantEvaluator, limit_s: float) -> StopReason | None:
        """Alternate between the loop and the clock until the job ends or is paused; `limit_s` is its longest time."""
        loop.start_or_resume()
        while True:
            self._act(loop, grid, evaluator)
            if loop.ended is not None or self._folder.stop_request.exists():
                return loop.ended
            # Without an event nothing can ever happen again: an endless loop would hide the fault.
            if not self._time.advance(limit_s):
                raise GridError("no client has anything to do and the job is not finished: this is a bug in vcdl")

    def _act(self, loop: Loop, grid: VirtualGrid, evaluator: InstantEvaluator) -> None:
        """Do everything that is due at this moment, while the clock stands still."""
        while True:
            new = loop.step()
            grid.suspend_hosts(recorded.event for recorded in new)
            self._training.look()  # the workers continue while this process evaluates
            if not evaluator.measure(new) and (not new or loop.is_up_to_date):
                return

    def _clients(self) -> Clients:
        """Return the simulated clients; subclasses may replace them."""
        return Clients(self._fleet)

    def _work(self, run: Run, clients: Clients) -> TrainedWork:
        """Return what produces the clients' uploads; subclasses may replace it."""
        return TrainedWork(clients, self._training, *self._encodings_and_residuals(run))

    def _encodings_and_residuals(self, run: Run) -> tuple[tuple[Encoding, Encoding], Path | None]:
        """Return the encodings of downloads and uploads, and the folder for residuals; None if clients keep none."""
        remembers = run.transport.feedback or run.transport.upload_share is not None
        encodings = down_encoding(run.transport, run.layout), up_encoding(run.transport, run.layout)
        return encodings, run.folder.path / "memories" if remembers else None


def queue_ahead(job: Job) -> int:
    """Return how many subtasks a simulated grid keeps ready in addition to those in training; 0 for `auto`."""
    ahead = job.pacing.queue_ahead
    return 0 if ahead == "auto" else ahead


def publishing(job: Job, fleet: ClientFleet) -> Publishing | None:
    """Return the schedule by which clients get newer weights, or None if they start from their workunit's."""
    # Publish at most every second, as BOINC's work generator and a pool do.
    return Publishing(1.0, fleet.result_timeout_s) if job.boinc.fresh_weights else None
