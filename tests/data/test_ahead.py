"""Blocks that a thread makes ahead: in order, with its errors, and over when they are closed."""

import threading
from collections.abc import Iterator

import pytest

from vcdl.data.ahead import ahead


def test_blocks_come_in_order_and_an_error_at_its_place() -> None:
    def blocks() -> Iterator[int]:
        yield from range(5)
        raise OSError("torn")

    assert list(ahead(iter(range(7)))) == list(range(7))
    made = ahead(blocks())
    assert [next(made) for _ in range(5)] == list(range(5))
    with pytest.raises(OSError, match="torn"):
        next(made)


def test_nobody_reads_a_source_after_it_is_closed() -> None:
    reading = threading.Event()
    readers: set[threading.Thread] = set()

    def blocks() -> Iterator[int]:
        readers.add(threading.current_thread())
        for number in range(1000):
            reading.set()
            yield number

    made = ahead(blocks())
    assert next(made) == 0
    assert reading.wait(10)
    made.close()
    assert not any(thread.is_alive() for thread in readers)
