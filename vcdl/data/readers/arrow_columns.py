"""Ask columns of pyarrow for the kind of their values, and convert them to NumPy arrays."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from vcdl.data.rows import Array
from vcdl.errors import DataError

_LONGEST_LABEL = 1000
"""Most characters of a label. NumPy stores every label of a block in the width of the longest one, so a single label of
a million characters would take gigabytes."""
_COLUMNS = 16
"""Columns of a matrix that are written at a time: as many as fit into one cache line of the processor."""


@cache
def arrow() -> Any:
    """Import the package pyarrow and return it.

    Raises:
        DataError: It is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"tables are read by pyarrow, which is missing ({error}): pip install 'vcdl[data]'") from error
    return pa


def as_number(kind: Any) -> Any:
    """Return the type in which a column of numbers in a text file is read: floats, or booleans.

    pyarrow does not convert the words true and false to numbers, so a column of them is read as booleans.

    Args:
        kind: The type that the first lines suggest.
    """
    pa = arrow()
    return pa.bool_() if pa.types.is_boolean(kind) else pa.float64()


def is_number(kind: Any) -> bool:
    """Return whether a type is a number; the type of a column without values is one, too."""
    types = arrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind))


def list_width(kind: Any) -> int | None:
    """Return the length of a type's lists, −1 if they may differ in length, or None if the type is no list."""
    types = arrow().types
    if types.is_fixed_size_list(kind):
        return int(kind.list_size)
    return -1 if types.is_list(kind) or types.is_large_list(kind) else None


def is_date(kind: Any) -> bool:
    """Return whether a column contains days or times, which become year, month and weekday (0: Monday)."""
    return bool(arrow().types.is_date(kind) or arrow().types.is_timestamp(kind))


def as_labels(texts: Sequence[str | None]) -> Array:
    """Return labels as an array, shape (n,).

    Raises:
        DataError: A text is too long for an array.
    """
    longest = max((len(text) for text in texts if text is not None), default=0)
    if longest > _LONGEST_LABEL:
        raise DataError(
            f"a label has {longest} characters, and {_LONGEST_LABEL} are allowed: another column holds the labels, "
            "or a quotation mark is not closed"
        )
    return np.array(texts, dtype=str)


def counts_up(values: Array, rows_before: int) -> bool:
    """Return whether the numbers of a block continue to count a table's rows, from 0 or from 1.

    Args:
        values: The block's values.
        rows_before: Number of rows before the block.
    """
    # The first value decides in most cases, before an array of the length of the block is made.
    if values.dtype.kind not in "iuf" or not len(values) or values[0] - rows_before not in (0, 1):
        return False
    return bool(np.array_equal(values, values[0] + np.arange(len(values))))


def label_values(values: Any) -> Array:
    """Return a column of labels as an array, shape (n,). Raises DataError for a text that is too long."""
    types = arrow().types
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if types.is_string(values.type) or types.is_large_string(values.type):
        return as_labels(values.to_pylist())
    labels: Array = values.to_numpy(zero_copy_only=False)
    return labels


def flags(values: Any, categories: Sequence[str], filled: object, where: str) -> Array:
    """Return a column of categories as 0 and 1, shape (n, categories).

    Args:
        values: The column.
        categories: The values that it may have.
        filled: The category that replaces missing values, or None.
        where: The column, for messages.

    Raises:
        DataError: A value is not among the categories.
    """
    pa = arrow()
    values = values.cast(pa.string())
    if filled is not None:
        values = values.fill_null(str(filled))
    places = pa.compute.index_in(values, pa.array(categories))
    if places.null_count:
        odd = values.filter(places.is_null())[0].as_py()
        raise DataError(f"{where} holds {odd!r}, which data > from > categories does not list: add it")
    found: Array = np.eye(len(categories), dtype=np.uint8)[places.to_numpy()]
    return found


def date_parts(values: Any) -> Array:
    """Return days or times as year, month and weekday, shape (n, 3).

    Unlike a count of days, these parts repeat, so what is learned from them applies to later dates.
    """
    parts = (arrow().compute.year, arrow().compute.month, arrow().compute.day_of_week)
    return np.stack([part(values).to_numpy(zero_copy_only=False) for part in parts], axis=1)


def equal_lists(values: Any, where: str) -> Array:
    """Return a column of lists as a matrix, a row for each list.

    Args:
        values: The column.
        where: The column, for messages.

    Raises:
        DataError: The lists differ in length.
    """
    pa = arrow()
    lengths = pa.compute.list_value_length(values)
    if len(values) and pa.compute.min_max(lengths)["min"] != pa.compute.min_max(lengths)["max"]:
        raise DataError(f"{where} differ in length: pad or cut them to one length")
    flat: Array = values.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(values), -1)


def join_columns(parts: list[Array]) -> Array:
    """Return columns, of shape (n,) or (n, k), as one matrix in the widest of their types."""
    if len({part.dtype for part in parts}) > 1:
        wide = np.result_type(*{part.dtype for part in parts})
        parts = [part.astype(wide, copy=False) for part in parts]
    rows = len(parts[0])
    if all(part.ndim == 1 for part in parts):
        x = np.empty((rows, len(parts)), parts[0].dtype)
        for first in range(0, len(parts), _COLUMNS):
            some = slice(first, first + _COLUMNS)
            x[:, some] = np.stack(parts[some], axis=1)
        return x
    return np.concatenate([part.reshape(rows, -1) for part in parts], axis=1)
