"""Write a program's model and arrays as files that a job file can name."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcdl.client.memory import available_memory_bytes
from vcdl.client.own_code import OwnCode
from vcdl.errors import DataError, ModelError, folder_errors, one_line

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

JOB_FILE, MODEL_FILE, MODEL_JSON, DATA_FILE = "job.yaml", "model.keras", "model.json", "data.npz"
DATA_FOLDER = "data"
"""The folder of arrays that were given as a stream."""
_STREAMS = {
    "DatasetV2": "a tf.data.Dataset",
    "PyDataset": "a keras.utils.PyDataset",
    "DataLoader": "a DataLoader of PyTorch",
    "generator": "a generator",
}
"""Class that yields batches instead of arrays → its name in messages."""


def as_array(name: str, value: Any) -> "Array":
    """Return samples or labels as a NumPy array, from lists, tensors or pandas objects.

    Raises:
        DataError: They are no array of numbers or texts.
    """
    import numpy as np

    _refuse_streams(name, value)
    if isinstance(value, dict):
        raise DataError(f"{name} is a dict, and the model has one input and one output: give one array")
    if isinstance(value, str | Path):
        raise DataError(
            f"{name} is a name, {str(value)[:60]!r}: read the file with numpy or pandas, and give the array"
        )
    if hasattr(value, "toarray"):
        value = _dense(name, value)
    try:
        if isinstance(value, np.memmap):  # it stays on the disk
            return value
        array = value.to_numpy() if hasattr(value, "to_numpy") else np.asarray(value)
    except Exception as error:  # each library refuses in its own way
        raise DataError(f"{name} is no array ({one_line(error)}): give rows of the same length, as numbers") from error
    if array.dtype.kind == "O":
        array = _without_objects(name, array)
    return array


def as_arrays(name: str, value: Any, ends: Sequence[str], what: str) -> "dict[str, Array]":
    """Return samples keyed by input, or labels keyed by output; "" is the key of a single one.

    Args:
        name: The argument, for messages.
        value: The samples or labels.
        ends: Names of the model's inputs or outputs.
        what: `inputs` or `outputs`, for messages.

    Raises:
        DataError: They do not match the names.
    """
    if len(ends) < 2:
        return {"": as_array(name, value)}
    if isinstance(value, dict) and set(value) == set(ends):
        return {of: as_array(f"{name}[{of!r}]", value[of]) for of in ends}
    if isinstance(value, list | tuple) and len(value) == len(ends):
        return {of: as_array(f"{name}[{place}]", value[place]) for place, of in enumerate(ends)}
    raise DataError(
        f"{name}: the model has the {what} {', '.join(ends)}: give a dict with an array for each, "
        "or a list of arrays in this order"
    )


def ends_of(model: Any) -> tuple[list[str], list[str]]:
    """Return the names of the model's inputs and of its outputs; two empty lists if it is not built yet."""
    from vcdl.client.model import output_tensors

    if not getattr(model, "inputs", None):
        return [], []
    return [str(tensor.name) for tensor in model.inputs], list(output_tensors(model))


def _refuse_streams(name: str, value: Any) -> None:
    stream = next((_STREAMS[kind.__name__] for kind in type(value).__mro__ if kind.__name__ in _STREAMS), None)
    if stream is not None or hasattr(value, "__next__"):
        raise DataError(
            f"{name} is {stream or 'an iterator'}, which yields batches: give one stream of pairs (x, y) in place of x "
            "and y"
        )


def _dense(name: str, matrix: Any) -> "Array":
    """Return a sparse matrix of SciPy as a dense one in float32, as shards are dense. Raises DataError."""
    import numpy as np

    size_bytes, free_bytes = matrix.shape[0] * matrix.shape[1] * 4, available_memory_bytes()
    if free_bytes is not None and size_bytes > free_bytes:
        raise DataError(
            f"{name} is sparse, and takes {size_bytes / 2**30:.1f} GiB with its zeros, more than the "
            f"{free_bytes / 2**30:.1f} GiB that are free: use fewer columns, for example with sklearn's TruncatedSVD"
        )
    dense: Array = (matrix.astype(np.float32) if matrix.dtype.kind == "f" else matrix).toarray()
    return dense


