"""A simulated run from its settings to its results: what `vcdl simulate` does, and what experiments do many times."""

import os
import shutil

from vcdl.client.threads import limit_threads
from vcdl.client.trainer import TrainerCache
from vcdl.errors import RunFolderError
from vcdl.job import Job, save_job
from vcdl.report.measures import Report
from vcdl.report.onlooker import Onlooker
from vcdl.run.finding import RUNS, holds_anything, is_finished
from vcdl.run.folder import RunFolder, RunLock
from vcdl.run.results import leave_results
from vcdl.simulate.fleet import FLEET_FILE, Fleet, is_simulated, save_fleet
from vcdl.simulate.here import TrainingHere
from vcdl.simulate.serial import OneTrainer, serial_job
from vcdl.simulate.training import PooledTraining, Training
from vcdl.simulate.virtual_run import VirtualRun

_KEPT = frozenset({"data", "run.lock", FLEET_FILE})
"""When a run is begun anew: cutting the data comes to the same again, the lock is ours, and the fleet is written over."""
_NAMES = 10_000


def simulate(
    folder: RunFolder,
    job: Job,
    fleet: Fleet,
    onlooker: Onlooker,
    *,
    serial: bool = False,
    trainers: TrainerCache | None = None,
) -> Report | None:
    """Run a job on a simulated fleet, or serially, and leave its results in a folder; None: it was asked to stop.

    `trainers`: train in this process, with these, which may serve run after run; None: in worker processes. An unfinished simulated run in the folder is begun anew. Raises VcdlError; RunFolderError when the folder holds anything else.
    """
    os.environ.update(limit_threads(1))  # with several, sums are formed in an order that differs from run to run
    job, fleet = as_simulated(job, fleet, serial)
    _check_room(folder)
    folder.make()
    with RunLock(folder):
        _make_room(folder)
        save_fleet(fleet, folder)  # first: by it the folder is known as a simulation's, whenever this is killed
        folder.create()
        save_job(job, folder.job_file)
        if VirtualRun(folder, fleet, _training(folder, job, serial, trainers), onlooker).run() is None:
            return None
        return leave_results(folder, job.name, onlooker)


def as_simulated(job: Job, fleet: Fleet, serial: bool) -> tuple[Job, Fleet]:
    """Job and fleet as a run's folder has them."""
    return (serial_job(job), fleet.alone()) if serial else (job, fleet)


def default_folder(name: str) -> RunFolder:
    """runs/NAME, or runs/NAME-2, … when finished runs, or others than simulated ones, are there. Raises RunFolderError."""
    for number in range(1, _NAMES + 1):
        folder = RunFolder((RUNS / (name if number == 1 else f"{name}-{number}")).resolve())
        if _may_begin_in(folder) and folder.running_pid is None:
            return folder
    raise RunFolderError(f"no name is free for {name} below {RUNS}/: choose a folder with --out")


def _may_begin_in(folder: RunFolder) -> bool:
    return not holds_anything(folder.path) or (is_simulated(folder) and not is_finished(folder))


def _check_room(folder: RunFolder) -> None:
    if not _may_begin_in(folder):
        raise RunFolderError(f"{folder.path} is not empty: choose another folder with --out")


def _make_room(folder: RunFolder) -> None:
    """Remove what a simulated run has left that did not come to its end; another one may have ended since we looked."""
    if is_finished(folder):
        raise RunFolderError(f"{folder.path} holds a finished run: choose another folder with --out")
    for entry in folder.path.iterdir():
        if entry.name not in _KEPT:
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def _training(folder: RunFolder, job: Job, serial: bool, trainers: TrainerCache | None) -> Training:
    if serial:
        return TrainingHere(folder, OneTrainer())
    return PooledTraining(folder, _workers(job)) if trainers is None else TrainingHere(folder, trainers)


def _workers(job: Job) -> int:
    return len(os.sched_getaffinity(0)) if job.grid.workers == "auto" else job.grid.workers
