"""The duration of a job on simulated clients and nothing else, for forecasts, which need many runs and only their ends.

`vcdl simulate --training none` has the loop of every run write a folder and a journal. Here the coordinator decides the
same over the same grid, and its actions become events at once. Both give the same times (tests/simulate/
test_bare_run.py), and this one takes a fifth of the processor time.
"""

import math
from dataclasses import replace
from itertools import count
from pathlib import Path

from vcdl.errors import GridError
from vcdl.job import Job
from vcdl.journal.events import (
    VALIDATION,
    EpochClosed,
    EvaluationWanted,
    Event,
    Recorded,
    RunFinished,
    RunStarted,
    StopDecided,
    StopReason,
    UpdateApplied,
    VersionEvaluated,
    WorkunitCreated,
    WorkunitFailed,
)
from vcdl.loop.coordinator import Action, CloseEpoch, Coordinator, Create, Evaluate, EvaluateNewest, Finish, Stop
from vcdl.loop.grid import GaveUp, Outcome
from vcdl.loop.plan import Plan
from vcdl.run.folder import RunFolder
from vcdl.run.staging import Staged, Uploaded, staged
from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.clients import Clients
from vcdl.simulate.virtual_grid import VirtualGrid
from vcdl.simulate.virtual_run import queue_ahead
from vcdl.simulate.virtual_time import VirtualTime
from vcdl.simulate.weightless import NoWork, WeightlessRun
from vcdl.wire.workunit import WorkunitName


def simulated_s(job: Job, fleet: ClientFleet, bytes_down: int = 0, bytes_up: int = 0) -> float:
    """Return the virtual seconds of a job; infinite if it ends because a subtask kept failing.

    Args:
        job: The job. Its targets and its patience do not count.
        fleet: The clients.
        bytes_down: Size of a subtask's download, where the clients' links are simulated.
        bytes_up: Size of its upload, likewise.
    """
    return BareRun(job, fleet, NoWork(Path(), bytes_down, bytes_up)).wall_s()


class BareRun:
    """One run of a job on simulated clients."""

    def __init__(self, job: Job, fleet: ClientFleet, work: NoWork) -> None:
        run = WeightlessRun.of(RunFolder(Path()), job, work)
        self._plan = Plan.of(run)
        self._time = VirtualTime()
        self._grid = VirtualGrid(Clients(fleet), self._time, work, queue_ahead(job), job.late_after)
        self.times = self._grid.times
        """What the clients' slots did, once the job has run."""
        self._coordinator = Coordinator(self._plan)
        self._model = staged(run, WorkunitName(job.name, 1, 0, 0, 0), 1.0)
        """A workunit of the job; the others differ in their names."""
        self._ids = count(1)
        self._version = 0
        self._wanted: list[EvaluationWanted] = []

    def wall_s(self) -> float:
        """Run the job and return its virtual seconds."""
        limit_s = math.inf if self._plan.wall_time_s is None else self._plan.wall_time_s
        history = self._coordinator.history
        self._tell(RunStarted(False))
        while True:
            while self._step() or self._measure():
                pass
            if history.finished and history.stop is not None:
                given_up = history.stop.reason == StopReason.SUBTASK_FAILED.value
                return math.inf if given_up else self._time.now_s()
            if not self._time.advance(limit_s):
                raise GridError("no client has anything to do and the job is not finished: this is a bug in vcdl")

    def _tell(self, *events: Event) -> None:
        for event in events:
            self._coordinator.state.follow(Recorded(next(self._ids), self._time.now_s(), event))

    def _step(self) -> bool:
        """Do what Loop.step does; returns whether it did anything after which the loop steps again."""
        history, wanted = self._coordinator.history, 0
        if history.stop is None:
            for outcome in sorted(self._grid.claim(), key=lambda one: isinstance(one, Uploaded)):
                self._take(outcome)
        while actions := self._coordinator.actions(self._time.now_s(), wanted := self._grid.open_wanted()):
            self._create([action for action in actions if isinstance(action, Create)])
            for action in actions:
                self._carry_out(action)
        if history.stop is None:
            self._grid.replicate_late(queue_empty=len(history.open) < wanted)
        return bool(self._grid.sent())

    def _measure(self) -> bool:
        """Answer each request for an evaluation; returns whether there was any."""
        wanted, self._wanted = self._wanted, []
        self._tell(
            *(VersionEvaluated(one.version, one.epoch, one.split, 0, math.nan, evaluation_s=0.0) for one in wanted)
        )
        return bool(wanted)

    def _take(self, outcome: Outcome) -> None:
        name = outcome.workunit
        if isinstance(outcome, GaveUp):
            self._tell(WorkunitFailed(name, outcome.reason))
        else:
            self._version += 1
            base, loss = self._coordinator.history.open[name].base_version, None
            staleness = self._version - 1 - base
            self._tell(UpdateApplied(name, self._version, base, staleness, 1.0, 1, 1.0, None, loss, 0))
        self._grid.done(name)

    def _create(self, creations: list[Create]) -> None:
        items: list[Staged] = []
        for create in creations:
            base = self._version if create.base_version is None else create.base_version
            workunit = replace(
                self._model.workunit,
                epoch=create.epoch,
                shard=create.shard,
                attempt=create.attempt,
                base_version=base,
            )
            items.append(replace(self._model, workunit=workunit))
        self._tell(*(WorkunitCreated(item.workunit.name) for item in items))
        self._grid.submit(items)

    def _carry_out(self, action: Action) -> None:
        match action:
            case CloseEpoch(epoch):
                self._tell(EpochClosed(epoch, self._version))
            case Evaluate(version, epoch, split):
                self._want(EvaluationWanted(version, epoch, split))
            case EvaluateNewest():
                self._want(EvaluationWanted(self._version, 0, VALIDATION))
            case Stop(reason):
                self._grid.cancel(set(self._coordinator.history.open))
                self._tell(StopDecided(reason.value, self._version))
            case Finish():
                self._tell(RunFinished())
            case _:
                pass  # nothing is published, and where clients are trusted nothing is taken back

    def _want(self, event: EvaluationWanted) -> None:
        self._wanted.append(event)
        self._tell(event)
