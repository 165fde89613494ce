"""Define how a model is measured: the metrics with which it is compiled, and the labels as they are compared."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcdl.client.metrics import metric_names
from vcdl.client.model import output_tensors
from vcdl.data.rows import Array
from vcdl.data.samples import Sliced
from vcdl.wire.inputs import as_keras_takes, each
from vcdl.wire.task import ACCURACY, HAS_CLASSES, Task
from vcdl.wire.workunit import Named, Normalisation, Training

if TYPE_CHECKING:
    from vcdl.job.data import DataSettings

BATCH_SIZE = 256
"""Samples in one batch of a measurement."""


def measuring(training: Training, data: "DataSettings") -> Training:
    """Return the settings to measure a model with: the job's metrics, and the accuracy of every classification."""
    tasks = {output.name: output.task for output in data.outputs or ()}
    return replace(
        training,
        outputs=tuple(
            replace(output, metrics=_with_accuracy(output.metrics, tasks[output.name])) for output in training.outputs
        ),
        batch_size=1,
        local_epochs=1,
        metrics=_with_accuracy(training.metrics, data.task),
        normalisation=Normalisation(),
        share_optimizer_state="none",
    )


def _with_accuracy(metrics: tuple[Named, ...], task: Task) -> tuple[Named, ...]:
    return (Named(ACCURACY), *metrics) if task in HAS_CLASSES and ACCURACY not in metric_names(metrics) else metrics


def as_compared(y: Any, model: Any) -> Any:
    """Return labels as metrics compare them with outputs.

    Some metrics insist on (n, 1) for an output of one number. Labels that are read from a file in parts, such as those
    of an autoencoder, are returned unchanged.
    """
    if not isinstance(y, np.ndarray):
        return y
    ends = output_tensors(model)

    return each(lambda name, labels: labels_to_compare(labels, ends[name] if name else model.outputs[0]), y)


def labels_to_compare(labels: Array, end: Any) -> Array:
    """Return the labels of one symbolic output as metrics compare them."""
    return labels.reshape(-1, 1) if labels.ndim == 1 and tuple(end.shape[1:]) == (1,) else labels


def outputs_of(model: Any, x: Sliced) -> Iterator[Array]:
    """Yield a model's outputs for samples, BATCH_SIZE at a time. It runs once, so it is not compiled."""
    import keras

    for begin in range(0, len(x), BATCH_SIZE):
        yield keras.ops.convert_to_numpy(model(as_keras_takes(x[begin : begin + BATCH_SIZE]), training=False))
