"""Carries the coordinator's actions out: makes workunits, keeps snapshots, asks for evaluations, ends the job.

The journal is written before the grid is told: what a killed process had announced and not handed over is handed over again
by the next one, and never the other way round. So does the next step after one that could not be made, as on a full disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vcdl.coordinator import Action, CloseEpoch, Coordinator, Create, Evaluate, Finish, Making, Stop
from vcdl.events import (
    EpochClosed,
    EvaluationWanted,
    Recorded,
    RunFinished,
    RunPaused,
    StopDecided,
    WorkunitCreated,
    WorkunitSent,
)
from vcdl.grids.base import Grid, Staged
from vcdl.grids.upload_folder import discard_kept_uploads
from vcdl.journal import Journal
from vcdl.run.downloads import Downloads
from vcdl.run.folder import RunFolder
from vcdl.run.snapshots import Snapshots
from vcdl.workunit import Training, Workunit


@dataclass
class WorkGenerator:
    """Follows the journal of one job and acts on it."""

    job: str
    seed: int
    training: Training
    """Its learning rate is the job's peak."""
    shard_files: tuple[Path, ...]
    folder: RunFolder
    coordinator: Coordinator
    journal: Journal
    snapshots: Snapshots
    grid: Grid
    downloads: Downloads
    keeps_uploads: bool = False
    """Of all updates, with the weights that they started from."""
    _last_id: int = 0
    _snapshots_in_use: frozenset[int] = frozenset()
    _is_handed_over: bool = False
    """Whether the grid is known to have all that the journal announces."""
    _untold: list[Recorded] = field(default_factory=list)
    """Events that the coordinator has and no caller was told of yet."""
    _unrecorded: list[WorkunitSent] = field(default_factory=list)
    """What the grid has told and the journal has not got yet."""

    def follow(self) -> Sequence[Recorded]:
        """Fold what is new in the journal into the coordinator; returns what is new to the caller. Raises JournalError."""
        self._fold_new()
        return self._tell()

    def record_sent(self) -> None:
        """Have the journal know which workunits clients began with. Raises JournalError, GridError."""
        self._unrecorded += self.grid.sent()
        self.journal.append(*self._unrecorded)
        self._unrecorded.clear()

    def run_once(self, now_s: float) -> Sequence[Recorded]:
        """Follow the journal and carry out what should be done now; returns the events that are new to the caller.

        Raises Unavailable: call again, nothing was done by halves; VcdlError.
        """
        self._fold_new()
        if not self._is_handed_over:
            self._hand_over()
        self._is_handed_over = False  # until this step has come to its end
        while actions := self.coordinator.actions(now_s, self.grid.open_wanted()):
            self._carry_out(actions)
            self._fold_new()
        self._is_handed_over = True
        in_use = frozenset(self.coordinator.versions_in_use)
        if in_use != self._snapshots_in_use:
            self.grid.discard_params(in_use)
            if not self.keeps_uploads:
                self.snapshots.discard_all_but(in_use | self._to_fold_again_with())
            self._snapshots_in_use = in_use
        self.downloads.discard_all_but({name.base_version for name in self.coordinator.open.values()})
        return self._tell()

    def _fold_new(self) -> None:
        for recorded in self.journal.read(self._last_id):
            self.coordinator.fold(recorded)
            self._untold.append(recorded)
            self._last_id = recorded.id
            if isinstance(recorded.event, RunPaused):
                self._is_handed_over = False  # what was out was taken back

    def _tell(self) -> Sequence[Recorded]:
        untold, self._untold = self._untold, []
        return untold

    def _to_fold_again_with(self) -> set[int]:
        return self.coordinator.versions_to_fold_again_with if self.folder.kept_uploads.is_dir() else set()

    def _hand_over(self) -> None:
        """Hand open workunits over that the grid does not know: who announced them was killed, or could not go on."""
        missing = {workunit: n for workunit, n in self.coordinator.open.items() if not self.grid.has(workunit)}
        making = self.coordinator.making_of
        self.grid.submit(
            [self._stage(n.epoch, n.shard, n.attempt, n.base_version, making(wu)) for wu, n in missing.items()]
        )

    def _carry_out(self, actions: Sequence[Action]) -> None:
        self._create([action for action in actions if isinstance(action, Create)])
        for action in actions:
            match action:
                case CloseEpoch(epoch):
                    version = self.snapshots.keep_newest(durable=True)
                    self.journal.append(EpochClosed(epoch, version, self.snapshots.store.lost_updates()))
                    if not self.keeps_uploads:
                        discard_kept_uploads(self.folder, version)
                case Evaluate(version, epoch, split):
                    self.snapshots.ensure(version)
                    self.journal.append(EvaluationWanted(version, epoch, split))
                case Stop(reason):
                    self.grid.cancel(set(self.coordinator.open))
                    version = self.snapshots.keep_newest(durable=True)
                    self.journal.append(StopDecided(reason.value, version, self.snapshots.store.lost_updates()))
                case Finish():
                    self.journal.append(RunFinished())

    def _create(self, creations: Sequence[Create]) -> None:
        if not creations:
            return
        newest, making = self.snapshots.keep_newest(), self.coordinator.making(len(creations))
        staged = [
            self._stage(c.epoch, c.shard, c.attempt, newest if c.base_version is None else c.base_version, making)
            for c in creations
        ]
        self.journal.append(*(WorkunitCreated(item.workunit.name, making.open) for item in staged))
        self.grid.submit(staged)

    def _stage(self, epoch: int, shard: int, attempt: int, base_version: int, making: Making) -> Staged:
        """A workunit and its files; the same one again for the same numbers."""
        seed = int(np.random.default_rng([self.seed, epoch, shard, attempt]).integers(2**31))
        rate = self.training.learning_rate * self.coordinator.rate(epoch, shard, making)
        training = replace(self.training, learning_rate=rate)
        transport, params = self.downloads.transport, self.downloads.path(base_version)
        workunit = Workunit(self.job, epoch, shard, attempt, base_version, seed, training, transport)
        return Staged(workunit, self.folder.model_file, params, self.shard_files[shard])
