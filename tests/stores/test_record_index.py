"""Where records stand: found among many, and told apart from those with the same hash."""

import pytest

from vcdl.stores import record_index
from vcdl.stores.record_index import RecordIndex


class Alike(bytes):
    """A subtask with the hash of all others."""

    def __hash__(self) -> int:
        return -(2**61) + 5


def test_subtasks_with_the_same_hash_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_index, "_FEW", 2)
    index = RecordIndex()
    for number in range(5):
        index.add(Alike(b"s%d" % number), number)
    assert sorted(index.offsets(Alike(b"s0"))) == [0, 1, 2, 3, 4]
