"""Read a part of a source once before it is used, for its labels, counts, ranges and checksum."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vcdl.data.ahead import ahead
from vcdl.data.kept_survey import Survey, load_survey
from vcdl.data.normalisation import measures_moments
from vcdl.data.numbers import NumbersSoFar
from vcdl.data.rows import Array, Encoded, Numbers, Rows
from vcdl.errors import DataError
from vcdl.wire.task import Task

if TYPE_CHECKING:
    from vcdl.job.reader import Reader

_WHOLE_TYPES = tuple(map(np.dtype, ("uint8", "int8", "uint16", "int16", "int32")))
_EXACT = 2**24
"""Whole numbers up to here are exact in float32."""


@dataclass(frozen=True)
class Surveyed:
    """A part of a source: its samples, which are not in memory, and its labels, which are."""

    rows: Rows
    y: Array | None
    """Labels; None: the source has none."""


def survey(reader: "Reader", path: Path, task: Task, normalise: str = "auto") -> Surveyed:
    """Read a part of a source once, unless a cached survey has the facts already; return its samples and labels.

    Args:
        reader: The reader.
        path: The part.
        task: The kind of task, which determines the form of the labels.
        normalise: The job's setting, which may require moments.

    Raises:
        DataError: The part is empty, invalid, or has numbers that are not finite.
        FileUnavailable: It cannot be read now.
    """
    found = load_survey(reader, path, task, normalise, partial(_read, reader, path, task, normalise))
    # Check cached surveys as well, because they are stored before this check.
    _refuse_not_finite(path, found.numbers)
    rows = Rows(
        read=partial(_inputs, reader, path, task, found.y),
        source_count=found.rows,
        sample_shape=found.sample.shape[1:],
        dtype=_type_in_shards(found.sample.dtype, found.numbers),
        numbers=found.numbers,
        sha256=found.sha256,
        encoded=None if found.sizes is None else Encoded(partial(reader.encoded, path, task), found.sizes),
    )
    return Surveyed(rows, found.y)


def _read(reader: "Reader", path: Path, task: Task, normalise: str) -> Survey:
    digest = hashlib.sha256()
    count, labels = 0, []
    sizes: list[int] = []
    first: Array | None = None
    for x, y, encoded in ahead(reader.blocks(path, task)):
        if first is None:
            first = np.empty((0, *x.shape[1:]), x.dtype)
            numbers = NumbersSoFar(measures_moments(normalise, x))
            # Include type and shape, as the same bytes are other numbers in another type.
            digest.update(f"{x.dtype.str}{x.shape[1:]}".encode())
        if x.shape[1:] != first.shape[1:]:
            raise DataError(f"{path.name}: samples of shape {first.shape[1:]} and of {x.shape[1:]}: they must agree")
        numbers.add(x)
        # For pictures that are sent as JPEG, hash these files and not the pixels, because the shards contain the files.
        for held in (np.ascontiguousarray(x).data,) if encoded is None else encoded:
            digest.update(held)
        sizes += map(len, encoded or ())
        count += len(x)
        if y is not None:
            labels.append(y)
    if first is None:
        raise DataError(f"{path.name} has no samples: it is empty, or holds nothing that can be read")
    y = np.concatenate(labels) if labels else None
    sizes_bytes = np.array(sizes, np.int64) if sizes else None
    return Survey(count, first, numbers.numbers, digest.hexdigest(), y, sizes_bytes)


def _inputs(reader: "Reader", path: Path, task: Task, labels: Array | None, begin: int) -> Iterator[Array]:
    """Read the samples a second time, starting with number `begin`, and check that their labels are the same.

    Raises:
        DataError: The labels have changed, so the source is shuffled, and training would be nonsense.
    """
    for x, y, _ in reader.blocks(path, task, begin):
        if y is not None and labels is not None and not np.array_equal(y, labels[begin : begin + len(y)]):
            raise DataError(
                f"{path.name} gave other samples when it was read a second time: start again once nothing writes to it"
            )
        begin += len(x)
        yield x


def _type_in_shards(dtype: "np.dtype[np.generic]", numbers: Numbers) -> "np.dtype[np.generic]":
    """Return the smallest number type that holds all samples without loss for training in float32."""
    low, high = float(numbers.low.min()), float(numbers.high.max())
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind in "iu" or (dtype == np.float64 and numbers.whole and max(-low, high) <= _EXACT):
        # Choose a small type, since every host downloads shards and pandas writes whole numbers in 8 bytes each.
        for small in _WHOLE_TYPES:
            limits = np.iinfo(small)
            if limits.min <= low and high <= limits.max and small.itemsize <= dtype.itemsize:
                return small
    return np.dtype(np.float32) if dtype.itemsize > 4 else dtype


def _refuse_not_finite(path: Path, numbers: Numbers) -> None:
    bad = np.flatnonzero(~(np.isfinite(numbers.low) & np.isfinite(numbers.high)))
    if len(bad):
        where = f" (place {bad[0]} of the last axis)" if len(numbers.low) > 1 else ""
        raise DataError(f"{path.name}: x holds numbers that are NaN or infinite{where}: replace or drop them")
    limit = float(np.finfo(np.float32).max)
    if max(-float(numbers.low.min()), float(numbers.high.max())) > limit:
        raise DataError(f"{path.name}: x holds numbers beyond ±{limit:.2g}, which float32 cannot hold: scale them")
