"""Read a workunit's input files strictly: damaged, foreign or unfitting files are refused before any training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.client.unneeded import unneeded_shown
from vcdl.codecs.choose import down_encoding
from vcdl.errors import WeightsFileError, WorkunitError
from vcdl.wire.inputs import each, parts_of
from vcdl.wire.jpeg import ENDS, SHAPE, read_inputs
from vcdl.wire.layout import Layout, Vector
from vcdl.wire.normalise import normalise
from vcdl.wire.npz_form import NpzError, open_npz
from vcdl.wire.params import ParamsHeader
from vcdl.wire.workunit import DESCRIPTION_FILE, MODEL_FILE, SHARD_FILE, Normalisation, Workunit

_AGAIN = "fetch the workunit's files again"


@dataclass(frozen=True)
class Shard:
    """Training data in the model's form: x and y of shape (n, …) in float32, or int32 for whole numbers and labels."""

    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    weights: npt.NDArray[np.float32] | None = None
    """The weight of each sample, shape (n,), or None if all are equal."""

    def __len__(self) -> int:
        return len(self.x)


ShardReader = Callable[[Path, Normalisation, Mapping[str, tuple[int | None, ...]], Sequence[str]], Shard]
"""A function with the arguments of `read_shard`."""


def read_workunit(folder: Path) -> Workunit:
    """Read workunit.json from a folder.

    Raises:
        WorkunitError: The file is missing or invalid.
    """
    return Workunit.from_json(_text(folder / DESCRIPTION_FILE))


def read_model_json(folder: Path) -> str:
    """Return the text of model.json, unchecked.

    Raises:
        WorkunitError: The file is missing or too large.
    """
    return _text(folder / MODEL_FILE)


def read_params(path: Path, workunit: Workunit, layout: Layout, version: int) -> tuple[Vector, str]:
    """Read the weights that the training starts from, and return them with their checksum.

    Args:
        path: The file.
        workunit: The workunit whose job they must belong to.
        layout: The layout that they must have.
        version: The version that they must be.

    Raises:
        WeightsFileError: The file is damaged or of another job, layout or version, or contains NaN or infinite weights.
    """
    vector, text = down_encoding(workunit.transport, layout).read(path)
    header = ParamsHeader.from_json(text)
    expected = ParamsHeader(workunit.job, version, layout.fingerprint)
    if header != expected:
        raise WeightsFileError(f"{path.name} is {header}, the workunit needs {expected}: {_AGAIN}")
    if not np.isfinite(vector).all():
        raise WeightsFileError(f"{path.name} contains weights that are not finite (NaN or infinite): {_AGAIN}")
    return vector, header.checksum


def read_shard(
    folder: Path,
    normalisation: Normalisation,
    input_shapes: Mapping[str, tuple[int | None, ...]],
    outputs: Sequence[str] = (),
) -> Shard:
    """Read the shard's training data, check them against the model, and normalise them.

    Args:
        folder: The workunit's folder.
        normalisation: How to scale the samples.
        input_shapes: Shape of one sample by the input's name, with None for any length; "" is a single input.
        outputs: Names of the outputs, if there are several.

    Raises:
        WorkunitError: The shard is damaged, or does not fit the model.
    """
    x, y, weights = _arrays(folder / SHARD_FILE)
    _check_arrays(x, y, input_shapes, outputs)
    try:
        scaled = normalise(x, normalisation)
        labels = each(lambda _, part: _labels(part), scaled if y is x else y)  # an autoencoder's are stored once
    except ValueError as error:
        raise WorkunitError(f"{SHARD_FILE}: {error}") from error
    if not all(np.isfinite(part).all() for part in (*parts_of(scaled).values(), *parts_of(labels).values())):
        raise WorkunitError(
            f"{SHARD_FILE} contains numbers that are not finite: clean the data and submit the job again"
        )
    return Shard(scaled, labels, None if weights is None else _check_weights(weights, len(x)))


