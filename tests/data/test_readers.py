"""Readers of `data > from`: real files of each kind, as blocks, from any place on; and what is said of wrong ones."""

import datetime
import decimal
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from PIL import Image

from tests.places import DOCS
from vcdl.data import Dataset, load_dataset
from vcdl.data.readers.images import ImagesReader
from vcdl.data.readers.table import TableReader
from vcdl.data.readers.text import TextReader
from vcdl.data.rows import Rows
from vcdl.data.shards import cut_into_shards
from vcdl.errors import DataError, JobError
from vcdl.files.fetched import address_of
from vcdl.job import load_job
from vcdl.job.reader import Outline

JOB = "name: a\nmodel: {{builtin: mlp}}\ndata: {{{data}}}\n"


def loaded(folder: Path, data: str) -> Dataset:
    """The data set of a job in a folder."""
    file = folder / "job.yaml"
    file.write_text(JOB.format(data=data))
    job = load_job(file)
    return load_dataset(job.data, job.seed)


def refusal(folder: Path, data: str) -> str:
    with pytest.raises((DataError, JobError)) as refused:
        loaded(folder, data)
    message = str(refused.value)
    assert "\n" not in message
    return message


def outlined(folder: Path, label: str | None = None) -> Outline:
    """The content of a folder's table, and keys for it."""
    return TableReader.model_validate({"path": folder}).outline(label)


def rows(x: Any) -> Rows:
    assert isinstance(x, Rows)
    return x


