"""The step of held-out data: what a client would learn from them, beginning with a version of the weights. Uploads that lead elsewhere can
be refused.

It is made by the evaluator, as that has model and data, and left in one file of the run's folder for whoever assimilates: always the newest
one, whole, and waited for only until there is a first one.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.coordinator import Coordinator
from vcdl.errors import folder_error
from vcdl.events import Recorded
from vcdl.job import Job
from vcdl.plan import Plan
from vcdl.rules import MeasuringRule
from vcdl.rules.of_job import rule_of
from vcdl.run.folder import RunFolder
from vcdl.run.prepared import Prepared
from vcdl.weights import ParamsHeader, Vector, write_weights


class HeldOutStep:
    """Makes it for one job, with the clients' own optimizer, batch size and learning rate, on as many samples as a shard has.

    A few plain gradient steps would not do: late in training, and with a client's high learning rate, they have hardly anything in common
    with what honest clients learn.
    """

    def __init__(
        self, folder: RunFolder, job: Job, prepared: Prepared, x: npt.NDArray[np.float32], y: npt.NDArray[Any]
    ) -> None:
        """`x`, `y`: held-out samples, normalised."""
        from vcdl.client.trainer import Trainer

        most = max(prepared.shard_samples)
        self._folder = folder
        self._job = job
        self._training = prepared.training(job)
        self._scaling = job.training.rate_scaling(prepared.shard_samples, job.stop.epochs)
        self._coordinator = Coordinator(Plan.of(job, prepared.has_test, prepared.shard_samples))
        """Tells how many clients are at work."""
        some = np.random.default_rng([job.seed, len(x)]).permutation(len(x))[:most]
        self._data = x[some], y[some]
        self._trainer = Trainer(folder.model_file.read_text(), self._training)

    @staticmethod
    def is_asked_for(job: Job) -> bool:
        """Whether the job's rule compares uploads with it."""
        rule = rule_of(job)
        return isinstance(rule, MeasuringRule) and rule.asks_held_out

    def follow(self, recorded: Recorded) -> None:
        """Take in an event of the job, each once and in order."""
        self._coordinator.fold(recorded)

    def leave(self, version: int, vector: Vector) -> None:
        """Make it for a version of the weights, of shape (n,), by one pass over the samples, with the rate of a workunit that is made now.

        Raises RunFolderError.
        """
        making = self._coordinator.making()
        job, trainer, (x, y) = self._job, self._trainer, self._data
        part = job.training.rate_course.at(min(version, job.subtasks - 1), job.subtasks)
        part *= self._scaling.at(making.company, making.open)
        trainer.begin(vector, job.seed, part * self._training.learning_rate)
        for begin in range(0, len(x), self._training.batch_size):
            batch = slice(begin, begin + self._training.batch_size)
            trainer.step(x[batch], y[batch])
        header = ParamsHeader(job.name, version, trainer.layout.fingerprint).to_json()
        try:
            write_weights(self._folder.held_out_file, trainer.finish() - vector, header)
        except OSError as error:
            raise folder_error(self._folder.path, error) from error
