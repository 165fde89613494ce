"""How a model is measured with a job's metrics: what it is compiled with, and the labels as they are compared."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from vcdl.client.metrics import metric_names
from vcdl.data.dataset import Array
from vcdl.journal.events import ACCURACY
from vcdl.wire.inputs import as_keras_takes
from vcdl.wire.task import HAS_CLASSES, Task
from vcdl.wire.workunit import Named, Normalisation, Training

BATCH_SIZE = 256
"""Samples that are measured at a time."""


def measuring(training: Training, task: Task) -> Training:
    """The settings by which a model is only measured: the job's metrics, and the accuracy of every classification."""
    metrics = training.metrics
    if task in HAS_CLASSES and ACCURACY not in metric_names(metrics):
        metrics = (Named(ACCURACY), *metrics)
    return replace(
        training,
        batch_size=1,
        local_epochs=1,
        metrics=metrics,
        normalisation=Normalisation(),
        share_optimizer_state="none",
    )


def as_compared(y: Array, model: Any) -> Array:
    """Labels as metrics compare them with outputs: (n, 1) for a model that ends in one number, which some insist on."""
    is_one = len(model.outputs) == 1 and tuple(model.outputs[0].shape[1:]) == (1,)
    return y.reshape(-1, 1) if y.ndim == 1 and is_one else y


def outputs_of(model: Any, x: Array) -> Iterator[Array]:
    """What a model gives for samples, of BATCH_SIZE at a time. Without compiling, as it is done once."""
    import keras

    for begin in range(0, len(x), BATCH_SIZE):
        yield keras.ops.convert_to_numpy(model(as_keras_takes(x[begin : begin + BATCH_SIZE]), training=False))
