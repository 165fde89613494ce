"""A model's weights as one flat float32 vector with its layout, and the HDF5 file they travel in.

The file, for `params.h5` and `update.h5` alike: one contiguous dataset `weights`, little-endian float32 of shape (n,), and
one text attribute `header` (JSON, at most 60 000 bytes), in the one form that vcdl.hdf5_form makes. Nothing in it can be executed,
and everything is checked before memory is taken for it. Server and client both import this file: NumPy only, Keras models are
touched by their public methods.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vcdl.errors import WeightsFileError, weights_file_error
from vcdl.hdf5_form import HEADER_LIMIT_BYTES, PREFIX_LIMIT_BYTES, WEIGHTS, Dataset, header_of, prefix

Vector = npt.NDArray[np.float32]

_FORMAT = 1
_FLOAT32 = np.dtype("<f4")
_STATISTICS = ("moving_mean", "moving_variance")
"""Ends of the paths of what batch normalisation keeps."""
_MOMENTS = "/"
"""Begins the paths of what an optimizer keeps; that of a model's variable never does."""


@dataclass(frozen=True)
class Variable:
    """One variable of a model: where it lies in the vector."""

    path: str
    shape: tuple[int, ...]
    offset: int
    """In elements."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """All variables of a model, batch statistics included, in Keras' order; then the moments that travel with them, if any do."""

    variables: tuple[Variable, ...]

    @property
    def size(self) -> int:
        """Length of the vector, in elements."""
        return sum(variable.size for variable in self.variables)

    @property
    def model(self) -> "Layout":
        """Without moments: the first numbers of the vector."""
        return Layout(tuple(variable for variable in self.variables if not variable.path.startswith(_MOMENTS)))

    def with_moments(self, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> "Layout":
        """With an optimizer's variables, names and shapes, behind the model's."""
        variables, offset = list(self.variables), self.size
        for name, shape in shapes:
            variables.append(Variable(_MOMENTS + name, shape, offset))
            offset += variables[-1].size
        return Layout(tuple(variables))

    @property
    def statistics(self) -> list[tuple[int, int]]:
        """Begin and end of the parts that no gradient moves but that follow the data, in order and not touching: what batch normalisation
        and optimizers keep.
        """
        parts: list[tuple[int, int]] = []
        for variable in self.variables:
            if variable.path.endswith(_STATISTICS) or variable.path.startswith(_MOMENTS):
                begin, end = variable.offset, variable.offset + variable.size
                if parts and parts[-1][1] == begin:
                    begin, _ = parts.pop()
                parts.append((begin, end))
        return parts

    def parts(self, begin: int, end: int) -> Iterator[tuple[slice, bool]]:
        """Numbers `begin` to `end` of the vector, cut where statistics begin and end: each part, counted from `begin`, and whether it is trained."""
        at = begin
        for first, behind in self.statistics:
            if behind <= at or first >= end:
                continue
            if first > at:
                yield slice(at - begin, first - begin), True
            at, first = min(behind, end), max(first, at)
            yield slice(first - begin, at - begin), False
        if at < end:
            yield slice(at - begin, end - begin), True

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the variables' paths and shapes: two models with the same one can exchange weights."""
        shapes = [[variable.path, list(variable.shape)] for variable in self.variables]
        return hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:16]

    @classmethod
    def of(cls, model: Any) -> Self:
        """The layout of a built Keras model."""
        variables: list[Variable] = []
        offset = 0
        for weight in model.weights:
            variables.append(Variable(weight.path, tuple(weight.shape), offset))
            offset += variables[-1].size
        return cls(tuple(variables))


