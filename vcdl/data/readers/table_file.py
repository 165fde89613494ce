"""Open files of tables (CSV, TSV, Parquet, Arrow) with pyarrow, and read them in pieces of some MB."""

import json
import math
import operator
import re
import shlex
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from vcdl.data.ahead import ahead
from vcdl.data.readers.arrow_columns import arrow
from vcdl.errors import DataError, data_file_error, one_line

_PARQUET = (".parquet", ".pq")
_ARROW = ".arrow"
_ENDINGS = (".csv", ".tsv", *_PARQUET, _ARROW)
_BLOCK_BYTES = 2**24
"""Target size of a block in bytes: up to three blocks are in memory (vcdl.data.ahead)."""
_FIRST_BYTES = 2**16
"""Bytes of a text file from which its delimiter and decimal point are guessed."""
UNKNOWN = ("?", " ?")
"""Marks of missing values in the data sets of the UCI repository, which pyarrow does not recognise unless asked."""
NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)(e[+-]?\d+)?", re.IGNORECASE)
_CURES = {
    "invalid UTF8": "save it as UTF-8",
    "codec can't decode": "save it as UTF-8",
    "columns, got": "give each line as many fields as the first, no comma at its end, and quote text with commas",
}
"""Words in a message of pyarrow or Python, each with the advice for the user."""
_WITH_COMMA, _WITH_POINT = (
    re.compile(rf'(?:^|;)"?[+-]?\d+{mark}\d+"?(?=;|\r?$)', re.MULTILINE) for mark in (",", r"\.")
)


class NoHeaderError(DataError):
    """Raised if the first line of a text file has values instead of names and the job does not say so."""


def table_files(path: Path) -> list[Path]:
    """Return the files of a table, in order.

    Raises:
        DataError: A folder has no files of tables.
    """
    if not path.is_dir():
        return [path]
    found = _in_folder(path)
    if not found:
        raise DataError(f"{path.name} holds no {', '.join(_ENDINGS)}: name the file of the table")
    return found


def is_table(path: Path) -> bool:
    """Return whether a path is a file with the ending of a table, or a folder that contains such files."""
    return path.suffix.lower() in _ENDINGS if path.is_file() else path.is_dir() and bool(_in_folder(path))


def _in_folder(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.suffix.lower() in _ENDINGS)


def samples_in(file: Path, *, header: bool = True) -> int:
    """Return the number of rows of a table; for a text file, an estimate from its first MiB.

    Args:
        file: The table.
        header: Whether the first line of a text file names the columns.

    Raises:
        DataError: The file is not a table, unless it is a text file.
        FileUnavailable: It cannot be read now.
        OSError: A text file cannot be read.
    """
    if file.suffix.lower() not in (".csv", ".tsv"):
        with open_table(file) as table:
            return sum(map(len, table.batches([], {}))) if table.rows is None else table.rows
    with file.open("rb") as opened:
        begin = opened.read(2**20)
    lines = begin.count(b"\n")
    return max(1, round(lines * file.stat().st_size / max(1, len(begin))) - header)


