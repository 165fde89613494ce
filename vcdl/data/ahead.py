"""Prefetch blocks of samples in a thread."""

import threading
from collections.abc import Generator, Iterator
from queue import Queue
from typing import TypeVar

_Block = TypeVar("_Block")
_HANGS_S = 10.0
"""Seconds to wait for the thread when the consumer stops; then it is abandoned, because reading a network file may hang
for ever."""


def ahead(blocks: Iterator[_Block]) -> Generator[_Block, None, None]:
    """Yield the blocks in order, reading the next ones in a thread; an error of the thread is raised here.

    Closing the generator stops the thread, or abandons it if a read hangs.
    """
    # At most three blocks are in memory: the one in use, the one in the queue, and the one that the thread waits to
    # put.
    queue: Queue[tuple[_Block | None, BaseException | None]] = Queue(1)
    is_over = threading.Event()

    def make() -> None:
        try:
            for block in blocks:
                queue.put((block, None))
                if is_over.is_set():
                    return
            queue.put((None, None))
        # Pass on every error: otherwise the consumer would wait in get for ever.
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
