"""A model's weights as one flat float32 vector with its layout, and the HDF5 file they travel in.

The file, for `params.h5` and `update.h5` alike: one contiguous dataset `weights`, little-endian float32 of shape (n,), and
one text attribute `header` (JSON, at most 64 KiB). Nothing in it can be executed, and everything is checked before memory is
taken for it. Server and client both import this file: NumPy and h5py only, Keras models are touched by their public methods.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np
import numpy.typing as npt

from vcdl.errors import WeightsFileError

Vector = npt.NDArray[np.float32]

_FORMAT = 1
_DATASET = "weights"
_HEADER_LIMIT_BYTES = 60_000
_OVERHEAD_BYTES = 1 << 20
"""HDF5's own structures take a few KiB; a file that is larger than its vector by more than this holds something else."""


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
    """All variables of a model, batch statistics included, in Keras' order."""

    variables: tuple[Variable, ...]

    @property
    def size(self) -> int:
        """Length of the vector, in elements."""
        return sum(variable.size for variable in self.variables)

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
    if len(header.encode()) > _HEADER_LIMIT_BYTES:
        raise ValueError("the header of a weights file is limited to 60 000 bytes")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with h5py.File(temporary, "w", libver="latest") as file:
            file.attrs["header"] = header
            file.create_dataset(_DATASET, data=np.ascontiguousarray(vector, "<f4"))
        if durable:
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
        temporary.replace(path)
    except RuntimeError as error:  # how h5py reports a failed flush on close
        temporary.unlink(missing_ok=True)
        raise OSError(f"cannot write {path}: {error}") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_header(path: Path, size: int) -> str:
    """The header of a weights file of `size` numbers, without reading those. Raises WeightsFileError."""
    with _opened(path, size) as file:
        return _header(file)


def read_weights(path: Path, size: int, out: Vector | None = None) -> tuple[Vector, str]:
    """Read a weights file that must hold exactly `size` float32 numbers; returns the vector and its header.

    File size, links, layout on disk, dtype and shape are checked before anything is allocated. Raises WeightsFileError.
    """
    with _opened(path, size) as file:
        header = _header(file)
        dataset = _dataset(file)
        if dataset.shape != (size,):
            raise WeightsFileError(f"{path.name} holds weights of shape {dataset.shape}, the model has ({size},)")
        if dataset.dtype != np.dtype("<f4"):
            raise WeightsFileError(f"{path.name} holds {dataset.dtype}, expected float32")
        vector = np.empty(size, np.float32) if out is None else out
        if size:
            _read_into(vector, dataset, path)
        return vector, header


def _read_into(vector: Vector, dataset: Any, path: Path) -> None:
    """Fill `vector` from a plain dataset; past HDF5's copy of every block, which takes as long again as the reading."""
    offset = dataset.id.get_offset()
    if offset is None or not dataset.dtype.isnative:  # never written to: HDF5 knows the fill value
        dataset.read_direct(vector)
        return
    rest = vector.view(np.uint8).data
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        while len(rest):
            count = file.readinto(rest)
            if not count:
                raise WeightsFileError(f"{path.name} ends {len(rest)} bytes before its weights do: cut short")
            rest = rest[count:]


@contextmanager
def _opened(path: Path, size: int) -> Iterator[h5py.File]:
    """Open a weights file whose size allows for `size` numbers; all that h5py raises on a damaged one becomes our own error."""
    limit_bytes = size * 4 + _OVERHEAD_BYTES
    try:
        size_bytes = path.stat().st_size
        if size_bytes > limit_bytes:
            raise WeightsFileError(f"{path.name} has {size_bytes} bytes, {limit_bytes} are allowed for this model")
        # HDF5's own lock would collide with ours: a parameter server holds the upload it works on by a lock on the file.
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except (OSError, RuntimeError, LookupError, TypeError, ValueError, ArithmeticError, MemoryError) as error:
        cause = " ".join(str(error).split())  # HDF5 speaks in several lines
        raise WeightsFileError(f"{path.name} is not a whole weights file ({cause}): cut short or damaged") from error


def _header(file: h5py.File) -> str:
    attribute = file.attrs.get_id("header")
    if attribute.shape != () or attribute.get_storage_size() > _HEADER_LIMIT_BYTES:
        raise WeightsFileError("the header of the weights file is too large")
    header = file.attrs["header"]
    if not isinstance(header, str) or len(header) > _HEADER_LIMIT_BYTES:
        raise WeightsFileError("the header of the weights file is not a short text")
    return header


def _dataset(file: h5py.File) -> Any:
    """The weights' dataset, when it is plain: no link out of the file, no external storage, no filter."""
    if not isinstance(file.get(_DATASET, getlink=True), h5py.HardLink):
        raise WeightsFileError("the weights file has no weights of its own")
    dataset = file[_DATASET]
    if not isinstance(dataset, h5py.Dataset):
        raise WeightsFileError("`weights` in the weights file is not a dataset")
    if dataset.chunks is not None or dataset.external is not None or dataset.is_virtual:
        raise WeightsFileError("the weights are not stored plainly (chunks, filters or external storage)")
    return dataset