def _arrays(path: Path) -> tuple[Any, Any, Any]:
    """Read x, y and the samples' weights (None if there are none), without checking them. Without y, x is also y.

    Raises:
        WorkunitError: The file cannot be read.
    """
    try:
        with open_npz(path) as file:
            # Encoded pictures add `ends` and `shape` (vcdl.wire.jpeg). A file with other names is no shard.
            if not {"x"} <= set(file.names) - {ENDS, SHAPE} <= {"x", "y", "weights"}:
                raise WorkunitError(f"{path.name} contains {str(sorted(file.names))[:200]}, expected x, y and weights")
            with unneeded_shown():  # Pillow
                x = read_inputs(file)
            y = file.read("y") if "y" in file.names else x
            return x, y, file.read("weights") if "weights" in file.names else None
    except FileNotFoundError as error:
        raise WorkunitError(f"{path.name} is missing: {_AGAIN}") from error
    except (OSError, NpzError) as error:
        raise WorkunitError(f"{path.name} is damaged ({error}): {_AGAIN}") from error


def _check_arrays(x: Any, y: Any, input_shapes: Mapping[str, tuple[int | None, ...]], outputs: Sequence[str]) -> None:
    if not len(np.shape(x)) or not len(np.shape(y)) or len(x) != len(y) or not len(x):
        raise WorkunitError(
            f"{SHARD_FILE}: x of shape {x.shape} and y of shape {y.shape} have different numbers of samples"
        )
    inputs = parts_of(x)
    if any(part.dtype.kind not in "biuf" for part in (*inputs.values(), *parts_of(y).values())):
        raise WorkunitError(f"{SHARD_FILE}: x of {str(x.dtype)[:200]} and y of {str(y.dtype)[:200]}, expected numbers")
    _check_shapes(inputs, input_shapes)
    if set(parts_of(y)) != set(outputs or ("",)):
        raise WorkunitError(
            f"{SHARD_FILE} has labels of {str(y.dtype.names)[:200]}, expected {list(outputs) or 'one array'}"
        )


def _check_shapes(inputs: Mapping[str, Any], input_shapes: Mapping[str, tuple[int | None, ...]]) -> None:
    if set(inputs) != set(input_shapes):
        raise WorkunitError(
            f"{SHARD_FILE} has inputs {str(list(inputs))[:200]}, the model expects {list(input_shapes)}"
        )
    for name, part in inputs.items():
        sample, expected = part.shape[1:], input_shapes[name]
        if len(sample) != len(expected) or any(w not in (None, g) for g, w in zip(sample, expected, strict=True)):
            raise WorkunitError(f"{SHARD_FILE}: samples of shape {sample}, the model expects {expected}")


def _labels(y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return labels in the type that Keras' losses accept.

    Raises:
        ValueError: A label is too large or not finite.
    """
    # Keras' sparse losses take int32. A larger label would overflow into another class.
    if y.dtype.kind in "iu" and not np.can_cast(y.dtype, np.int32) and (y.min() < -(2**31) or y.max() >= 2**31):
        raise ValueError("y contains labels beyond 32 bits")
    return y.astype(np.float32 if y.dtype.kind == "f" else np.int32)


def _check_weights(weights: npt.NDArray[Any], samples: int) -> npt.NDArray[np.float32]:
    """Return the samples' weights as float32.

    Raises:
        WorkunitError: They are not one non-negative number per sample.
    """
    if weights.shape != (samples,) or weights.dtype.kind != "f" or not np.isfinite(weights).all() or weights.min() < 0:
        raise WorkunitError(f"{SHARD_FILE}: weights of shape {weights.shape}, expected a number ≥ 0 for each sample")
    return weights.astype(np.float32)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise WorkunitError(f"{path.name} is missing: {_AGAIN}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise WorkunitError(f"{path.name} cannot be read ({error}): {_AGAIN}") from error
