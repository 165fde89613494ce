"""`python -m vcdl.client.worker`: train workunits for a parent process.

It trains one after another, and talks over JSON lines on stdin and stdout.

    in   {"do": "allow_code"}              from now on, run the code that a job brings
    in   {"do": "train", "folder": PATH}   one at a time; "samples": N trains N, however long they take
         {"do": "pause"} {"do": "go"}      until the other command comes
         {"do": "quit"}                    the running workunit: checkpoint and stop
         {"do": "finish"}                  the running workunit: upload the part that is trained
         end of file                       the parent is gone: exit at once, in mid-training too
    out  {"event": "ready"}                Keras is imported
         {"event": "progress", "fraction": F, "samples": N}
         {"event": "done"}                 update.h5 is in the folder
         {"event": "quit"}                 a checkpoint is in the folder
         {"event": "no_room"}              the disk is full; the folder may hold a checkpoint to resume from
         {"event": "failed", "reason": "one line"}

The process ignores SIGINT and SIGTERM, which reach all processes of a terminal or of a batch job: they are the
parent's. Output of libraries goes to stderr.
"""

import io
import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from vcdl.client import own_code
from vcdl.client.inputs import ShardReader, read_shard
from vcdl.client.resources import error_text, is_disk_full
from vcdl.client.supervisor import Request
from vcdl.client.train import TrainingTerms, train_workunit
from vcdl.client.trainer import TrainerCache
from vcdl.client.unneeded import hide_unneeded
from vcdl.errors import VcdlError

_ENDINGS = {"quit": Request.QUIT, "finish": Request.FINISH}
_log = logging.getLogger(__name__)


class PipeSupervisor:
    """The parent process as the supervisor of a training: a thread reads its commands, and events are sent to it."""

    def __init__(self, commands: Iterable[bytes], events: IO[str]) -> None:
        self._commands = commands
        self._events = events
        self._tasks: queue.SimpleQueue[tuple[Path, int | None]] = queue.SimpleQueue()
        self._paused = False
        self._ending: Request | None = None

    def listen(self) -> None:
        """Start a thread that reads the parent's commands. It ends this process when the parent closes the pipe."""
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def next_task(self) -> tuple[Path, int | None]:
        """Wait for the next workunit; return its folder, and the number of samples to train, or None for all."""
        return self._tasks.get()

    def tell(self, event: str, **facts: Any) -> None:
        """Send one event. Exit if the parent has ended."""
        try:
            self._events.write(json.dumps({"event": event, **facts}) + "\n")
            self._events.flush()
        except OSError:
            os._exit(0)

    def request(self) -> Request:
        if self._ending is not None:
            return self._ending
        return Request.PAUSE if self._paused else Request.GO

    def progress(self, fraction: float, samples: int) -> None:
        self.tell("progress", fraction=fraction, samples=samples)

    def checkpoint_made(self) -> None:
        """Do nothing: the local grid does not ask for checkpoints."""

    def _read(self) -> None:
        for line in self._commands:
            try:
                self._obey(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                _log.warning("command not understood (%r): %.200r", error, line)
        os._exit(0)

    def _obey(self, command: dict[str, Any]) -> None:
        what = command["do"]
        if what == "train":
            self._ending = None
            self._tasks.put((Path(command["folder"]), command.get("samples")))
        elif what == "allow_code":
            own_code.permit()
        elif what in _ENDINGS:
            self._ending = _ENDINGS[what]
        elif what in ("pause", "go"):
            self._paused = what == "pause"
        else:
            raise ValueError(f"no such command: {what}")


def main(trainers: TrainerCache, read_data: ShardReader = read_shard) -> None:
    """Train workunits for the parent until it closes stdin.

    Args:
        trainers: Keeps the model between workunits.
        read_data: Reads a shard.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Copy stdout for the events, and redirect stdout to stderr: libraries print to stdout, which would break the JSON
    # lines.
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Do not read through a buffer: a thread that waits inside one aborts a process that ends with an error.
    supervisor = PipeSupervisor(io.FileIO(sys.stdin.fileno(), closefd=False), events)
    supervisor.listen()
    hide_unneeded()
    import keras  # noqa: F401  slow; "ready" says that it is over

    supervisor.tell("ready")
    while True:
        _train(*supervisor.next_task(), supervisor, trainers, read_data)


def _train(
    folder: Path, samples: int | None, supervisor: PipeSupervisor, trainers: TrainerCache, read_data: ShardReader
) -> None:
    """Train one workunit and report how it ended to the parent. Errors are reported as well, and not raised."""
    try:
        outcome = train_workunit(folder, supervisor, trainers, TrainingTerms(samples=samples, read_data=read_data))
    except VcdlError as error:
        supervisor.tell("failed", reason=error_text(error))
    except Exception as error:  # from Keras, its backend or the system: report it and drop the model
        # After an error the state of the backend is unknown, and a model that ran out of memory must be freed.
        trainers.clear()
        if is_disk_full(error):
            supervisor.tell("no_room")
            return
        _log.exception("the workunit in %s", folder.name)  # raises nothing, not even on a full disk
        supervisor.tell("failed", reason=error_text(error))
    else:
        supervisor.tell(outcome.value)


if __name__ == "__main__":
    main(TrainerCache())
