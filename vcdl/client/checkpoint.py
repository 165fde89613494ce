"""The checkpoint of a workunit: an `.npz` file of arrays next to the workunit's inputs, with its header as JSON.

A checkpoint that is damaged or belongs to another workunit is ignored with a note, and training starts over.
"""

import hashlib
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vcdl.client.slot import CHECKPOINT_FILE
from vcdl.client.trainer import TrainerState
from vcdl.files.atomic import atomic_write, sweep
from vcdl.wire.npz_form import open_npz
from vcdl.wire.workunit import STAGES, Workunit

_FORMAT = 1
"""Version of the layout. A checkpoint of another version is ignored, so a client may be updated during a task."""
_HEADER_LIMIT_BYTES = 10_000
"""Largest header that is read: ours are far smaller, and a damaged length must not fill the memory."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Position:
    """How far a workunit is trained, with its loss and times."""

    samples: int = 0
    """Samples trained so far, over all local epochs; local epoch and batch follow from it."""
    loss_sum: float = 0.0
    """Sum of the losses of the newest local epoch's samples."""
    train_s: float = 0.0
    """Seconds of training, over all restarts, without pauses."""
    times_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the other stages (vcdl.wire.workunit.STAGES), over all restarts; empty except in a checkpoint."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Self:
        """Decode a position.

        Raises:
            ValueError, KeyError, TypeError: The value is not a position.
        """
        samples, loss_sum, train_s = raw["samples"], float(raw["loss_sum"]), float(raw["train_s"])
        if type(samples) is not int or not (
            0 <= samples < 2**63 and math.isfinite(loss_sum) and 0 <= train_s < math.inf
        ):
            raise ValueError("its position does not exist")
        # A checkpoint of an older client lacks it and is still accepted.
        told = raw.get("times_s", {})
        times_s = {stage: float(told[stage]) for stage in STAGES if stage in told}
        return cls(samples, loss_sum, train_s, {stage: it for stage, it in times_s.items() if 0 < it < math.inf})


@dataclass(frozen=True)
class Checkpoint:
    """A position in a workunit, with the trainer's state there."""

    position: Position
    state: TrainerState

    def write(self, folder: Path, workunit: Workunit) -> None:
        """Write the checkpoint atomically and durably; a previous one remains if that fails.

        Raises:
            OSError: It cannot be written.
        """
        header = {"format": _FORMAT, "workunit": _digest(workunit), "position": asdict(self.position)}
        arrays: dict[str, npt.NDArray[Any]] = {
            "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
            "weights": self.state.weights,
            **{f"optimizer_{i}": value for i, value in enumerate(self.state.optimizer)},
            **{f"seed_{i}": value for i, value in enumerate(self.state.seeds)},
        }
        # Make it durable: a volunteer's machine may be switched off at any time, and a renamed file without its content
        # would be an empty checkpoint.
        with atomic_write(folder / CHECKPOINT_FILE, durable=True) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def read(cls, folder: Path, workunit: Workunit, like: TrainerState) -> Self | None:
        """Read the checkpoint of this workunit; return None if there is none, or, with a warning, if it is unusable.

        Args:
            folder: The workunit's folder.
            workunit: The workunit, which the checkpoint must belong to.
            like: A state of the trainer that will restore it, which its arrays must fit.
        """
        path = folder / CHECKPOINT_FILE
        try:
            with open_npz(path) as file:
                header = _header(file.read("header"))
                # Compare the whole description and not only the name: after a change of rate or base, training must
                # start over.
                if header["workunit"] != _digest(workunit):
                    raise ValueError("it belongs to another workunit")
                if len(file.names) != 2 + len(like.optimizer) + len(like.seeds):
                    raise ValueError("it belongs to another model or optimizer")
                state = TrainerState(
                    file.read("weights"),
                    tuple(file.read(f"optimizer_{i}") for i in range(len(like.optimizer))),
                    tuple(file.read(f"seed_{i}") for i in range(len(like.seeds))),
                )
                position = Position.of(header["position"])
            if not state.fits(like) or state.weights.dtype != np.float32:
                raise ValueError("it belongs to another model or optimizer")
            return cls(position, state)
        except FileNotFoundError:
            return None
        except (OSError, MemoryError, ValueError, KeyError, TypeError, RecursionError) as error:
            _log.warning("%s cannot be used (%s): training starts over", CHECKPOINT_FILE, error)
            return None


def remove_checkpoint(folder: Path) -> None:
    """Remove the checkpoint, and the temporary files of killed processes."""
    (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
    sweep(folder)


def _header(raw: npt.NDArray[Any]) -> dict[str, Any]:
    if raw.dtype != np.uint8 or raw.size > _HEADER_LIMIT_BYTES:
        raise ValueError("its header is damaged")
    header = json.loads(raw.tobytes())
    if header["format"] != _FORMAT:
        raise ValueError(f"it is of format {header['format']!r}, this version reads {_FORMAT}")
    return dict(header)


def _digest(workunit: Workunit) -> str:
    return hashlib.sha256(workunit.to_json().encode()).hexdigest()
