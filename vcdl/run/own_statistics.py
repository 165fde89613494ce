"""The statistics of batch normalisation that the server computes itself, where clients are strangers.

Training normalises by the batch, so what clients bring of these statistics only counts where weights are used. There it
is put aside: evaluations, scores, spot checks and what leaves the run take the server's own. The shared weights keep
the clients' averages, which nobody reads any more.
"""

import logging
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vcdl.data.dataset import Array
from vcdl.data.npz_file import write_split
from vcdl.data.samples import read_samples
from vcdl.errors import DataError
from vcdl.job import Job
from vcdl.models.batch_statistics import BatchStatistics
from vcdl.run.folder import RunFolder
from vcdl.wire.weights import Layout

if TYPE_CHECKING:
    from vcdl.run.run import Run

_SAMPLES = 1024
"""With 512 other samples moved the accuracy by 0.3 points, with 1024 by 0.1, with 256 by 0.6."""
_log = logging.getLogger(__name__)


def leave_samples(folder: RunFolder, job: Job, layout: Layout, x_train: Array) -> int:
    """Write the samples that the statistics are taken from, and return how many; 0: the job's are averaged.

    Raises OSError.
    """
    if not job.is_for_strangers or not layout.model.statistics:
        return 0
    count = len(x_train)
    drawn = np.sort(np.random.default_rng([job.seed, count, _SAMPLES]).permutation(count)[:_SAMPLES])
    write_split(folder.statistics_file, x_train[drawn], None)
    return len(drawn)


class OwnStatistics:
    """Sets the statistics of one model to the server's own."""

    def __init__(self, model: Any, samples: Array) -> None:
        """`samples`: normalised, shape (n, …)."""
        self._statistics = BatchStatistics(model)
        self._samples = samples

    @classmethod
    def of(cls, run: "Run", model: Any) -> Self | None:
        """For a run's model; None where the run has the clients' averages. Raises DataError, FileUnavailable."""
        if not run.prepared.statistics_samples:
            return None
        return cls(model, read_samples(run.folder.statistics_file, run.prepared.normalisation).x)

    def set(self) -> None:
        """Set the statistics of the weights that the model has now, whatever stood there."""
        self._statistics.take(self._samples)


def set_own_statistics(run: "Run", model: Any) -> None:
    """Set the statistics of a run's model that leaves the run, or is measured outside of it; those of clients stay,
    with a warning, where the samples are gone. Raises FileUnavailable.
    """
    try:
        statistics = OwnStatistics.of(run, model)
    except DataError as error:
        _log.warning("%s: the statistics of batch normalisation are averages of its clients' (%s)", run.name, error)
        return
    if statistics is not None:
        statistics.set()
