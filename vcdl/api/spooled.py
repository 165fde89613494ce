"""Streams of samples as files: what gives batches or single samples becomes arrays on the disk, not in memory."""

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcdl.client.memory import available_memory_bytes
from vcdl.errors import DataError, folder_errors, one_line

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

_SAMPLES = 256
"""Single samples that are written at once."""
_SHARE = 0.5
"""Share of the free space, and of the free memory for labels, that a stream may take: the run's folder gets a copy of
both, often on the same disk. A stream that never ends would fill them."""
_INFINITE = -1
"""`cardinality()` of a tf.data.Dataset that repeats for ever."""
_BOUND = "give a part of it, with n as steps_per_epoch: data.take(n) or itertools.islice(generator, n)"


def is_stream(value: Any) -> bool:
    """Whether a value gives batches or samples one after the other, and is no array, list or table."""
    if (
        value is None
        or hasattr(value, "to_numpy")
        or hasattr(value, "toarray")
        or isinstance(value, str | bytes | dict)
    ):
        return False
    if hasattr(value, "shape") or isinstance(value, list | tuple):
        return False
    return hasattr(value, "__iter__") or (hasattr(value, "__getitem__") and hasattr(value, "__len__"))


def spooled(name: str, stream: Any, folder: Path, part: str, axes: int | None) -> "dict[str, Array]":
    """Write a stream of pairs into a folder, mapped; `axes`: of a sample; None: batches. Raises DataError,
    RunFolderError.
    """
    import numpy as np

    if hasattr(stream, "cardinality") and int(stream.cardinality()) == _INFINITE:
        raise DataError(
            f"{name} is a tf.data pipeline that never ends: leave out repeat(), as a run goes through its samples once "
            f"an epoch by itself; or {_BOUND}"
        )
    path = folder / f"x_{part}.raw"
    most_bytes = _SHARE * shutil.disk_usage(folder).free
    most_labels_bytes = _SHARE * (available_memory_bytes() or math.inf)
    size_bytes = labels_bytes = 0
    labels: list[Array] = []
    kind: tuple[tuple[int, ...], np.dtype[Any]] | None = None
    count = 0
    with folder_errors(folder), path.open("wb") as file:
        for x, y in _batches(name, stream, axes):
            kind = kind or (x.shape[1:], x.dtype)
            if x.shape[1:] != kind[0] or len(x) != len(y):
                raise DataError(
                    f"{name} gives x of shape {x.shape} with y of shape {y.shape} after samples of shape {kind[0]}: "
                    "batches must agree"
                )
            np.ascontiguousarray(x, kind[1]).tofile(file)
            labels.append(y)
            count += len(x)
            size_bytes, labels_bytes = size_bytes + x.nbytes, labels_bytes + y.nbytes
            if size_bytes > most_bytes or labels_bytes > most_labels_bytes:
                raise DataError(
                    f"{name} has given {count} samples, {size_bytes / 1e9:.3g} GB with {labels_bytes / 1e9:.3g} GB of "
                    f"labels, and does not end: that is half of what is free in {folder.parent}, or in memory. If it "
                    f"repeats for ever, {_BOUND}; else set TMPDIR to a larger disk"
                )
    if kind is None or not count:
        raise DataError(f"{name} gives no samples: an iterator that was used up gives nothing again")
    return {f"x_{part}": np.memmap(path, kind[1], "r", shape=(count, *kind[0])), f"y_{part}": np.concatenate(labels)}


def _batches(name: str, stream: Any, axes: int | None) -> "Iterator[tuple[Array, Array]]":
    """Pairs of x and y, each with an axis of samples. Raises DataError."""
    import numpy as np

    waiting: list[tuple[Array, Array]] = []

    def together() -> "tuple[Array, Array]":
        return np.stack([x for x, _ in waiting]), np.stack([y for _, y in waiting])

    gives_batches = hasattr(stream, "__iter__") or any(kind.__name__ == "PyDataset" for kind in type(stream).__mro__)
    for x, y in (_pair(name, pair) for pair in _elements(name, stream)):
        if x.ndim == axes or (axes is None and not gives_batches):
            waiting.append((x, y))
            if len(waiting) == _SAMPLES:
                yield together()
                waiting = []
        else:
            yield x, y
    if waiting:
        yield together()


def _elements(name: str, stream: Any) -> Iterator[Any]:
    """Each element once. `__getitem__` is bounded by the length, as some iterate for ever. Raises DataError."""
    try:
        if hasattr(stream, "__getitem__") and hasattr(stream, "__len__"):
            for place in range(len(stream)):
                yield stream[place]
        else:
            yield from stream
    except DataError:
        raise
    except Exception as error:  # the user's own code, and each library's
        raise DataError(f"{name} cannot be read ({one_line(error)}): mend what gives its samples") from error


def _pair(name: str, element: Any) -> "tuple[Array, Array]":
    import numpy as np

    if not isinstance(element, tuple | list) or len(element) != 2:
        raise DataError(f"{name} gives a {type(element).__name__}, expected pairs (x, y)")
    x, y = np.asarray(element[0]), np.asarray(element[1])
    if x.dtype.kind not in "biuf":
        raise DataError(f"{name} gives x of {x.dtype}, expected numbers")
    return x, y
