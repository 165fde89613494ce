"""Prefetch blocks of samples in a thread."""

import threading
from collections.abc import Generator, Iterator
from queue import Queue
from typing import TypeVar

_Block = TypeVar("_Block")
_HANGS_S = 10.0
"""Seconds to wait for a reader that is being closed, after which it is abandoned: a network file may hang for ever."""


def ahead(blocks: Iterator[_Block]) -> Generator[_Block, None, None]:
    """Yield the blocks in order, prefetching one in a thread; its errors are raised here.

    Closing stops the prefetch and abandons a read that hangs.
    """
    # The bound keeps at most three blocks in memory: the one in use, the one in the queue, and the one whose put is
    # waiting.
    queue: Queue[tuple[_Block | None, BaseException | None]] = Queue(1)
    is_over = threading.Event()

    def make() -> None:
        try:
            for block in blocks:
                queue.put((block, None))
                if is_over.is_set():
                    return
            queue.put((None, None))
        # Whatever ends this thread must reach the consumer, which would otherwise wait in get for ever.
        except BaseException as error:
            queue.put((None, error))

    maker = threading.Thread(target=make, daemon=True)
    maker.start()
    try:
        while True:
            block, error = queue.get()
            if error is not None:
                raise error
            if block is None:
                return
            yield block
    finally:
        is_over.set()
        # The thread may be blocked in put. Emptying the queue lets it return from there and see is_over.
        while not queue.empty():
            queue.get_nowait()
        maker.join(_HANGS_S)
