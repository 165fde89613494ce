"""A job in virtual time: the same loop and checks as everywhere, under the clock of simulated clients.

The journal's times are seconds since the run's begin. Evaluating takes no virtual time, and folding an update in takes
`update_s`. A run that is interrupted or killed starts again, with the same result.
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack

from msgspec import structs

from vcdl.codecs.choose import down_encoding, up_encoding
from vcdl.errors import GridError
from vcdl.job import load_frozen_job
from vcdl.journal.events import (
    FINAL_SPLITS,
    EpochClosed,
    EvaluationWanted,
    Event,
    Recorded,
    StopReason,
    UploadVerified,
    VersionEvaluated,
)
from vcdl.journal.journal import Journal
from vcdl.loop.evaluator import Evaluator
from vcdl.loop.loop import Loop
from vcdl.loop.plan import Plan
from vcdl.loop.retraining import Retraining
from vcdl.loop.verification import Verification
from vcdl.report.observer import RunObserver, ShieldedObserver
from vcdl.run.folder import RunFolder
from vcdl.run.preparation import prepare
from vcdl.run.run import Run
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.client_work import TrainedWork
from vcdl.simulate.poisoned_data import FOLDER as POISONED_DATA
from vcdl.simulate.poisoned_data import PoisonedData
from vcdl.simulate.shard_trainer import ShardTrainers
from vcdl.simulate.training import SubtaskTraining
from vcdl.simulate.virtual_grid import VirtualGrid
from vcdl.simulate.virtual_time import VirtualTime

_CORES = 2
"""Cores of the simulated server."""


class InstantEvaluator(Evaluator):
    """An evaluator that takes no virtual time: it works in the run's own process, while the clock stands.

    Only what it trains again takes its time, one after the other, and half as long as on a client of usual speed. The
    server has two cores.
    """

    def __init__(self, run: Run, journal: Journal, subtask_s: float, time: VirtualTime) -> None:
        super().__init__(run, journal)
        self._subtask_s = subtask_s
        self._time = time
        self._verified: list[Event] = []
        """Events that are told once the clock has come to `_verified_s`."""
        self._verified_s = 0.0

    def _retraining(self, folder: RunFolder) -> Retraining:
        return Retraining(folder.verify, ShardTrainers(), math.inf)

    def _train_again(self, verification: Verification) -> int:
        now_s = self._journal.now_s()
        if not self._verified:
            takes_s = self._subtask_s / _CORES
            self._verified = [
                structs.replace(event, train_s=takes_s) if isinstance(event, UploadVerified) else event
                for event in verification.next_events()
            ]
            self._verified_s = now_s
            if any(isinstance(event, UploadVerified) for event in self._verified):
                self._verified_s += takes_s
                self._time.at(self._verified_s, lambda: None)  # somebody looks then
        if now_s < self._verified_s:
            return 0
        known, self._verified = self._verified, []
        self._journal.append(*known)
        return len(known)

    def measure(self, new: Sequence[Recorded]) -> int:
        """Evaluate what is wanted now, and also the end of each epoch in `new` on the test set.

        Returns how many versions were evaluated.
        """
        test = FINAL_SPLITS[1]
        if test in self._data:
            closed = [recorded.event for recorded in new if isinstance(recorded.event, EpochClosed)]
            self._journal.append(*(EvaluationWanted(event.version, event.epoch, test) for event in closed))
        return self.run_once()

    def _evaluate(self, wanted: EvaluationWanted) -> VersionEvaluated:
        return structs.replace(super()._evaluate(wanted), evaluation_s=0.0)


class VirtualRun:
    """Runs the job of a new folder; the caller holds the folder's RunLock."""

    def __init__(self, folder: RunFolder, fleet: ClientFleet, training: SubtaskTraining, observer: RunObserver) -> None:
        self._folder = folder
        self._fleet = fleet
        self._training = training
        self._observer = ShieldedObserver(observer)
        self._time = VirtualTime()

    def run(self) -> StopReason | None:
        """Run the job to its end and say why it ended; None: `vcdl stop` has asked to stop.

        Raises a VcdlError when the run cannot continue.
        """
        with ExitStack() as closing:
            closing.callback(self._training.close)
            self._training.start()  # the workers import Keras while the data is cut
            run = prepare(self._folder, load_frozen_job(self._folder.job_file), self._observer)
            grid, plan = self._grid(run), Plan.of(run)
            loop = Loop.of(run, grid, grid, plan=plan, observer=self._observer, clock=self._time.now_s)
            closing.callback(loop.close)
            closing.callback(loop.abandon_weights)
            evaluator = InstantEvaluator(run, loop.journal, self._fleet.subtask_s, self._time)
            loop.take_up()
            self._observer.phase("starting the workers")
            limit_s = plan.wall_time_s or math.inf
            while True:
                self._act(loop, evaluator, grid)
                if loop.ended is not None or self._folder.stop_request.exists():
                    return loop.ended
                if not self._time.advance(limit_s):
                    raise GridError("no client has anything to do and the job is not finished: this is a bug in vcdl")

    def _grid(self, run: Run) -> VirtualGrid:
        ahead = run.job.pacing.queue_ahead
        encodings = down_encoding(run.transport, run.layout), up_encoding(run.transport, run.layout)
        data = PoisonedData(run.folder.path / POISONED_DATA, run.shard_files)
        subtasks = run.job.stop.epochs * run.job.data.shards
        work = TrainedWork(self._fleet, self._training, encodings, data, subtasks)
        return VirtualGrid(self._fleet, self._time, work, 0 if ahead == "auto" else ahead)

    def _act(self, loop: Loop, evaluator: InstantEvaluator, grid: VirtualGrid) -> None:
        """Do all that is to be done at this moment, while the clock stands."""
        while True:
            new = loop.step()
            grid.care(recorded.event for recorded in new)
            self._training.look()  # the workers go on while this process measures
            if not evaluator.measure(new) and (not new or loop.is_up_to_date):
                return
