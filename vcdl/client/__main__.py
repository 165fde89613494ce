"""`python -m vcdl.client [FOLDER]` trains the workunit in a folder by hand, the current one by default.

Ctrl-C writes a checkpoint and ends; the same command goes on from there. Exit status: 0 update.h5 is written, 75 stopped with a
checkpoint (try again), 1 the workunit cannot be trained (one line on standard error says why).
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from vcdl.client.host import Request

EXIT_STOPPED = 75
"""EX_TEMPFAIL of sysexits.h."""
_PRINT_EVERY_S = 1.0
_PAUSE_S = 0.2


class TerminalHost:
    """A person at a terminal."""

    def __init__(self) -> None:
        self._request = Request.GO
        self._printed_s = 0.0

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Signal handler: quit at the next batch."""
        self._request = Request.QUIT

    def progress(self, fraction: float, samples: int) -> None:
        now_s = time.monotonic()
        if now_s - self._printed_s >= _PRINT_EVERY_S or fraction == 1:
            self._printed_s = now_s
            print(f"{fraction:6.1%}  {samples} samples", flush=True)

    def checkpoint_made(self) -> None:
        print("checkpoint written", flush=True)

    def request(self) -> Request:
        return self._request

    def wait(self) -> None:
        time.sleep(_PAUSE_S)


def main(arguments: list[str]) -> int:
    """Train one workunit; returns the exit status."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from vcdl.client.train import Outcome, TrainerCache, train_workunit
    from vcdl.errors import VcdlError

    host = TerminalHost()
    signal.signal(signal.SIGINT, host.interrupt)
    signal.signal(signal.SIGTERM, host.interrupt)
    try:
        outcome = train_workunit(Path(arguments[0] if arguments else "."), host, TrainerCache())
    except (VcdlError, OSError) as error:
        print(f"vcdl.client: {error}", file=sys.stderr)
        return 1
    return 0 if outcome is Outcome.DONE else EXIT_STOPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
