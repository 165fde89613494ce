"""What a child process of a run says: a line in workers.log."""

import contextlib
import sys
from collections.abc import Callable


def log_lines(name: str) -> Callable[[str], None]:
    """A function that writes a line with the name in front; a log on a full disk goes without."""

    def say(text: str) -> None:
        with contextlib.suppress(OSError):
            print(f"{name}: {text}", file=sys.stderr, flush=True)

    return say
