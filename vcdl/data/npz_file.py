"""`.npz` files without pickles: the user's own data set, and the shards and splits that VCDL writes."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from vcdl.data.dataset import Array, DataSource, Facts, Part, checked_part, labelled, outputs_of
from vcdl.data.labels import Given
from vcdl.errors import DataError, unreadable
from vcdl.files.atomic import atomic_write
from vcdl.wire.npz_form import ArrayHeader, NpzError, NpzFile, NpzObjectsError, opened_npz
from vcdl.wire.task import HAS_CLASSES, Task


def load(path: Path, task: Task, given: Given = None) -> DataSource:
    """x_train and y_train of the file, and x_val, y_val, x_test, y_test if present.

    `given`: `data > classes`. Raises DataError, FileUnavailable.
    """
    with _opened(path) as file:
        parts = {part: _part(file, part, task, path) for part in _parts(file.names, path)}
    train = parts["train"]
    for name, part in parts.items():
        if part.x.shape[1:] != train.x.shape[1:] or part.y.shape[1:] != train.y.shape[1:]:
            raise DataError(
                f"{path.name}: a sample of {name} has shape {part.x.shape[1:]} → {part.y.shape[1:]}, "
                f"one of train {train.x.shape[1:]} → {train.y.shape[1:]}: they must agree"
            )
    return _labelled(DataSource(train, parts.get("val"), parts.get("test")), task, given, path)


def facts(path: Path, task: Task, given: Given = None) -> Facts:
    """Shapes and counts from the arrays' headers and the labels. Raises DataError, FileUnavailable."""
    with _opened(path) as file:
        found = _parts(file.names, path)
        headers = {part: _header(file, f"x_{part}", path) for part in found}
        parts = {part: _labels(file, part, headers[part].shape[0], task, path) for part in found}
    source = _labelled(DataSource(parts["train"], parts.get("val"), parts.get("test")), task, given, path)
    counts = {part: header.shape[0] for part, header in headers.items()}
    train = headers["train"]
    sample_bytes = math.prod(train.shape[1:]) * train.dtype.itemsize + source.train.y[:1].nbytes
    return Facts(
        input_shape=train.shape[1:],
        outputs=outputs_of(source.train.y, source.classes),
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


@contextmanager
def _opened(path: Path) -> Iterator[NpzFile]:
    try:
        with opened_npz(path) as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist: check the name and the folder") from error
    except PermissionError as error:
        raise DataError(f"{path} may not be read: check its permissions") from error
    except NpzError as error:
        raise DataError(
            f"{path} is not a whole .npz file ({error}): write x_train and y_train with numpy.savez_compressed"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


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


def _part(file: NpzFile, part: str, task: Task, path: Path) -> Part:
    return _checked(part, _array(file, f"x_{part}", path), _array(file, f"y_{part}", path), task, path)


def _labels(file: NpzFile, part: str, samples: int, task: Task, path: Path) -> Part:
    """The labels of a part with a stand-in for its samples, checked as if these were there."""
    stand_in = np.broadcast_to(np.uint8(0), (samples, 1))
    return _checked(part, stand_in, _array(file, f"y_{part}", path), task, path)


def _labelled(source: DataSource, task: Task, given: Given, path: Path) -> DataSource:
    if task not in HAS_CLASSES:
        return source
    try:
        return labelled(source, given)
    except DataError as error:
        raise DataError(f"{path.name}: {error}") from error


def _checked(part: str, x: Array, y: Array, task: Task, path: Path) -> Part:
    try:
        return checked_part(part, x, y, task)
    except DataError as error:
        raise DataError(f"{path.name}: {error}") from error


def _array(file: NpzFile, name: str, path: Path) -> Array:
    try:
        return file.read(name)
    except NpzError as error:
        raise _damaged(name, path, error) from error
    except MemoryError as error:
        header = file.header(name)
        gib = math.prod(header.shape) * header.dtype.itemsize / 2**30
        raise DataError(f"{path.name}: {name} needs {gib:.1f} GiB of memory, more than is free: take a part") from error


def _header(file: NpzFile, name: str, path: Path) -> ArrayHeader:
    try:
        header = file.header(name)
    except NpzError as error:
        raise _damaged(name, path, error) from error
    if len(header.shape) < 2:
        raise DataError(f"{path.name}: {name} has shape {header.shape}, expected (samples, …): one row for each sample")
    if 0 in header.shape:
        raise DataError(f"{path.name}: {name} is empty: it has shape {header.shape}")
    return header


def _damaged(name: str, path: Path, error: NpzError) -> DataError:
    if isinstance(error, NpzObjectsError):
        return DataError(f"{path.name}: {name} holds Python objects, expected numbers: save it as one plain array")
    return DataError(f"{path.name}: {name} cannot be read ({error}): the file is damaged, write it again")
