"""The keys of a job file that a table's columns ask for."""

from collections import Counter
from typing import Any

import pytest

from vcdl.data.readers.columns import ColumnFacts, feature_keys, target_keys


def column(kind: str, *values: object, rows: int = 100, missing: int = 0, counts_up: bool = False) -> ColumnFacts:
    """A column whose values stand in it equally often."""
    each = (rows - missing) // max(1, len(values))
    counts = Counter({str(value): each for value in values})
    return ColumnFacts("it", kind, rows, missing, total=2.0 * (rows - missing), counts_up=counts_up, values=counts)


@pytest.mark.parametrize(
    ("target", "keys"),
    [
        (column("number"), {"task": "regression"}),
        (column("whole", *range(101), rows=10_000), {"task": "regression"}),
        (column("whole", *range(11), rows=100), {"task": "regression"}),
        (column("whole", 0, 1, 2), {}),
        (column("whole", 3, 1, 2), {"classes": [1, 2, 3]}),
        (column("text", "cat", "dog"), {}),
    ],
)
def test_keys_of_a_label(target: ColumnFacts, keys: dict[str, Any]) -> None:
    assert target_keys(target) == keys


@pytest.mark.parametrize(
    ("feature", "keys"),
    [
        (column("number"), {}),
        (column("number", missing=3), {"missing": {"it": 2.0}}),
        (column("number", missing=100), {"leave_out": ["it"]}),
        (column("whole", 1, 2, counts_up=True), {"leave_out": ["it"]}),
        (column("text", "b", "a"), {"categories": {"it": ["a", "b"]}}),
        (column("text", "b", "a", missing=1), {"categories": {"it": ["a", "b"]}, "missing": {"it": "b"}}),
        (column("text", "a"), {"leave_out": ["it"]}),
        (column("text", *range(51)), {"leave_out": ["it"]}),
        (column("timestamp[ns]"), {"leave_out": ["it"]}),
    ],
)
def test_keys_of_a_feature(feature: ColumnFacts, keys: dict[str, Any]) -> None:
    assert feature_keys([feature]) == keys