def whole(x: Any, begin: int = 0) -> Any:
    """The samples of a source, from a place on."""
    return np.concatenate(list(rows(x).source_blocks(begin)))


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    """A table with numbers, text, missing values and labels, sorted by label."""
    lines = ["length,colour,count,kind"]
    for number in range(60):
        kind = ("iris", "rose")[number // 30]
        lines.append(f"{number / 7:.3f},{'red' if number % 3 else 'blue'},{'' if number == 7 else number % 5},{kind}")
    (tmp_path / "flowers.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


SAID = "path: flowers.csv, label: kind, categories: {colour: [blue, red]}, missing: {count: 2}"


@pytest.mark.parametrize(
    ("header", "is_one"),
    [
        ("5.1,3.5,setosa", False), ("39,State-gov,13", False), ("5,0,0", False), ("2,4,8", False), (".5,1e3,-2", False),
        ("0,1,2", True), ("1,2,3", True), ("2019,2020,y", True), ("a,1,y", True), ("a,b,c", True), ("1st,x5,3d", True),
    ],
)  # fmt: skip
def test_a_first_line_of_values_is_no_header(header: str, is_one: bool, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join([header, *("4,3,1" if row % 2 else "3,5,0" for row in range(20))]) + "\n")
    label = header.rpartition(",")[2]
    said = f"from: {{path: t.csv, label: '{label}'}}, validation: 2"
    if is_one:
        assert len(loaded(tmp_path, said).x_train) == 18
    else:
        assert "t.csv has no header: its first line holds values" in refusal(tmp_path, said)


def test_a_table_without_a_header_is_read_when_the_job_says_so(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("".join(f"{row / 7},{row % 5},{'ab'[row % 2]}\n" for row in range(20)))
    data = loaded(tmp_path, "from: {path: t.csv, header: false, label: f2, columns: [f1, f0]}, validation: 2")
    assert len(data.x_train) == 18
    assert set(whole(data.x_train)[:, 0]) == set(range(5))
    assert data.classes is not None
    assert data.classes.names == ("a", "b")


def test_a_table_is_numbers_and_categories_as_the_job_says(flowers: Path) -> None:
    data = loaded(flowers, f"from: {{{SAID}}}")
    x = whole(data.x_train)
    assert x.dtype == np.float32
    assert x.shape == (60, 4)
    np.testing.assert_allclose(x[7], [1.0, 0, 1, 2], atol=1e-3)
    assert data.classes is not None
    assert data.classes.names == ("iris", "rose")
    assert len(data.x_train) + len(data.x_val) == 60
    assert np.bincount(data.y_val).tolist() == [3, 3]


def test_rows_with_missing_values_are_dropped_on_request(flowers: Path) -> None:
    said = SAID.replace("missing: {count: 2}", "missing: drop, leave_out: [length]")
    data = loaded(flowers, f"from: {{{said}}}")
    x = whole(data.x_train)
    assert x.shape == (59, 3)
    assert x.dtype == np.uint8, "whole numbers stay whole"
    np.testing.assert_array_equal(whole(data.x_train, 11), x[11:])


def test_rows_that_lack_one_column_alone_are_dropped_on_request(flowers: Path) -> None:
    table = flowers / "flowers.csv"
    table.write_text(table.read_text() + "9.1,,3,rose\n9.2,red,2,\n")
    outline = outlined(flowers, "kind")
    assert outline.source["missing"] == {"kind": "drop", "colour": "red", "count": pytest.approx(2, abs=0.1)}
    said = SAID.replace("missing: {count: 2}", "missing: {count: 2, colour: blue, kind: drop}")
    data = loaded(flowers, f"from: {{{said}}}")
    np.testing.assert_allclose(whole(data.x_train)[[7, 60]], [[1.0, 0, 1, 2], [9.1, 1, 0, 3]], atol=1e-3)
    assert len(whole(data.x_train)) == 61


def test_rows_are_skipped_where_an_earlier_one_was_dropped(tmp_path: Path) -> None:
    columns = {"a": pa.array(range(60), pa.float32()), "y": pa.array([None if n == 3 else n % 2 for n in range(60)])}
    pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet", 20)
    data = loaded(tmp_path, "from: {path: t.parquet, label: y, columns: [a], missing: {y: drop}}")
    assert whole(data.x_train, 50).ravel().tolist() == [*range(51, 60)]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("flowers.csv", "has the columns length, colour, count, kind: say which one is the label"),
        ("{path: flowers.csv, label: kinds}", "flowers.csv has no column kinds; did you mean kind?"),
        ("{path: flowers.csv, label: kind}", "column colour holds text: list its values"),
        ("{" + SAID.replace(", missing: {count: 2}", "") + "}", "column count has missing values: set a replacement"),
        ("{" + SAID.replace("blue, red", "blue, green") + "}", "column colour holds 'red', which data > from > categ"),
        ("{" + SAID + ", columns: [length, kind]}", "kind is the label, and is in data > from > columns"),
        ("{path: flowers.csv, label: length, columns: [count], missing: {count: 0}}", "labels that are not whole"),
        ("{path: flowers.csv, label: count, columns: [length]}", "missing: {count: …} (drop, as it is the label)"),
        ("{path: flowers.csv, lable: kind}", "did you mean label?"),
        ("missing.csv", "there is no "),
        ("{label: kind}", "data > from > path: is missing"),
    ],
)
def test_what_a_table_does_not_say_by_itself_is_asked_for(said: str, message: str, flowers: Path) -> None:
    assert message in refusal(flowers, f"from: {said}")


def numbers(count: int = 4000) -> Any:
    x = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    return pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": np.arange(count) * 2 // count})


def test_an_unchanged_source_is_surveyed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    reads: list[Path] = []
    read = TableReader.blocks

    def counted_blocks(reader: TableReader, path: Path, *arguments: Any) -> Any:
        reads.append(path)
        return read(reader, path, *arguments)

    monkeypatch.setattr(TableReader, "blocks", counted_blocks)
    file = tmp_path / "t.parquet"
    pa.parquet.write_table(numbers(), file)
    loaded(tmp_path, "from: {path: t.parquet, label: y}")
    first = loaded(tmp_path, "from: {path: t.parquet, label: y}")
    assert len(reads) == 2, "one that was just written may change unnoticed"
    now_s = int(time.time())
    for past_s, expected in ((100, 3), (100, 3), (90, 4)):
        os.utime(file, (now_s, now_s - past_s))
        again = loaded(tmp_path, "from: {path: t.parquet, label: y}")
        assert len(reads) == expected
        np.testing.assert_array_equal(again.y_train, first.y_train)
        assert rows(again.x_train).content == rows(first.x_train).content
        np.testing.assert_array_equal(rows(again.x_train).numbers.deviation, rows(first.x_train).numbers.deviation)
    assert not list((tmp_path / "cache").rglob("*.tmp*"))
    for damaged in (tmp_path / "cache").rglob("*.npz"):
        damaged.write_bytes(damaged.read_bytes()[:-40])
    np.testing.assert_array_equal(loaded(tmp_path, "from: {path: t.parquet, label: y}").y_train, first.y_train)


def test_parquet_is_read_from_any_row_on(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    pa.parquet.write_table(numbers(), folder / "1.parquet", row_group_size=700)
    pa.parquet.write_table(numbers(90), folder / "2.parquet")
    data = loaded(tmp_path, "from: {path: parts, label: y}")
    x = whole(data.x_train)
    assert x.shape == (4090, 3)
    for begin in (0, 1, 699, 700, 2222, 3999, 4000, 4089):
        np.testing.assert_array_equal(whole(data.x_train, begin), x[begin:])
    np.testing.assert_array_equal(
        rows(data.x_train).take(np.array([3, 1500])),
        x[rows(data.x_train).places[[3, 1500]]],
    )


def test_a_list_is_a_whole_sample(tmp_path: Path) -> None:
    pixels = np.arange(120, dtype=np.uint8).reshape(20, 6)
    lists = pa.FixedSizeListArray.from_arrays(pixels.ravel(), 6)
    pa.parquet.write_table(pa.table({"pixels": lists, "y": [0, 1] * 10}), tmp_path / "t.parquet")
    np.testing.assert_array_equal(whole(loaded(tmp_path, "from: {path: t.parquet, label: y}").x_train), pixels)


def test_words_for_true_and_false_are_0_and_1(tmp_path: Path) -> None:
    """R writes TRUE and FALSE, pandas True and False."""
    lines = [f"{str(number % 3 > 0).upper() if number != 7 else ''},{number},{number % 2 > 0}" for number in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["hair,weight,type", *lines]) + "\n")
    outline = outlined(tmp_path)
    assert outline.source == {"label": "type", "leave_out": ["weight"], "missing": {"hair": 0.6316}}
    assert not outline.data, "its labels are 0 and 1"
    data = loaded(tmp_path, "from: {path: t.csv, label: type, missing: {hair: 0}, leave_out: [weight]}, validation: 2")
    assert {*zip(whole(data.x_train).ravel(), [0, 1] * 10, strict=True)} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert whole(data.x_train).ravel().tolist() == [number % 3 > 0 and number != 7 for number in range(20)]
    assert data.classes is not None
    assert data.classes.count == 2


@pytest.mark.parametrize("mark", [".", ","])
def test_semicolons_and_decimal_commas_and_question_marks_are_read(mark: str, tmp_path: Path) -> None:
    """As Excel writes in half of Europe, and as the collection of the University of California marks gaps."""
    lines = [f"{number}{mark}5;{'?' if number == 7 else number % 3};{'ab'[number % 2]}" for number in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["height;age;kind", *lines]) + "\n")
    assert outlined(tmp_path).source == {"label": "kind", "missing": {"age": 0.9474}}
    x = whole(loaded(tmp_path, "from: {path: t.csv, label: kind, missing: {age: 9}}").x_train)
    np.testing.assert_array_equal(x[6:9], [[6.5, 0], [7.5, 9], [8.5, 2]])


