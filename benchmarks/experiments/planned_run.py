"""The runs that an experiment needs, with their folders."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.experiments.experiment import Experiment, Variant
from benchmarks.experiments.hostile_fleet import HostileFleet, load_fleet
from benchmarks.experiments.serial import alone, serial_job
from vcdl.errors import RunFolderError
from vcdl.job import Job, load_frozen_job, load_job
from vcdl.report.wording import plural
from vcdl.run.folder import RunFolder
from vcdl.run.frozen_job import without_password
from vcdl.run.kind import SIMULATED
from vcdl.run.reading import is_finished

_TO_ITS_LENGTH = ("stop.target_accuracy=null", "stop.patience=null", "stop.wall_time_s=null")
"""Settings that remove all other ends of a run."""
_OF_THE_CONTROL = ("data.", "model.")
"""Sections that the serial control takes from the user's settings, because all variants train one problem."""
PROBLEMS_FOLDER = "problems"
"""Folder beside the runs for the data and job files of an experiment's own problems."""


@dataclass(frozen=True)
class PlannedRun:
    """A variant at one length, from one seed."""

    variant: str
    epochs: int
    seed: int
    """Seed of the job and the fleet."""
    job: Job
    fleet: HostileFleet
    serial: bool
    folder: RunFolder
    measures_targets: bool = False

    @property
    def label(self) -> str:
        return f"{self.variant}, {plural(self.epochs, 'epoch')}, seed {self.seed}"

    @property
    def simulated(self) -> tuple[Job, HostileFleet]:
        """The job and the clients that the run's folder gets."""
        if self.serial:
            return serial_job(self.job), alone(self.fleet)
        return self.job.trusting(SIMULATED.trust), self.fleet

    @property
    def is_done(self) -> bool:
        """Whether the run has been made.

        Raises RunFolderError when its folder holds another run, whose figures must not count.
        """
        if not is_finished(self.folder):
            return False
        job, fleet = self.simulated
        path = self.folder.path
        if (
            load_frozen_job(self.folder.job_file) != without_password(job)[0]
            or load_fleet(RunFolder(path).clients_file) != fleet
        ):
            raise RunFolderError(f"{path} holds a run with other settings: remove it, or choose another --out")
        return True


def planned_runs(
    experiment: Experiment,
    job_file: Path,
    out: Path,
    seeds: Sequence[int],
    epochs: Sequence[int] = (),
    overrides: Sequence[str] = (),
) -> tuple[PlannedRun, ...]:
    """All runs of an experiment, seed by seed, so that early results can be compared; long ones first.

    Args:
        experiment: The variants, and their lengths.
        job_file: The job of variants without a problem of their own.
        out: Folder of the runs.
        seeds: Seeds of job and fleet.
        epochs: Lengths instead of the experiment's and its variants'.
        overrides: Settings that win over a variant's; the serial control takes those of data and model alone.

    Raises:
        JobError, RunFolderError: A job or a folder cannot be read.
    """
    of_variant = {variant: epochs or variant.epochs or experiment.epochs for variant in experiment.variants}
    lengths = sorted({length for some in of_variant.values() for length in some}, reverse=True)
    return tuple(
        _planned(
            experiment=experiment,
            variant=variant,
            job_file=job_file,
            out=out,
            seed=seed,
            epochs=length,
            overrides=overrides,
        )
        for seed in seeds
        for length in lengths
        for variant in experiment.variants
        if length in of_variant[variant]
    )


def _planned(
    experiment: Experiment,
    variant: Variant,
    job_file: Path,
    out: Path,
    seed: int,
    epochs: int,
    overrides: Sequence[str],
) -> PlannedRun:
    if variant.problem is not None:
        job_file = variant.problem.write(out / PROBLEMS_FOLDER)
    fleet = load_fleet(None, [*experiment.fleet, *variant.fleet, f"seed={seed}"])
    if variant.serial:  # the control keeps its tuned settings, whatever is compared with it
        overrides = [setting for setting in overrides if setting.startswith(_OF_THE_CONTROL)]
    settings = [*_TO_ITS_LENGTH, *variant.job, *overrides, f"seed={seed}", f"stop.epochs={epochs}"]
    job = load_job(job_file, settings, fleet.all_slots)
    folder = RunFolder((out / f"{folder_name(variant.name)}-e{epochs:02d}-s{seed}").resolve())
    return PlannedRun(
        variant=variant.name,
        epochs=epochs,
        seed=seed,
        job=job,
        fleet=fleet,
        serial=variant.serial,
        folder=folder,
        measures_targets=variant.measures_targets,
    )


def folder_name(variant: str) -> str:
    """A variant's name in the form for folders."""
    return re.sub(r"[^a-z0-9.]+", "-", variant.lower().replace("α", "alpha")).strip("-")
