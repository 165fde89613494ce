"""Train the one workunit in a folder under any supervisor: resume from its checkpoint, train, and write update.h5."""

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path

import numpy as np

from vcdl.client.batches import Batches, pace_of
from vcdl.client.checkpoint import Checkpoint, Position, remove_checkpoint
from vcdl.client.inputs import Shard, ShardReader, read_model_json, read_shard, read_workunit
from vcdl.client.newest import NewestWeights, Start, begin
from vcdl.client.process_age import process_age
from vcdl.client.processors import machine_words
from vcdl.client.residual import HostMemory, write_upload
from vcdl.client.slot import CHECKPOINT_FILE
from vcdl.client.stage_clock import NETWORK, TRAIN, StageClock
from vcdl.client.supervisor import Request, Supervisor
from vcdl.client.trainer import Trainer, TrainerCache
from vcdl.codecs.choose import up_encoding
from vcdl.codecs.encoding import Encoding
from vcdl.errors import FileUnavailable, VcdlError, WeightsFileError, WorkunitError
from vcdl.wire.frozen import read_frozen
from vcdl.wire.workunit import FROZEN_FILE, OUTPUT_FILE, Training, UpdateHeader, Workunit

CHECKPOINT_EVERY_S = 60.0
"""Seconds between two checkpoints, and so of training that a kill may lose. A shorter period costs more writes: a
checkpoint of the paper's model (60 MB) takes about 0.1 s."""
_PROGRESS_EVERY_S = 0.25
"""Seconds between two progress messages, so that short batches do not flood the parent."""
_PAUSE_POLL_S = 0.1
"""Seconds between two requests while paused, so that training resumes this late at most."""
_log = logging.getLogger(__name__)


class Outcome(Enum):
    """The way in which a workunit's training ended."""

    DONE = "done"
    """update.h5 is in the folder, for the whole shard or, after "finish", for a part of it."""
    QUIT = "quit"
    """A checkpoint is in the folder."""


class DivergedError(VcdlError):
    """Raised when the loss or the weights became infinite or NaN."""


@dataclass(frozen=True)
class TrainingTerms:
    """How a process trains a workunit: its checkpoints, the weights to start from, and how much to train."""

    checkpoint_every_s: float = CHECKPOINT_EVERY_S
    newest: NewestWeights | None = None
    """The source of newer weights to start from, or None to start from those that came with the task."""
    samples: int | None = None
    """Number of samples to train, however long they take. None: all, or as many as the workunit's time allows."""
    before_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each stage before `train_workunit` is called, keyed by stage."""
    read_data: ShardReader = read_shard
    host: HostMemory | None = None
    """The folder for files that later tasks use; None: the folder above the workunit's."""


def train_workunit(
    folder: Path, supervisor: Supervisor, trainers: TrainerCache, terms: TrainingTerms = TrainingTerms()
) -> Outcome:
    """Train the workunit in a folder, from its checkpoint if there is one, and write update.h5 into the folder.

    If a complete update exists already, nothing is trained. The checkpoint is removed once the update is written.

    Args:
        folder: The workunit's folder, with all input files.
        supervisor: Says when to pause, quit or finish, and gets the progress.
        trainers: Keeps the compiled model for the next workunit.
        terms: How to train.

    Raises:
        WorkunitError, WeightsFileError, ModelError, JobError: The inputs cannot be trained.
        FileUnavailable: An input cannot be read now.
        DivergedError: Loss or weights are not finite.
        OSError: The update cannot be written.
    """
    clock = StageClock(terms.before_s)
    workunit = read_workunit(folder)
    read = partial(read_frozen, folder / FROZEN_FILE, workunit.frozen)
    trainer = trainers.get(read_model_json(folder), workunit.training, workunit.frozen, read)
    clock.lap("build")
    up = up_encoding(workunit.transport, trainer.layout)
    if not _is_done(folder, workunit, up):
        if terms.newest is not None:
            terms.newest.fetch(folder, workunit, trainer.layout)
            clock.lap(NETWORK)
        start = begin(folder, workunit, trainer.layout)
        outputs = [output.name for output in workunit.training.outputs]
        shard = terms.read_data(folder, workunit.training.normalisation, trainer.input_shapes, outputs)
        subtask = _Subtask(
            folder=folder,
            supervisor=supervisor,
            workunit=workunit,
            start=start,
            trainer=trainer,
            shard=shard,
            terms=terms,
            clock=clock,
        )
        subtask.begin()
        subtask.resume()
        if subtask.train() is Outcome.QUIT:
            return Outcome.QUIT
        subtask.write_update(up, terms.host or HostMemory(folder.absolute().parent))
    remove_checkpoint(folder)
    return Outcome.DONE