def _without_objects(name: str, array: "Array") -> "Array":
    """Return an array of Python objects as numbers or texts, such as a pandas table with columns of several types."""
    import numpy as np

    # pandas returns an array of objects for a table with columns of several types, and for columns of text.
    kinds = {type(value) for value in array.ravel()}
    if kinds <= {str}:
        return array.astype(str)
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        odd = next(value for value in array.ravel() if not isinstance(value, int | float | bool | np.number))
        raise DataError(
            f"{name} holds {type(odd).__name__} objects, such as {str(odd)[:40]!r}: give numbers; rows must have the "
            "same length"
        ) from error


def write_arrays(folder: Path, arrays: dict[str, Any]) -> None:
    """Write the arrays uncompressed into the archive `data.npz`, piece by piece, so that none is copied as a whole.

    Raises:
        RunFolderError: The folder cannot be written.
    """
    import numpy as np

    with folder_errors(folder), (folder / DATA_FILE).open("wb") as file:
        np.savez(file, **arrays)


def write_folder(folder: Path, arrays: dict[str, Any]) -> None:
    """Write each array into its own file `data/NAME.npy`, from which a run reads samples in pieces.

    Raises:
        RunFolderError: The folder cannot be written.
    """
    import numpy as np

    with folder_errors(folder):
        (folder / DATA_FOLDER).mkdir(exist_ok=True)
        for name, array in arrays.items():
            np.save(folder / DATA_FOLDER / f"{name}.npy", array)


def write_model(folder: Path, model: Any) -> dict[str, str]:
    """Write the model and its weights into a folder; return the keys of the section `model` that name the files.

    Raises:
        ModelError: Keras cannot save the model.
    """
    from vcdl.client.parts import has_parts, model_to_json

    try:
        model.save(folder / MODEL_FILE)
        if not has_parts(model):
            return {"keras": MODEL_FILE}
        (folder / MODEL_JSON).write_text(model_to_json(model), "utf-8")
    except Exception as error:  # a custom class may raise anything here
        raise ModelError(f"Keras cannot save the model ({one_line(error)}): use Keras' own layers only") from error
    return {"keras_json": MODEL_JSON, "weights": MODEL_FILE}


def check_is_a_model(model: Any) -> None:
    """Refuse an object that is no Keras model.

    Raises:
        ModelError: It is none.
    """
    import keras

    if not isinstance(model, keras.Model):
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        raise ModelError(f"the model is a {kind}, expected a keras.Model: build it with Keras 3")


def check_can_travel(model: Any, inputs: "Mapping[str, Array]", code: OwnCode | None) -> None:
    """Build a model in place if it is not built, as `fit` would, and refuse one that clients cannot load.

    Args:
        model: The model.
        inputs: Its training samples by array name, such as `x_train`.
        code: The job's own code, if it has any.

    Raises:
        DataError: The samples have no axis of samples.
        ModelError: The model cannot be built, or clients cannot load it.
    """
    import keras

    from vcdl.client.model import know_ends
    from vcdl.client.model_json import parse_config
    from vcdl.job.code_folder import check_arguments

    for name, samples in inputs.items():
        if samples.ndim < 2:
            which = name.replace("x_train_", "x of ").replace("x_train", "x")
            raise DataError(f"{which} has shape {samples.shape}, expected (samples, …): one row for each, x[:, None]")
    # `fit` builds such a model with its first batch, so users expect it to be built here.
    if not model.built and (code is not None or isinstance(model, keras.Sequential)) and "x_train" in inputs:
        samples = inputs["x_train"]
        try:
            model(keras.Input(samples.shape[1:]))
        except Exception as error:
            raise ModelError(
                f"the model cannot be built for samples of shape {samples.shape[1:]} ({one_line(error)}): begin it "
                f"with keras.Input({samples.shape[1:]})"
            ) from error
    if code is not None:
        check_arguments(model, code)
        know_ends(model)
    try:
        with warnings.catch_warnings(action="ignore"):  # Keras warns of a lambda, which is refused below
            config = model.to_json()
    except Exception as error:  # a custom class may raise anything here
        raise ModelError(f"the model has no JSON ({one_line(error)}): use Keras' own layers only") from error
    # Make the check that clients make, so that `train` raises an error instead of the job failing on every host.
    parse_config(config if code is None else code.with_model(config))
