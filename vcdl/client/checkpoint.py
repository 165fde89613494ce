"""The client's checkpoint: everything that is needed to go on in the middle of a local epoch, in one `.npz` without pickle.

It is written atomically, and one that is damaged or of another workunit is ignored: training then starts over.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FILE = "checkpoint.npz"


@dataclass(frozen=True)
class Position:
    """Where in the workunit the training is."""

    workunit: str
    local_epoch: int
    """From 0."""
    sample: int
    """Of the local epoch's order: the next batch begins here."""
    samples: int
    """Seen so far, over all local epochs."""
    loss: float
    """Mean of the current local epoch so far."""
    train_s: float


@dataclass(frozen=True)
class Checkpoint:
    """A position and the values of all variables of model and optimizer there, in Keras' order."""

    position: Position
    variables: tuple[Array, ...]

    def write(self, folder: Path) -> None:
        """Raises OSError and leaves the earlier checkpoint."""
        temporary = folder / f".{FILE}.{os.getpid()}.tmp"
        arrays = {f"v{number:05d}": value for number, value in enumerate(self.variables)}
        try:
            with temporary.open("wb") as file:
                np.savez(file, position=np.array(json.dumps(asdict(self.position))), **arrays)  # type: ignore[arg-type]
            temporary.replace(folder / FILE)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def read(cls, folder: Path, workunit: str, like: tuple[Array, ...]) -> Self | None:
        """The checkpoint of this workunit whose variables are shaped `like` those of the model; None when there is none."""
        try:
            with np.load(folder / FILE, allow_pickle=False) as file:
                position = Position(**json.loads(str(file["position"])))
                variables = tuple(file[f"v{number:05d}"] for number in range(len(like)))
        except Exception:  # whatever is wrong with it: start over
            return None
        fits = all(v.shape == e.shape and v.dtype == e.dtype for v, e in zip(variables, like, strict=True))
        return cls(position, variables) if fits and position.workunit == workunit else None
