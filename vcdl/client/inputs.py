"""Reads a workunit's folder strictly: what does not fit together is refused before anything is trained."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.errors import WeightsFileError, WorkunitError
from vcdl.normalise import normalise
from vcdl.weights import ParamsHeader, Vector, read_weights
from vcdl.workunit import Normalisation, Workunit

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Shard:
    """Normalised samples and their labels."""

    x: Array
    y: Array

    def __len__(self) -> int:
        return len(self.x)


def read_workunit(folder: Path) -> Workunit:
    """Raises WorkunitError."""
    return Workunit.from_json(_text(folder / "workunit.json"))


def read_model_json(folder: Path) -> str:
    """Raises WorkunitError."""
    return _text(folder / "model.json")


def read_params(folder: Path, workunit: Workunit, layout: str, size: int) -> Vector:
    """The weights to start from, shape (size,). Raises WeightsFileError when they belong to something else."""
    vector, text = read_weights(folder / "params.h5", size)
    header = ParamsHeader.from_json(text)
    expected = ParamsHeader(workunit.job, workunit.base_version, layout)
    if header != expected:
        raise WeightsFileError(f"params.h5 is {header}, the workunit needs {expected}")
    if not np.isfinite(vector).all():
        raise WeightsFileError("params.h5 holds NaN or infinity: the job has diverged; lower training > learning_rate")
    return vector


def read_shard(folder: Path, normalisation: Normalisation) -> Shard:
    """Raises WorkunitError."""
    try:
        with np.load(folder / "shard.npz", allow_pickle=False) as file:
            x, y = file["x"], file["y"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise WorkunitError(f"shard.npz cannot be read ({error}): it was cut short or damaged") from error
    except Exception as error:  # zipfile and zlib raise their own
        raise WorkunitError(f"shard.npz is damaged ({error!r})") from error
    if x.ndim < 1 or y.ndim < 1 or len(x) != len(y) or not len(x):
        raise WorkunitError(f"shard.npz holds x of shape {x.shape} and y of shape {y.shape}")
    try:
        x = normalise(x, normalisation)
    except ValueError as error:
        raise WorkunitError(f"shard.npz does not fit the workunit: {error}") from error
    if not np.isfinite(x).all():
        raise WorkunitError("shard.npz holds NaN or infinity")
    return Shard(x, y)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkunitError(f"{path.name} cannot be read: {error}") from error
