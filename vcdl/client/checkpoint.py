"""A workunit that was begun: an `.npz` beside its inputs, written atomically, that a new process goes on from.

Arrays only (`allow_pickle=False`), each with the checksum of its zip entry. One array, `header`, is JSON in UTF-8. A checkpoint
that is damaged or of another workunit is left aside with a note: training then starts over, which costs time and nothing else.
"""

import hashlib
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vcdl.client.inputs import UNREADABLE
from vcdl.client.trainer import TrainerState
from vcdl.workunit import Workunit

CHECKPOINT_FILE = "checkpoint.npz"
_FORMAT = 1
_HEADER_LIMIT_BYTES = 10_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Position:
    """How far the training of a workunit has come."""

    samples: int = 0
    """Trained so far, over all local epochs; it fixes local epoch and batch."""
    loss_sum: float = 0.0
    """Of the samples of the newest local epoch."""
    train_s: float = 0.0
    """Seconds of training, over all restarts, pauses left out."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a workunit stands, and the trainer's state at that point."""

    position: Position
    state: TrainerState

    def write(self, folder: Path, workunit: Workunit) -> None:
        """Write it so that a kill or a power cut leaves the old one or the new one. Raises OSError and leaves nothing behind."""
        header = {"format": _FORMAT, "workunit": _digest(workunit), "position": asdict(self.position)}
        arrays: dict[str, npt.NDArray[Any]] = {
            "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
            "weights": self.state.weights,
            **{f"optimizer_{i}": value for i, value in enumerate(self.state.optimizer)},
            **{f"seed_{i}": value for i, value in enumerate(self.state.seeds)},
        }
        path = folder / CHECKPOINT_FILE
        temporary = folder / f".{CHECKPOINT_FILE}.{os.getpid()}.tmp"
        try:
            with temporary.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    @classmethod
    def read(cls, folder: Path, workunit: Workunit, like: TrainerState) -> Self | None:
        """The checkpoint of this workunit whose state fits `like`; None, with a note in the log, when there is none to use."""
        path = folder / CHECKPOINT_FILE
        try:
            with np.load(path, allow_pickle=False) as file:
                header = _header(file)
                if header["workunit"] != _digest(workunit):
                    raise ValueError("it belongs to another workunit")
                if len(file.files) != 2 + len(like.optimizer) + len(like.seeds):
                    raise ValueError("it belongs to another model or optimizer")
                state = TrainerState(
                    file["weights"],
                    tuple(file[f"optimizer_{i}"] for i in range(len(like.optimizer))),
                    tuple(file[f"seed_{i}"] for i in range(len(like.seeds))),
                )
                position = Position(**header["position"])
            if not state.fits(like) or state.weights.dtype != np.float32:
                raise ValueError("it belongs to another model or optimizer")
            return cls(position, state)
        except FileNotFoundError:
            return None
        except (*UNREADABLE, KeyError, TypeError) as error:
            _log.warning("%s cannot be used (%s): training starts over", CHECKPOINT_FILE, error)
            return None


def remove_checkpoint(folder: Path) -> None:
    """Remove the checkpoint, and whatever a killed process was writing."""
    (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
    for left in folder.glob(".*.tmp"):
        left.unlink(missing_ok=True)


def _header(file: Any) -> dict[str, Any]:
    raw = file["header"]
    if raw.dtype != np.uint8 or raw.size > _HEADER_LIMIT_BYTES:
        raise ValueError("its header is damaged")
    header = json.loads(raw.tobytes())
    if header["format"] != _FORMAT:
        raise ValueError(f"it is of format {header['format']!r}, this version reads {_FORMAT}")
    return dict(header)


def _digest(workunit: Workunit) -> str:
    return hashlib.sha256(workunit.to_json().encode()).hexdigest()
