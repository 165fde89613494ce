"""Load weights from a user's `.keras`, `.weights.h5` or `.npz` file.

Only arrays and the model's configuration are read, and callers check the configuration before Keras loads it. So no
code in a file runs.
"""

import re
import shutil
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vcdl.client.model_json import SIZE_LIMIT_BYTES
from vcdl.errors import ModelError, one_line
from vcdl.wire.npz_form import NpzError, NpzFile, open_npz

_CONFIG = "config.json"
_WEIGHTS = "model.weights.h5"
_SUFFIX = ".keras"
_ZIP_ERRORS = (OSError, zipfile.BadZipFile, zlib.error, KeyError, RuntimeError, EOFError, NotImplementedError)
_OBJECT = re.compile(r"for object <\w+ name=([^,>]+)")
_SHAPES = re.compile(r"variable\.shape=(\([^)]*\)), Received: value\.shape=(\([^)]*\))")
_TIMES, _NUMBERS_MORE = 2, 1_000_000
"""Limit of the numbers in a file: twice the model's plus a million. A file with more belongs to another model, or is a
decompression bomb."""
_NUMBER_BYTES = 64
"""Bytes that a file may take for each number: enough for an optimizer's states in the widest type."""
_COUNTS = re.compile(r"expected (\d+) variables, but received (\d+) variables")


def read_keras_json(path: Path) -> str:
    """Return the model's configuration in a `.keras` file as JSON, unchecked. Raises ModelError."""
    with _open_keras(path) as archive:
        member = archive.getinfo(_CONFIG)
        if member.file_size > SIZE_LIMIT_BYTES:
            raise ModelError(f"{path}: its {_CONFIG} has {member.file_size} bytes, {SIZE_LIMIT_BYTES} are allowed")
        with archive.open(member) as file:
            return file.read(SIZE_LIMIT_BYTES).decode(errors="replace")


def load_given_weights(model: Any, path: Path) -> None:
    """Set all weights of a Keras model from a file. Raises ModelError, which names the layer that does not fit."""
    if path.suffix == ".npz":
        _load_npz(model, path)
    elif path.suffix == _SUFFIX:
        with tempfile.TemporaryDirectory(prefix="vcdl-weights-") as folder:
            extracted = Path(folder) / _WEIGHTS
            with _open_keras(path) as archive, archive.open(_WEIGHTS) as packed, extracted.open("wb") as file:
                # Check the size in the archive's directory before unpacking: a few kilobytes may unpack to many
                # gigabytes.
                if archive.getinfo(_WEIGHTS).file_size > _NUMBER_BYTES * _most_numbers(model):
                    raise ModelError(f"{path} holds far more than the model's weights: it is of another model")
                shutil.copyfileobj(packed, file)
            _load_h5(model, extracted, path)
    else:
        _load_h5(model, path, path)
    _check_finite(model, str(path))


def copy_weights(model: Any, source: Any, origin: str) -> None:
    """Set all weights of a Keras model to those of another one. Raises ModelError, which names what does not fit."""
    ours, theirs = model.weights, source.weights
    # Compare shapes before lengths, because the first pair that differs says more than two counts.
    for weight, other in zip(ours, theirs, strict=False):
        if tuple(weight.shape) != tuple(other.shape):
            raise ModelError(
                f"{origin} does not fit the model: {weight.path} has shape {tuple(weight.shape)}, "
                f"there {other.path} has {tuple(other.shape)}"
            )
    if len(ours) != len(theirs):
        raise ModelError(f"{origin} does not fit the model: it has {len(theirs)} weights, the model {len(ours)}")
    model.set_weights(source.get_weights())
    _check_finite(model, origin)


def _check_finite(model: Any, origin: str) -> None:
    """Check that no weight is infinite or NaN. Raises ModelError."""
    for weight, value in zip(model.weights, model.get_weights(), strict=True):
        if not np.isfinite(value).all():
            raise ModelError(
                f"{origin}: {weight.path} holds numbers that are not finite: nothing can be trained from it"
            )


