"""Arrays as people have them."""

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcdl.api.given import as_array, as_arrays, write_arrays
from vcdl.errors import DataError, RunFolderError


class Table:
    """A table of pandas, as far as it is looked at."""

    def __init__(self, rows: Any) -> None:
        self._rows = np.array(rows, dtype=object)

    def to_numpy(self) -> Any:
        return self._rows


class PyDataset:
    """As Keras' own: it is told by its name, without loading Keras."""


@pytest.mark.parametrize(
    ("given", "kind", "shape"),
    [
        ([[1, 2], [3, 4]], "i", (2, 2)),
        (Table([[1, 2.5], [True, np.float32(4)]]), "f", (2, 2)),
        (np.zeros((3, 2), np.float64), "f", (3, 2)),
        (["cat", "dog"], "U", (2,)),
        (Table(["cat", "dog"]), "U", (2,)),
        (deque([1, 2]), "i", (2,)),
    ],
    ids=lambda given: type(given).__name__,
)
def test_they_become_plain_arrays(given: Any, kind: str, shape: tuple[int, ...]) -> None:
    array = as_array("x", given)
    assert (array.dtype.kind, array.shape) == (kind, shape)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([[1, 2], [3]], "x is no array .*: give rows of the same length"),
        (Table([[1, "red"]]), "x holds str objects, such as 'red': give numbers"),
        (Table([[1, (2,)], [3, 4]]), "x holds tuple objects"),
        ({"a": [1]}, "x is a dict, and the model has one input and one output: give one array"),
        (iter([[1]]), "x is an iterator, which yields batches: give one stream of pairs"),
        ((row for row in [[1]]), "x is a generator, which yields batches"),
        (PyDataset(), "x is a keras.utils.PyDataset, which yields batches"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_is_none_is_refused_with_the_cure(given: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        as_array("x", given)


def test_an_array_in_a_file_is_written_as_it_is(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "large.dat", np.float32, "w+", shape=(1000, 8))
    mapped[:] = np.arange(8000).reshape(1000, 8)
    assert np.shares_memory(as_array("x", mapped), mapped)
    write_arrays(tmp_path, {"x_train": mapped})
    assert np.array_equal(np.load(tmp_path / "data.npz")["x_train"], mapped)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.npz").mkdir()
    with pytest.raises(RunFolderError, match="Is a directory; remove what is in its place"):
        write_arrays(tmp_path, {"x_train": np.zeros(3)})


TWO = ["words", "table"]


@pytest.mark.parametrize("given", [{"table": [[1, 2, 3]], "words": [[4, 5]]}, [[[4, 5]], [[1, 2, 3]]]])
def test_several_inputs_are_given_by_name_or_in_the_order_of_the_model(given: Any) -> None:
    found = as_arrays("x", given, TWO, "inputs")
    assert {name: array.tolist() for name, array in found.items()} == {"words": [[4, 5]], "table": [[1, 2, 3]]}


@pytest.mark.parametrize("given", [{"words": [[4, 5]]}, [[[4, 5]]], np.zeros((4, 5))])
def test_other_inputs_are_refused_with_the_names_of_the_model(given: Any) -> None:
    with pytest.raises(DataError, match="x: the model has the inputs words, table: give a dict"):
        as_arrays("x", given, TWO, "inputs")
