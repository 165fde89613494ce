"""Runs of an experiment and their figures, as they are but for what a test says."""

from pathlib import Path
from typing import Any

from benchmarks.experiments.hostile_fleet import HostileFleet
from benchmarks.experiments.measured import RunFigures
from benchmarks.experiments.planned_run import PlannedRun
from tests.places import EXAMPLES
from vcdl.job import load_job
from vcdl.run.folder import RunFolder

JOB = load_job(EXAMPLES / "digits.yaml")


def planned(variant: str, seed: int = 1, epochs: int = 1, **said: Any) -> PlannedRun:
    usual = {"job": JOB, "fleet": HostileFleet(), "serial": False, "folder": RunFolder(Path("/nowhere"))}
    return PlannedRun(variant=variant, epochs=epochs, seed=seed, **{**usual, **said})


def figures(run: PlannedRun, **said: Any) -> RunFigures:
    """The figures of a run that came to its end, from which nothing was refused."""
    usual = {"points": (), "stop_reason": "epochs", "is_regression": False, "is_given_up": False, "failed": 0,
             "refused": 0, "staleness_mean": 1.0, "bytes_down": 2048.0, "bytes_up": 1024.0}  # fmt: skip
    return RunFigures(run=run, **{**usual, **said})
