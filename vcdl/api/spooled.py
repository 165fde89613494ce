"""Write streams of samples or batches into files, so that they become arrays that are mapped from the disk."""

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcdl.api.given import as_arrays
from vcdl.client.memory import available_memory_bytes
from vcdl.errors import DataError, folder_errors, one_line

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

_Ends = tuple[Sequence[str], Sequence[str]]
_SAMPLES = 256
"""Samples that are written at once, so that single samples do not cost a write each."""
_SHARE = 0.5
"""Share of the free space, and of the free memory for labels, that a stream may take: the run's folder gets a copy of
both, often on the same disk. A stream that never ends would fill them."""
_INFINITE = -1
"""Value of `cardinality()` for a tf.data.Dataset that repeats for ever."""
_BOUND = "give a part of it, with n as steps_per_epoch: data.take(n) or itertools.islice(generator, n)"


def is_stream(value: Any) -> bool:
    """Return whether a value yields samples or batches one after the other, unlike an array, a list or a table."""
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


def spool_stream(
    name: str, stream: Any, folder: Path, part: str, axes: int | None, ends: _Ends = ((), ())
) -> "dict[str, Array]":
    """Read a stream to its end, write its samples into a folder, and return its arrays by their names in a data file.

    Samples are mapped from the files `NAME.raw`, so the folder must exist as long as the arrays. Labels and weights are
    in memory.

    Args:
        name: The argument that it came as, for messages.
        stream: Yields (x, y), or (x, y, weights), of batches or of single samples.
        folder: Where the samples are written.
        part: `train`, `val` or `test`.
        axes: Axes of a single sample; None: unknown, and the kind of stream decides whether it yields batches.
        ends: Names of the model's inputs and outputs, which may be several.

    Raises:
        DataError: The stream never ends, or yields what cannot be trained.
        RunFolderError: The folder cannot be written.
    """
    import numpy as np

    # Most streams do not tell their length. One that never ends is stopped below, when it takes too much room.
    if hasattr(stream, "cardinality") and int(stream.cardinality()) == _INFINITE:
        raise DataError(
            f"{name} is a tf.data pipeline that never ends: leave out repeat(), because a run repeats its samples in "
            f"each epoch; or {_BOUND}"
        )
    most_bytes = _SHARE * shutil.disk_usage(folder).free
    most_labels_bytes = _SHARE * (available_memory_bytes() or math.inf)
    size_bytes = labels_bytes = count = 0
    held: dict[str, list[Array]] = {}
    kinds: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
    with folder_errors(folder), ExitStack() as files:
        opened: dict[str, Any] = {}
        for batch in _batches(name, stream, part, axes, ends):
            shapes = {of: array.shape[1:] for of, array in batch.items()}
            kinds = kinds or {of: (array.shape[1:], array.dtype) for of, array in batch.items()}
            if len({len(array) for array in batch.values()}) > 1 or any(
                shapes.get(of) != shape for of, (shape, _) in kinds.items() if of.startswith("x")
            ):
                raise DataError(
                    f"{name} gives {', '.join(f'{of} of shape {array.shape}' for of, array in batch.items())} after "
                    f"samples of shape {', '.join(str(shape) for shape, _ in kinds.values())}: batches must agree"
                )
            for of, array in batch.items():
                # Keep labels in memory: they are small, and one-hot ones are converted to class numbers later.
                if not of.startswith("x"):
                    held.setdefault(of, []).append(array)
                    labels_bytes += array.nbytes
                    continue
                if of not in opened:
                    opened[of] = files.enter_context((folder / f"{of}.raw").open("wb"))
                # Raw and not `.npy`, whose header needs the number of samples before the first one.
                np.ascontiguousarray(array, kinds[of][1]).tofile(opened[of])
                size_bytes += array.nbytes
            count += len(next(iter(batch.values())))
            if size_bytes > most_bytes or labels_bytes > most_labels_bytes:
                raise DataError(
                    f"{name} has given {count} samples, {size_bytes / 1e9:.3g} GB with {labels_bytes / 1e9:.3g} GB of "
                    f"labels, and does not end: that is half of what is free in {folder.parent}, or in memory. If it "
                    f"repeats for ever, {_BOUND}; else set TMPDIR to a larger disk"
                )
    if not count:
        raise DataError(f"{name} gives no samples: if it is an iterator that was used before, create it again")
    mapped = {of: np.memmap(folder / f"{of}.raw", kinds[of][1], "r", shape=(count, *kinds[of][0])) for of in opened}
    return {**mapped, **{of: np.concatenate(arrays) for of, arrays in held.items()}}


def _batches(name: str, stream: Any, part: str, axes: int | None, ends: _Ends) -> "Iterator[dict[str, Array]]":
    """Yield batches of the stream's arrays, keyed by name; single samples are stacked. Raises DataError."""
    import numpy as np

    waiting: list[dict[str, Array]] = []

    def together() -> "dict[str, Array]":
        return {of: np.stack([one[of] for one in waiting]) for of in waiting[0]}

    # A model that is not built does not know the axes of a sample. Then the kind of stream must decide.
    gives_batches = hasattr(stream, "__iter__") or any(kind.__name__ == "PyDataset" for kind in type(stream).__mro__)
    for element in _elements(name, stream):
        given = _arrays(name, element, part, ends)
        first = next(iter(given.values()))
        # PyTorch's data sets give single samples by index, and iterators of Keras and TensorFlow give batches.
        if first.ndim == axes or (axes is None and not gives_batches):
            waiting.append(given)
            if len(waiting) == _SAMPLES:
                yield together()
                waiting = []
        else:
            yield given
    if waiting:
        yield together()


def _elements(name: str, stream: Any) -> Iterator[Any]:
    """Yield each element once. Raises DataError.

    A stream with a length is read by index up to that length, because iterating over some of them never ends.
    """
    try:
        if hasattr(stream, "__getitem__") and hasattr(stream, "__len__"):
            for place in range(len(stream)):
                yield stream[place]
        else:
            yield from stream
    except DataError:
        raise
    except Exception as error:  # the user's own code, and each library's
        raise DataError(
            f"{name} cannot be read ({one_line(error)}): correct the code that yields its samples"
        ) from error


def _arrays(name: str, element: Any, part: str, ends: _Ends) -> "dict[str, Array]":
    """Return an element's samples, labels and weights by their names in a data file. Raises DataError."""
    import numpy as np

    from vcdl.wire.inputs import array_name

    if not isinstance(element, tuple | list) or len(element) not in (2, 3):
        raise DataError(
            f"{name} gives a {type(element).__name__}, expected pairs (x, y), or (x, y, weights): let it give both, "
            "data.map(lambda x: (x, x)) for an autoencoder"
        )
    if len(element) == 3 and part != "train":
        raise DataError(f"{name} gives weights, and measures on held-out data have none: let it give pairs (x, y)")
    found = {array_name(f"x_{part}", of): a for of, a in as_arrays(f"{name}: x", element[0], ends[0], "inputs").items()}
    for of, array in found.items():
        if array.dtype.kind not in "biuf":
            raise DataError(f"{name} gives {of} of {array.dtype}, expected numbers")
    y = np.asarray(element[1]) if isinstance(element[1], str) else element[1]
    labels = as_arrays(f"{name}: y", y, ends[1], "outputs")
    found.update({array_name(f"y_{part}", of): array for of, array in labels.items()})
    return found if len(element) == 2 else {**found, "weight_train": np.asarray(element[2])}