def _is_done(folder: Path, workunit: Workunit, up: Encoding) -> bool:
    """Return whether the update exists and is complete: a process may have been killed before it could report."""
    path = folder / OUTPUT_FILE
    if not path.exists():
        return False
    try:
        vector, text = up.read(path)
        header = UpdateHeader.from_json(text)
    except (WeightsFileError, FileUnavailable, WorkunitError) as error:
        _log.warning("%s exists but cannot be used (%s): training the workunit again", OUTPUT_FILE, error)
        return False
    described = (header.workunit, header.layout, header.codec)
    return described == (workunit.name, up.layout.fingerprint, up.label) and bool(np.isfinite(vector).all())


@dataclass
class _Subtask:
    """The training of one workunit: its position, and all that it needs.

    Call `begin`, `resume`, `train`, `write_update`.
    """

    folder: Path
    supervisor: Supervisor
    workunit: Workunit
    start: Start
    """The weights that the training actually starts from."""
    trainer: Trainer
    shard: Shard
    terms: TrainingTerms
    clock: StageClock

    def __post_init__(self) -> None:
        workunit, training, size = self.workunit, self.workunit.training, len(self.shard)
        # Store the version that the training starts from in the checkpoint, so that one of other weights does not fit.
        self._begun = replace(workunit, base_version=self.start.version)
        # If subtasks end by time, the order depends on the shard: all of them follow one endless order, so that no
        # sample is left out (decision 075).
        seed, begins = (workunit.seed, 0) if workunit.begins is None else (workunit.shard, workunit.begins)
        self._batches = Batches(seed, size, training.batch_size, training.local_epochs, begins)
        wanted, total = self.terms.samples, self._batches.total
        self._until = total if wanted is None else min(wanted, total)
        self._position = Position()
        self._has_begun = False
        """Whether this process has trained a batch."""
        self._saved: Position | None = None
        """The position of the newest checkpoint."""

    def begin(self) -> None:
        """Set the trainer to the initial weights, seed and learning rate."""
        workunit = self.workunit
        self.trainer.begin(self.start.weights, workunit.seed, workunit.training.learning_rate, self._batches.steps)

    def resume(self) -> None:
        """Continue from the folder's checkpoint, if it has one that fits."""
        if not (
            self.folder / CHECKPOINT_FILE
        ).exists():  # skipped otherwise: a copy of the trainer's state takes a seventh of a small subtask
            return
        checkpoint = Checkpoint.read(self.folder, self._begun, self.trainer.state())
        if checkpoint is None:
            return
        if not self._batches.is_boundary(checkpoint.position.samples):
            _log.warning("the checkpoint's position does not exist: training starts over")
            return
        self.trainer.restore(checkpoint.state)
        self._position = self._saved = checkpoint.position
        for stage, seconds in checkpoint.position.times_s.items():
            self.clock.add(stage, seconds)
        self.supervisor.progress(self._fraction, self._position.samples)

    def train(self) -> Outcome:
        """Train to the end, or until a request or the workunit's time ends it.

        Before it quits or pauses, and once per period, it writes a checkpoint.
        """
        show, save = _Every(_PROGRESS_EVERY_S), _Every(self.terms.checkpoint_every_s)
        self.clock.lap("prepare")
        while self._position.samples < self._until and not self._time_is_up:
            request = self.supervisor.request()
            if request is Request.PAUSE:
                self._save()  # a paused machine may be switched off next
                request = self._wait()
            self.clock.lap("paused")
            if request is Request.QUIT:
                self._save()
                return Outcome.QUIT
            if request is Request.FINISH and self._position.samples:  # an empty upload is useless
                break
            trained_s, compiles = self._position.train_s, not self.trainer.has_trained
            self._step()
            if not self._has_begun:
                self._has_begun = True
                if compiles:
                    self.clock.add("first", self._position.train_s - trained_s)
                _log.info("first batch trained after %s", process_age())
            if show.is_due():
                self.supervisor.progress(self._fraction, self._position.samples)
            if save.is_due():
                self._save()
            self.clock.lap(TRAIN)
        return Outcome.DONE

    def write_update(self, up: Encoding, host: HostMemory) -> None:
        """Write the trained weights to update.h5, and store what its codec left out on the host.

        Raises:
            DivergedError: The weights are not finite.
            OSError: The file cannot be written.
        """
        _log.info("last batch trained after %s", process_age())
        weights = self.trainer.finish()
        if not np.isfinite(weights).all():
            raise _divergence_error("some weights are", self._position.samples, self.workunit.training)
        position = self._position
        self.clock.lap("write")
        header = UpdateHeader(
            job=self.workunit.job,
            workunit=self.workunit.name,
            base_version=self.start.version,
            base_checksum=self.start.checksum,
            layout=self.trainer.layout.fingerprint,
            samples=position.samples,
            fraction=self._fraction,
            train_s=position.train_s,
            loss=position.loss_sum / self._batches.samples_of_epoch(position.samples),
            codec=up.label,
            backend=self.trainer.backend,
            machine=machine_words(),
            times_s=self.clock.times_s,
        )
        path, base = self.folder / OUTPUT_FILE, self.start.weights
        write_upload(up, path, weights, base, header, self.workunit, host)

    @property
    def _time_is_up(self) -> bool:
        target_s, position = self.workunit.training.target_s, self._position
        if target_s is None or self.terms.samples is not None or not position.samples:
            return False
        return position.train_s - self.clock.times_s.get("first", 0.0) >= target_s  # compiling is no training

    @property
    def _fraction(self) -> float:
        return self._position.samples / self._batches.total

    @property
    def _at_once(self) -> int:
        """Number of batches to train in the next call.

        In a subtask that ends by time, they must share one learning rate, which reading this property sets.
        """
        if self.workunit.training.target_s is None:
            return self.trainer.at_once
        done = self._batches.before(self._position.samples)
        begin, end = pace_of(done)
        self.trainer.set_learning_rate_for(begin, end - begin)
        return min(self.trainer.at_once, end - done)

    def _step(self) -> None:
        """Train as many batches as the trainer allows in one call."""
        begun_s = time.perf_counter()
        old, size = self._position, self.workunit.training.batch_size
        order = self._batches.at(old.samples, self._at_once)[: self._until - old.samples]
        losses = self.trainer.steps(self.shard.x, self.shard.y, order, size, self.shard.weights)
        samples, loss_sum = old.samples, 0.0 if self._batches.starts_epoch(old.samples) else old.loss_sum
        for loss in losses:
            # Stop at the first bad batch: to continue would only waste a volunteer's time, and the upload would be
            # refused.
            if not math.isfinite(loss):
                raise _divergence_error("the loss is", samples, self.workunit.training)
            batch = min(size, old.samples + len(order) - samples)
            samples, loss_sum = samples + batch, loss_sum + loss * batch
        self._position = Position(samples, loss_sum, old.train_s + time.perf_counter() - begun_s)

    def _save(self) -> None:
        """Write a checkpoint, unless nothing was trained since the last one."""
        if self._position in (self._saved, Position()):
            return
        self.clock.lap(TRAIN)
        position = replace(self._position, times_s=self.clock.times_s)
        try:
            Checkpoint(position, self.trainer.state()).write(self.folder, self._begun)
        except OSError as error:
            _log.warning("no checkpoint could be written (%s): a kill would lose what was trained", error)
            return
        finally:
            self.clock.lap("checkpoint")
        self._saved = self._position
        self.supervisor.checkpoint_made()

    def _wait(self) -> Request:
        while (request := self.supervisor.request()) is Request.PAUSE:
            time.sleep(_PAUSE_POLL_S)
        return request


def _divergence_error(what: str, samples: int, training: Training) -> DivergedError:
    name, rate = training.optimizer.name, training.learning_rate
    return DivergedError(  # with the optimizer, as a job that names a rate alone may get another one
        f"the training diverged: {what} not finite after {samples} samples, at the rate {rate:g}; in the job file name "
        f"training > optimizer: {name} with a lower learning_rate"
    )


class _Every:
    """A timer that reports at most once per period that it is due."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._due_s = time.monotonic() + period_s

    def is_due(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._period_s
        return True
