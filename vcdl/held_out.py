"""The step of held-out data: where plain SGD would go from a version of the weights. Uploads that lead elsewhere can be refused.

It is made by the evaluator, as that has model and data, and left in one small file of the run's folder for whoever assimilates: always the
newest one, whole, and never waited for once there is one.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.job import Job
from vcdl.rules import MeasuringRule
from vcdl.rules.of_job import rule_of
from vcdl.run_folder import RunFolder, folder_error
from vcdl.weights import ParamsHeader, Vector, write_weights
from vcdl.workunit import Named, Training

_RATE = 0.01
"""Small: with few steps, what counts is their direction."""
_BATCH_SIZE = 256


class HeldOutStep:
    """Makes it for one job."""

    def __init__(
        self, folder: RunFolder, job: Job, training: Training, x: npt.NDArray[np.float32], y: npt.NDArray[Any]
    ) -> None:
        """`x`, `y`: held-out samples, normalised."""
        from vcdl.client.trainer import Trainer

        self._folder = folder
        self._job = job
        self._data = x, y
        self._trainer = Trainer(folder.model_file.read_text(), replace(training, optimizer=Named("sgd")))

    @staticmethod
    def is_asked_for(job: Job) -> bool:
        """Whether the job's rule compares uploads with it."""
        rule = rule_of(job)
        return isinstance(rule, MeasuringRule) and rule.asks_held_out

    def leave(self, version: int, vector: Vector) -> None:
        """Make it for a version of the weights, of shape (n,), one pass over the samples. Raises RunFolderError."""
        trainer, (x, y) = self._trainer, self._data
        trainer.begin(vector, self._job.seed, _RATE)
        for begin in range(0, len(x), _BATCH_SIZE):
            trainer.step(x[begin : begin + _BATCH_SIZE], y[begin : begin + _BATCH_SIZE])
        header = ParamsHeader(self._job.name, version, trainer.layout.fingerprint).to_json()
        try:
            write_weights(self._folder.held_out_file, trainer.finish() - vector, header)
        except OSError as error:
            raise folder_error(self._folder.path, error) from error