@dataclass(frozen=True)
class ParamsHeader:
    """What params.h5 says of itself: version `version` of the shared weights of `job`."""

    job: str
    version: int
    layout: str

    def to_json(self) -> str:
        return json.dumps({"format": _FORMAT, "job": self.job, "version": self.version, "layout": self.layout})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises WeightsFileError."""
        try:
            raw = json.loads(text)
            if raw["format"] != _FORMAT:
                raise WeightsFileError(f"weights file of format {raw['format']!r}, this version reads {_FORMAT}")
            return cls(str(raw["job"]), int(raw["version"]), str(raw["layout"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WeightsFileError(f"the header of the weights file is damaged ({error!r})") from error


def flatten(model: Any, out: Vector | None = None) -> Vector:
    """All weights of a Keras model as one float32 vector of shape (n,)."""
    arrays: Sequence[npt.NDArray[Any]] = model.get_weights()
    vector = np.empty(sum(array.size for array in arrays), np.float32) if out is None else out
    offset = 0
    for array in arrays:
        vector[offset : offset + array.size] = array.reshape(-1)
        offset += array.size
    return vector


def assign(model: Any, vector: Vector) -> None:
    """Put a flat vector of shape (n,) back into a Keras model. Raises WeightsFileError when the length differs."""
    layout = Layout.of(model)
    if layout.size != vector.size:
        raise WeightsFileError(f"{vector.size} weights for a model of {layout.size}: they belong to another model")
    model.set_weights([vector[v.offset : v.offset + v.size].reshape(v.shape) for v in layout.variables])


def write_weights(path: Path, vector: Vector, header: str, *, durable: bool = False) -> None:
    """Write a weights file atomically: whoever looks sees the whole file or none.

    `durable` also waits until the disk has it. Raises OSError (a full disk, a read-only folder) and leaves nothing behind.
    """
    write_dataset(path, WEIGHTS, [np.ascontiguousarray(vector, _FLOAT32).view(np.uint8).data], header, durable=durable)


def write_dataset(
    path: Path, dataset: Dataset, parts: Sequence[bytes | memoryview], header: str, *, durable: bool = False
) -> None:
    """Write a file of the one form, with `parts` one after the other as its data, as write_weights does. Raises OSError."""
    text = header.encode()
    if len(text) > HEADER_LIMIT_BYTES:
        raise ValueError("the header of a weights file is limited to 60 000 bytes")
    size = sum(len(part) for part in parts) // dataset.item_bytes
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(prefix(text, size, dataset))
            file.writelines(parts)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_header(path: Path, size: int) -> str:
    """The header of a weights file of `size` numbers, without reading those. Raises WeightsFileError, StoreUnavailable."""
    with opened_weights(path, size) as file:
        return file.header


def read_weights(path: Path, size: int, out: Vector | None = None) -> tuple[Vector, str]:
    """Read a weights file that must hold exactly `size` float32 numbers; returns the vector and its header.

    The file's size and all its bytes but the weights are checked before anything is allocated. Raises WeightsFileError, StoreUnavailable.
    """
    with opened_weights(path, size) as file:
        vector = np.empty(size, np.float32) if out is None else out
        file.read(0, vector)
        return vector, file.header


class WeightsFile:
    """An opened weights file whose size and form are right; its weights have not been looked at."""

    def __init__(self, file: FileIO, name: str, header: str, weights_at: int) -> None:
        self.header = header
        self._file = file
        self._name = name
        self._weights_at = weights_at
        """Where they begin, in bytes."""

    def read(self, begin: int, out: Vector) -> None:
        """Read the weights from number `begin` on into `out`. Raises WeightsFileError, StoreUnavailable."""
        missing = out.view(np.uint8).data
        try:
            self._file.seek(self._weights_at + 4 * begin)
            while missing and (got_bytes := self._file.readinto(missing)):
                missing = missing[got_bytes:]
        except OSError as error:
            raise weights_file_error(self._name, error) from error
        if missing:
            raise WeightsFileError(f"{self._name} lost {len(missing)} bytes while it was read")
        if not _FLOAT32.isnative:
            out.byteswap(inplace=True)


@contextmanager
def opened_weights(path: Path, size: int) -> Iterator[WeightsFile]:
    """Open a weights file of `size` numbers, once its size and all its bytes but the weights are found right.

    Raises WeightsFileError, and StoreUnavailable when it is there and this machine cannot read it.
    """
    with opened_dataset(path, WEIGHTS, range(size, size + 1)) as opened:
        yield WeightsFile(opened.file, path.name, opened.header, opened.data_at)


@dataclass(frozen=True)
class OpenedDataset:
    """A file of the one form, whose data have not been looked at."""

    file: FileIO
    header: str
    data_at: int
    """Where the data begin, in bytes."""
    size: int
    """Elements."""


@contextmanager
def opened_dataset(path: Path, dataset: Dataset, sizes: range) -> Iterator[OpenedDataset]:
    """Open a file of the one form with a number of elements among `sizes`, once all bytes but its data are found right.

    Raises WeightsFileError, and StoreUnavailable when it is there and this machine cannot read it.
    """
    try:
        with path.open("rb", buffering=0) as file:
            start = file.read(PREFIX_LIMIT_BYTES)
            text = header_of(start)
            size_bytes = os.fstat(file.fileno()).st_size
            data_at = len(prefix(text, sizes.start, dataset))
            size = min(max((size_bytes - data_at) // dataset.item_bytes, sizes.start), sizes.stop - 1)
            expected = prefix(text, size, dataset)
            if not start.startswith(expected):
                raise WeightsFileError(
                    f"{path.name} ({size_bytes} bytes) is not {dataset.described(sizes)}: "
                    "cut short, damaged, or of another model"
                )
            if size_bytes != data_at + dataset.item_bytes * size:
                raise WeightsFileError(
                    f"{path.name} has {size_bytes} bytes, its header says {data_at + dataset.item_bytes * size}: "
                    "cut short or damaged"
                )
            yield OpenedDataset(file, text.decode(), data_at, size)
    except OSError as error:
        raise weights_file_error(path.name, error) from error
    except UnicodeDecodeError as error:
        raise WeightsFileError(f"{path.name} cannot be read ({error})") from error
