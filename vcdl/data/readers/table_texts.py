"""Texts in a column of a table, written as the lines that `data > from > lines` reads."""

from pathlib import Path

from vcdl.data.readers.columns import columns_of, likeliest_label
from vcdl.data.readers.table_file import arrow, is_table, opened_table, table_files
from vcdl.errors import DataError, nearest


def write_lines(path: Path, label: str | None, output: Path) -> bool:
    """Write a table's texts, `label<TAB>text` each, and return whether the path is a table.

    The text is the column with the longest words apart from the label; rows that lack one of both are left out.

    Args:
        path: A file, or a folder of files.
        label: The column of labels; None for the likeliest.
        output: The file to write.

    Raises:
        DataError: The table has no texts, or no such label.
        FileUnavailable: It cannot be read now.
    """
    if not is_table(path):
        return False
    columns = {column.name: column for column in columns_of(path)}
    if label is not None and label not in columns:
        raise DataError(f"{path.name} has no column {label}; {nearest(label, columns)}"[:500])
    target = likeliest_label(columns) if label is None else columns[label]
    texts = [column for column in columns.values() if column.kind == "text" and column is not target]
    if not texts:
        raise DataError(
            f"{path.name} has no column of texts in addition to the label {target.name}: name another one by --label"
        )
    text = max(texts, key=lambda column: sum(map(len, column.values)) / max(1, len(column.values)))
    types = {target.name: arrow().string(), text.name: arrow().string()}
    with output.open("w", encoding="utf-8") as lines:
        for file in table_files(path):
            with opened_table(file) as table:
                for batch in table.batches(list(types), types):
                    pairs = zip(*(batch.column(name).to_pylist() for name in types), strict=True)
                    lines.writelines(
                        f"{' '.join(str(name).split())}\t{' '.join(words.split())}\n"
                        for name, words in pairs
                        if name is not None and words
                    )
    return True
