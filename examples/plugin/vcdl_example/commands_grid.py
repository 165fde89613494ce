"""A grid of commands, one a subtask: here processes of this machine. With `srun`, `ssh` or `docker run` before it, a
command trains on any machine that sees the run's folder.
"""

import subprocess
import sys
import time
from collections.abc import Collection, Sequence

from vcdl.job import Job
from vcdl.journal.events import StopReason, WorkunitSent
from vcdl.journal.observer import RunObserver
from vcdl.local.run import run_over
from vcdl.local.slots import SlotFolders
from vcdl.loop.grid import DrivenGrid, GaveUp, Outcome, Staged, Uploaded
from vcdl.run.folder import RunFolder
from vcdl.run.kept_weights import conclude_upload
from vcdl.run.kind import RunKind

COMMAND = (sys.executable, "-m", "vcdl.client")
"""Trains the workunit in the folder that follows."""
_END_S = 20.0
"""Time for a checkpoint."""


class CommandsGrid(DrivenGrid):
    """Commands, `grid > workers` at a time.

    Its memory are two folders, so that a killed run can be resumed: a slot for each subtask that is out, and uploads
    that stay until the store has them. An orphan of a killed run brings what its successor brings.
    """

    def __init__(self, folder: RunFolder, job: Job) -> None:
        self._folder = folder
        self._slots = SlotFolders(folder)
        self._at_once = 1 if job.grid.workers == "auto" else job.grid.workers
        self._waiting: dict[str, Staged] = {}
        self._commands: dict[str, subprocess.Popen[bytes]] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._sent: list[WorkunitSent] = []

    def start(self) -> None:
        for upload in self._folder.waiting_uploads():
            self._outcomes[upload.stem] = Uploaded(upload.stem, upload, upload.stat().st_size)

    def submit(self, staged: Sequence[Staged]) -> None:
        self._waiting |= {item.workunit.name: item for item in staged if not self.has(item.workunit.name)}
        self._hand_out()

    def has(self, workunit: str) -> bool:
        return workunit in self._waiting or workunit in self._commands or workunit in self._outcomes

    def sent(self) -> list[WorkunitSent]:
        sent, self._sent = self._sent, []
        return sent

    def claim(self) -> list[Outcome]:
        return list(self._outcomes.values())

    def done(self, workunit: str, version: int | None = None) -> None:
        conclude_upload(self._folder, workunit, version)
        self._outcomes.pop(workunit, None)
        self._slots.remove(workunit)

    def cancel(self, workunits: Collection[str]) -> None:
        for workunit in workunits:
            self._waiting.pop(workunit, None)
            if (command := self._commands.pop(workunit, None)) is not None:
                command.kill()
                command.wait()
            self.done(workunit)

    def target_open_workunits(self) -> int:
        return self._at_once

    def wait(self, timeout_s: float) -> None:
        time.sleep(timeout_s)
        for workunit, command in list(self._commands.items()):
            if (status := command.poll()) is not None:
                del self._commands[workunit]
                self._outcomes[workunit] = self._outcome(workunit, status)
        self._hand_out()

    def pause(self) -> None:
        """Have each command write a checkpoint, from which the same workunit continues when it is submitted again."""
        self._waiting.clear()
        for command in self._commands.values():
            command.terminate()
        for command in self._commands.values():
            command.wait(_END_S)
        self._commands.clear()

    def close(self) -> None:
        for command in self._commands.values():
            command.kill()
            command.wait()

    def _hand_out(self) -> None:
        while self._waiting and len(self._commands) < self._at_once:
            workunit = next(iter(self._waiting))
            slot = self._slots.prepare(self._waiting[workunit])
            with self._folder.workers_log.open("ab") as log:
                self._commands[workunit] = subprocess.Popen([*COMMAND, slot], stdout=log, stderr=log)
            del self._waiting[workunit]
            self._sent.append(WorkunitSent(workunit, "this machine", 0))

    def _outcome(self, workunit: str, status: int) -> Outcome:
        if status == 0:
            return self._slots.take_over(workunit, "this machine")
        return GaveUp(workunit, f"its command ended with {status}")


def run(folder: RunFolder, observer: RunObserver) -> StopReason | None:
    """Run the job of a folder by commands."""
    return run_over(folder, observer, CommandsGrid)


COMMANDS = RunKind("commands", driver="vcdl_example.commands_grid:run")
