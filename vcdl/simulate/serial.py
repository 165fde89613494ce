"""The control: serial training through the same data pipeline, so that nothing but the distribution differs.

One client trains all shards of every epoch in the coordinator's order. It starts each from the weights it has just made (a subtask at a
time, and the shared weights are replaced by each upload) and carries its optimizer on: together that is ordinary training of one model.
"""

import shutil
from collections.abc import Collection
from pathlib import Path

from vcdl.client.describe import describe
from vcdl.client.host import Request
from vcdl.client.train import train_workunit
from vcdl.client.trainer import Trainer, TrainerCache, TrainerState
from vcdl.errors import VcdlError
from vcdl.grids.base import GaveUp, Outcome, Staged, Uploaded
from vcdl.job import Job, ScheduleSettings
from vcdl.job_transport import TransportSettings
from vcdl.job_update import VcAsgdSettings
from vcdl.run_folder import RunFolder, folder_error
from vcdl.upload_folder import conclude_upload
from vcdl.weights import Vector
from vcdl.workunit import INPUT_FILES, OUTPUT_FILE, Training


def serial_job(job: Job) -> Job:
    """The job as serial training: an upload replaces the shared weights, and the next subtask starts from them."""
    settings = {
        "update": VcAsgdSettings(alpha=0.0),
        "schedule": ScheduleSettings(kind="rolling"),
        "transport": TransportSettings(),
    }
    return job.model_copy(update=settings)


class SerialTraining:
    """Trains each subtask in this process when it is asked for, with one model and one optimizer for all of them."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._staged: dict[str, Staged] = {}
        self._trainers = _OneTrainer()

    def start(self) -> None:
        return

    def begin(self, staged: Staged, due_s: float) -> None:
        self._staged[staged.workunit.name] = staged

    def look(self) -> None:
        return

    def outcome(self, workunit: str) -> Outcome:
        staged = self._staged[workunit]
        slot, upload = self._folder.slots / workunit, self._folder.uploads / f"{workunit}.h5"
        try:
            _lay_out(slot, staged)
            train_workunit(slot, _NoHost(), self._trainers)
            (slot / OUTPUT_FILE).replace(upload)
            return Uploaded(workunit, upload, upload.stat().st_size)
        except VcdlError as error:
            return GaveUp(workunit, describe(error))
        except OSError as error:
            raise folder_error(slot, error) from error
        finally:
            shutil.rmtree(slot, ignore_errors=True)

    def done(self, workunit: str, version: int | None) -> None:
        conclude_upload(self._folder, workunit, version)
        self._staged.pop(workunit, None)

    def cancel(self, workunits: Collection[str]) -> None:
        for workunit in workunits:
            self._staged.pop(workunit, None)

    def close(self) -> None:
        return


class _CarryingTrainer(Trainer):
    """Takes over the optimizer of the subtask before."""

    _carried: TrainerState | None = None

    def begin(self, weights: Vector, seed: int, learning_rate: float) -> None:
        super().begin(weights, seed, learning_rate)
        if self._carried is not None:
            begun = self.state()
            self.restore(TrainerState(begun.weights, self._carried.optimizer, begun.seeds))
            self._optimizer.learning_rate = learning_rate

    def finish(self) -> Vector:
        self._carried = self.state()
        return super().finish()


class _OneTrainer(TrainerCache):
    def get(self, model_json: str, training: Training) -> Trainer:
        if self._trainer is None:
            self._trainer = _CarryingTrainer(model_json, training)
        return self._trainer


class _NoHost:
    """Nobody watches and nobody interrupts."""

    def request(self) -> Request:
        return Request.GO

    def progress(self, fraction: float, samples: int) -> None:
        return

    def checkpoint_made(self) -> None:
        return


def _lay_out(slot: Path, staged: Staged) -> None:
    slot.mkdir()
    description, *logical = (slot / name for name in INPUT_FILES)
    description.write_text(staged.workunit.to_json(), encoding="utf-8")
    for target, source in zip(logical, (staged.model, staged.params, staged.shard), strict=True):
        shutil.copyfile(source, target)
