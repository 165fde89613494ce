"""Retrain a subtask on the server with the client's own code, one time slice after another."""

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from vcdl.client.supervisor import Request
from vcdl.client.train import Outcome, TrainingTerms, train_workunit
from vcdl.client.trainer import TrainerCache
from vcdl.errors import folder_errors
from vcdl.run.staging import Staged
from vcdl.wire.workunit import OUTPUT_FILE

_SLICE_S = 5.0
"""Seconds of training before the caller may do something else; the slot then has a checkpoint. Shorter slices would
spend more time on checkpoints."""


class Slice:
    """A supervisor that asks its task to quit after `slice_s` seconds; never with `math.inf`."""

    def __init__(self, slice_s: float) -> None:
        self._until_s = time.monotonic() + slice_s

    def request(self) -> Request:
        return Request.GO if time.monotonic() < self._until_s else Request.QUIT

    def progress(self, fraction: float, samples: int) -> None:
        return

    def checkpoint_made(self) -> None:
        return


@dataclass
class Retraining:
    """Retrains one subtask after another, in slots of a folder that nothing else uses."""

    folder: Path
    """Contains the slots; created when needed, removed by `clear`."""
    trainers: TrainerCache = field(default_factory=TrainerCache)
    slice_s: float = _SLICE_S

    def update(self, slot_name: str, staged: Staged, samples: int | None = None) -> Path | None:
        """Train a subtask for a time slice, and return the path of its update, or None if it needs further slices.

        The slot then has a checkpoint, from which the next call continues.

        Args:
            slot_name: The slot's name; a slot with a checkpoint is continued.
            staged: The workunit with its files.
            samples: The number of samples to train on, or None for all.

        Raises:
            VcdlError: The subtask cannot be trained.
            RunFolderError: The slot cannot be written.
        """
        slot = self.folder / slot_name
        with folder_errors(self.folder):
            # An existing slot has a checkpoint of an earlier slice, or of a process that was killed.
            if not slot.exists():
                self.folder.mkdir(exist_ok=True)
                lay_out(slot, staged)
            outcome = train_workunit(slot, Slice(self.slice_s), self.trainers, TrainingTerms(samples=samples))
        return slot / OUTPUT_FILE if outcome is Outcome.DONE else None

    def clear(self) -> None:
        """Remove all slots with their checkpoints and updates."""
        shutil.rmtree(self.folder, ignore_errors=True)


def lay_out(slot: Path, staged: Staged) -> None:
    """Create a slot with a subtask's files: texts are written, inputs are linked by symbolic links.

    Raises:
        OSError: It cannot be written.
    """
    slot.mkdir()
    for name, text in staged.texts.items():
        (slot / name).write_text(text, encoding="utf-8")
    for name, source in staged.inputs.items():
        (slot / name).symlink_to(source)
