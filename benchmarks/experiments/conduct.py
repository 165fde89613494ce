"""Make the runs of an experiment in several processes: each takes the first run that nobody has made or is
making.

Nothing is assigned: a finished run shows in its folder, a running one in its lock. So a kill at any moment
costs only the runs in progress, the same command continues, and a second command beside it helps.
"""

import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING

from benchmarks.experiments.planned_run import PlannedRun
from benchmarks.experiments.poisoned_data import FOLDER as POISONED_DATA
from vcdl.client.processors import limit_threads
from vcdl.errors import RunFolderError, VcdlError
from vcdl.run.folder import RunIsBusy
from vcdl.run.reading import is_finished

if TYPE_CHECKING:
    from vcdl.client.trainer import TrainerCache

_SPAWN = get_context("spawn")


def conduct(runs: Sequence[PlannedRun], processes: int, tell: Callable[[str], None]) -> None:
    """Make all missing runs, `processes` at a time; `tell` gets a line for each.

    Raises VcdlError when one cannot be made; the other running ones are then ended. A run whose subtask kept
    failing counts as made, with the results so far.
    """
    missing = [run for run in runs if not run.is_done]
    tell(f"{len(runs)} runs, {len(runs) - len(missing)} of them made already")
    if not missing:
        return
    os.environ.update(limit_threads(1))  # inherited; a process reads it when it imports its backend
    workers: dict[Connection, SpawnProcess] = {}
    made = len(runs) - len(missing)
    try:
        for _ in range(min(processes, len(missing))):
            workers.update([_started(missing)])
        while workers:
            ready = connection.wait(workers)
            for end in [end for end in workers if end in ready]:
                try:
                    label, words, problem = end.recv()
                except EOFError:
                    _check_end(workers.pop(end))
                    continue
                if problem:
                    raise VcdlError(f"{label}: {problem}")
                made += 1
                tell(f"{made}/{len(runs)} {label}: {words}")
    finally:
        for worker in workers.values():
            worker.kill()
            worker.join()
    busy = [run.label for run in missing if not run.is_done]
    if busy:
        raise VcdlError(
            f"another process is still making {'; '.join(busy)}: the same command adds them when it is done"
        )


def _started(runs: Sequence[PlannedRun]) -> tuple[Connection, SpawnProcess]:
    ours, theirs = _SPAWN.Pipe(duplex=False)
    worker = _SPAWN.Process(target=_work, args=(runs, theirs))
    worker.start()
    theirs.close()  # so that ours ends when the process does
    return ours, worker


def _check_end(worker: SpawnProcess) -> None:
    worker.join()
    if worker.exitcode:
        raise VcdlError(f"a process of the experiment died (exit code {worker.exitcode}): the same command continues")


def _work(runs: Sequence[PlannedRun], end: Connection) -> None:
    """Make the runs that nobody else makes, in a separate process; sends (label, result in words, problem)."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from vcdl.simulate.shard_trainer import ShardTrainers

    trainers = ShardTrainers()
    with suppress(KeyboardInterrupt):
        for run in runs:
            begun_s = time.monotonic()
            try:
                words = _make(run, trainers)
            except VcdlError as error:
                end.send((run.label, "", str(error)))
                return
            if words is not None:
                end.send((run.label, f"{words}, made in {time.monotonic() - begun_s:.0f} s", ""))


def _make(run: PlannedRun, trainers: "TrainerCache") -> str | None:
    """The result in words; None when another process has made the run, or is making it. Raises VcdlError."""
    from benchmarks.experiments.hostile_run import HostileRun
    from benchmarks.experiments.serial import OneTrainer
    from benchmarks.experiments.targets import leave_targets
    from benchmarks.experiments.training_here import TrainingHere
    from vcdl.journal.observer import RunObserver
    from vcdl.simulate.simulation import simulate

    job, fleet = run.simulated
    training = TrainingHere(run.folder, OneTrainer() if run.serial else trainers)
    try:
        report = simulate(run.folder, job, fleet, RunObserver(), training, HostileRun)
    except RunIsBusy:
        return None
    except RunFolderError:
        if is_finished(run.folder):
            return None
        raise
    if report is None:
        raise VcdlError(f"{run.folder.path} was asked to stop: the same command starts it over")
    if run.measures_targets:
        leave_targets(run.folder)
    for unread in (run.folder.shards, run.folder.path / POISONED_DATA):  # up to 30 MB
        shutil.rmtree(unread, ignore_errors=True)
    final = report.final_test or report.final_validation
    return f"{report.monitor.value(final):.4f}" if final else "not measured"


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