def test_a_decimal_comma_is_told_from_a_date_and_from_text(tmp_path: Path) -> None:
    for lines, height in (("01.03.2020;1,5;a\n02.03.2020;0,5;b", [1.5, 0.5]), ("Weg 3,1;1.5;a\nWeg 3,2;2;b", [1.5, 2])):
        (tmp_path / "t.csv").write_text("at;height;kind\n" + "\n".join([lines] * 4))
        x = whole(loaded(tmp_path, "from: {path: t.csv, label: kind, leave_out: [at]}").x_train)
        assert x.ravel().tolist() == height * 4


def test_a_question_mark_that_the_job_lists_is_a_category(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("work,y\n" + "?,0\na,1\nb,0\n" * 10)
    x = whole(loaded(tmp_path, "from: {path: t.csv, label: y, categories: {work: ['?', a, b]}}").x_train)
    np.testing.assert_array_equal(x[:3], np.eye(3))


def test_a_stretch_without_labels_is_dropped_whole(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "1.csv").write_text("colour,y\n" + "red,1\nblue,0\n" * 10)
    (tmp_path / "t" / "2.csv").write_text("colour,y\n" + "red,\nblue,\n" * 10)
    said = "from: {path: t, label: y, categories: {colour: [blue, red]}, missing: {y: drop}}"
    assert len(whole(loaded(tmp_path, said).x_train)) == 20


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,a,y\n1,2,0\n3,4,1\n")
    assert "t.csv has two columns a: rename one" in refusal(tmp_path, "from: {path: t.csv, label: y}")
    with pytest.raises(DataError, match=r"^t\.csv has two columns of one name: rename one$"):
        outlined(tmp_path)


def test_text_that_hardly_repeats_is_no_label(tmp_path: Path) -> None:
    lines = [f'{number % 7},"{number},000"' for number in range(1, 41)]
    (tmp_path / "t.csv").write_text("\n".join(["a,price", *lines]) + "\n")
    assert outlined(tmp_path).source["label"] == "a"
    with pytest.raises(DataError, match=r"column price holds text that hardly repeats, .* another one of a, price"):
        outlined(tmp_path, "price")
    (tmp_path / "t.csv").write_text("who,a\n" + "".join(f"n{number % 1200},{number}.5\n" for number in range(6_000)))
    assert outlined(tmp_path, "who").source["label"] == "who", "each of the 1 200 is there five times"
    (tmp_path / "t.csv").write_bytes("a,kind\n1,süß\n2,sauer\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"invalid UTF8 data.*: save it as UTF-8$"):
        outlined(tmp_path)
    (tmp_path / "t.csv").write_bytes("Größe,kind\n1,sour\n2,sweet\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"can't decode.*: save it as UTF-8$"):
        outlined(tmp_path)


def test_a_table_without_rows_says_so(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,kind\n")
    with pytest.raises(DataError, match="has no rows below its header"):
        outlined(tmp_path)


def test_text_in_a_column_of_numbers_is_shown(tmp_path: Path) -> None:
    lines = [f"{number % 40}.5,{number},{number % 2}" for number in range(100)]
    lines[50] = "n.a. (broken),50,0"
    (tmp_path / "t.csv").write_text("\n".join(["height,b,kind", *lines]) + "\n")
    line = next(line for line in outlined(tmp_path).lines if line.startswith("height"))
    assert "not a number: 'n.a. (broken)'" in line


def test_whole_labels_that_hardly_repeat_are_a_quantity(tmp_path: Path) -> None:
    for label, values in (("grade", range(10)), ("ozone", range(2, 40))):
        lines = [f"{number % 7}.5,{values[number % len(values)]}" for number in range(300)]
        (tmp_path / "t.csv").write_text("\n".join([f"a,{label}", *lines]) + "\n")
        assert (outlined(tmp_path, label).data.get("task") == "regression") is (label == "ozone")


def test_all_files_of_a_table_have_its_columns(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    (tmp_path / "2.csv").write_text("y,a\n0,1\n1,3\n")
    with pytest.raises(DataError, match=r"^2\.csv has no column b, which other files of the table have$"):
        outlined(tmp_path)


def truncated(folder: Path) -> None:
    pa.parquet.write_table(numbers(), folder / "t.parquet")
    (folder / "t.parquet").write_bytes((folder / "t.parquet").read_bytes()[:-100])


def counted(folder: Path) -> None:
    lines = [f"{number},{number % 3},{number % 2}" for number in range(20)]
    (folder / "t.csv").write_text("\n".join(["id,a,y", *lines]) + "\n")


def late_text(folder: Path) -> None:
    lines = [f"{number % 7},{number % 2}" for number in range(400_000)]
    (folder / "t.csv").write_text("\n".join(["a,y", *lines, "many,1"]) + "\n")


def damaged_arrow(old: bytes, new: bytes) -> Callable[[Path], None]:
    """A writer of an Arrow file in which some bytes are others."""

    def write(folder: Path) -> None:
        table = pa.table({"a": [1, 2, 3] * 5, "zqzq": [4, 6, 5] * 5, "y": ["no", "yes", "oh"] * 5})
        with pa.ipc.new_file(folder / "t.arrow", table.schema) as writer:
            writer.write_table(table)
        content = (folder / "t.arrow").read_bytes()
        assert old in content
        (folder / "t.arrow").write_bytes(content.replace(old, new))

    return write


def infinite(folder: Path) -> None:
    (folder / "t.csv").write_text("height,width,y\n" + "1.5,2.5,0\n" * 20 + "1.5,inf,1\n")


def long_label(folder: Path) -> None:
    lines = [f"{number % 7},{number % 2}" for number in range(1000)]
    (folder / "t.csv").write_text("\n".join(["a,y", *lines, "3," + "x" * 10_000]) + "\n")


@pytest.mark.parametrize(
    ("write", "path", "message"),
    [
        (damaged_arrow(b"zqzq", b"\xff\xfe\xff\xff"), "t.arrow", "t.arrow cannot be read as a table"),
        (damaged_arrow(b"noyesoh", b"\xff\xfe\xffesoh"), "t.arrow", "t.arrow cannot be read as a table"),
        # the ends of the labels' texts, of which one now lies before its beginning
        (damaged_arrow(b"\2\0\0\0\5\0\0\0", b"\2\0\0\x80\5\0\0\0"), "t.arrow", "t.arrow cannot be read as a table"),
        (damaged_arrow(b"\x40\0\0\0", b"\x80\0\0\0"), "t.arrow", "t.arrow cannot be read as a table"),
        (long_label, "t.csv", "a label has 10000 characters, and 1000 are allowed"),
        (truncated, "t.parquet", "t.parquet cannot be read as a table"),
        (counted, "t.csv", "column id only counts the rows: leave it out, data > from > leave_out: ['id']"),
        (late_text, "t.csv", "t.csv cannot be read as a table"),
        (
            infinite,
            "t.csv",
            "column width holds infinite numbers: write others, or leave it out, data > from > leave_out",
        ),
        (lambda folder: (folder / "t.csv").touch(), "t.csv", "t.csv is empty"),
        (lambda folder: (folder / "t.csv").write_text("a,y\n"), "t.csv", "t.csv has no samples"),
        (lambda folder: (folder / "t.pkl").touch(), "t.pkl", "is a pickle, which may run code"),
        (lambda folder: (folder / "t.npz").touch(), "t.npz", "is read by `data > npz`"),
    ],
)
def test_a_damaged_table_is_one_line(write: Callable[[Path], Any], path: str, message: str, tmp_path: Path) -> None:
    write(tmp_path)
    label = ", label: y" if path.endswith((".csv", "parquet", "arrow")) else ""
    assert message in refusal(tmp_path, f"from: {{path: {path}{label}}}")


def arrays(folder: Path, **named: Any) -> None:
    folder.mkdir(exist_ok=True)
    for name, array in named.items():
        np.save(folder / f"{name}.npy", array)


def test_a_folder_of_arrays_is_read_piece_by_piece(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (1500, 64, 64, 3), np.uint8)
    arrays(tmp_path / "set", x_train=x, y_train=np.arange(1500) % 3, x_test=x[:30], y_test=np.arange(30) % 3)
    data = loaded(tmp_path, "from: set")
    assert sum(1 for _ in rows(data.x_train).source_blocks()) > 1
    np.testing.assert_array_equal(whole(data.x_train, 1450), x[1450:])
    np.testing.assert_array_equal(whole(data.x_test), x[:30])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"x_train": np.zeros((9, 2))}, "y_train.npy does not exist"),
        ({"x_train": np.zeros((9, 2)), "y_train": np.arange(8)}, "x_train.npy has 9 samples and y_train.npy 8"),
        ({"x_train": np.full((9, 2), np.nan), "y_train": np.arange(9) % 2}, "x holds numbers that are NaN or infinite"),
        ({"x_train": np.full((9, 2), np.inf), "y_train": np.arange(9) % 2}, "x holds numbers that are NaN or infinite"),
        ({"x_train": np.zeros((0, 2)), "y_train": np.arange(0)}, "x_train.npy is empty"),
        ({"x_train": np.asfortranarray(np.eye(9)), "y_train": np.arange(9) % 2}, "in Fortran's order"),
        (
            {"x_train": np.eye(9), "y_train": np.arange(9) % 2, "x_test": np.eye(9), "y_test": np.arange(9) % 3},
            "y_test holds the label 2",
        ),
        (
            {"x_train": np.eye(9), "y_train": np.arange(9) % 2, "x_val": np.eye(8), "y_val": np.arange(8) % 2},
            "they must agree",
        ),
    ],
)
def test_wrong_arrays_are_one_line(wrong: dict[str, Any], message: str, tmp_path: Path) -> None:
    arrays(tmp_path / "set", **wrong)
    if "order" in message:
        np.save(tmp_path / "set" / "x_train.npy", np.asfortranarray(np.ones((9, 8))))
    assert message in refusal(tmp_path, "from: {path: set, as: arrays}")


GENERATOR = """
import numpy as np

def train():
    for number in range(10):
        yield np.full((5, 3), number, np.float32), np.arange(5) % 2

def shuffled():
    y = np.random.default_rng().permutation(200) % 2
    yield np.zeros((200, 3)), y

def fails():
    yield np.zeros((5, 3)), [0, 1, 0, 1, 0]
    raise RuntimeError("no more disk")

def mixed():
    yield np.zeros((5, 3)), np.zeros(5)
    yield np.zeros((5, 2)), np.zeros(5)

def single():
    yield np.zeros(3), 1
"""


def test_a_generator_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "gen.py").write_text(GENERATOR)
    data = loaded(tmp_path, 'from: {path: "gen:train", test: "gen:train"}')
    x = whole(data.x_train)
    assert x.tolist() == [[number] * 3 for number in range(10) for _ in range(5)]
    np.testing.assert_array_equal(whole(data.x_train, 12), x[12:])
    assert len(rows(data.x_test)) == 50
    with pytest.raises(DataError, match="gen:shuffled gave other samples when it was read a second time"):
        whole(loaded(tmp_path, 'from: "gen:shuffled"').x_train)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("gen:fails", "gen.py:14: gen:fails failed: RuntimeError: no more disk"),
        ("gen:mixed", "gives samples of float64, shape (2,), after those of float64, (3,): they must agree"),
        ("gen:single", "gen:single gives x of float64 and shape (3,), expected batches of numbers"),
        ("gen:none", "gen has no function 'none'"),
        ("other:train", "there is no module other in"),
    ],
)
def test_a_wrong_generator_is_one_line(function: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "gen.py").write_text(GENERATOR)
    assert message in refusal(tmp_path, f'from: "{function}"')


