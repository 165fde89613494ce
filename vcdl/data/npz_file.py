"""`.npz` files without pickles: the user's own data set, and the shards and splits that VCDL writes."""

import errno
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from vcdl.data.dataset import Array, DataSource, Facts, Part, checked_part, outputs_of
from vcdl.errors import DataError, FileUnavailable, unreadable
from vcdl.files.atomic import atomic_write

_DAMAGED = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError)
"""Exceptions of NumPy and zipfile for a file that was cut short, overwritten, or holds pickled objects."""
_OF_THE_FILE = (None, errno.EINVAL, errno.EISDIR)
"""Numbers of an OSError that is the file's own fault, as it is damaged or no file; any other is this machine's."""


def load(path: Path, task: str) -> DataSource:
    """x_train and y_train of the file, and x_val, y_val, x_test, y_test if present.

    Raises DataError, FileUnavailable.
    """
    with _opened(path) as file:
        parts = {part: _part(file, part, task, path) for part in _parts(file.files, path)}
    train = parts["train"]
    for name, part in parts.items():
        if part.x.shape[1:] != train.x.shape[1:] or part.y.shape[1:] != train.y.shape[1:]:
            raise DataError(
                f"{path.name}: a sample of {name} has shape {part.x.shape[1:]} → {part.y.shape[1:]}, "
                f"one of train {train.x.shape[1:]} → {train.y.shape[1:]}: they must agree"
            )
    return DataSource(train, parts.get("val"), parts.get("test"))


def facts(path: Path, task: str) -> Facts:
    """Shapes and counts from the arrays' headers and the labels. Raises DataError, FileUnavailable."""
    with _opened(path) as file:
        found = _parts(file.files, path)
        headers = {part: _header(file, f"x_{part}", path) for part in found}
        labels = [_labels(file, part, headers[part][0][0], task, path) for part in found]
    counts = {part: shape[0] for part, (shape, _) in headers.items()}
    shape, dtype = headers["train"]
    sample_bytes = math.prod(shape[1:]) * dtype.itemsize + labels[0][:1].nbytes
    return Facts(
        input_shape=shape[1:],
        outputs=outputs_of(*labels),
        train_samples=counts["train"],
        val_samples=counts.get("val", 0),
        test_samples=counts.get("test", 0),
        sample_bytes=sample_bytes,
    )


def write_split(path: Path, x: Array, y: Array) -> None:
    """Write samples and labels, compressed and atomically.

    Raises OSError (a full disk, a read-only folder) and leaves nothing behind.
    """
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, x=x, y=y)


def read_split(path: Path) -> tuple[Array, Array]:
    """`x` and `y` of a file that `write_split` wrote. Raises DataError, FileUnavailable."""
    with _opened(path) as file:
        x, y = _array(file, "x", path), _array(file, "y", path)
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise DataError(f"{path.name}: x has shape {x.shape} and y {y.shape}: it is damaged, or not a shard")
    return x, y


def _opened(path: Path) -> Any:
    try:
        file = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist: check the name and the folder") from error
    except PermissionError as error:
        raise DataError(f"{path} may not be read: check its permissions") from error
    except _DAMAGED as error:
        words = "is not a whole .npz file (cut short, or of another kind): write it again with numpy.savez_compressed"
        raise _cannot_read(path, error, f"{path} {words}") from error
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise DataError(f"{path} is a single array: write x_train and y_train with numpy.savez_compressed")
    return file


def _parts(names: list[str], path: Path) -> list[str]:
    """The parts among train, val and test that have both x and y."""
    found = []
    for part in ("train", "val", "test"):
        x, y = f"x_{part}" in names, f"y_{part}" in names
        if x != y or (part == "train" and not x):
            missing = f"y_{part}" if x else f"x_{part}"
            raise DataError(f"{path.name} has no {missing}: it holds {', '.join(sorted(names)) or 'nothing'}"[:500])
        if x:
            found.append(part)
    return found


def _part(file: Mapping[str, Array], part: str, task: str, path: Path) -> Part:
    x, y = _array(file, f"x_{part}", path), _array(file, f"y_{part}", path)
    try:
        return checked_part(part, x, y, task)
    except DataError as error:
        raise DataError(f"{path.name}: {error}") from error


def _labels(file: Mapping[str, Array], part: str, samples: int, task: str, path: Path) -> Array:
    """The labels of a part, checked as if its samples were there."""
    stand_in = {f"x_{part}": np.zeros((samples, 0), np.uint8), f"y_{part}": _array(file, f"y_{part}", path)}
    return _part(stand_in, part, task, path).y


def _array(file: Mapping[str, Array], name: str, path: Path) -> Array:
    try:
        return file[name]
    except _DAMAGED as error:
        if "pickle" in str(error):
            raise DataError(
                f"{path.name}: {name} holds Python objects, expected numbers: save it as one plain array"
            ) from error
        raise _cannot_read(path, error, _damaged(name, path, error)) from error


def _header(file: Any, name: str, path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    try:
        with file.zip.open(f"{name}.npy") as member:
            version = npy.read_magic(member)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(member)
    except _DAMAGED as error:
        raise _cannot_read(path, error, _damaged(name, path, error)) from error
    if len(shape) < 2:
        raise DataError(f"{path.name}: {name} has shape {shape}, expected (samples, …): one row for each sample")
    return shape, dtype


def _damaged(name: str, path: Path, error: Exception) -> str:
    return f"{path.name}: {name} cannot be read ({error}): the file is damaged, write it again"


def _cannot_read(path: Path, error: Exception, words: str) -> DataError | FileUnavailable:
    """The error for a file that NumPy could not read; `words`: what to say of a damaged one."""
    if isinstance(error, OSError) and error.errno not in _OF_THE_FILE:
        return unreadable(path, error)
    return DataError(words)
