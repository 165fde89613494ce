"""Write a table's texts and labels as a file that `data > from > lines` reads."""

from collections.abc import Sequence
from pathlib import Path

from vcdl.data.readers.arrow_columns import arrow
from vcdl.data.readers.columns import columns_of, label_role, likeliest_label
from vcdl.data.readers.table_file import is_table, open_table, table_files
from vcdl.errors import DataError, nearest


def write_lines(path: Path, label: str | None, output: Path) -> Sequence[str]:
    """Write a table's texts into a file, one line `label<TAB>text` each, and describe the two columns.

    The text is the column with the longest words apart from the label; rows without a label or a text are left out.

    Args:
        path: A file, or a folder of files.
        label: The column of labels; None for the likeliest.
        output: The file to write.

    Returns:
        A line on each of the two columns; none if the path is no table, and nothing was written.

    Raises:
        DataError: The table has no texts, no such label, or a label that names no classes.
        FileUnavailable: The table cannot be read now.
    """
    if not is_table(path):
        return ()
    columns = {column.name: column for column in columns_of(path)}
    if label is not None and label not in columns:
        raise DataError(f"{path.name} has no column {label}; {nearest(label, columns)}"[:500])
    target = likeliest_label(columns) if label is None else columns[label]
    if target.is_mostly_new:
        raise DataError(
            f"{path.name}: the values of column {target.name} hardly repeat, so they name no classes: name another "
            f"column by --label: {', '.join(columns)}"[:500]
        )
    texts = [column for column in columns.values() if column.kind == "text" and column is not target]
    if not texts:
        raise DataError(
            f"{path.name} has no text column besides the label {target.name}: choose another label with --label"
        )
    text = max(texts, key=lambda column: sum(map(len, column.values)) / max(1, len(column.values)))
    types = {target.name: arrow().string(), text.name: arrow().string()}
    with output.open("w", encoding="utf-8") as lines:
        for file in table_files(path):
            with open_table(file) as table:
                for batch in table.batches(list(types), types):
                    pairs = zip(*(batch.column(name).to_pylist() for name in types), strict=True)
                    lines.writelines(
                        f"{' '.join(str(name).split())}\t{' '.join(words.split())}\n"
                        for name, words in pairs
                        if name is not None and words
                    )
    return f"{text.name}: text → tokens", target.line(label_role(label))