def hugging_face(folder: Path) -> None:
    """A folder as `DatasetDict.save_to_disk` of Hugging Face writes it."""
    features = {"a": {"dtype": "int64", "_type": "Value"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    told = {"huggingface": json.dumps({"info": {"features": features}})}
    schema = pa.schema([("a", pa.int64()), ("label", pa.int64())], metadata=told)
    for part, count in (("train", 30), ("test", 9)):
        (folder / part).mkdir(parents=True)
        (folder / part / "state.json").write_text("{}")
        for first in range(0, count, 15):
            numbers = list(range(first, min(first + 15, count)))
            batch = pa.record_batch([numbers[::-1], [number % 2 for number in numbers]], schema=schema)
            with pa.ipc.new_stream(folder / part / f"data-{first:05d}-of-00002.arrow", schema) as writer:
                writer.write_batch(batch)


def test_a_folder_of_hugging_face(tmp_path: Path) -> None:
    hugging_face(tmp_path / "set")
    data = loaded(tmp_path, "from: {path: set, label: label}")
    assert data.classes is not None
    assert data.classes.names == ("cat", "dog")
    assert whole(data.x_train).ravel().tolist() == [*range(14, -1, -1), *range(29, 14, -1)]
    np.testing.assert_array_equal(whole(data.x_train, 17), whole(data.x_train)[17:])
    assert len(rows(data.x_test)) == 9
    with pa.ipc.new_file(tmp_path / "t.arrow", pa.schema([("a", pa.int64()), ("y", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch([[5, 4] * 10, [0, 1] * 10], names=["a", "y"]))
    assert whole(loaded(tmp_path, "from: {path: t.arrow, label: y}").x_train)[:2].tolist() == [[5], [4]]


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_pictures_inside_of_a_table_of_hugging_face(tmp_path: Path, form: str) -> None:
    pictures(tmp_path / "files")
    files = [*sorted((tmp_path / "files" / "dog").iterdir()), *sorted((tmp_path / "files" / "cat").iterdir())]
    told = json.dumps({"info": {"features": {"kind": {"names": ["dog", "cat"], "_type": "ClassLabel"}}}})
    held = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
    table = pa.table({"image": held, "kind": [0] * 12 + [1] * 12}).replace_schema_metadata({"huggingface": told})
    (tmp_path / "set" / "train").mkdir(parents=True)
    if form == "parquet":
        pa.parquet.write_table(table, tmp_path / "set" / "train" / "0.parquet", row_group_size=7)
    else:
        with pa.ipc.new_stream(tmp_path / "set" / "train" / "0.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
    assert "for pictures set data > from > as: images" in refusal(tmp_path, "from: {path: set, label: kind}")
    data = loaded(tmp_path, "from: {path: set, as: images, columns: [image, kind]}")
    expected = loaded(tmp_path, "from: files, classes: [dog, cat]")
    assert data.classes is not None
    assert data.classes.names == ("dog", "cat")
    np.testing.assert_array_equal(whole(data.x_train), np.roll(whole(expected.x_train), 12, axis=0))
    np.testing.assert_array_equal(whole(data.x_train, 9), whole(data.x_train)[9:])
    assert "has no column file: say which hold path or picture" in refusal(tmp_path, "from: {path: set, as: images}")
    deep = table.replace_schema_metadata({"huggingface": "[" * 100_000})
    (tmp_path / "deep").mkdir()
    pa.parquet.write_table(deep, tmp_path / "deep" / "0.parquet")
    of_deep = loaded(tmp_path, "from: {path: deep, as: images, columns: [image, kind]}")
    assert of_deep.classes is not None
    assert of_deep.classes.names == ("0", "1")
    empty = pa.table({"image": [{"bytes": None, "path": "a.png"}] * 4, "kind": [0, 1, 0, 1]})
    (tmp_path / "paths").mkdir()
    pa.parquet.write_table(empty, tmp_path / "paths" / "0.parquet")
    said = refusal(tmp_path, "from: {path: paths, as: images, columns: [image, kind]}")
    assert "0.parquet: column image holds no picture in row 0: save the set by save_to_disk" in said


def pictures(folder: Path, *, sizes: tuple[tuple[int, int], ...] = ((12, 10),)) -> None:
    for kind, shade in (("cat", 40), ("dog", 200)):
        (folder / kind).mkdir(parents=True)
        for number in range(12):
            size = sizes[number % len(sizes)]
            Image.new("RGB", size, (shade, number, 0)).save(folder / kind / f"{number:02d}.png")


def test_pictures_below_folders_of_classes(tmp_path: Path) -> None:
    pictures(tmp_path / "pets" / "train", sizes=((12, 10), (30, 20)))
    pictures(tmp_path / "pets" / "test")
    data = loaded(tmp_path, "from: {path: pets, size: [8, 6]}")
    x = whole(data.x_train)
    assert (x.shape, x.dtype) == ((24, 8, 6, 3), np.uint8)
    assert x[[0, -1], 0, 0].tolist() == [[40, 0, 0], [200, 11, 0]]
    assert data.classes is not None
    assert data.classes.names == ("cat", "dog")
    assert data.x_test is not None
    grey = loaded(tmp_path, "from: {path: pets, size: 8, colour: grey, crop: true}")
    assert rows(grey.x_train).sample_shape == (8, 8, 1)
    np.testing.assert_array_equal(whole(data.x_train, 20), x[20:])


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    """A black drawing whose ground is transparent black is no black square."""
    pictures(tmp_path / "pets", sizes=((4, 4),))
    pixels = np.zeros((4, 4, 4), np.uint8)
    pixels[1, 2] = [0, 0, 0, 255]
    drawing = Image.fromarray(pixels)
    drawing.save(tmp_path / "pets" / "cat" / "00.png")
    drawing.quantize(4).save(tmp_path / "pets" / "cat" / "01.png")
    for colour in ("rgb", "grey"):
        x = whole(loaded(tmp_path, f"from: {{path: pets, colour: {colour}}}").x_train)
        for drawn in x[:2, ..., 0]:
            assert drawn[1, 2] == 0
            assert drawn.sum() == 15 * 255


@pytest.mark.parametrize("numbers", [np.uint16, np.int32, np.float32])
def test_pictures_of_more_bits_are_refused(numbers: Any, tmp_path: Path) -> None:
    pictures(tmp_path / "pets", sizes=((4, 4),))
    (tmp_path / "pets" / "cat" / "02.png").unlink()
    Image.fromarray(np.full((4, 4), 1000, numbers)).save(tmp_path / "pets" / "cat" / "02.tiff")
    assert "02.tiff holds more than 8 bits a pixel" in refusal(tmp_path, "from: pets")


def test_pictures_of_a_table(tmp_path: Path) -> None:
    pictures(tmp_path / "all")
    (tmp_path / "all" / "t.csv").write_text("name,kind\ncat/00.png,a\ndog/01.png,b\ncat/02.png,a\ndog/03.png,b\n")
    data = loaded(tmp_path, "from: {path: all, as: images, table: t.csv, columns: [name, kind]}, validation: 2")
    assert whole(data.x_train)[:, 0, 0, 1].tolist() == [0, 1, 2, 3]
    (tmp_path / "all" / "t.csv").write_text("name,kind\ncat/00.png,a\ndog/01.png,?\ncat/02.png,a\ndog/03.png,?\n")
    data = loaded(tmp_path, "from: {path: all, as: images, table: t.csv, columns: [name, kind]}, validation: 2")
    assert data.classes is not None
    assert data.classes.names == ("?", "a"), "a class may be called so"


def test_wrong_pictures_are_named(tmp_path: Path) -> None:
    pictures(tmp_path / "pets", sizes=((12, 10), (10, 12)))
    assert "pixels, the first one 10 × 12: set a size for all" in refusal(tmp_path, "from: pets")
    (tmp_path / "pets" / "cat" / "03.png").write_bytes((tmp_path / "pets" / "cat" / "04.png").read_bytes()[:40])
    assert "03.png cannot be read as a picture" in refusal(tmp_path, "from: {path: pets, size: 8}")
    skipping = loaded(tmp_path, "from: {path: pets, size: 8, skip_unreadable: true}")
    assert rows(skipping.x_train).source_count == 23
    assert len(whole(skipping.x_train, 20)) == 3
    (tmp_path / "none").mkdir()
    (tmp_path / "eps" / "cat").mkdir(parents=True)
    (tmp_path / "eps" / "cat" / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"
    )
    assert "none of the pictures in" in refusal(tmp_path, "from: eps")  # which Pillow would give to Ghostscript
    outside = tmp_path / "pets" / "dog" / "01.png"
    for path in ("../pets/dog/01.png", str(outside)):
        (tmp_path / "none" / "t.csv").write_text(f"file,label\n{path},a\n")
        assert "which is not below none" in refusal(tmp_path, "from: {path: none, as: images, table: t.csv}")
    (tmp_path / "none" / "t.csv").unlink()
    assert "holds no pictures in folders of classes" in refusal(tmp_path, "from: none")


def test_a_text_is_continued_unit_by_unit(tmp_path: Path) -> None:
    text = "the cat sat on the mat, été\n" * 40
    (tmp_path / "t.txt").write_text(text)
    data = loaded(tmp_path, "from: {path: t.txt, window: 16}, task: sequence")
    assert data.classes is not None
    names = data.classes.names
    x = whole(data.x_train)
    assert "".join(names[code] for code in x[:3].ravel()) == text[:48]
    first = int(rows(data.x_train).places[0])
    assert "".join(names[code] for code in data.y_train[0]) == text[16 * first + 1 : 16 * first + 17]
    np.testing.assert_array_equal(whole(data.x_train, 30), x[30:])
    in_bytes = loaded(tmp_path, "from: {path: t.txt, window: 16, unit: bytes}, task: sequence")
    assert whole(in_bytes.x_train).tobytes() == text.encode()[: whole(in_bytes.x_train).size]
    assert "set data > task: sequence" in refusal(tmp_path, "from: t.txt")
    (tmp_path / "test.txt").write_text("naïve " * 30)
    strange = refusal(tmp_path, "from: {path: t.txt, window: 16, test: test.txt}, task: sequence")
    assert "test.txt holds the character 'ï'" in strange


def test_lines_with_a_label_in_front(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("good\tfine day\nbad\train\n" * 9)
    data = loaded(tmp_path, "from: {path: t.txt, lines: true, window: 6}")
    np.testing.assert_array_equal(whole(data.x_train)[1], [115, 98, 106, 111, 0, 0])
    (tmp_path / "t.txt").write_text("good\tfine day\n\n\nno label\n")
    assert "t.txt:4: no label before a tab" in refusal(tmp_path, "from: {path: t.txt, lines: true}")


@pytest.mark.parametrize(
    ("text", "keys"), [("a\tb\n" * 9 + "no label\n", {"lines"}), ("prose\n" * 9 + "a\tb\n", set())]
)
def test_a_tab_here_and_there_makes_no_text_one_of_labelled_lines(text: str, keys: set[str], tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(text)
    assert keys == {"lines"} & set(TextReader.model_validate({"path": tmp_path / "t.txt"}).outline(None).source)


EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", (DOCS / "data.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.split()[1])
def test_the_documents_sources_are_read(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{n},{n % 9 or ''},{('blue', 'red')[n % 2]},{('iris', 'rose')[n // 30]}" for n in range(60)]
    (tmp_path / "flowers.csv").write_text("\n".join(["id,height,colour,kind", *lines]) + "\n")
    arrays(tmp_path / "arrays", x_train=np.zeros((40, 8, 8, 1), np.uint8), y_train=np.arange(40) % 2)
    pictures(tmp_path / "pets")
    (tmp_path / "book.txt").write_text("once upon a time\n" * 200)
    (tmp_path / "reviews.txt").write_text("good\tfine\nbad\train\n" * 9)
    hugging_face(tmp_path / "animals")
    (tmp_path / "samples.py").write_text(GENERATOR)
    if "tokenizer" in example:
        pytest.importorskip("tokenizers")
        from tests.data.test_tokens import written

        written(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for url in re.findall(r"\S+#sha256=\w+", example):  # it was fetched before
        address = address_of(url)
        assert address is not None
        address.folder.mkdir(parents=True)
        (address.folder / "whole").touch()
        pa.parquet.write_table(pa.table({"a": [3, 1] * 10, "b": [0.5] * 20, "kind": ["x", "y"] * 10}), address.copy)
    (tmp_path / "job.yaml").write_text(example)
    job = load_job(tmp_path / "job.yaml")
    assert len(load_dataset(job.data, job.seed).x_train) > 10


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b,kind\n1,,x\n2,,y\n", r"column b holds no value .*: leave it out, data > from > leave_out: \['b'\]"),
        ("a,b,kind,\n1,2,x,\n3,4,y,\n", r"column \(without a name\) holds no value .*leave_out: \[''\]"),
        (
            "a,b,kind,,\n1,2,x,,\n3,4,y,,\n",
            r"two columns \(without a name\): remove the commas at the ends of the lines",
        ),
        ("a,b,kind\n1,2,x,\n3,4,y,\n", r"Expected 3 columns, got 4.*: give each line as many fields as the first"),
        (
            "a,b,kind\n1,2,x\n3,4,y\n".encode("utf-16"),
            r"is text in UTF-16, .*iconv -f utf-16 -t utf-8 't 1.csv' > utf8",
        ),
    ],
    ids=["no value", "a comma at the end", "two commas", "commas below the header alone", "UTF-16"],
)
def test_what_is_wrong_with_a_table_is_said_with_a_cure_that_works(
    content: str | bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "t 1.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    assert re.search(message, refusal(tmp_path, "from: {path: 't 1.csv', label: kind}"))


def test_a_csv_file_may_have_tabs(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\tkind\n1.5\tx\n2.5\ty\n" + "3.5\tx\n" * 20)
    assert whole(loaded(tmp_path, "from: {path: t.csv, label: kind}").x_train)[:2].tolist() == [[1.5], [2.5]]


def test_a_text_shorter_than_its_window_says_so_and_a_first_job_fits_it(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("to be or not to be")
    assert (
        "t.txt has 18 characters, and a sample is a window of 64 and one more: give more text, or set data > from > "
        in (refusal(tmp_path, "task: sequence, from: {path: t.txt, window: 64}"))
    )
    assert TextReader.model_validate({"path": tmp_path / "t.txt"}).outline(None).source == {"window": 2}
    (tmp_path / "t.txt").write_text("to be or not to be", encoding="utf-16")
    assert "is text in UTF-16" in refusal(tmp_path, "task: sequence, from: {path: t.txt, window: 4}")


def test_complex_samples_are_refused_with_their_cure(tmp_path: Path) -> None:
    np.save(tmp_path / "x_train.npy", np.ones((20, 3)) * 1j)
    np.save(tmp_path / "y_train.npy", np.arange(20) % 2)
    words = refusal(tmp_path, f"from: {{path: '{tmp_path}', as: arrays}}")
    assert "x_train.npy holds complex128, expected numbers: give real and imaginary parts" in words


@pytest.mark.parametrize("form", ["t.csv", "t.parquet"])
def test_dates_become_year_month_and_weekday(form: str, tmp_path: Path) -> None:
    days = [datetime.date(2024, 5, 6) + datetime.timedelta(40 * number) for number in range(20)]
    table = pa.table({"day": days, "kind": ["a", "b"] * 10, "seen": days[::-1]})
    (pa.csv.write_csv if form == "t.csv" else pa.parquet.write_table)(table, tmp_path / form)
    x = loaded(tmp_path, f"from: {{path: {form}, label: kind, leave_out: [seen]}}, validation: 1").x_train
    source = np.concatenate(list(rows(x).read(0)))
    assert source.tolist() == [[day.year, day.month, day.weekday()] for day in days]
    found = outlined(tmp_path)
    assert found.source == {"label": "kind"}, "a date is no label, and is not left out"
    assert "day: date, as year, month and weekday" in found.lines


def test_a_date_that_is_missing_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("day,kind\n" + "2024-05-06,a\n2024-05-07,b\n" * 20 + ",a\n")
    assert outlined(tmp_path).source == {"label": "kind", "missing": {"day": "drop"}}
    assert "which have no replacement: set drop" in refusal(
        tmp_path, "from: {path: t.csv, label: kind, missing: {day: 1.5}}"
    )
    data = loaded(tmp_path, "from: {path: t.csv, label: kind, missing: {day: drop}}")
    assert len(data.x_train) + len(data.x_val) == 40


def test_decimal_numbers_of_a_database_are_numbers(tmp_path: Path) -> None:
    cents = [decimal.Decimal(f"{number}.25") for number in range(40)]
    table = pa.table({"tax": cents[::-1], "price": cents})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    assert outlined(tmp_path).data == {"task": "regression"}
    data = loaded(tmp_path, "task: regression, from: {path: t.parquet, label: price}, validation: 1")
    assert rows(data.x_train).numbers.low == 0.25
    assert sorted([*data.y_train.ravel(), *data.y_val.ravel()])[-1] == 39.25


def test_a_phone_that_was_held_upright_is_seen_at_once(tmp_path: Path) -> None:
    picture = Image.new("RGB", (12, 8))
    exif = picture.getexif()
    exif[0x0112] = 6
    for kind in "ab":
        (tmp_path / kind).mkdir()
        for number in range(5):
            picture.save(tmp_path / kind / f"{number}.jpg", exif=exif)
    assert (
        ImagesReader.model_validate({"path": tmp_path}).outline(None).lines[0].startswith("10 pictures, 10 of 12 × 8")
    )
    assert rows(loaded(tmp_path, "from: {path: ., as: images}").x_train).sample_shape == (12, 8, 3)


def test_a_table_beside_pictures_needs_no_kind(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for number in range(10):
        Image.new("RGB", (8, 8)).save(tmp_path / "p" / f"{number}.png")
    (tmp_path / "p" / "l.csv").write_text("file,label\n" + "".join(f"{n}.png,{'ab'[n % 2]}\n" for n in range(10)))
    assert rows(loaded(tmp_path, "from: {path: p, table: l.csv}").x_train).sample_shape == (8, 8, 3)


def test_a_pipe_is_no_source(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.csv")
    assert "t.csv is a pipe, which can be read once" in refusal(tmp_path, "from: {path: t.csv, label: kind}")


def test_shards_are_cut_by_a_column_of_a_table(tmp_path: Path) -> None:
    """Numbers in their order, dates in theirs, and rows that are dropped are in no group."""
    days = [datetime.date(2026, 1 + at % 3, 1).isoformat() for at in range(90)]
    lines = [f"{at / 7 if at != 4 else ''},{9 + at % 2},{days[at]},{'ab'[at % 2]}\n" for at in range(90)]
    (tmp_path / "t.csv").write_text("width,site,day,kind\n" + "".join(lines))
    source = "from: {path: t.csv, label: kind, leave_out: [site, day], missing: drop}, shards: 3"
    by_day = loaded(tmp_path, f"{source}, by: day")
    assert by_day.groups_train is not None
    kept = rows(by_day.x_train).places
    dropped = np.delete(np.arange(90), 4)
    np.testing.assert_array_equal(by_day.groups_train - 1, dropped[kept] % 3)
    by_site = loaded(tmp_path, f"{source}, by: site")
    assert by_site.groups_train is not None
    np.testing.assert_array_equal(by_site.groups_train - 1, dropped[rows(by_site.x_train).places] % 2)
    assert "no column place" in refusal(tmp_path, f"{source}, by: place")
    assert "remove one of them" in refusal(tmp_path, f"{source}, by: day, split: dirichlet")
    assert "data > by" in refusal(tmp_path, "dataset: digits, by: day")
    (tmp_path / "t.csv").write_text("width,site,kind\n" + "1.5,,a\n2.5,x,b\n" * 20)
    hole = "from: {path: t.csv, label: kind, leave_out: [site]}, shards: 2, by: site"
    assert "site has missing values: fill them, or drop the rows" in refusal(tmp_path, hole)
    (tmp_path / "t.txt").write_text("a\tgood\nb\tbad\n" * 20)
    assert "needs an npz file or a table" in refusal(tmp_path, "from: {path: t.txt, lines: true, window: 4}, by: site")


def test_a_column_of_two_types_in_two_files_is_told(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for name, site in (("a", 3), ("b", "south")):
        (tmp_path / "t" / f"{name}.csv").write_text("width,site,kind\n" + f"1.5,{site},a\n2.5,{site},b\n" * 10)
    said = refusal(tmp_path, "from: {path: t, label: kind, leave_out: [site]}, shards: 2, by: site")
    assert said == "b.csv: site holds string, and int64 in other files"


def test_shards_are_cut_by_an_array_of_an_npz(tmp_path: Path) -> None:
    x, writer = np.random.default_rng(1).random((60, 3)), np.array(["mo", "li", "an"] * 20)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(60) % 2, writer_train=writer)
    found = loaded(tmp_path, "npz: d.npz, by: writer, shards: 3")
    assert found.groups_train is not None
    cut = cut_into_shards(found, load_job(tmp_path / "job.yaml").data, 1)
    held = [{tuple(row) for row in np.asarray(found.x_train)[part]} for part in cut]
    assert [held[at] <= {tuple(row) for row in x[writer == name]} for at, name in enumerate(("an", "li", "mo"))] == [
        True, True, True,
    ]  # fmt: skip
    assert "no array site_train" in refusal(tmp_path, "npz: d.npz, by: site, shards: 3")
