"""From text and whole numbers to classes: what is taken as it is, and what is refused with its cure."""

from typing import Any

import numpy as np
import pytest

from vcdl.data.labels import Classes, Given, classes_of
from vcdl.errors import DataError

TEXT = ["cat", "dog", "ant", "dog"]


def found(train: Any, given: Given = None, test: Any = None) -> tuple[list[int], Classes]:
    labels = {"y_train": np.array(train)} | ({} if test is None else {"y_test": np.array(test)})
    numbered, classes = classes_of(labels, given)
    assert all(y.dtype == np.int32 for y in numbered.values())
    return numbered["y_train"].tolist(), classes


@pytest.mark.parametrize(
    ("train", "given", "numbers", "classes"),
    [
        ([0, 2, 1], None, [0, 2, 1], Classes(3)),
        ([0.0, 1.0], None, [0, 1], Classes(2)),
        ([False, True], None, [0, 1], Classes(2)),
        ([0, 2, 1], 5, [0, 2, 1], Classes(5)),
        ([0, 2, 1], ["a", "b", "c"], [0, 2, 1], Classes(3, ("a", "b", "c"))),
        ([1, 3, 2], [1, 2, 3], [0, 2, 1], Classes(3, ("1", "2", "3"))),
        ([-1, 1, 1], [-1, 1], [0, 1, 1], Classes(2, ("-1", "1"))),
        ([7, 5], [7, 5, 6], [0, 1], Classes(3, ("7", "5", "6"))),
        (TEXT, None, [1, 2, 0, 2], Classes(3, ("ant", "cat", "dog"))),
        (TEXT, ["dog", "cat", "ant"], [1, 0, 2, 0], Classes(3, ("dog", "cat", "ant"))),
        ([b"yes", b"no"], None, [1, 0], Classes(2, ("no", "yes"))),
        (["1", "0"], [0, 1], [1, 0], Classes(2, ("0", "1"))),
    ],
)
def test_labels_become_places(train: Any, given: Given, numbers: list[int], classes: Classes) -> None:
    assert found(train, given) == (numbers, classes)


@pytest.mark.parametrize(
    ("train", "given", "test", "reason"),
    [
        ([1, 2, 3], None, None, r"the labels 1…3, and labels count from 0: subtract 1, or set data > classes: \[1, 2"),
        ([0] * 99 + [1] * 99 + [10**6], None, None, r"label 1000000 \(1 of 199\) but none of 2…999999: correct it, or"),
        ([0, 1, 3, 3], None, None, r"label 3 \(2 of 4\) but none of 2: .* data > classes: 4 if the others exist"),
        ([0, 1, 2**31 - 1], None, None, r"label 2147483647 \(1 of 3\) but none of 2…2147483646"),
        ([0, 1, 2**31], None, None, r"the label 2147483648: labels are 0, 1"),
        ([-1, 0, 1], None, None, "the negative label -1"),
        ([-1, 0, 1], 2, None, "the negative label -1"),
        ([0, 0.5], None, None, "not whole numbers"),
        ([4, 4], None, None, r"one class only \(4\): there is nothing to tell apart"),
        (["a", "a"], ["a", "b"], None, r"one class only \(a\)"),
        ([0, 1, 2], 2, None, r"label 2 \(1 of 3\), which is not in data > classes: add it there"),
        ([0, 1, 2], ["a", "b"], None, "label 2 .* not in data > classes"),
        ([0, 1, 2], [1, 2], None, "label 0 .* not in data > classes"),
        (TEXT, ["cat", "dog"], None, r"label 'ant' \(1 of 4\), which is not in data > classes"),
        (TEXT, 3, None, "data > classes is 3, and y_train holds text: list the names"),
        ([0, 1], None, [1, 2, 2], r"y_test holds the label 2 \(2 of 3\), and y_train does not: .* data > classes: 3"),
        (TEXT, None, ["cow"], r"y_test holds the label 'cow' .* nothing can learn it; add samples of it to y_train"),
        (TEXT, None, [0], "y_test holds numbers and y_train text"),
        ([b"\xff", b"a"], None, None, "bytes that are no text in UTF-8"),
    ],
)
def test_labels_that_nobody_means_are_refused(train: Any, given: Given, test: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        found(train, given, test)
    assert "\n" not in str(caught.value)
