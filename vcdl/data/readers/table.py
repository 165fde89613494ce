"""Read tables from a file or a folder: each row is a sample, and the job file says what the columns mean."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import PlainValidator

from vcdl.data.readers.arrow_columns import (
    arrow,
    as_number,
    counts_up,
    date_parts,
    equal_lists,
    flags,
    is_date,
    is_number,
    join_columns,
    label_values,
    list_width,
)
from vcdl.data.readers.part_folders import part_folders
from vcdl.data.readers.table_file import open_table, samples_in, table_files, twice_cure
from vcdl.data.rows import Array
from vcdl.errors import DataError, nearest
from vcdl.job.reader import Block, Outline, Reader, as_key
from vcdl.wire.task import HAS_CLASSES, Task
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.section import SECTION_AS_YAML

_INDEX_NAMES = frozenset({"", "index", "unnamed: 0", "__index_level_0__"})
"""Names, in lower case, under which pandas writes and reads the index of a table."""
_FEWEST_OF_INDEX = 10
"""Rows that must count up before a column is refused as an index, so that a few values do not look like one."""
_DROP = "drop"


def _names(raw: Any) -> tuple[str, ...]:
    if not isinstance(raw, list | tuple) or not raw or not all(isinstance(name, str) for name in raw):
        raise kinds.expected("a list of columns, such as [age, height]", raw)
    if len(set(raw)) < len(raw):
        raise ValueError("names a column twice")
    return tuple(raw)


def _parse_label(raw: Any) -> tuple[str, ...]:
    return (raw,) if isinstance(raw, str) and raw else _names(raw)


def _parse_categories(raw: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(raw, Mapping):
        raise kinds.expected("a list of values by column, such as {colour: [blue, red]}", raw)
    for column, listed in raw.items():
        if not isinstance(listed, list | tuple) or len({str(value) for value in listed}) < max(2, len(listed)):
            raise ValueError(f"{column}: expected a list of at least two different values")
    return {str(column): tuple(map(str, listed)) for column, listed in raw.items()}


def _parse_missing(raw: Any) -> dict[str, float | str] | str:
    if raw == _DROP:
        return _DROP
    if not isinstance(raw, Mapping) or not all(isinstance(v, int | float | str) for v in raw.values()):
        raise kinds.expected("drop (rows with a missing value), or a replacement by column: {age: 30}", raw)
    return {str(column): value if isinstance(value, str) else float(value) for column, value in raw.items()}


class TableReader(Reader):
    """`as: table`: a row is a sample; its columns are numbers, or categories, which become a column each."""

    as_: Literal["table"] = as_key("table")
    header: Annotated[bool, kinds.true_or_false()] = True
    """Whether the first line of a text file names the columns; otherwise they are called f0, f1, f2 and so on."""
    label: Annotated[tuple[str, ...] | None, PlainValidator(_parse_label), SECTION_AS_YAML] = None
    """Column of the labels; several columns for `multi_label` and `regression`."""
    columns: Annotated[tuple[str, ...] | None, PlainValidator(_names), SECTION_AS_YAML] = None
    """Columns of x, in this order; None: all but the label and those that are left out."""
    leave_out: Annotated[tuple[str, ...] | None, PlainValidator(_names), SECTION_AS_YAML] = None
    categories: Annotated[dict[str, tuple[str, ...]] | None, PlainValidator(_parse_categories), SECTION_AS_YAML] = None
    """The values of columns of text; each value becomes a column of 0 and 1."""
    missing: Annotated[dict[str, float | str] | str | None, PlainValidator(_parse_missing), SECTION_AS_YAML] = None
    """Replacement of missing values by column. `drop` in place of a value leaves out the rows that lack it; `drop` in
    place of the columns does so for all."""

    def drops(self, column: str) -> bool:
        """Return whether rows without a value in a column are dropped."""
        if not isinstance(self.missing, Mapping):
            return self.missing == _DROP
        return self.missing.get(column) == _DROP and _DROP not in (self.categories or {}).get(column, ())

    @property
    def parts(self) -> Mapping[str, Path]:
        given = super().parts
        return given if len(given) > 1 else part_folders(self.path) or given

    def class_names(self) -> tuple[str, ...]:
        if self.label is None or len(self.label) > 1:
            return ()
        with open_table(table_files(self.parts["train"])[0], header=self.header) as table:
            return table.class_names(self.label[0])

    def blocks(self, path: Path, task: Task, begin: int = 0) -> Iterator[Block]:
        place = 0
        for file in table_files(path):
            with open_table(file, header=self.header) as table:
                schema = _Columns(self, file, table.schema, task)
                skips = 0
                # Skip whole files by their number of rows, if no row can be dropped. Otherwise all rows are read again
                # to count the samples before `begin`.
                if table.rows is not None and not any(map(self.drops, schema.used)):
                    if place + table.rows <= begin:
                        place += table.rows
                        continue
                    skips = max(0, begin - place)
                first = not place
                place += skips
                for batch in table.batches(schema.used, schema.types, skips, schema.listed):
                    block = schema.block(batch, is_first=first)
                    first = False
                    place += len(block.x)
                    if place > begin and len(block.x):
                        kept = slice(max(0, begin - (place - len(block.x))), None)
                        yield Block(block.x[kept], None if block.y is None else block.y[kept])

    def groups(self, path: Path, by: str, task: Task) -> Array:
        pa = arrow()
        parts: list[Any] = []
        for file in table_files(path):
            with open_table(file, header=self.header) as table:
                schema = _Columns(self, file, table.schema, task)
                kind = schema.type_of(by)
                for batch in table.batches([*schema.used, by], {**schema.types, by: kind}, 0, schema.listed):
                    kept, values = schema.complete_rows(batch), batch.column(len(schema.used))
                    if values.null_count:
                        raise DataError(f"{file.name}: data > by: {by} has missing values: fill them, or drop the rows")
                    if parts and values.type != parts[0].type:
                        raise DataError(f"{file.name}: {by} holds {values.type}, and {parts[0].type} in other files")
                    parts.append(values if kept is None else values.filter(kept))
        found = pa.chunked_array(parts).combine_chunks().dictionary_encode()
        order = pa.compute.rank(found.dictionary, tiebreaker="dense").to_numpy()
        groups: Array = order[found.indices.to_numpy()].astype(np.int64)
        return groups

    def outline(self, label: str | None) -> Outline:
        from vcdl.data.readers.columns import notes_of, outline_of

        path = self.parts["train"]
        found = outline_of(path, label)
        notes = notes_of(path, header=found.source.get("header", True))
        return replace(found, lines=(*found.lines, *notes))

    def training_samples(self) -> int | None:
        try:
            return sum(samples_in(file, header=self.header) for file in table_files(self.parts["train"]))
        except (DataError, OSError):
            return None


class _Columns:
    """Converts record batches of one file to samples, after checking its columns against the job's settings."""

    def __init__(self, reader: TableReader, file: Path, schema: Any, task: Task) -> None:
        self._reader = reader
        self._name = file.name
        self._arrow_types = {field.name: field.type for field in schema}
        names = list(self._arrow_types)
        if reader.label is None and task != "autoencoder":
            raise DataError(
                f"{self._name} has the columns {_join_names(names)}: say which one is the label, "
                f"data > from: {{path: {self._name}, label: …}}"
            )
        self._label = reader.label or ()
        out = {*self._label, *(reader.leave_out or ())}
        self.features = list(reader.columns or (name for name in names if name not in out))
        self.used = [*self.features, *self._label]
        self._check_names(schema.names)
        self._is_text_label = task in HAS_CLASSES
        for column in self.features:
            self._check_type(column)

    def _check_names(self, names: list[str]) -> None:
        missing = self._reader.missing
        spoken_for = missing if isinstance(missing, Mapping) else ()
        # Check every column that the job file names: a misspelt one in leave_out would silently stay an input.
        for column in (*self.used, *(self._reader.leave_out or ()), *self._listed, *spoken_for):
            if column not in self._arrow_types:
                raise DataError(f"{self._name} has no column {column}; {nearest(column, names)}"[:500])
        if both := [column for column in self._label if column in self.features]:
            raise DataError(f"{self._name}: {both[0]} is the label, and is in data > from > columns: take it out")
        if not self.features:
            raise DataError(
                f"{self._name} has no feature column: each is the label or in data > from > leave_out; leave fewer out"
            )
        if twice := [column for column in self.used if names.count(column) > 1]:
            raise DataError(f"{self._name} has two columns {_display_name(twice[0])}: {twice_cure(twice[0])}")

    def type_of(self, column: str) -> Any:
        """Return pyarrow's type of a column. Raises DataError if the file has no column of this name."""
        if column not in self._arrow_types:
            raise DataError(f"{self._name} has no column {column}; {nearest(column, self._arrow_types)}"[:500])
        return self._arrow_types[column]

    @property
    def listed(self) -> set[str]:
        """All categories that the job lists."""
        return {value for values in self._listed.values() for value in values}

    @property
    def _filled(self) -> dict[str, float | str]:
        missing = self._reader.missing
        stand_ins = {} if missing is None or isinstance(missing, str) else missing
        return {column: value for column, value in stand_ins.items() if not self._reader.drops(column)}

    @property
    def _listed(self) -> dict[str, tuple[str, ...]]:
        return self._reader.categories or {}

    @property
    def types(self) -> dict[str, Any]:
        """Types in which columns of text files are read, keyed by column.

        The types that pyarrow infers from the first lines may not fit later ones.
        """
        pa = arrow()
        wanted = {
            name: pa.string() if name in self._listed else kind if is_date(kind) else as_number(kind)
            for name, kind in ((name, self._arrow_types[name]) for name in self.features)
        }
        for name in self._label:
            kind = self._arrow_types[name]
            # A column whose first rows are empty has the type null, but text may follow.
            is_text = pa.types.is_string(kind) or pa.types.is_null(kind)
            wanted[name] = pa.string() if is_text and self._is_text_label else as_number(kind)
        return wanted

    def _check_type(self, column: str) -> None:
        pa, kind = arrow(), self._arrow_types[column]
        if column in self._listed:
            return
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
            raise DataError(
                f"{self._name}: column {column} holds text: list its values, data > from > categories: "
                f"{{{column}: [a, b, …]}}, or leave it out (`vcdl data` shows what it holds)"
            )
        if list_width(kind) is not None:
            if len(self.features) > 1:
                raise DataError(f"{self._name}: column {column} holds lists: a list is a whole sample, name it alone")
        elif not is_date(kind) and not is_number(kind):
            raise DataError(
                f"{self._name}: column {column} holds {kind}: write it as numbers, leave it out by "
                "data > from > leave_out, or for pictures set data > from > as: images"
            )

    def block(self, batch: Any, *, is_first: bool) -> Block:
        """Convert a record batch to samples, without its dropped rows. Raises DataError.

        Args:
            batch: The record batch.
            is_first: It is the first of the table, in which columns that count the rows are looked for.
        """
        # Accept a column that counts the rows if the job lists it by name.
        if is_first and self._reader.columns is None:
            self._refuse_index(batch)
        # Try without a look at each column first: most batches have no missing value, and counting nulls is free in
        # pyarrow.
        if not any(column.null_count for column in batch.columns):
            block = self._block(batch)
            if not (_has_nan(block.x) or _has_nan(block.y)):  # else it is looked at column by column
                return block
        kept = self.complete_rows(batch)
        if kept is not None and not kept.true_count:
            return Block(np.empty((0, 1)), None)
        return self._block(batch if kept is None else batch.filter(kept))

    def _block(self, batch: Any) -> Block:
        if list_width(self._arrow_types[self.features[0]]) is not None:
            x = equal_lists(batch.column(self.features[0]), f"{self._name}: the lists in column {self.features[0]}")
        else:
            x = join_columns([self._numbers(column, batch.column(column)) for column in self.features])
        return Block(x, self._labels(batch))

    def complete_rows(self, batch: Any) -> Any:
        """Return a mask of the rows to keep, those without a missing value that drops them; None: all are kept.

        Raises:
            DataError: A value is missing that must not be.
        """
        pa = arrow()
        kept = None
        for column in self.used:
            values = batch.column(column)
            known = values.is_valid()
            # Treat NaN as missing: pandas writes missing numbers so, and for pyarrow they are no nulls.
            if pa.types.is_floating(values.type):
                known = pa.compute.and_(known, pa.compute.invert(pa.compute.fill_null(pa.compute.is_nan(values), True)))
            if known.false_count and column not in self._filled:
                if not self._reader.drops(column):
                    if pa.types.is_null(self._arrow_types[column]):
                        raise DataError(
                            f"{self._name}: column {_display_name(column)} holds no value in its first rows: leave it "
                            f"out, data > from > leave_out: [{column!r}]"
                        )
                    what = "one of its categories" if column in self._listed else "its median, say"
                    if column in self._label:
                        what = "drop, as it is the label"
                    raise DataError(
                        f"{self._name}: column {column} has missing values: set a replacement, "
                        f"data > from > missing: {{{column}: …}} ({what}), or missing: drop"
                    )
                kept = known if kept is None else pa.compute.and_(kept, known)
        return kept

    def _numbers(self, column: str, values: Any) -> Array:
        """Return a column as numbers: shape (n,); categories (n, values); dates (n, 3). Raises DataError."""
        filled = self._filled.get(column)
        if column in self._listed:
            return flags(values, self._listed[column], filled, f"{self._name}: column {column}")
        if is_date(values.type):
            if filled is not None:
                raise DataError(f"data > from > missing: {column} holds dates, which have no replacement: set drop")
            return date_parts(values)
        if filled is not None and not isinstance(filled, float):
            raise DataError(f"data > from > missing: {column} holds numbers, and {filled!r} is none: give a number")
        numbers: Array = values.to_numpy(zero_copy_only=False)
        if filled is not None or values.type == arrow().null():
            # A column of null alone arrives as objects.
            numbers = numbers.astype(np.float64)
            numbers[np.isnan(numbers)] = filled
        if numbers.dtype.kind == "f" and np.isinf(numbers).any():  # NaN may be missing values, which are handled later
            raise DataError(
                f"{self._name}: column {_display_name(column)} holds infinite numbers: write others, or leave it out, "
                f"data > from > leave_out: [{column!r}]"
            )
        return numbers.astype(np.uint8) if numbers.dtype.kind == "b" else numbers

    def _labels(self, batch: Any) -> Array | None:
        if not self._label:
            return None
        columns = [label_values(batch.column(column)) for column in self._label]
        return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)

    def _refuse_index(self, batch: Any) -> None:
        """Refuse a column that only counts the rows. Raises DataError."""
        for column in self.features:
            values = batch.column(column).to_numpy(zero_copy_only=False)
            is_named = column.lower() in _INDEX_NAMES and not arrow().types.is_null(self._arrow_types[column])
            if is_named or (len(values) >= _FEWEST_OF_INDEX and counts_up(values, 0)):
                raise DataError(
                    f"{self._name}: column {_display_name(column)} only counts the rows: leave it out, "
                    f"data > from > leave_out: [{column!r}], or list all columns in data > from > columns"
                )


def _has_nan(numbers: Array | None) -> bool:
    return numbers is not None and numbers.dtype.kind == "f" and bool(np.isnan(numbers).any())


def _display_name(column: str) -> str:
    return column or "(without a name)"


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f", … ({len(names)})" if len(names) > 12 else "")
