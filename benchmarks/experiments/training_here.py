"""The real training of a simulation, in the simulation's own process and on one core.

Several runs side by side keep several cores as busy as worker processes do, and share their compiled models.
"""

import math
import shutil
from collections.abc import Collection

from vcdl.client.resources import error_text
from vcdl.client.train import TrainingTerms, train_workunit
from vcdl.client.trainer import TrainerCache
from vcdl.errors import VcdlError, folder_error
from vcdl.loop.grid import GaveUp, Outcome
from vcdl.run.folder import RunFolder
from vcdl.run.kept_weights import conclude_upload
from vcdl.run.staging import Staged, Uploaded
from vcdl.trust.retraining import Slice, lay_out
from vcdl.wire.workunit import OUTPUT_FILE


class TrainingHere:
    """Trains each subtask in this process, at the moment its outcome is asked for."""

    def __init__(self, folder: RunFolder, trainers: TrainerCache) -> None:
        """Train with `trainers`, which may outlive the run and serve the next one."""
        self._folder = folder
        self._trainers = trainers
        self._staged: dict[str, Staged] = {}

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
            lay_out(slot, staged)
            train_workunit(slot, Slice(math.inf), self._trainers, TrainingTerms(samples=staged.samples))
            (slot / OUTPUT_FILE).replace(upload)
            return Uploaded(workunit, upload, upload.stat().st_size)
        except VcdlError as error:
            return GaveUp(workunit, error_text(error))
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
