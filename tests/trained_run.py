"""A prepared run for strangers with a real model, and uploads as honest and other clients would bring them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.uploads import header_of
from vcdl.client.batches import steps_of
from vcdl.client.trainer import Trainer
from vcdl.data.npz_file import read_split
from vcdl.job import Job, save_job
from vcdl.journal.observer import RunObserver
from vcdl.loop.preparation import prepare
from vcdl.run.folder import RunFolder
from vcdl.run.run import Run
from vcdl.wire.layout import Vector
from vcdl.wire.normalise import normalise
from vcdl.wire.weights import read_weights, write_weights

SHARDS = 12
NORMALISED = "benchmarks.experiments.problem_models:normalised_cnn"
"""A model with batch normalisation."""


@dataclass
class TrainedRun:
    """One run, and a trainer of its model."""

    run: Run
    trainer: Trainer

    @classmethod
    def new(
        cls, path: Path, trust: str = "strangers", metrics: Sequence[str] = ("accuracy",), normalised: bool = False
    ) -> "TrainedRun":
        folder = RunFolder(path)
        folder.create()
        job = Job.model_validate(
            {
                "name": "trained",
                "model": {"python": NORMALISED} if normalised else {"builtin": {"name": "mlp", "units": [4]}},
                "data": {"dataset": "digits", "shards": SHARDS},
                "training": {"batch_size": 16, "learning_rate": 0.01, "metrics": list(metrics)},
                "trust": {"kind": trust, "verify": 0.25},
            }
        )
        save_job(job, folder.job_file)
        run = prepare(folder, job, RunObserver())
        return cls(run, Trainer(folder.read_model_json(), run.training))

    @staticmethod
    def workunit(shard: int, epoch: int = 1, attempt: int = 0) -> str:
        return f"trained_e{epoch:04d}_s{shard:03d}_a{attempt}_v000000"

    @property
    def base(self) -> Vector:
        return read_weights(self.run.folder.snapshot(0), self.run.layout.size)[0]

    def trained(self, shard: int) -> Vector:
        """What an honest client makes of the base."""
        x, y = read_split(self.run.folder.shard(shard))
        x = normalise(x, self.run.prepared.normalisation)
        self.trainer.begin(self.base, shard, self.run.training.learning_rate, steps_of(len(x), 16))
        self.trainer.steps(x, y, np.arange(len(x)), 16)
        return self.trainer.finish()

    def upload(self, path: Path, workunit: str, weights: Vector) -> Path:
        """The file of an upload."""
        write_weights(path, weights, header_of(workunit, self.run.layout.fingerprint).to_json())
        return path