class Table:
    """An open table, from which rows are read in batches of some MB."""

    def __init__(self, file: Path, opened: Any, *, header: bool = True) -> None:
        self._file = file
        self._opened = opened
        self._has_header = header
        is_parquet = file.suffix.lower() in _PARQUET
        self.schema = _plain_schema(opened.schema_arrow if is_parquet else opened.schema)
        """Names and types of the columns; those of a text file are inferred from its first MB."""
        self.rows: int | None = opened.metadata.num_rows if is_parquet else None
        """Number of rows; None: unknown before the file is read."""
        self._ahead: Generator[Any, None, None] | None = None

    def close(self) -> None:
        """Stop reading the file."""
        if self._ahead is not None:
            self._ahead.close()

    @property
    def largest_group_bytes(self) -> int:
        """Bytes of the largest row group of a Parquet file; 0 for other files."""
        if self.rows is None:
            return 0
        facts = self._opened.metadata
        return max(int(facts.row_group(group).total_byte_size) for group in range(facts.num_row_groups))

    def class_names(self, column: str) -> tuple[str, ...]:
        """Return the class names of an integer column from Hugging Face's metadata; empty if the file has none."""
        try:
            features = json.loads(self.schema.metadata[b"huggingface"])["info"]["features"]
            return tuple(map(str, features[column]["names"]))
        except (KeyError, TypeError, ValueError, RecursionError):
            return ()

    def batches(
        self, columns: Sequence[str], types: Mapping[str, Any], skips: int = 0, values: Collection[str] = ()
    ) -> Iterator[Any]:
        """Yield the rows in record batches of a few MB, with some of the columns.

        Args:
            columns: Names of the columns.
            types: Their types, in text files.
            skips: Number of rows to skip.
            values: Words of UNKNOWN that are values in this table, and not marks of missing ones.

        Raises:
            DataError: The file is invalid or damaged.
            FileUnavailable: It cannot be read now.
        """
        with _errors(self._file):
            if self.rows is not None:
                batches, skips = self._of_parquet(columns, skips)
                self._ahead = batches = ahead(map(_check_batch, batches))
            elif self._file.suffix.lower() == _ARROW:
                batches = (piece for batch in self._opened for piece in _pieces(_check_batch(batch.select(columns))))
            else:
                batches = _open_csv(self._file, types, columns, values, header=self._has_header)
            for batch in map(_plain, batches):
                yield batch.slice(min(skips, len(batch))) if skips else batch
                skips = max(0, skips - len(batch))

    def _of_parquet(self, columns: Sequence[str], skips: int) -> tuple[Iterator[Any], int]:
        """Start reading a Parquet file at the row group that contains row `skips`.

        Returns:
            The batches, and the number of rows to skip at their beginning.
        """
        facts = self._opened.metadata
        first = 0
        while first < facts.num_row_groups and skips >= facts.row_group(first).num_rows:
            skips -= facts.row_group(first).num_rows
            first += 1
        groups = range(first, facts.num_row_groups)
        of_groups = [facts.row_group(group) for group in range(facts.num_row_groups)]
        most_rows = max(group.num_rows for group in of_groups)
        size_bytes = sum(group.total_byte_size for group in of_groups) * most_rows // facts.num_rows
        pieces = max(round(size_bytes / _BLOCK_BYTES), math.ceil(most_rows / 2**16))
        rows = math.ceil(most_rows / pieces)  # pieces of equal size, without a small one at a group's end
        # Two threads of pyarrow take twice the processor time of one for the small columns of wide tables.
        return self._opened.iter_batches(rows, groups, columns, use_threads=False), skips


def _plain_schema(schema: Any) -> Any:
    """Return a schema with decimal numbers, as databases write them, replaced by floats."""
    pa = arrow()
    fields = (each.with_type(pa.float64()) if pa.types.is_decimal(each.type) else each for each in schema)
    return pa.schema(fields, schema.metadata)


def _plain(batch: Any) -> Any:
    plain = _plain_schema(batch.schema)
    return batch if plain.equals(batch.schema) else batch.cast(plain)


def _check_batch(batch: Any) -> Any:
    """Return a batch after checking its offsets and texts, which pyarrow does not do. Raises ArrowInvalid."""
    batch.validate(full=True)
    return batch


def _pieces(batch: Any) -> Iterator[Any]:
    """Split a batch into pieces of a few MB; an Arrow file may consist of a single batch."""
    rows = max(1, len(batch) * _BLOCK_BYTES // max(_BLOCK_BYTES, batch.nbytes))
    for first in range(0, len(batch), rows):
        yield batch.slice(first, rows)


@contextmanager
def open_table(file: Path, *, header: bool = True) -> Iterator[Table]:
    """Open a file of a table.

    Args:
        file: The file.
        header: The first line of a text file names the columns; without it they are called f0, f1, f2 and so on.

    Raises:
        DataError: The file is not a table, has no rows, or lacks the header.
        FileUnavailable: It cannot be read now.
    """
    with _errors(file):
        pa = arrow()
        if not file.stat().st_size:
            raise DataError(f"{file.name} is empty: write it again")
        if file.suffix.lower() == _ARROW:
            opened = _open_arrow(file)
        elif file.suffix.lower() in _PARQUET:
            # Without pre_buffer, which would read a whole row group at once, maybe more than fits into memory. The
            # checksums of pages find damage that decodes without an error.
            opened = pa.parquet.ParquetFile(file, pre_buffer=False, page_checksum_verification=True)
            if not opened.metadata.num_rows:
                raise DataError(f"{file.name} has no rows: write it again")
        else:
            refuse_utf_16(file)
            opened = _open_csv(file, {}, None, (), header=header)
            # Otherwise the first sample would silently become the names of the columns.
            if header and _are_values(opened.schema.names):
                opened.close()
                raise NoHeaderError(
                    f"{file.name} has no header: its first line holds values ({', '.join(opened.schema.names)[:60]}) "
                    "instead of names, and would be lost as a sample. Set data > from > header: false, and the columns "
                    "are called f0, f1, f2 …; or write a line with a name for each column above it"
                )
        table = Table(file, opened, header=header)
        _ = table.schema.names  # decodes them
    with opened, closing(table):
        yield table


def refuse_utf_16(file: Path) -> None:
    """Refuse a text file in UTF-16, as Excel's "Unicode text" is.

    Raises:
        DataError: The file is in UTF-16.
        OSError: It cannot be read.
    """
    with file.open("rb") as opened:
        if opened.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE):
            name = shlex.quote(file.name)
            raise DataError(
                f"{file.name} is text in UTF-16, and UTF-8 is read: save it as UTF-8, for example by "
                f"`iconv -f utf-16 -t utf-8 {name} > utf8{file.suffix}`"
            )


