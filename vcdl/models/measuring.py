"""Define how a model is measured: its metrics, and the shape of labels that they expect."""

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
"""Samples in one batch of a measurement: enough to keep a processor busy, and few enough that the activations of a
large model fit into its memory."""


def measuring(training: Training, data: "DataSettings") -> Training:
    """Return the settings for measuring a model: the job's metrics, plus the accuracy for tasks that have classes.

    Settings that concern only training are reset.

    Args:
        training: The job's settings.
        data: The job's section `data`, which names the task of each output.
    """
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
    """Return labels in the shape in which metrics compare them with outputs.

    Labels of shape (n,) become (n, 1) for an output of one number. Labels that are read from a file in parts, such as
    those of an autoencoder, are returned unchanged.
    """
    if not isinstance(y, np.ndarray):
        return y
    ends = output_tensors(model)

    return each(lambda name, labels: labels_to_compare(labels, ends[name] if name else model.outputs[0]), y)


def labels_to_compare(labels: Array, end: Any) -> Array:
    """Return the labels for one symbolic output: shape (n, 1) instead of (n,) if the output has one number."""
    return labels.reshape(-1, 1) if labels.ndim == 1 and tuple(end.shape[1:]) == (1,) else labels


def outputs_of(model: Any, x: Sliced) -> Iterator[Array]:
    """Yield a model's outputs for samples, BATCH_SIZE at a time, without compiling it: it is called only once."""
    import keras

    for begin in range(0, len(x), BATCH_SIZE):
        yield keras.ops.convert_to_numpy(model(as_keras_takes(x[begin : begin + BATCH_SIZE]), training=False))
