"""What a Redis holds beside the weights is read as it was written, or refused as damaged."""

import pytest

from vcdl.errors import StoreError, StoreLost
from vcdl.stores.base import Applied
from vcdl.stores.redis import _decode, _encode, _head_of

RECORD = Applied("e0001_s002", "j_e0001_s002_a0_v000000", 7, 3, 0.25, 0.5)


def test_a_record_is_read_as_it_was_written() -> None:
    assert _decode(RECORD.subtask, f"{RECORD.version} {_encode(RECORD)}".encode()) == RECORD


@pytest.mark.parametrize(
    "record", [b"", b"7", b"7 3 0.25 0.5", b"x 3 0.25 0.5 w", b"7 3 nan 0.5 w", b"7 3 0.25 inf w", b"7 3 0.2 0.5 \xff"]
)
def test_a_damaged_record_is_refused(record: bytes) -> None:
    with pytest.raises(StoreLost, match="the record of e0001_s002 in Redis is damaged"):
        _decode(RECORD.subtask, record)


HEAD = [b"era", b"generation", b"7", b"6", b"100", b"4096"]


def test_a_head_is_read_as_it_was_written() -> None:
    head = _head_of(HEAD)
    assert head is not None
    assert (head.era, head.generation, head.version, head.size, head.chunk_bytes) == ("era", "generation", 7, 100, 4096)
    assert _head_of([*HEAD[:5], None]) is None


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, b"\xff"), (1, b"\xff"), (2, b"x"), (3, b""), (4, b"9" * 5000), (4, b"-1"), (5, b"0"), (5, b"4096.0")],
)
def test_a_damaged_head_is_refused(place: int, value: bytes) -> None:
    with pytest.raises(StoreError, match="the head of the weights in Redis is damaged"):
        _head_of([*HEAD[:place], value, *HEAD[place + 1 :]])