def _open_arrow(file: Path) -> Any:
    mapped = arrow().memory_map(str(file))
    try:
        return arrow().ipc.open_stream(mapped)
    except arrow().ArrowInvalid:  # the other of its two forms
        opened = arrow().ipc.open_file(mapped)
        batches = (opened.get_batch(number) for number in range(opened.num_record_batches))
        return arrow().RecordBatchReader.from_batches(opened.schema, batches)


def _open_csv(
    file: Path, types: Mapping[str, Any], columns: Sequence[str] | None, values: Collection[str], *, header: bool
) -> Any:
    csv = arrow().csv
    delimiter, decimal_point = _marks(file)
    return csv.open_csv(
        file,
        csv.ReadOptions(block_size=2**20 if columns is None else 2**22, autogenerate_column_names=not header),
        csv.ParseOptions(delimiter=delimiter),
        csv.ConvertOptions(
            column_types=dict(types),
            include_columns=columns,
            strings_can_be_null=True,
            decimal_point=decimal_point,
            null_values=[*csv.ConvertOptions().null_values, *(word for word in UNKNOWN if word not in values)],
        ),
    )


def _are_values(names: Sequence[str]) -> bool:
    """Return whether the first line of a text file has values and not names.

    Rising integers next to words are names, such as years. If all values are integers, only consecutive ones are names,
    which pandas gives to columns without a name.
    """
    numbers = [float(name.replace(",", ".")) for name in names if NUMBER.fullmatch(name.strip())]
    rises = all(number.is_integer() for number in numbers) and all(map(operator.lt, numbers, numbers[1:]))
    return not rises or (len(numbers) == len(names) and numbers[-1] - numbers[0] != len(numbers) - 1)


def _marks(file: Path) -> tuple[str, str]:
    """Guess a text file's delimiter and decimal point.

    A header with semicolons and no comma is from a country in which the comma is the decimal point.
    """
    if file.suffix.lower() == ".tsv":
        return "\t", "."
    with file.open("rb") as opened:
        begin = opened.read(_FIRST_BYTES)
    # Replace errors, because the last character of these bytes may be cut.
    header, _, rows = begin.decode(errors="replace").partition("\n")
    if "," in header or ";" not in header:
        return "\t" if "\t" in header and "," not in header else ",", "."
    if len(begin) == _FIRST_BYTES:
        rows = rows.rpartition("\n")[0]  # the last one may be cut
    return ";", "," if _WITH_COMMA.search(rows) and not _WITH_POINT.search(rows) else "."


@contextmanager
def _errors(file: Path) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except (ValueError, arrow().ArrowException) as error:  # pyarrow raises either for invalid data
        cure = next((cure for words, cure in _CURES.items() if words in str(error)), "correct it, or write it again")
        raise DataError(f"{file.name} cannot be read as a table ({one_line(error)[:300]}): {cure}") from error
    except OSError as error:
        if error.errno is None:  # pyarrow reports damage in this way
            raise DataError(f"{file.name} is damaged ({one_line(error)[:300]}): write it again") from error
        raise data_file_error(file, error) from error


def twice_cure(column: str) -> str:
    """Return advice for two columns of one name; an empty name means that lines end in commas."""
    return "rename one" if column else "remove the commas at the ends of the lines"