@contextmanager
def _open_keras(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except _ZIP_ERRORS as error:
        raise ModelError(
            f"{path} is not a whole .keras file ({one_line(error)}): write it with model.save()"
        ) from error


def _load_h5(model: Any, path: Path, shown: Path) -> None:
    try:
        variables, numbers = _count_variables(path, shown)
        layers = model._flatten_layers()  # each wrapped layer too: SpectralNormalization stores its kernel twice
        surplus = variables - sum(len(own._trainable_variables + own._non_trainable_variables) for own in layers)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:  # TypeError: names that are not text
        raise ModelError(
            f"{shown} holds no weights ({one_line(error)}): write it with model.save() or model.save_weights()"
        ) from error
    if surplus > 0:
        raise ModelError(
            f"{shown} holds {surplus} variables more than the model's {len(model.weights)}: it is of another model"
        )
    if numbers > _most_numbers(model):  # checked here, as Keras reads all numbers before it compares shapes
        raise ModelError(f"{shown} holds {numbers} numbers, far more than the model's weights: it is of another model")
    try:
        with warnings.catch_warnings(action="ignore"):  # the error below says what matters
            model.load_weights(str(path))
    except Exception as error:  # Keras and h5py each raise their own exceptions
        raise ModelError(f"{shown} does not fit the model: {_reason(str(error))}") from error


def _most_numbers(model: Any) -> int:
    """Return how many numbers a file for this model may contain at most."""
    return _NUMBERS_MORE + _TIMES * int(model.count_params())


def _count_variables(path: Path, shown: Path) -> tuple[int, int]:
    """Count the variables and numbers that a weights file of Keras contains for the layers.

    Returns:
        The variables, without the states of random generators, and the numbers in all of them, with those states.

    Raises:
        ModelError: The file links to others, through which older versions of Keras would read any file of this machine.
    """
    import h5py

    found = numbers = 0

    def count(name: str, item: Any) -> None:
        nonlocal found, numbers
        if isinstance(item, h5py.Group):
            # An external link may name any file of this machine, and h5py would open it.
            leads_out = any(not isinstance(item.get(key, getlink=True), h5py.HardLink) for key in item)
        else:
            leads_out = bool(getattr(item, "external", None) or getattr(item, "is_virtual", False))
        if leads_out:
            raise ModelError(f"{shown}: {name} leads out of the file: write it with model.save_weights()")
        if name.startswith("layers/") and isinstance(item, h5py.Dataset):
            found += "seed_generator" not in name
            numbers += item.size or 0

    with h5py.File(path, "r") as file:
        count("/", file)  # visititems omits the root, and never follows links
        file.visititems(count)
    return found, numbers


def _reason(message: str) -> str:
    """Return Keras' message, which is long and prints whole arrays, as one short line."""
    layer, shapes, counts = _OBJECT.search(message), _SHAPES.search(message), _COUNTS.search(message)
    where = f"layer {layer[1]}" if layer else "a layer"
    if shapes:
        return f"{where} has weights of shape {shapes[1]}, the file {shapes[2]}"
    if counts:
        return f"{where} has {counts[1]} variables, the file {counts[2]}"
    return " ".join(message.split())[:300]


def _load_npz(model: Any, path: Path) -> None:
    weights = model.weights
    names = [weight.path for weight in weights]
    try:
        with open_npz(path) as file:
            if set(file.names) == {f"arr_{number}" for number in range(len(names))}:  # np.savez(f, *get_weights())
                names = [f"arr_{number}" for number in range(len(names))]
            _check_names(names, file, path)
            for weight, name in zip(weights, names, strict=True):
                found = file.header(name)
                if found.shape != tuple(weight.shape) or found.dtype.kind not in "iuf":
                    raise ModelError(
                        f"{path} does not fit the model: {weight.path} has shape {tuple(weight.shape)}, "
                        f"the file {found.shape} of {found.dtype}"
                    )
            # Read only after all shapes were compared, so a file of another model is refused before it fills the
            # memory.
            values = [file.read(name) for name in names]
    except (OSError, NpzError) as error:
        raise ModelError(f"{path} cannot be read ({one_line(error)}): write it with numpy.savez") from error
    model.set_weights(values)


def _check_names(names: list[str], file: NpzFile, path: Path) -> None:
    missing, unknown = sorted(set(names) - set(file.names)), sorted(set(file.names) - set(names))
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"holds {unknown[0][:100]}, which the model has not"
        raise ModelError(
            f"{path} {what}: name the arrays as the model's weights (weight.path), "
            f"or give its {len(names)} arrays in order: numpy.savez(file, *model.get_weights())"
        )
