"""The loss of weights on a few samples, and the weights a part of the way towards an upload."""

from pathlib import Path
from typing import Any, Self

import numpy as np

from vcdl.checks.upload_reader import opened_upload
from vcdl.codecs.base import CHUNK
from vcdl.codecs.choose import up_encoding
from vcdl.data.samples import Samples
from vcdl.journal.events import LOSS
from vcdl.models.batch_statistics import BatchStatistics
from vcdl.models.meter import Meter, meter_of
from vcdl.run.run import Run
from vcdl.wire.weights import Vector


class LossMeter:
    """Measures losses with one compiled model.

    Where the server computes the statistics of batch normalisation itself, they are those of the samples: as in
    training, only the trained weights count. By a client's own statistics its loss could change without training.
    """

    def __init__(self, run: Run, model: Any, meter: Meter) -> None:
        """`model`: the run's, compiled; its weights are changed. `meter`: of this model."""
        self._meter = meter
        self._layout = run.layout
        self._statistics = BatchStatistics(model) if run.prepared.statistics_samples else None
        self._up = up_encoding(run.transport, run.layout)

    @classmethod
    def of(cls, run: Run) -> Self:
        """A meter with a model of its own. Imports Keras; raises ModelError, JobError."""
        from vcdl.client.compile import compile_model

        model = run.load_model()
        compile_model(model, run.training.without_metrics())
        return cls(run, model, meter_of(model))

    def loss(self, vector: Vector, samples: Samples) -> float:
        """The mean loss of weights of shape (n,), by which clients train; NaN or infinite when it is."""
        self._meter.set(vector[: self._layout.model.size])
        x, y, weights = samples
        if self._statistics is not None:
            self._statistics.take(x)
        return float(self._meter.measure(x, y, weights, batch_size=len(x))[LOSS])

    def towards(self, upload: Path, base: Path, part: float) -> Vector:
        """B + part·(C − B), shape (n,): `base` is the snapshot of B, `upload` brings C. Raises Refused,
        FileUnavailable.
        """
        towards = np.empty(self._layout.size, np.float32)
        with opened_upload(upload, self._up, base) as opened, np.errstate(over="ignore", invalid="ignore"):
            for begin in range(0, towards.size, CHUNK):
                block = towards[begin : begin + CHUNK]
                started = opened.read(begin, block)
                if started is not None and part != 1.0:
                    block -= started
                    block *= np.float32(part)
                    block += started
        return towards
