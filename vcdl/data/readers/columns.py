"""Examine the columns of a table in one pass, and write the keys of a job file for them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcdl.data.readers.arrow_columns import arrow, as_number, counts_up, is_date
from vcdl.data.readers.table_file import NUMBER, NoHeaderError, open_table, table_files, twice_cure
from vcdl.errors import DataError
from vcdl.job.reader import Outline

LABELS = ("label", "target", "class", "y", "species", "kind", "outcome")
"""Names that a column of labels often has, in lower case."""
_DATE = "date, as year, month and weekday"
_MOST_VALUES = 1000
"""Most different values of a column that are counted, so that memory stays bounded. A column with more has no
classes."""
_MOST_CATEGORIES = 50
"""Most values of a column of text that a suggested job uses, because each value becomes an input of its own."""
_MOST_CLASSES = 100
"""Different whole numbers above which a suggested job predicts a quantity and not classes."""
_FEW_CLASSES = 10
"""Different whole numbers up to which they are taken for classes, however short the table is."""
_SHOWN = 6
"""Most common values that the line of a column lists."""
_LARGE_GROUP_BYTES = 256 * 2**20
"""Bytes of a row group above which `notes_of` warns, because a reader has parts of it in memory."""


@dataclass
class ColumnFacts:
    """Statistics of a column, updated while its table is read."""

    name: str
    kind: str
    """Kind of the values: number, whole (a number), text, or pyarrow's own name of the type."""
    rows: int = 0
    missing: int = 0
    total: float = 0.0
    low: float = float("inf")
    high: float = float("-inf")
    counts_up: bool = True
    """Whether the column only counts the rows."""
    values: Counter[str] = field(default_factory=Counter)
    has_more: bool = False
    """Whether the column has more different values than are counted."""

    def add(self, values: Any) -> None:
        """Count the values of some rows, given as a column of a record batch."""
        pa = arrow()
        if pa.types.is_floating(values.type):
            # Count NaN as missing: pandas writes missing numbers so, and pyarrow counts them as values.
            values = pa.compute.if_else(pa.compute.is_nan(values), None, values)
        known = values.drop_null()
        if self.kind in ("number", "whole") and len(known):
            known = known.cast(pa.int8()) if pa.types.is_boolean(known.type) else known
            self._add_numbers(known)
            self.counts_up = self.counts_up and not values.null_count
        if self.kind in ("text", "whole") and not self.has_more:
            for found in pa.compute.value_counts(known).to_pylist():
                value = found["values"]
                self.values[str(int(value)) if self.kind == "whole" else str(value)] += found["counts"]
            self.has_more = len(self.values) > _MOST_VALUES
        self.rows += len(values)
        self.missing += values.null_count

    def _add_numbers(self, known: Any) -> None:
        pa = arrow()
        ends = pa.compute.min_max(known).as_py()
        self.low, self.high = min(self.low, float(ends["min"])), max(self.high, float(ends["max"]))
        self.total += float(pa.compute.sum(known).as_py())
        numbers = known.to_numpy(zero_copy_only=False)
        # Columns of text files are read as float64, and one that began with whole numbers may continue with others.
        if self.kind == "whole" and (numbers != numbers.round()).any():
            self.kind = "number"
        self.counts_up = self.counts_up and counts_up(numbers, self.rows)

    @property
    def mean(self) -> float:
        return self.total / max(1, self.rows - self.missing)

    @property
    def is_index(self) -> bool:
        """Whether the column only counts the rows."""
        return self.kind == "whole" and self.counts_up and self.rows >= 10

    @property
    def is_mostly_new(self) -> bool:
        """Whether values hardly repeat: more than ten are different, and more than one for every two rows."""
        return len(self.values) > max(_FEW_CLASSES, self.values.total() // 2)

    @property
    def hardly_repeats(self) -> bool:
        """Whether the column is text whose values hardly repeat, so that they are no classes."""
        return self.kind == "text" and self.is_mostly_new

    @property
    def is_measured(self) -> bool:
        """Whether whole numbers look like a quantity and not like class numbers.

        They do if many are different, absolutely or compared with the number of rows.
        """
        several = len(self.values)
        return self.has_more or several > _MOST_CLASSES or several > max(_FEW_CLASSES, self.rows // 10)

    def _odd_text(self) -> str:
        """Name the first value that is no number, if nearly all are: it alone makes the column text."""
        odd = [value for value in self.values if not NUMBER.fullmatch(value)]
        return f"; not a number: {odd[0][:40]!r}" if 0 < len(odd) * _FEW_CLASSES <= len(self.values) else ""

    def line(self, role: str) -> str:
        """Describe the column in one line: kind, range or most common values, and missing values.

        Args:
            role: What the job file uses the column for; empty if nothing is to be said.
        """
        if self.kind in ("number", "whole"):
            held = f"{self.kind} {self.low:.6g} … {self.high:.6g}"
        else:
            several = f"{len(self.values)}{'+' if self.has_more else ''} values: "
            common = ", ".join(f"{value} ({count})" for value, count in self.values.most_common(_SHOWN))
            held = f"{self.kind}{', ' + several + common if self.values else ''}{self._odd_text()}"
        gaps = f", {self.missing} missing" if self.missing else ""
        return f"{self.name}: {held}{gaps}{f' → {role}' if role else ''}"


def columns_of(path: Path, *, header: bool = True) -> list[ColumnFacts]:
    """Read a whole table once, and return statistics of each column.

    Args:
        path: A file, or a folder of files.
        header: Whether the first line of a text file names the columns.

    Raises:
        DataError: The table is invalid or has no rows, or its files have different columns.
        FileUnavailable: It cannot be read now.
    """
    columns: list[ColumnFacts] = []
    for file in table_files(path):
        with open_table(file, header=header) as table:
            if len(set(table.schema.names)) < len(table.schema.names):
                twice = next(name for name, count in Counter(table.schema.names).items() if count > 1)
                raise DataError(f"{file.name} has two columns of one name: {twice_cure(twice)}")
            if not columns:
                columns = [ColumnFacts(field.name, _kind(field.type)) for field in table.schema]
            kinds = dict(zip(table.schema.names, table.schema.types, strict=True))
            for column in columns:
                if column.name not in kinds:
                    raise DataError(f"{file.name} has no column {column.name}, which other files of the table have")
            types = {
                column.name: as_number(kinds[column.name]) if column.kind in ("number", "whole") else arrow().string()
                for column in columns
            }
            for batch in table.batches(list(types), types):
                for column in columns:
                    column.add(batch.column(column.name))
    if not columns[0].rows:
        raise DataError(f"{path.name} has no rows below its header: write it again")
    return columns


def outline_of(path: Path, label: str | None) -> Outline:
    """Describe a table, and return the keys that a job file needs for it.

    Args:
        path: The table.
        label: The column of labels; None for the likeliest.

    Raises:
        DataError: The table is invalid, or has no such label.
        FileUnavailable: It cannot be read now.
    """
    try:
        # Try with a header first: only opening the file shows that its first line has values instead of names.
        found, header = columns_of(path), True
    except NoHeaderError:
        found, header = columns_of(path, header=False), False
    columns = {column.name: column for column in found}
    if label is not None and label not in columns:
        raise DataError(f"{path.name} has no column {label}: it has {', '.join(columns)}"[:500])
    target = likeliest_label(columns) if label is None else columns[label]
    if target.hardly_repeats:
        raise DataError(
            f"{path.name}: column {target.name} holds text that hardly repeats, which names no classes: take another "
            f"one of {', '.join(columns)}, or write its numbers without separators of thousands"
        )
    keys = feature_keys([column for column in columns.values() if column is not target])
    # Drop rows without a label: one that was filled in would be learned as if it were true.
    if target.missing:
        keys["missing"] = {**keys.get("missing", {}), target.name: "drop"}
    roles = {target.name: label_role(label), **dict.fromkeys(keys.get("leave_out", ()), "leave_out")}
    roles |= dict.fromkeys(keys.get("categories", ()), "categories")
    lines = tuple(column.line(roles.get(column.name, "")) for column in columns.values())
    if not header:
        keys["header"] = False
        lines = ("no header: the first line holds values, so columns are called by their places, f0, f1 …", *lines)
    return Outline(lines, {"label": target.name, **keys}, target_keys(target), "mlp")


def label_role(label: str | None) -> str:
    """Return the words that mark the column of labels in a description, and say whether it was guessed."""
    return "label, a guess from its name or place: another one by --label" if label is None else "label"


def likeliest_label(columns: Mapping[str, ColumnFacts]) -> ColumnFacts:
    """Guess the column of labels: one with a usual name, otherwise the last one that can be a label."""
    likely = [name for name in columns if name.lower() in LABELS] + [*columns][::-1]
    return columns[
        next((name for name in likely if not columns[name].hardly_repeats and columns[name].kind != _DATE), likely[0])
    ]


def target_keys(target: ColumnFacts) -> dict[str, Any]:
    """Return the keys of the section `data` for a label: the task of a quantity, or classes other than 0, 1, 2, …."""
    if target.kind == "number" or (target.kind == "whole" and target.is_measured):
        return {"task": "regression"}
    classes = sorted(map(int, target.values)) if target.kind == "whole" else []
    return {"classes": classes} if classes != list(range(len(classes))) else {}


def feature_keys(features: Iterable[ColumnFacts]) -> dict[str, Any]:
    """Return the keys of `data > from` for the columns other than the label: left out, categories, missing values."""
    used: list[ColumnFacts] = []
    out: list[str] = []
    for column in features:
        if _is_usable(column):
            used.append(column)
        else:
            out.append(column.name)
    keys = {
        "leave_out": out,
        "categories": {column.name: sorted(column.values) for column in used if column.kind == "text"},
        "missing": {column.name: _stand_in(column) for column in used if column.missing},
    }
    return {key: value for key, value in keys.items() if value}


def notes_of(path: Path, *, header: bool = True) -> Iterator[str]:
    """Yield notes on files of a table that take much memory to read.

    Args:
        path: A file, or a folder of files.
        header: Whether the first line of a text file names the columns.

    Raises:
        DataError: The table is invalid.
    """
    for file in table_files(path):
        with open_table(file, header=header) as table:
            largest = table.largest_group_bytes
        if largest > _LARGE_GROUP_BYTES:
            yield (
                f"{file.name} has a row group of {largest / 2**20:.0f} MiB, and readers hold parts of it: "
                "pyarrow.parquet.write_table(…, row_group_size=100_000) makes smaller ones"
            )


def _kind(arrow_type: Any) -> str:
    types = arrow().types
    if types.is_integer(arrow_type) or types.is_boolean(arrow_type):
        return "whole"
    if types.is_floating(arrow_type):
        return "number"
    if is_date(arrow_type):
        return _DATE
    is_text = types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_dictionary(arrow_type)
    return "text" if is_text else str(arrow_type)


def _is_usable(column: ColumnFacts) -> bool:
    """Return whether a column can be an input: numbers that do not count rows, or text of few values that repeat."""
    # Leave out a column that counts rows: in a table sorted by class it gives away the label.
    if column.is_index:
        return False
    if column.kind in ("number", "whole", _DATE):
        return column.missing < column.rows
    return column.kind == "text" and 2 <= len(column.values) <= min(_MOST_CATEGORIES, column.rows // 2)


def _stand_in(column: ColumnFacts) -> float | str:
    """Return the suggested replacement of missing values: the mean or the most common category; for dates `drop`."""
    if column.kind == _DATE:
        return "drop"
    return column.values.most_common(1)[0][0] if column.kind == "text" else float(f"{column.mean:.4g}")
