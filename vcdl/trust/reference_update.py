"""The reference update: the result of training as a client does, but on the held-out data.

Uploads that point in other directions can be refused (the server's validation update of Zeno++, Xie et al. 2020). The
evaluator has the model and the data, so it makes the update and writes it to one file of the run's folder. Parameter
servers read the newest one, and wait only for the first.
"""

import numpy as np

from vcdl.client.batches import steps_of
from vcdl.data.samples import Samples
from vcdl.errors import folder_errors
from vcdl.journal.history import JobHistory
from vcdl.run.run import Run
from vcdl.wire.layout import Vector
from vcdl.wire.params import ParamsHeader, write_params


class ReferenceUpdate:
    """Trains the reference updates of one run, and writes each to the run's folder.

    It trains as a client does: the same optimizer, batch size and learning rate, on as many samples as a shard has. A
    few plain gradient steps would not suffice: late in training, and with a client's high learning rate, their
    direction has hardly anything in common with that of honest clients.
    """

    def __init__(self, run: Run, history: JobHistory, held_out: Samples) -> None:
        """Prepare the training of reference updates.

        Args:
            run: The run.
            history: The job's history; the caller keeps it up to date.
            held_out: The samples to draw from.
        """
        from vcdl.client.trainer import Trainer

        job = run.job
        most = max(run.prepared.shard_samples)
        self._folder = run.folder
        self._job = job
        self._training = run.training
        self._rate = run.subtask_rate
        self._history = history
        # Use the same samples each time, so that two reference updates differ only in their start.
        some = np.random.default_rng([job.seed, len(held_out.x)]).permutation(len(held_out.x))[:most]
        self._data = held_out.take(some).load()
        self._trainer = Trainer(run.folder.read_model_json(), self._training, run.frozen_weights())

    def leave(self, version: int, vector: Vector) -> None:
        """Train from a version of the weights, and replace the run's reference update by the resulting step.

        The training is one pass over the samples, at the learning rate of a workunit that is created now.

        Args:
            version: The version.
            vector: Its weights, shape (n,).

        Raises:
            RunFolderError: The file cannot be written.
        """
        context = self._history.creation_context()
        job, trainer, (x, y, weights) = self._job, self._trainer, self._data
        # Retries after a rollback make more versions than there are subtasks, for which the schedule has no rate.
        place = min(version, job.subtasks - 1)
        part = self._rate.at(place, job.subtasks, context.active_clients, context.open)
        batch_size = self._training.batch_size
        trainer.begin(vector, job.seed, part * job.training.peak_rate, steps_of(len(x), batch_size))
        trainer.steps(x, y, np.arange(len(x)), batch_size, weights)
        header = ParamsHeader(job.name, version, trainer.layout.fingerprint)
        with folder_errors(self._folder.path):
            write_params(self._folder.reference_update_file, trainer.finish() - vector, header)
