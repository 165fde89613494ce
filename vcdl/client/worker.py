"""A worker of the local grid: trains the folders it is told of, one after the other, in one process.

JSON lines on standard input: `{"do": "train", "folder": PATH}`, and for the workunit that runs `{"do": "pause" | "go" | "quit" |
"finish"}`. On standard output: `{"event": "ready"}` once Keras is imported, then `progress` (fraction, samples; at most four a second),
`done`, `quit` or `failed` (reason, one line). When standard input closes the parent is gone, and the process ends at once.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from vcdl.client.host import Request

_PROGRESS_EVERY_S = 0.25


class PipeHost:
    """The local grid, as the client sees it."""

    def __init__(self, output: int) -> None:
        """`output`: descriptor of the pipe to the parent."""
        self._output = output
        self._request = Request.GO
        self._changed = threading.Event()
        self._reported_s = 0.0
        self.folders: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def say(self, **event: Any) -> None:
        """One line to the parent."""
        os.write(self._output, json.dumps(event).encode() + b"\n")

    def listen(self) -> None:
        """Take commands in until the parent is gone; runs in a thread of its own."""
        for line in sys.stdin.buffer:
            command = json.loads(line)
            if command["do"] == "train":
                self._request = Request.GO
                self.folders.put(Path(command["folder"]))
            else:
                self._request = Request(command["do"])
            self._changed.set()
        os._exit(0)

    def progress(self, fraction: float, samples: int) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s >= _PROGRESS_EVERY_S:
            self._reported_s = now_s
            self.say(event="progress", fraction=fraction, samples=samples)

    def checkpoint_made(self) -> None:
        pass

    def request(self) -> Request:
        return self._request

    def wait(self) -> None:
        self._changed.clear()
        if self._request is Request.PAUSE:
            self._changed.wait()


def main() -> None:
    """Serve the parent until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not end up between our lines
    host = PipeHost(output)
    threading.Thread(target=host.listen, daemon=True).start()
    import keras  # noqa: F401  (what takes seconds, done before the first workunit)

    from vcdl.client.train import Outcome, TrainerCache, train_workunit
    from vcdl.errors import VcdlError

    cache = TrainerCache()
    host.say(event="ready")
    while True:
        folder = host.folders.get()
        try:
            outcome = train_workunit(folder, host, cache)
            host.say(event="done" if outcome is Outcome.DONE else "quit")
        except (VcdlError, OSError) as error:
            host.say(event="failed", reason=_one_line(str(error)))
        except Exception as error:  # a backend's own: out of memory, a shape that does not fit
            cache = TrainerCache()
            host.say(event="failed", reason=_one_line(f"{type(error).__name__}: {error}"))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]


if __name__ == "__main__":
    main()
