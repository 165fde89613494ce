"""`python -m vcdl.api.child`: execute an order from standard input, and pause the run when that pipe closes.

A message is a line of JSON on standard output, by which `vcdl.api.process` follows the run.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vcdl import errors
from vcdl.api.order import ChildOrder
from vcdl.errors import ExitCode
from vcdl.files.children import when_parent_ends
from vcdl.journal.events import Recorded
from vcdl.journal.history import JobHistory
from vcdl.journal.observer import RunningTask, RunObserver
from vcdl.local.warm_workers import one_thread
from vcdl.report.failure import describe_error

_TASKS_EVERY_S = 0.5
"""Seconds between two lists of running subtasks, so that a line per heartbeat does not flood the pipe."""
_TASKS_TOLD = 8
"""Most subtasks in a message about running subtasks: a terminal shows no more, and the line stays below a pipe's atomic
write."""
_LONGEST_TEXT = 500
"""Most characters of a text in a message, because only a write below a pipe's atomic size (4096 bytes) is whole or
absent."""


def main() -> int:
    """Carry out the order and return the exit code."""
    # Give messages their own copy of standard output and redirect the original to standard error, so that nothing that
    # libraries print is read as a message.
    parent = _Parent(os.dup(1))
    os.dup2(2, 1)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    one_thread()
    order = ChildOrder.of_line(sys.stdin.buffer.readline())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    try:
        is_over = _ACTIONS[order.action](order, _Relay(parent))
    except KeyboardInterrupt:
        is_over = False
    except Exception as error:
        message, code = describe_error(error)
        parent.tell(wait=True, error={"kind": _public_kind(error), "message": message, "code": int(code)})
        return code
    return ExitCode.OK if is_over else ExitCode.INTERRUPTED


class _Parent:
    """The pipe to the program. A message is dropped if the pipe is full or has no reader, unless `tell` waits."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def tell(self, *, wait: bool = False, **message: Any) -> None:
        """Send a message, as keyword arguments.

        Args:
            wait: Wait while the pipe is full, instead of dropping the message.
            message: The message; its keys say what it is, such as `phase` or `error`.
        """
        line = json.dumps(message).encode() + b"\n"
        # Only an error and the message of the start wait for their reader: a program that is suspended in a debugger
        # must not hold the run up (decision 033).
        os.set_blocking(self._descriptor, wait)
        with contextlib.suppress(OSError):
            while line:
                # A message that is shorter than the pipe's atomic size is written whole or not at all.
                line = line[os.write(self._descriptor, line) :]


class _Relay(RunObserver):
    """Sends the program what the run's journal does not contain: phases, waits and running subtasks."""

    def __init__(self, parent: _Parent) -> None:
        self._parent = parent
        self._told_s = 0.0
        self._begun = False

    def phase(self, text: str) -> None:
        self._parent.tell(phase=text[:_LONGEST_TEXT])

    def waiting_for(self, why: str | None) -> None:
        self._parent.tell(waiting_for=why and why[:_LONGEST_TEXT])

    def begins(self, history: JobHistory) -> None:
        self._tell_begun()

    def events(self, events: Sequence[Recorded]) -> None:
        self._tell_begun()

    def tasks(self, running: Sequence[RunningTask], waiting: int) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s >= _TASKS_EVERY_S:
            self._told_s = now_s
            first = [[task.workunit, task.host, task.fraction, task.since_s] for task in running[:_TASKS_TOLD]]
            self._parent.tell(running=first, waiting=waiting)

    def _tell_begun(self) -> None:
        if not self._begun:
            self._begun = True
            self._parent.tell(wait=True, begun=True)


def _pause_with_parent() -> None:
    """Start a thread that sends this process SIGINT when its standard input closes, which pauses the run."""
    when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGINT))


def _public_kind(error: Exception) -> str:
    """Return the name of the nearest class of vcdl.errors that an error belongs to, or an empty string."""
    return next((kind.__name__ for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind), "")


def _run(order: ChildOrder, observer: RunObserver) -> bool:
    from vcdl.job import load_job
    from vcdl.run.driver import create_run
    from vcdl.run.finding import folder_for

    job = load_job(Path(order.job_file), order.settings)
    folder = folder_for(job.name, Path(order.folder))
    with create_run(folder, job) as frozen:
        return _drive(folder, frozen, observer)


def _resume(order: ChildOrder, observer: RunObserver) -> bool:
    from vcdl.run.folder import RunFolder, RunLock
    from vcdl.run.frozen_job import read_frozen

    folder = RunFolder.existing(Path(order.folder))
    job = read_frozen(folder)
    with RunLock(folder):
        return _drive(folder, job, observer)


def _drive(folder: Any, job: Any, observer: RunObserver) -> bool:
    from vcdl.local.run import warm_workers_for
    from vcdl.run.driver import drive, failed_shard_error, note_pause, results_of

    report = results_of(folder)
    if report is None:
        try:
            observer.phase("importing Keras")
            with warm_workers_for(job, folder.kind):  # before the process has a second thread
                # Start it only after the workers were forked, because forking with a second thread is unsafe.
                _pause_with_parent()
                reached = drive(folder, job, observer)
        except KeyboardInterrupt:
            note_pause(folder)
            return False
        if reached is None:
            return False
        report = reached
    if report.is_given_up:
        raise failed_shard_error(folder, job, report)
    return True


def _simulate(order: ChildOrder, observer: RunObserver) -> bool:
    from vcdl.job import load_job
    from vcdl.run.driver import failed_shard_error
    from vcdl.run.folder import RunFolder
    from vcdl.simulate.client_fleet import load_clients
    from vcdl.simulate.simulation import simulate

    _pause_with_parent()
    fleet = load_clients(Path(order.clients_file) if order.clients_file else None, order.client_settings)
    job = load_job(Path(order.job_file), order.settings, fleet.all_slots)
    folder = RunFolder(Path(order.folder))
    report = simulate(folder, job, fleet, observer)
    if report is not None and report.is_given_up:
        raise failed_shard_error(folder, job, report)
    return report is not None


_ACTIONS = {"run": _run, "resume": _resume, "simulate": _simulate}

if __name__ == "__main__":
    sys.exit(main())
